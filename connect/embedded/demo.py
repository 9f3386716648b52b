"""``icefloe demo``: produces payments, writes them to tables and verifies the tables.

Rules of this file:
- The verdict uses only the tables; the node's metrics are only displayed during the run.
- A second run on the same folder adds payments and verifies the payments of all runs.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from connect.clock import SystemClock
from connect.embedded import payments
from connect.embedded.stack import Stack, stop_signals, watch
from connect.embedded.verify import Verdict, committed_records, newest_valid_through, verify
from connect.errors import ExitStatus, IcefloeError, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.public_trust import public_trust
from connect.model.layout import TopicPartition

CONNECTOR_FILE = "payments-fanout.json"
PARTITIONS = 4
STALL_TIMEOUT_MS = 300_000  # the longest period without progress is Spark's first start
POLL_INTERVAL_S = 0.5
REQUEST_TIMEOUT_S = 30
LEADER_TRIES = 50
LEADER_PAUSE_MS = 100
TABLES: Mapping[str, str] = {
    "payment": "bank.payments",
    "refund": "bank.refunds",
    "chargeback": "bank.chargebacks",
}
_METRICS = {
    "icefloe_records_read": "read",
    "icefloe_records_written": "written",
}


class Interrupted(Exception):  # noqa: N818 - not an error
    """The user asked to stop."""


@dataclass(slots=True)
class DemoMeasurements:
    """Figures displayed during the demo: counts of records, and records per second."""

    produced: int = 0
    read: int = 0
    written: int = 0
    committed: int = 0
    expected: int = 0
    rate: float = 0
    valid_through: str | None = None
    state: str = "starting"

    @property
    def is_running(self) -> bool:
        """Return whether the connector and all its tasks are RUNNING."""
        states = set(self.state.split())
        return states == {"RUNNING"} and self.state != "RUNNING"

    @property
    def lag(self) -> int:
        """Records produced and not yet read."""
        return max(self.produced - max(self.read, self.committed), 0)

    def table(self) -> Table:
        """Return the figures as a table for the terminal."""
        displayed = Table.grid(padding=(0, 2))
        rows = [
            ("produced", f"{self.produced:,}"),
            ("read", f"{self.read:,}"),
            ("written", f"{self.written:,}"),
            ("committed", f"{self.committed:,} of {self.expected:,}"),
            ("lag", f"{self.lag:,}"),
            ("valid through", self.valid_through or "-"),
            ("rate", f"{self.rate:,.0f} records/s"),
            ("connector", self.state),
        ]
        for label, value in rows:
            displayed.add_row(f"[dim]{label}[/dim]", value)
        return displayed

    def line(self) -> str:
        """Return the figures as one line, for logs."""
        return (
            f"produced {self.produced:,}  read {self.read:,}  written {self.written:,}  "
            f"committed {self.committed:,}/{self.expected:,}  lag {self.lag:,}  "
            f"valid through {self.valid_through or '-'}  {self.rate:,.0f}/s  {self.state}"
        )


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations of a demo.

    Attributes:
        starting_ms: from its start until the task runs.
        moving_ms: from then until the last row is committed.
        all_ms: of the whole demo.
    """

    starting_ms: int
    moving_ms: int
    all_ms: int


def demo_connector() -> dict[str, Any]:
    """Return the example connector; ``examples/`` in the repository links to it."""
    content: dict[str, Any] = json.loads(
        Path(__file__).with_name(CONNECTOR_FILE).read_text("utf-8")
    )
    return content


def run_demo(
    *,
    records: int = 1_000_000,
    keep: bool = False,
    state_dir: Path | None = None,
    broker_port: int = 0,
    rest_port: int = 0,
    console: Console | None = None,
) -> int:
    """Run the demo; return 0 if every record is in its table exactly once, else another status.

    Args:
        records: how many payments to produce.
        keep: whether the stack keeps running afterwards, until SIGINT or SIGTERM.
        state_dir: folder of all data; if None, a temporary folder that is removed on success.
        broker_port: of the Kafka listener; 0 selects a free port.
        rest_port: of the REST API; 0 selects a free port.
        console: for the output.
    """
    console = console or Console()
    folder = state_dir or Path(tempfile.mkdtemp(prefix="icefloe-demo-"))
    status = int(ExitStatus.NOT_ASKED)  # until the demo has a result
    with stop_signals() as stopping:
        stack = Stack(folder, broker_port=broker_port, rest_port=rest_port, stopping=stopping)
        try:
            status = Demo(stack, records, console, stopping).run()
            if keep and status == 0:
                console.print(f"kafka {stack.bootstrap_servers}  rest {stack.rest_url}")
                console.print("still running; stop with Ctrl-C")
                watch(stack, stopping)
        except Interrupted:
            console.print("interrupted")
        except IcefloeError as error:
            console.print(f"{error.code}: {error}", style="red", markup=False, soft_wrap=True)
            status = error.exit_status
        finally:
            stack.stop()
    if status == 0 and state_dir is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"state and logs: {folder}")
    return status


class Demo:
    """One run on a stack.

    Args:
        stack: must not be started.
        records: how many payments to produce.
        console: for the output.
        stopping: set when the user asks to stop.
        clock: for durations.
    """

    def __init__(
        self,
        stack: Stack,
        records: int,
        console: Console,
        stopping: threading.Event,
        *,
        clock: SystemClock | None = None,
    ) -> None:
        self._stack = stack
        self._records = records
        self._console = console
        self._stopping = stopping
        self._clock = clock or SystemClock()
        self._connector = demo_connector()
        self._topic = str(self._connector["config"]["topics"])
        self._measurements = DemoMeasurements()

    def run(self) -> int:
        """Run the demo and print the result; return the exit status."""
        started_ms = self._clock.monotonic_ms()
        with self._console.status("starting broker and node"):
            self._stack.start_broker()
            admin = KafkaAdmin({"bootstrap.servers": self._stack.bootstrap_servers})
            catalog = open_catalog("demo", self._stack.catalog_properties)
            catalog.exists(("bank", "payments"))  # creates the catalog's own tables
            admin.ensure_topic(self._topic, PARTITIONS, {})
            ranges = payments.ranges(self._records, self._first_ends(admin))
            self._stack.start_node()
        with ThreadPoolExecutor(1, "payments") as pool:
            producing = pool.submit(
                payments.produce,
                {"bootstrap.servers": self._stack.bootstrap_servers},
                self._topic,
                ranges,
                clock=self._clock,
            )
            with self._console.status(f"producing {self._records:,} payments while Spark starts"):
                self._stack.wait_for_node()
                if self._stopping.is_set():
                    raise Interrupted
                before = committed_records(catalog, list(TABLES.values()))
                self._create_connector()
            expected = [part.end for part in ranges]
            running_ms = self._follow(admin, catalog, producing, expected, before)
            done_ms = self._clock.monotonic_ms()
            producing.result()
        with self._console.status("verifying the tables"):
            verdict = verify(catalog, TABLES, expected)
        admin.close()
        all_ms = self._clock.monotonic_ms() - started_ms
        durations = Durations(running_ms - started_ms, done_ms - running_ms, all_ms)
        self._print_result(verdict, durations, sum(expected) - before)
        return 0 if verdict.is_good else 1

    def _ends(self, admin: KafkaAdmin) -> list[int]:
        """Return the log end offset of each partition of the topic."""
        partitions = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
        marks = admin.watermarks(partitions)
        return [marks[partition][1] for partition in partitions]

    def _first_ends(self, admin: KafkaAdmin) -> list[int]:
        """Return ``_ends`` of a topic that may be new: its partitions may not have a leader yet."""
        for _ in range(LEADER_TRIES):
            with contextlib.suppress(RetriableError):
                return self._ends(admin)
            self._clock.sleep_ms(LEADER_PAUSE_MS)
        return self._ends(admin)

    def _create_connector(self) -> None:
        """Create or update the connector through the REST API."""
        name = self._connector["name"]
        answer = httpx.put(
            f"{self._stack.rest_url}/connectors/{name}/config",
            json=self._connector["config"],
            timeout=REQUEST_TIMEOUT_S,
            verify=public_trust(),
        )
        if answer.is_error:
            raise RetriableError(
                f"the connector was not created: {answer.status_code} {answer.text}",
                code="connector_refused",
            )

    def _follow(
        self,
        admin: KafkaAdmin,
        catalog: CatalogGateway,
        producing: Future[None],
        expected: Sequence[int],
        before: int,
    ) -> int:
        """Display the figures until the tables contain as many rows as there are records.

        Returns:
            When the task was first running: monotonic clock, milliseconds.
        """
        measurements = self._measurements
        measurements.expected = sum(expected)
        running_ms: int | None = None
        moved_ms = self._clock.monotonic_ms()
        is_live = self._console.is_terminal
        with Live(measurements.table(), console=self._console, transient=True) as live:
            while measurements.committed < measurements.expected:
                if self._stopping.wait(POLL_INTERVAL_S):
                    raise Interrupted
                self._stack.check()
                if producing.done():
                    producing.result()  # raises the producer's error, if any
                was = (
                    measurements.produced,
                    measurements.read,
                    measurements.written,
                    measurements.committed,
                )
                self._inspect(admin, catalog)
                now_ms = self._clock.monotonic_ms()
                if running_ms is None and (
                    measurements.is_running or measurements.committed > before
                ):
                    running_ms = now_ms
                spent_ms = now_ms - (running_ms or now_ms)
                measurements.rate = (measurements.committed - before) * 1000 / max(spent_ms, 1)
                if was != (
                    measurements.produced,
                    measurements.read,
                    measurements.written,
                    measurements.committed,
                ):
                    moved_ms = now_ms
                    if not is_live:
                        self._console.print(measurements.line(), highlight=False, soft_wrap=True)
                if now_ms - moved_ms > STALL_TIMEOUT_MS:
                    raise RetriableError(
                        f"no progress for {STALL_TIMEOUT_MS // 1000} s; "
                        f"{measurements.line()}\n"
                        f"{self._stack.last_output()}",
                        code="stalled",
                    )
                live.update(measurements.table())
        return running_ms or moved_ms

    def _inspect(self, admin: KafkaAdmin, catalog: CatalogGateway) -> None:
        """Update the figures."""
        measurements = self._measurements
        tables = list(TABLES.values())
        measurements.produced = sum(self._ends(admin))
        measurements.committed = committed_records(catalog, tables)
        measurements.valid_through = newest_valid_through(catalog, tables)
        counted = self._metrics()
        measurements.read = counted.get("read", 0)
        measurements.written = counted.get("written", 0)
        measurements.state = self._state()

    def _metrics(self) -> dict[str, int]:
        """Return the displayed counters of the node; none if it does not answer."""
        try:
            answer = httpx.get(
                f"{self._stack.rest_url}/metrics",
                timeout=REQUEST_TIMEOUT_S,
                verify=public_trust(),
            )
        except httpx.TransportError:
            return {}
        if answer.is_error:
            return {}
        totals: dict[str, int] = {}
        for family in text_string_to_metric_families(answer.text):
            if name := _METRICS.get(family.name):
                samples = [s.value for s in family.samples if not s.name.endswith("_created")]
                totals[name] = int(sum(samples))
        return totals

    def _state(self) -> str:
        """Return the states of connector and tasks, with the first line of a trace."""
        name = self._connector["name"]
        try:
            answer = httpx.get(
                f"{self._stack.rest_url}/connectors/{name}/status",
                timeout=REQUEST_TIMEOUT_S,
                verify=public_trust(),
            )
        except httpx.TransportError:
            return "no answer"
        if answer.is_error:
            return f"status {answer.status_code}"
        status = answer.json()
        parts = [status["connector"], *status["tasks"]]
        states = [str(part["state"]) for part in parts]
        traces = [str(part["trace"]).partition("\n")[0] for part in parts if part.get("trace")]
        return " ".join([*states, *traces[:1]])

    def _print_result(self, verdict: Verdict, durations: Durations, moved: int) -> None:
        displayed = Table(title=f"{self._topic}, read with PyIceberg", box=box.SIMPLE_HEAD)
        displayed.add_column("table")
        for column in ("rows", "expected", "files", "snapshots"):
            displayed.add_column(column, justify="right")
        for t in verdict.tables:
            cells = (f"{n:,}" for n in (t.rows, t.rows_expected, t.files, t.snapshots))
            displayed.add_row(t.name, *cells)
        self._console.print(displayed)
        times = {t.valid_through for t in verdict.tables if t.valid_through}
        rate = moved * 1000 / max(durations.moving_ms, 1)
        lines = [
            f"valid through   {max(times, default='-')}",
            (
                f"records/s       {rate:,.0f}: {moved:,} in {durations.moving_ms / 1000:.1f} s "
                "from running task to last row readable"
            ),
            (
                f"seconds         {durations.all_ms / 1000:.1f} in total, "
                f"{durations.starting_ms / 1000:.1f} until the task was running"
            ),
        ]
        for line in lines:
            self._console.print(line, highlight=False, soft_wrap=True)
        self._console.print(
            f"missing {verdict.missing}  twice {verdict.twice}  misrouted {verdict.misrouted}  "
            f"unknown {verdict.unknown}",
            style="green" if verdict.is_good else "red",
            highlight=False,
        )

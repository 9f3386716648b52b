"""A whole stack with a connector of payments, and methods to kill its processes and check it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from connect.embedded.demo import demo_connector
from connect.embedded.stack import Stack
from connect.embedded.verify import committed_records
from connect.errors import RetriableError
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import Layout, TopicPartition
from tests.faults import checkers
from tests.faults.checkers import Log
from tests.faults.payments_producer import DEAD_LETTER, DROPPED, PaymentsProducer
from tests.faults.readback import join_logs, read_dead_letters, read_log, read_ranges, read_tables
from tests.support.processes import arguments, still_running
from tests.support.stored_layouts import read_layouts
from tests.support.topic_deletion import delete_topic

NAME = "payments"
TOPIC = "payments"
GROUP = f"connect-{NAME}"
PARTITIONS = 4
TABLES = ("bank.payments", "bank.refunds", "bank.chargebacks")  # in the order of payments.KINDS
CONTROL_TOPIC = "control-iceberg"
CONFIG_TOPIC = "icefloe-configs"
DEAD_LETTER_TOPIC = "payments-dead"
CANARY = "canary-5f1d27"  # an unused secret in the connector's configuration
WAIT_S = 240.0
NO_PROGRESS_S_MAX = 240.0
TAIL_BYTES = 6_000
# timestamps of the broker: no record is older than the records before it in the log
TOPIC_CONFIG = {"message.timestamp.type": "LogAppendTime"}
# the tests kill processes often: allow many restarts, with a short backoff
NODE = {"icefloe.task.restart.max": "1000", "icefloe.task.restart.backoff.max.ms": "2000"}
# each seed gives another order of faults, at other times
FIRST_SEED = int(os.environ.get("FAULT_FIRST_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("FAULT_SEEDS", "1")))
T = TypeVar("T")


def connector(**more: str) -> dict[str, str]:
    """Configuration of the demo connector: three tables by kind of payment, auto-created."""
    return {
        **demo_connector()["config"],
        "topics": TOPIC,
        "tasks.max": "2",
        "icefloe.tasks.per.worker": "2",
        "iceberg.control.commit.interval-ms": "1500",
        "iceberg.control.commit.timeout-ms": "10000",
        "iceberg.tables.unmatched": "drop",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": DEAD_LETTER_TOPIC,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "iceberg.catalog.s3.secret-access-key": CANARY,
        **more,
    }


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill of a process.

    Attributes:
        victim: ``worker``, ``coordinator``, ``node`` or ``broker``.
        at_s: monotonic clock.
        sent: records the producer had sent.
        committed: records the tables held.
        children: processes that the victim had started; they must end soon after it.
    """

    victim: str
    at_s: float
    sent: int
    committed: int
    children: tuple[psutil.Process, ...]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Findings of the checkers and counts of what they checked."""

    findings: tuple[str, ...]
    records: int
    dead_letters: int
    dropped: int
    snapshots: int
    files: int

    def __str__(self) -> str:
        return (
            f"{self.records:,} records in {self.files:,} files and {self.snapshots:,} snapshots, "
            f"{self.dead_letters} dead letters, "
            f"{self.dropped} dropped, {len(self.findings)} findings"
        )


class PaymentsStack:
    """A running stack with the connector of payments.

    Args:
        stack: not yet started. The thread that creates this object starts its processes and must
            outlive them.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.kills: list[Kill] = []
        self.topics = [TOPIC]
        self._retired: list[Log] = []

    def start(self, config: Mapping[str, str]) -> None:
        """Start broker and node; create topic and connector."""
        self.stack.start_broker()
        self._catalog = open_catalog("demo", self.stack.catalog_properties)
        self._catalog.exists(("bank", "payments"))  # makes the catalog's own tables
        self.admin = KafkaAdmin({"bootstrap.servers": self.stack.bootstrap_servers})
        self.admin.ensure_topic(TOPIC, PARTITIONS, TOPIC_CONFIG)
        self.stack.start_node()
        self.stack.wait_for_node()
        self.put(config)

    def put(self, config: Mapping[str, str]) -> None:
        """Create the connector, or change its configuration."""
        answer = httpx.put(self._url("config"), json=dict(config), timeout=60)
        answer.raise_for_status()

    def producer(self, records_per_s: int) -> PaymentsProducer:
        """Return a producer of payments into the first topic."""
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return PaymentsProducer(self.stack.bootstrap_servers, partitions, records_per_s)

    def retire(self, topic: str) -> None:
        """Delete a topic that was read to its end; the check still expects its records."""
        self._retired.append(read_log(self.stack.bootstrap_servers, [topic])[0])
        delete_topic(self.admin, topic)
        self.topics.remove(topic)

    def call(self, method: str, what: str) -> None:
        """Send a request about the connector."""
        httpx.request(method, self._url(what), timeout=60).raise_for_status()

    def status(self) -> dict[str, Any]:
        """Return the status of the connector."""
        status: dict[str, Any] = httpx.get(self._url("status"), timeout=60).json()
        return status

    def ready_layout(self) -> Layout | None:
        """Return the layout that tasks may run; None while none is ready."""
        kafka = {"bootstrap.servers": self.stack.bootstrap_servers}
        layout, number = read_layouts(kafka, CONFIG_TOPIC, NAME)
        return layout if layout is not None and layout.number == number else None

    def committed(self) -> int:
        """Return the number of records in the tables."""
        return committed_records(self._catalog, TABLES)

    def node_pid(self) -> int | None:
        """Process id of the node while it runs."""
        node = self.stack._node
        return node.pid if node is not None and node.is_running else None

    def pid(self, victim: str) -> int | None:
        """Return the process id of the victim; None while it does not run."""
        if victim == "broker":
            assert self.stack.broker is not None
            return self.stack.broker.pid
        node = self.node_pid()
        if node is None or victim == "node":
            return node
        for child in _children(node, recursive=False):
            try:
                if arguments(child)[-2:] == ["-m", victim]:
                    return child.pid
            except psutil.Error:
                continue
        return None

    def kill(self, victim: str, sent: int) -> Kill:
        """Kill the victim at any point of its work; restart it unless the node does so."""
        pid = self.wait_until(lambda: self.pid(victim), f"a {victim} to kill")
        children = tuple(_children(pid, recursive=True))
        kill = Kill(victim, time.monotonic(), sent, self.committed(), children)
        self.kills.append(kill)
        if victim == "broker":
            assert self.stack.broker is not None
            self.stack.broker.kill()
            self.stack.broker.start()
        elif victim == "node":
            assert self.stack._node is not None
            self.stack._node.kill()
            self.stack.start_node()
        else:
            psutil.Process(pid).kill()
        return kill

    def wait_until(self, poll: Callable[[], T | None], what: str, wait_s: float = WAIT_S) -> T:
        """Wait for a true value, while node and broker run; return it."""
        deadline_s = time.monotonic() + wait_s
        while not (it := poll()):
            self._check()
            assert time.monotonic() < deadline_s, (
                f"waited {wait_s:.0f} s for {what}\n{self.diagnostics()}"
            )
            time.sleep(0.1)
        return it

    def wait_until_committed(self, records: int) -> float:
        """Wait until the tables hold so many records; fail if their count stops growing.

        Returns:
            Time of the first growth, on the monotonic clock.
        """
        last, moved_s, first_s = self.committed(), time.monotonic(), 0.0
        while last < records:
            time.sleep(0.2)
            self._check()
            now_s = time.monotonic()
            if (now := self.committed()) != last:
                last, moved_s, first_s = now, now_s, first_s or now_s
            assert now_s - moved_s < NO_PROGRESS_S_MAX, (
                f"{last} of {records} records are in the tables, and nothing has moved for "
                f"{NO_PROGRESS_S_MAX:.0f} s\n{self.diagnostics()}"
            )
        return first_s or moved_s

    def orphan_processes(self, wait_s: float = 90.0) -> list[psutil.Process]:
        """Return descendants of killed processes that still run after ``wait_s``."""
        every = [process for kill in self.kills for process in kill.children]
        return still_running(every, wait_s)

    def check_result(self) -> CheckResult:
        """Check tables, dead letters, counts and offsets, and search everything for canaries."""
        servers = self.stack.bootstrap_servers
        last, ends = read_log(servers, self.topics)
        # the last records may belong to no table
        partitions = list(ends)
        self.wait_until(
            lambda: self.admin.committed(GROUP, partitions) == ends, "reading to the end"
        )
        log = join_logs([*self._retired, last])
        tables = read_tables("demo", self.stack.catalog_properties, TABLES)
        dead_letters = read_dead_letters(servers, DEAD_LETTER_TOPIC)
        ranges, events = read_ranges(servers, CONTROL_TOPIC)
        dead_letter_count, rows = (
            len(dead_letters.partitions),
            sum(len(t.rows.partitions) for t in tables),
        )
        dropped = int((log.tables == DROPPED).sum())
        accounts = checkers.check_record_counts(
            (r for reported in ranges.values() for r in reported),
            records=len(log.partitions),
            rows=rows,
            dead_letters=dead_letter_count,
            dropped=dropped,
        )
        texts = {**self._texts(), CONTROL_TOPIC: events}
        return CheckResult(
            (
                *checkers.findings(log, tables),
                *(
                    f"dead letters: {w}"
                    for w in checkers.check_rows(log.of(DEAD_LETTER), dead_letters)
                ),
                *checkers.check_source_offsets(self.admin.committed(GROUP, list(ends)), ends),
                *checkers.check_ranges(ranges, ends),
                *accounts,
                *checkers.check_secrets(texts, [CANARY]),
            ),
            len(log.partitions),
            dead_letter_count,
            dropped,
            sum(len(table.snapshots) for table in tables),
            sum(len(table.files) for table in tables),
        )

    def _check(self) -> None:
        """Fail at once if the node or the broker has ended: the stack does not restart them."""
        try:
            self.stack.check()
        except RetriableError as error:
            raise AssertionError(f"{error}\n{self.diagnostics()}") from error

    def _texts(self) -> dict[str, bytes]:
        """Return all texts that must hold no secret: logs, metrics, status, arguments, metadata."""
        folder = self.stack.state_dir
        files = [
            *folder.glob("*.log"),
            *folder.glob("*/*.log*"),
            *(folder / "warehouse").rglob("*.json"),
            *(folder / "warehouse").rglob("*.avro"),
        ]
        texts = {str(file): file.read_bytes() for file in files}
        node = self.node_pid()
        for process in _children(node, recursive=True) if node else []:
            texts[f"arguments of {process.pid}"] = " ".join(arguments(process)).encode()
        if node:
            for url in (self._url("status"), f"{self.stack.rest_url}/metrics"):
                texts[url] = httpx.get(url, timeout=60).content
        return texts

    def diagnostics(self) -> str:
        """Return the status of the connector and the ends of all logs."""
        folder = self.stack.state_dir
        files = [
            folder / "node.log",
            *(folder / "node" / f"{n}.log" for n in ("worker", "coordinator")),
            folder / "broker" / "broker.log",
        ]
        try:
            status = httpx.get(self._url("status"), timeout=10).text
        except httpx.TransportError as e:
            status = repr(e)
        return "\n".join([status, *(f"--- {file}\n{_tail(file)}" for file in files)])

    def close(self) -> None:
        """End everything."""
        self.stack.stop()

    def _url(self, what: str) -> str:
        return f"{self.stack.rest_url}/connectors/{NAME}/{what}"


@contextmanager
def payments_stack(folder: Path, config: Mapping[str, str]) -> Iterator[PaymentsStack]:
    """Run a stack with its state in a folder; stop everything after the block."""
    run = PaymentsStack(Stack(folder, node_properties=NODE))
    try:
        run.start(config)
        yield run
    finally:
        run.close()


def _children(pid: int, *, recursive: bool) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def _tail(file: Path) -> str:
    if not file.exists():
        return "(not there)"
    return file.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace")

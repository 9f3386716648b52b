"""A whole stack under fire: payments that keep coming, and processes that are killed meanwhile."""

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
from connect.state.connector_reader import read_layouts
from tests.faults import checkers
from tests.faults.checkers import Log
from tests.faults.production import DEAD_LETTER, DROPPED, Production
from tests.faults.readback import join_logs, read_letters, read_log, read_ranges, read_tables
from tests.support.processes import arguments

NAME = "payments"
TOPIC = "payments"
GROUP = f"connect-{NAME}"
PARTITIONS = 4
TABLES = ("bank.payments", "bank.refunds", "bank.chargebacks")  # in the order of payments.KINDS
CONTROL_TOPIC = "control-iceberg"
CONFIG_TOPIC = "icefloe-configs"
LETTERS_TOPIC = "payments-dead"
CANARY = "canary-5f1d27"  # an unused secret in the connector's configuration
WAIT_S = 240.0
STILL_S = 240.0
TAIL_BYTES = 6_000
# the broker's time: records cannot be older than what was in the log before them
TOPIC_CONFIG = {"message.timestamp.type": "LogAppendTime"}
# the tests kill processes often: allow many restarts, with a short backoff
NODE = {"icefloe.task.restart.max": "1000", "icefloe.task.restart.backoff.max.ms": "2000"}
# each seed gives another order of faults, at other times
FIRST_SEED = int(os.environ.get("FAULT_FIRST_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("FAULT_SEEDS", "1")))
T = TypeVar("T")


def connector(**more: str) -> dict[str, str]:
    """The demo's connector: three tables by kind of payment, made by the first record."""
    return {
        **demo_connector()["config"],
        "topics": TOPIC,
        "tasks.max": "2",
        "icefloe.tasks.per.worker": "2",
        "iceberg.control.commit.interval-ms": "1500",
        "iceberg.control.commit.timeout-ms": "10000",
        "iceberg.tables.unmatched": "drop",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": LETTERS_TOPIC,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "iceberg.catalog.s3.secret-access-key": CANARY,
        **more,
    }


@dataclass(frozen=True, slots=True)
class Blow:
    """One kill.

    Attributes:
        victim: ``worker``, ``coordinator``, ``node`` or ``broker``.
        at_s: monotonic clock.
        sent: records the producer had sent.
        committed: records the tables held.
        left: processes that the victim had started, and must not outlive it for long.
    """

    victim: str
    at_s: float
    sent: int
    committed: int
    left: tuple[psutil.Process, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Findings of the checkers and counts of what they checked."""

    wrong: tuple[str, ...]
    records: int
    dead_letters: int
    dropped: int
    snapshots: int
    files: int

    def __str__(self) -> str:
        return (
            f"{self.records:,} records in {self.files:,} files and {self.snapshots:,} snapshots, "
            f"{self.letters} dead letters, {self.dropped} dropped: {len(self.wrong)} findings"
        )


class Field:
    """A running stack with the payments' connector on it.

    Args:
        stack: not yet started. The thread that creates this object starts its processes and must
            outlive them.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.blows: list[Blow] = []
        self.topics = [TOPIC]
        self._retired: list[Log] = []

    def start(self, config: Mapping[str, str]) -> None:
        """Start broker and node, make topic and connector."""
        self.stack.start_broker()
        self._catalog = open_catalog("demo", self.stack.catalog_properties)
        self._catalog.exists(("bank", "payments"))  # makes the catalog's own tables
        self.admin = KafkaAdmin({"bootstrap.servers": self.stack.bootstrap_servers})
        self.admin.ensure_topic(TOPIC, PARTITIONS, TOPIC_CONFIG)
        self.stack.start_node()
        self.stack.wait_for_node()
        self.put(config)

    def put(self, config: Mapping[str, str]) -> None:
        """Create the connector, or change it."""
        answer = httpx.put(self._url("config"), json=dict(config), timeout=60)
        answer.raise_for_status()

    def production(self, records_per_s: int) -> Production:
        """Of payments, into the first topic."""
        lanes = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return Production(self.stack.bootstrap_servers, lanes, records_per_s)

    def retire(self, topic: str) -> None:
        """Delete a topic that was read to its end; its records stay known."""
        self._retired.append(read_log(self.stack.bootstrap_servers, [topic])[0])
        self.admin.delete_topic(topic)
        self.topics.remove(topic)

    def call(self, method: str, what: str) -> None:
        """A request about the connector."""
        httpx.request(method, self._url(what), timeout=60).raise_for_status()

    def status(self) -> dict[str, Any]:
        """The connector's status."""
        found: dict[str, Any] = httpx.get(self._url("status"), timeout=60).json()
        return found

    def ready_layout(self) -> Layout | None:
        """The layout that tasks may run, None while none is ready."""
        kafka = {"bootstrap.servers": self.stack.bootstrap_servers}
        layout, number = read_layouts(kafka, CONFIG_TOPIC, NAME)
        return layout if layout is not None and layout.number == number else None

    def committed(self) -> int:
        """Records that the tables hold."""
        return committed_records(self._catalog, TABLES)

    def node_pid(self) -> int | None:
        """Process id of the node while it runs."""
        node = self.stack._node
        return node.pid if node is not None and node.is_running else None

    def pid(self, victim: str) -> int | None:
        """Process id of the victim, None while there is none."""
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

    def strike(self, victim: str, sent: int) -> Blow:
        """Kill it, wherever it is; start again what the stack itself is to start."""
        pid = self.wait_until(lambda: self.pid(victim), f"a {victim} to kill")
        left = tuple(_children(pid, recursive=True))
        blow = Blow(victim, time.monotonic(), sent, self.committed(), left)
        self.blows.append(blow)
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
        return blow

    def wait_until(self, found: Callable[[], T | None], what: str, wait_s: float = WAIT_S) -> T:
        """Wait for something that is true, as long as node and broker run."""
        deadline_s = time.monotonic() + wait_s
        while not (it := found()):
            self._check()
            assert time.monotonic() < deadline_s, (
                f"waited {wait_s:.0f} s in vain for {what}\n{self.reported()}"
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
            assert now_s - moved_s < STILL_S, (
                f"{last} of {records} records are in the tables, and nothing has moved for "
                f"{STILL_S:.0f} s\n{self.reported()}"
            )
        return first_s or moved_s

    def left_processes(self, wait_s: float = 90.0) -> list[psutil.Process]:
        """Descendants of the killed that are still there after a while."""
        every = [process for blow in self.blows for process in blow.left]
        return psutil.wait_procs(every, timeout=wait_s)[1]

    def verdict(self) -> Verdict:
        """What is wrong with tables, dead letters, counts and offsets; canaries among all that."""
        servers = self.stack.bootstrap_servers
        last, ends = read_log(servers, self.topics)
        # the last records may be such as no table gets
        asked = list(ends)
        self.wait_until(lambda: self.admin.committed(GROUP, asked) == ends, "reading to the end")
        log = join_logs([*self._retired, last])
        tables = read_tables("demo", self.stack.catalog_properties, TABLES)
        dead_letters = read_letters(servers, LETTERS_TOPIC)
        ranges, events = read_ranges(servers, CONTROL_TOPIC)
        letters_count, rows = (
            len(dead_letters.partitions),
            sum(len(t.rows.partitions) for t in tables),
        )
        dropped = int((log.tables == DROPPED).sum())
        accounts = checkers.check_accounts(
            (r for reported in ranges.values() for r in reported),
            records=len(log.partitions),
            rows=rows,
            dead_letters=letters_count,
            dropped=dropped,
        )
        texts = {**self._texts(), CONTROL_TOPIC: events}
        return Verdict(
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
            letters_count,
            dropped,
            sum(len(table.snapshots) for table in tables),
            sum(len(table.files) for table in tables),
        )

    def _check(self) -> None:
        """Fail at once if the node or the broker has ended: the stack does not restart them."""
        try:
            self.stack.check()
        except RetriableError as error:
            raise AssertionError(f"{error}\n{self.reported()}") from error

    def _texts(self) -> dict[str, bytes]:
        """Everything that others may read: logs, metrics, status, arguments, table metadata."""
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

    def reported(self) -> str:
        """The connector's state and the ends of all logs."""
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
def field(folder: Path, config: Mapping[str, str]) -> Iterator[Field]:
    """A field on a folder; everything is ended with the block."""
    made = Field(Stack(folder, node_properties=NODE))
    try:
        made.start(config)
        yield made
    finally:
        made.close()


def _children(pid: int, *, recursive: bool) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def _tail(file: Path) -> str:
    if not file.exists():
        return "(not there)"
    return file.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace")

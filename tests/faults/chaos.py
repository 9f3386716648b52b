"""A whole stack under fire: payments that keep coming, and processes that are killed meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import psutil

from connect.clock import SystemClock
from connect.embedded import payments
from connect.embedded.demo import demo_connector
from connect.embedded.stack import Stack
from connect.embedded.verify import committed_records
from connect.gateways.catalog import open_catalog
from connect.gateways.kafka_admin import KafkaAdmin
from connect.gateways.kafka_bulk import BulkProducer
from connect.iso_time import instant_text
from connect.layout import TopicPartition
from tests.faults.checkers import check_source_offsets, findings
from tests.faults.readback import read_log, read_tables

NAME = "payments"
TOPIC = "payments"
GROUP = f"connect-{NAME}"
PARTITIONS = 4
TABLES = ("bank.payments", "bank.refunds", "bank.chargebacks")  # in the order of payments.KINDS
CHUNK_RECORDS = 500
TRICKLE = 500  # that part of what is left, again and again: it never ends
TRICKLE_PAUSE_S = 0.5
WAIT_S = 240.0
STILL_S = 120.0
TAIL_BYTES = 6_000
# whoever is killed all the time shall not be kept waiting for long
NODE = {"icefloe.task.restart.max": "1000", "icefloe.task.restart.backoff.max.ms": "2000"}
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
        **more,
    }


class Production:
    """A thread that produces payments, to all partitions alike, as far as it is allowed to.

    Args:
        bootstrap_servers: of the broker.
        records_per_s: pace; below it by far once the allowance is used up, but never zero.
    """

    def __init__(self, bootstrap_servers: str, records_per_s: int) -> None:
        self.sent = 0
        self.total = 0
        self._allowed = 0
        self._starts = [0] * PARTITIONS
        self._pause_s = CHUNK_RECORDS * PARTITIONS / records_per_s
        self._producer = BulkProducer({"bootstrap.servers": bootstrap_servers})
        self._tails = payments.variant_tails()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether every record of the total is sent."""
        return self.sent >= self.total

    def start(self, total: int, allowed: int) -> None:
        """Produce so many records more, at the pace only while fewer than ``allowed`` are sent."""
        self.total, self._allowed = self.total + total, allowed
        self._thread = threading.Thread(target=self._run, name="production", daemon=True)
        self._thread.start()

    def allow(self, records: int) -> None:
        """So many records of the total may be produced at the pace."""
        self._allowed = max(self._allowed, records)

    def finish(self) -> None:
        """Produce all that is left and wait until the broker has it; raises what went wrong."""
        assert self._thread is not None
        self.allow(self.total)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Give up what is left."""
        self._stopping.set()

    def _run(self) -> None:
        try:
            while not self.is_done and not self._stopping.is_set():
                left = self.total - self.sent
                is_free = self.sent < self._allowed
                self._send(min(CHUNK_RECORDS * PARTITIONS, left if is_free else left // TRICKLE))
                self._stopping.wait(self._pause_s if is_free else TRICKLE_PAUSE_S)
            self._producer.finish(TOPIC)
        except Exception as e:  # the boundary of the thread: raised by ``finish``
            self._failure = e

    def _send(self, records: int) -> None:
        at = instant_text(SystemClock().now_ms() * 1_000_000)
        for part in payments.ranges(records, self._starts):
            values = payments.chunk(part.partition, part.start, part.end, at, self._tails)
            self._producer.send(TOPIC, part.partition, values)
            self._starts[part.partition] = part.end
        self.sent += records


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
    """What the checkers say, and how much they looked at."""

    wrong: tuple[str, ...]
    records: int
    snapshots: int
    files: int

    def __str__(self) -> str:
        return (
            f"{self.records:,} records in {self.files:,} files and {self.snapshots:,} snapshots: "
            f"{len(self.wrong)} findings"
        )


class Field:
    """A running stack with the payments' connector on it.

    Args:
        stack: started here, by the thread that makes this object: it must outlive the processes.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.blows: list[Blow] = []

    def start(self, config: Mapping[str, str]) -> None:
        """Start broker and node, make topic and connector."""
        self.stack.start_broker()
        self._catalog = open_catalog("demo", self.stack.catalog_properties)
        self._catalog.exists(("bank", "payments"))  # makes the catalog's own tables
        self.admin = KafkaAdmin({"bootstrap.servers": self.stack.bootstrap_servers})
        # the broker's time: records cannot be older than what was in the log before them
        self.admin.ensure_topic(TOPIC, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        self.stack.start_node()
        self.stack.wait_for_node()
        answer = httpx.put(self._url("config"), json=dict(config), timeout=60)
        answer.raise_for_status()

    def call(self, method: str, what: str) -> None:
        """A request about the connector."""
        httpx.request(method, self._url(what), timeout=60).raise_for_status()

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
                if child.cmdline()[-2:] == ["-m", victim]:
                    return child.pid
            except psutil.Error:
                continue
        return None

    def strike(self, victim: str, sent: int) -> Blow:
        """Kill it, wherever it is; start again what the stack itself is to start."""
        pid = self.until(lambda: self.pid(victim), f"a {victim} to kill")
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

    def until(self, found: Callable[[], T | None], what: str, wait_s: float = WAIT_S) -> T:
        """Wait for something that is true."""
        deadline_s = time.monotonic() + wait_s
        while not (it := found()):
            assert time.monotonic() < deadline_s, f"no {what} in {wait_s:.0f} s\n{self.told()}"
            time.sleep(0.1)
        return it

    def until_committed(self, records: int) -> float:
        """Wait until the tables hold so many records, as long as they go on moving.

        Returns:
            When the number of records first moved, on the monotonic clock.
        """
        last, moved_s, first_s = self.committed(), time.monotonic(), 0.0
        while last < records:
            time.sleep(0.2)
            now_s = time.monotonic()
            if (now := self.committed()) != last:
                last, moved_s, first_s = now, now_s, first_s or now_s
            assert now_s - moved_s < STILL_S, (
                f"{last} of {records} records are in the tables, and nothing has moved for "
                f"{STILL_S:.0f} s\n{self.told()}"
            )
        return first_s or moved_s

    def left_processes(self, wait_s: float = 90.0) -> list[psutil.Process]:
        """Descendants of the killed that are still there after a while."""
        every = [process for blow in self.blows for process in blow.left]
        return psutil.wait_procs(every, timeout=wait_s)[1]

    def verdict(self) -> Verdict:
        """What is wrong with the tables and offsets."""
        log, ends = read_log(self.stack.bootstrap_servers, TOPIC)
        tables = read_tables("demo", self.stack.catalog_properties, TABLES)
        asked = [TopicPartition(TOPIC, partition) for partition in ends]
        committed = {tp.partition: at for tp, at in self.admin.committed(GROUP, asked).items()}
        return Verdict(
            (*findings(log, tables), *check_source_offsets(committed, ends)),
            len(log.partitions),
            sum(len(table.snapshots) for table in tables),
            sum(len(table.files) for table in tables),
        )

    def told(self) -> str:
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

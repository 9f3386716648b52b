"""Runs a task with a batch runner that writes no files; the test acts as the coordinator."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from confluent_kafka import Producer

from connect.clock import Clock, SystemClock
from connect.errors import RecordError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, ProducerMessage
from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.model.layout import Layout, TopicPartition
from connect.model.records import KafkaRecord
from connect.protocol.source_floor import SourceFloor
from connect.state.connector_state import StoredConnector
from connect.validation.parse import parse
from control_schemas.codec import decode, encode
from control_schemas.events import (
    CommitComplete,
    ContentFile,
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    FileContent,
    Payload,
    StartCommit,
    TableReference,
)
from control_schemas.headers import decode_headers
from tests.support.pauses import growing_pauses
from tests.support.source_reads import as_records
from worker.batch.descriptors import DeadLetter, PartitionProgress
from worker.batch.error_rows import DEAD_LETTERS_FULL
from worker.batch.few_records import BatchRows
from worker.spark.session import Session
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.task import ConnectorTask
from worker.task.task_context import BATCH_STOP_MS, TaskAssignment, TaskContext, TaskStop

TIMEOUT_S = 400  # a first query of Spark took 150 s while five other test runs started
TABLE = TableReference("local", ("db",), "t", UUID(int=7))


def opened(session: Session) -> Future[Session]:
    """Return the session as the worker's tasks get it."""
    result: Future[Session] = Future()
    result.set_result(session)
    return result


@dataclass
class FakeBatchRunner:
    """A batch runner that writes no file but names the offsets it saw in a file's path."""

    columns: tuple[str, ...] = ("topic", "partition", "offset", "timestamp")
    error: Exception | None = None
    dead_letters: int = 0
    dead_letter_value: bytes = b""
    records_max: int | None = None  # of a batch whose dead letters can be kept
    is_primed: bool = True
    may_enlarge: bool = False
    takes_blocks: bool = True
    takes_few_records: bool = False
    batches: list[OffsetRanges] = field(default_factory=list)
    valid_through_ms: list[int | None] = field(default_factory=list)
    refreshes: int = 0
    before: Callable[[BatchRows], object] = id

    def run(
        self,
        rows: BatchRows,
        ranges: OffsetRanges,
        valid_through_ms: int | None = None,
        *,
        is_small: bool = False,
    ) -> WrittenBatch:
        """Call ``before``, and count the records of the batch."""
        del is_small
        self.before(rows)
        self.valid_through_ms.append(valid_through_ms)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        table = as_records(rows, partition="int", offset="bigint")
        offsets: dict[int, list[int]] = {}
        for p, o in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
            offsets.setdefault(p, []).append(o)
        if self.records_max is not None and table.num_rows > self.records_max:
            raise RetriableError("more than can be kept", code=DEAD_LETTERS_FULL)
        self.batches.append(ranges)
        topic = next(iter(ranges.ends)).topic
        progress = {
            TopicPartition(topic, p): PartitionProgress(
                len(o), 0, self.dead_letters, len(o) - self.dead_letters, 5
            )
            for p, o in offsets.items()
        }
        files = tuple(
            ContentFile(
                FileContent.DATA, f"{p}:{min(o)}-{max(o)}", "PARQUET", 0, (), len(o), 10 * len(o)
            )
            for p, o in sorted(offsets.items())
        )
        dead_letters = tuple(
            DeadLetter(
                KafkaRecord(topic, 0, n, 5, 0, None, self.dead_letter_value),
                RecordError("bad", code="bad"),
            )
            for n in range(self.dead_letters)
        )
        return WrittenBatch(ranges, progress, (((TABLE, files),),), dead_letters)

    def dead_letter(self, dead_letter: DeadLetter) -> ProducerMessage | None:
        """Return a message with only the offset of the record as its value."""
        return ProducerMessage("dead", None, str(dead_letter.record.offset).encode())

    def refresh(self) -> None:
        """Count the calls: there are no tables."""
        self.refreshes += 1

    def close(self) -> None:
        """There are no connections."""


@dataclass
class TaskHarness:
    """One connector with one task; the test acts as the coordinator."""

    session: Session
    kafka: dict[str, str]
    topic: str
    control: str
    partitions: int
    runner: FakeBatchRunner = field(default_factory=FakeBatchRunner)
    overrides: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    floor: SourceFloor | None = None
    newest_layout: int = 3  # in the config topic, if there is a floor
    admins: SharedAdmins = field(default_factory=SharedAdmins)
    batch_stop_ms: int = BATCH_STOP_MS
    clock: Clock = field(default_factory=SystemClock)
    states: list[tuple[str, Exception | None]] = field(default_factory=list)
    ended: list[Exception | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = f"c-{self.topic}"
        self.admin = KafkaAdmin(self.kafka)
        self.reader = LogReader(self.kafka)
        self.reader.assign({TopicPartition(self.control, 0): 0})
        self._producer = Producer({**self.kafka, "linger.ms": 0, "log_level": 0})
        self._number = 0

    @property
    def group(self) -> str:
        """The connect group."""
        return f"connect-{self.name}"

    def task(self) -> ConnectorTask:
        """A task that is not yet running."""
        config = parse(
            {
                "name": self.name,
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "topics": self.topic,
                "iceberg.tables": "db.t",
                "iceberg.catalog.type": "sql",
                "iceberg.catalog.uri": "sqlite://",
                "iceberg.catalog.warehouse": "/nowhere",
                "iceberg.control.topic": self.control,
                **self.overrides,
            }
        )
        tps = tuple(TopicPartition(self.topic, p) for p in range(self.partitions))
        context = TaskContext(
            node=self.kafka,
            node_group_id="node",
            stored=None if self.floor is None else self._stored,
            session=opened(self.session),
            clock=self.clock,
            runner=lambda _config, _assignment, _session: self.runner,
            report=lambda state, error: self.states.append((state, error)),
            topic_missing=lambda: self.states.append(("topic missing", None)),
            admins=self.admins,
            **self.sizes,
        )
        assignment = TaskAssignment(0, 3, tps, tuple(self.topic_ids.items()))
        return ConnectorTask(config, assignment, context, TaskStop(self.batch_stop_ms))

    def _stored(self, name: str, _node: object) -> StoredConnector:
        assert self.floor is not None
        return StoredConnector(
            name, layout=Layout(name, self.newest_layout, ()), source_floor=self.floor
        )

    def close(self) -> None:
        """Close the clients of the harness."""
        self.reader.close()
        self.admin.close()

    def every(self, interval_ms: int) -> TaskHarness:
        """Set the commit interval."""
        self.overrides["iceberg.control.commit.interval-ms"] = str(interval_ms)
        return self

    @contextlib.contextmanager
    def running(self) -> Iterator[ConnectorTask]:
        """Run the task in a thread; stop it after the block."""
        task = self.task()
        self.states.clear()
        self.ended.clear()
        thread = threading.Thread(target=self._run, args=(task,))
        thread.start()
        try:
            wait_until(lambda: bool(self.states or self.ended))
            yield task
        finally:
            task.stop()
            thread.join(150)
        assert not thread.is_alive()

    def _run(self, task: ConnectorTask) -> None:
        try:
            task.run()
        except Exception as e:
            self.ended.append(e)
        else:
            self.ended.append(None)

    def produce(self, count: int, partition: int = 0) -> None:
        """Produce records."""
        for i in range(count):
            self._producer.produce(self.topic, b'{"i":%d}' % i, partition=partition)
        self._producer.flush(120)

    def send(self, payload: Payload) -> None:
        """Send a control event as the coordinator."""
        event = Event(uuid4(), 0, self.group, payload)
        self._producer.produce(self.control, encode(event), key=self.group)
        self._producer.flush(120)

    def round(self) -> tuple[UUID, list[tuple[Payload, EventHeaders]]]:
        """Send a StartCommit; return its id and the answer of the task up to DataComplete."""
        commit_id = uuid4()
        self.send(StartCommit(commit_id))
        return commit_id, self.answer(commit_id)

    def answer(self, commit_id: UUID | None) -> list[tuple[Payload, EventHeaders]]:
        """Wait for the answer with this id (any, if None)."""
        events: list[tuple[Payload, EventHeaders]] = []
        deadline = time.monotonic() + 150
        while time.monotonic() < deadline:
            for record in self.reader.poll(100):
                payload = decode(record.value or b"").payload
                if isinstance(payload, StartCommit | CommitComplete):
                    continue
                assert record.key == self.group.encode()
                events.append((payload, decode_headers(record.headers)))
            if events and isinstance(events[-1][0], DataComplete):
                assert commit_id in {None, events[-1][0].commit_id}
                return events
        raise AssertionError(f"no answer, only {events}")

    def store_offsets(self, offsets: dict[int, int]) -> None:
        """Set source offsets of the group."""
        tps = {TopicPartition(self.topic, p): at for p, at in offsets.items()}
        self.admin.alter_offsets(self.group, tps)

    def committed(self) -> dict[int, int | None]:
        """Source offsets of the group."""
        tps = [TopicPartition(self.topic, p) for p in range(self.partitions)]
        return {tp.partition: at for tp, at in self.admin.committed(self.group, tps).items()}


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    deadline, pauses = time.monotonic() + TIMEOUT_S, growing_pauses()
    while not condition():
        assert time.monotonic() < deadline
        next(pauses)


def paths(answer: list[tuple[Payload, EventHeaders]]) -> list[str]:
    """Paths of the files of an answer."""
    return [
        f.file_path
        for payload, _ in answer
        if isinstance(payload, DataWritten)
        for f in payload.data_files or ()
    ]

"""Produces to a source topic and reads exact source ranges of it with Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.control_log import wait_until
from worker.batch.few_records import BatchRows, FewRecords
from worker.batch.record_blocks import records
from worker.spark.session import Session
from worker.spark.source_options import source_options
from worker.task.read_ledger import OffsetRanges
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_reader import SourceReader, as_arrow
from worker.task.source.source_rows import SourceRows

COLUMNS = ("partition", "offset", "value")
_ids = itertools.count()


def as_records(rows: BatchRows, **columns: str) -> pa.Table:
    """Collect columns of the records of a micro-batch, by name and SQL type."""
    if isinstance(rows, FewRecords):
        return pa.Table.from_batches(rows.batches).select(list(columns))
    ddl = ", ".join(f"{name} {of_type}" for name, of_type in columns.items())
    return as_arrow(rows.mapInArrow(partial(_chosen, list(columns)), ddl))


def _chosen(names: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in records(batches):
        chosen = batch.select(names)
        if "timestamp" in names:  # Spark takes microseconds only
            place = names.index("timestamp")
            stamps = chosen.column(place).cast(pa.timestamp("us", "UTC"))
            chosen = chosen.set_column(place, "timestamp", stamps)
        yield chosen


def source_reader(session: Session, kafka: Mapping[str, str]) -> SourceReader:
    """Return a reader of blocks with a task name of its own."""
    options = source_options(kafka, {}, task=f"test-{next(_ids)}", has_headers=False)
    return SourceReader(SourceBlocks(session, options, COLUMNS), pool="test")


def with_source(
    reader: SourceReader, kind: type[SourceBlocks | SourceRows] | None = None, **changes: Any
) -> SourceReader:
    """Return the reader with another source.

    Args:
        reader: has a source already, whose other parts stay.
        kind: of the source; None for the same kind.
        changes: its parts; ``options`` are added to those of the source.
    """
    source: Any = reader.source
    chosen: Any = kind or type(source)
    names = {each.name for each in fields(source) if each.init} & {n.name for n in fields(chosen)}
    kept = {name: getattr(source, name) for name in names}
    options = {**kept["options"], **changes.pop("options", {})}
    return replace(reader, source=chosen(**{**kept, **changes, "options": options}))


class BatchCollector:
    """Collects the offset ranges and the (partition, offset) pairs of each micro-batch."""

    def __init__(self, on_batch: Callable[[], None] = lambda: None) -> None:
        self.parts: list[OffsetRanges] = []
        self.tasks: list[int] = []
        self.rows: list[tuple[int, int]] = []
        self._on_batch = on_batch

    def __call__(self, rows: Any, part: OffsetRanges) -> None:
        self.parts.append(part)
        self.tasks.append(rows.rdd.getNumPartitions())
        table = as_records(rows, partition="int", offset="bigint", value="binary")
        self.rows += zip(
            table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True
        )
        self._on_batch()


def produce(
    properties: dict[str, str],
    topic: str,
    count: int,
    *,
    partition: int = 0,
    transaction: str = "",
    value: bytes = b"",
) -> None:
    """Produce ``count`` records, in a transaction that is committed or aborted if one is named.

    The value of a record is its number, or ``value`` if that is given. The transaction has its
    marker when this returns: the broker writes it after it has answered the producer.
    """
    own: dict[str, Any] = {"transactional.id": f"test-{next(_ids)}"} if transaction else {}
    producer = Producer({**properties, "linger.ms": 5, "log_level": 0, **own})
    last = -1

    def note(error: KafkaError | None, message: Message) -> None:
        nonlocal last
        assert error is None, error
        last = max(last, message.offset() or 0)

    if transaction:
        producer.init_transactions(120)
        producer.begin_transaction()
    for i in range(count):
        producer.produce(topic, value or b'{"i":%d}' % i, partition=partition, on_delivery=note)
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush(120)
    if transaction == "commit":
        producer.commit_transaction(120)
    elif transaction == "abort":
        producer.abort_transaction(120)
    if transaction in {"commit", "abort"}:
        place = TopicPartition(topic, partition)
        with closing(KafkaAdmin(properties)) as admin:
            wait_until(lambda: admin.high_watermarks([place])[place] > last + 1)


def whole_topic(admin: KafkaAdmin, topic: str, partitions: int = 1) -> OffsetRanges:
    """Return the ranges of all records of a topic."""
    marks = admin.watermarks([TopicPartition(topic, p) for p in range(partitions)])
    return OffsetRanges(
        {tp: a for tp, (a, _) in marks.items()}, {tp: b for tp, (_, b) in marks.items()}
    )


def never() -> bool:
    """Return False: no stop is requested."""
    return False


def read_by(how: str, reader: SourceReader, part: OffsetRanges, seen: BatchCollector) -> None:
    """Read with a batch read or with a streaming query."""
    if how == "batch":
        reader.read_batch(part, seen)
    else:
        reader.run_query(part.starts, seen, is_stopping=never)

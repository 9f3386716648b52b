"""Reads ranges of Kafka offsets with Spark tasks, in blocks of many records.

Rules of this file:
- ``java/RangeBlocks.java`` reads. It uses Kafka's own consumer, the one of Spark's Kafka source.
- A Spark task has one consumer for all of its ranges, which the next read uses again.
- Few records can be read without a Spark task. They come as text over py4j, which converts bytes
  one by one.
- Options have the names of Spark's source, so both ways of reading have the same options.

Source:
    docs/decisions/0073-record-blocks.md, with the measurements.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from connect.model.layout import TopicPartition
from worker.spark.compiled_java import load_class, load_driver_class, new_instance
from worker.spark.jvm import java_session
from worker.spark.session import Session

BLOCK_ROWS: Final = 65_536
BLOCK_BYTES: Final = 16 * 2**20
FEW_RECORDS: Final = 2_000
"""A read of at most this many offsets can do without a Spark task."""

FEW_BYTES: Final = 2 * 2**20
"""Bound of the columns of such a read."""

FEW_TIMEOUT_MS: Final = 5_000
"""After this time a Spark task reads them: it can be cancelled. A new consumer has to connect."""
_PACKAGE: Final = "worker.spark"
_BY_SPARK: Final = "icefloe.source.RecordBlocks"
_IN_DRIVER: Final = "icefloe.source.DriverBlocks"
_PREFIX: Final = "kafka."
_OWN: Final = {
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    # a deleted topic would be created again
    "allow.auto.create.topics": "false",
}
_GROUP: Final = "group.id"  # no position of a group is read or stored


@dataclass(frozen=True, slots=True)
class RangeOfPartition:
    """A part of a partition, from ``start`` to the offset before ``end``."""

    place: TopicPartition
    start: int
    end: int

    @property
    def record_count_max(self) -> int:
        """Number of offsets, an upper bound of the number of records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """Few records that were read.

    Attributes:
        payload: blocks, see ``worker.batch.record_blocks.blocks_of``.
        ends: per partition with a range the next offset after what was read.
    """

    payload: bytes
    ends: Mapping[TopicPartition, int]


class RecordBlocks:
    """Reads for one task of a connector.

    Args:
        session: the worker's session.
        options: options of the Kafka source, see ``source_options``.
        columns: columns of the source that the pipeline needs.
    """

    def __init__(
        self, session: Session, options: Mapping[str, str], columns: Sequence[str]
    ) -> None:
        self._session = session
        kafka = {
            key.removeprefix(_PREFIX): value
            for key, value in options.items()
            if key.startswith(_PREFIX)
        }
        # brokers show the name in their logs and quotas
        name = {"client.id": kafka.pop(_GROUP)} if _GROUP in kafka else {}
        self._properties = name | kafka
        self._columns = frozenset(columns)
        self._readers: dict[tuple[str, int], Any] = {}

    def rows(self, tasks: Sequence[Sequence[RangeOfPartition]], *, poll_records: int) -> DataFrame:
        """Return the blocks of some ranges; ``worker.batch.record_blocks`` makes records of them.

        Args:
            tasks: the ranges of each Spark task.
            poll_records: upper bound of the records that a consumer returns at once.
        """
        plan = "\n".join(map(_line, tasks))
        return DataFrame(self._reader(_BY_SPARK, poll_records).rows(plan), self._session.of_blocks)

    def read_few(
        self,
        ranges: Sequence[RangeOfPartition],
        *,
        poll_records: int,
        may_pass_ends: bool = False,
    ) -> ReadBlocks | None:
        """Read few records now, in Spark's JVM but without a Spark task.

        Args:
            ranges: what to read.
            poll_records: upper bound of the records that the consumer returns at once.
            may_pass_ends: whether records after the end of a range are read too, if the consumer
                has returned them together with records before it.

        Returns:
            None where the records have more bytes than ``FEW_BYTES``, or are not there after
            ``FEW_TIMEOUT_MS``.

        Raises:
            Py4JError: Kafka's consumer failed.
        """
        reader = self._reader(_IN_DRIVER, poll_records)
        text = reader.read(_line(ranges), FEW_BYTES, FEW_TIMEOUT_MS, may_pass_ends)
        if text is None:
            return None
        line, _, blocks = text.partition("\n")
        return ReadBlocks(base64.b64decode(blocks), _ends(line))

    def _reader(self, java_class: str, poll_records: int) -> Any:
        """Return the object of a Java class that reads with polls of this size."""
        key = java_class, poll_records
        if key not in self._readers:
            self._readers[key] = self._new_reader(java_class, poll_records)
        return self._readers[key]

    def _new_reader(self, java_class: str, poll_records: int) -> Any:
        session = self._session
        of_spark: list[Any] = []
        if java_class == _IN_DRIVER:  # Spark SQL may still be starting
            loaded = load_driver_class(session, _PACKAGE, java_class)
        else:
            loaded = load_class(session.of_blocks, _PACKAGE, java_class)
            of_spark = [java_session(session.of_blocks)]
        most = min(poll_records, int(self._properties["max.poll.records"]))
        properties = {**self._properties, **_OWN, "max.poll.records": str(most)}
        jvm = session.jvm.gateway.jvm
        return new_instance(
            session.context,
            loaded,
            *of_spark,
            jvm.java.util.HashMap(properties),
            FEW_RECORDS if java_class == _IN_DRIVER else BLOCK_ROWS,
            BLOCK_BYTES,
            "key" in self._columns,
            "headers" in self._columns,
        )


def _line(ranges: Sequence[RangeOfPartition]) -> str:
    """Return the ranges of a Spark task as ``OffsetRange.java`` parses them."""
    return ",".join(f"{r.place.partition} {r.start} {r.end} {r.place.topic}" for r in ranges)


def _ends(line: str) -> dict[TopicPartition, int]:
    """Return where ranges end, from a line of them."""
    ends = {}
    for text in line.split(","):
        partition, _, end, topic = text.split(" ")
        ends[TopicPartition(topic, int(partition))] = int(end)
    return ends

"""Reads ranges of Kafka offsets with Spark tasks, in blocks of many records.

Rules of this file:
- ``RecordBlocks.java`` reads. It uses Kafka's own consumer, the one of Spark's Kafka source.
- A Spark task has one consumer for all of its ranges, which the next read uses again.
- Options have the names of Spark's source, so both ways of reading have the same options.

Source:
    docs/decisions/0073-record-blocks.md, with the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from connect.model.layout import TopicPartition
from worker.spark.compiled_java import load_class, new_instance
from worker.spark.session import Session

BLOCK_ROWS: Final = 65_536
BLOCK_BYTES: Final = 16 * 2**20
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
        self._readers: dict[int, Any] = {}

    def rows(self, tasks: Sequence[Sequence[RangeOfPartition]], *, poll_records: int) -> DataFrame:
        """Return the blocks of some ranges; ``worker.batch.record_blocks`` makes records of them.

        Args:
            tasks: the ranges of each Spark task.
            poll_records: upper bound of the records that a consumer returns at once.
        """
        spark = self._session.of_blocks
        plan = "\n".join(
            ",".join(f"{r.place.partition} {r.start} {r.end} {r.place.topic}" for r in ranges)
            for ranges in tasks
        )
        if poll_records not in self._readers:
            self._readers[poll_records] = self._reader(poll_records)
        return DataFrame(self._readers[poll_records].rows(plan), spark)

    def _reader(self, poll_records: int) -> Any:
        spark = self._session.of_blocks
        loaded = load_class(
            spark, "worker.spark", "RecordBlocks.java", "icefloe.source.RecordBlocks"
        )
        most = min(poll_records, int(self._properties["max.poll.records"]))
        properties = {**self._properties, **_OWN, "max.poll.records": str(most)}
        jvm: Any = spark._jvm  # noqa: SLF001 - no public way to the JVM
        return new_instance(
            spark,
            loaded,
            spark._jsparkSession,  # noqa: SLF001 - the same
            jvm.java.util.HashMap(properties),
            BLOCK_ROWS,
            BLOCK_BYTES,
            "key" in self._columns,
            "headers" in self._columns,
        )

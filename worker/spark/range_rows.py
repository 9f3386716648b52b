"""Rows of source records whose offset ranges are set after Spark has planned their read.

Rules of this file:
- Spark's own classes read and convert the records, as its Kafka source does. What is left out is
  the work of that source in the driver for each read: a new admin client, and two requests for
  partitions that the task knows.
- Ranges are elements of a Java array. Spark reads it when it starts the first job on the rows. So
  they are set before that, and never changed afterwards.
- Executors cache consumers by group id and refuse one id with two sets of parameters. So the
  parameters are made by the method of Spark's source that streaming queries use as well.

Source:
    Spark 4.1 ``KafkaSourceRDD``, ``KafkaSource.getBatch``, ``KafkaBatch.planInputPartitions``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from connect.model.layout import TopicPartition

_KAFKA: Final = "kafka."
_TIMEOUT: Final = "kafka.default.api.timeout.ms"  # after it, the source's admin client gives up too
_ROW: Final = "org.apache.spark.sql.catalyst.InternalRow"
_RANGE: Final = "org.apache.spark.sql.kafka010.KafkaOffsetRange"


@dataclass(frozen=True, slots=True)
class RangeRows:
    """Rows of a read that has not begun.

    Attributes:
        rows: with the columns of Spark's Kafka source.
    """

    rows: DataFrame
    _source: RangeSource
    _places: Mapping[TopicPartition, int]
    _ranges: Any

    def set(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Set the offset ranges; partitions without one are not read."""
        for tp, end in ends.items():
            self._ranges[self._places[tp]] = self._source.offset_range(tp, starts[tp], end)


class RangeSource:
    """Makes the rows of one session and one set of options of Spark's Kafka source.

    Args:
        spark: the session.
        options: of the source, without partitions and offsets.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - pyspark has no public way to the JVM
        kafka = jvm.org.apache.spark.sql.kafka010
        has_headers = options["includeHeaders"] == "true"
        converter = kafka.KafkaRecordToRowConverter
        own = converter()
        consumer = {
            name.lower().removeprefix(_KAFKA): value
            for name, value in options.items()
            if name.lower().startswith(_KAFKA)
        }
        tags = _singleton(jvm.scala.reflect, "ClassTag")
        self._spark = spark
        self._jvm = jvm
        self._context = spark.sparkContext._jsc.sc()  # noqa: SLF001
        self._gateway = spark.sparkContext._gateway  # noqa: SLF001
        self._range_class = kafka.KafkaOffsetRange
        self._rdd_class = kafka.KafkaSourceRDD
        self._partition_class = jvm.org.apache.kafka.common.TopicPartition
        self._no_location = _singleton(jvm.scala, "None")
        self._sequences = _singleton(jvm.scala.collection.immutable, "ArraySeq")
        self._parameters = kafka.KafkaSourceProvider.kafkaParamsForExecutors(
            jvm.PythonUtils.toScalaMap(consumer), ""
        )
        self._poll_ms = int(options[_TIMEOUT])
        self._convert = (
            own.toInternalRowWithHeaders() if has_headers else own.toInternalRowWithoutHeaders()
        )
        self._schema = converter.kafkaSchema(has_headers)
        self._row_tag = tags.apply(jvm.java.lang.Class.forName(_ROW))
        self._range_tag = tags.apply(jvm.java.lang.Class.forName(_RANGE))
        self._partitions: dict[TopicPartition, Any] = {}
        self._empty: dict[tuple[TopicPartition, ...], Any] = {}

    def open(self, partitions: Collection[TopicPartition]) -> RangeRows:
        """Return rows of these partitions, whose ranges are empty until they are set."""
        places = {tp: place for place, tp in enumerate(sorted(partitions))}
        ranges = self._empty_ranges(tuple(places)).toArray(self._range_tag)
        rdd = self._rdd_class(
            self._context,
            self._parameters,
            self._sequences.unsafeWrapArray(ranges),
            self._poll_ms,
            True,  # noqa: FBT003 - failOnDataLoss of Spark
        ).map(self._convert, self._row_tag)
        rdd.setName("kafka")
        session = self._spark._jsparkSession  # noqa: SLF001
        made = session.internalCreateDataFrame(rdd, self._schema, False)  # noqa: FBT003 - a stream
        return RangeRows(DataFrame(made, self._spark), self, places, ranges)

    def offset_range(self, tp: TopicPartition, start: int, end: int) -> Any:
        """Return Spark's object of an offset range."""
        if tp not in self._partitions:
            self._partitions[tp] = self._partition_class(tp.topic, tp.partition)
        return self._range_class(self._partitions[tp], start, end, self._no_location)

    def _empty_ranges(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """Return a sequence of empty ranges, to be copied: a call for each range is made once."""
        if partitions not in self._empty:
            made = self._gateway.new_array(self._range_class, len(partitions))
            for place, tp in enumerate(partitions):
                made[place] = self.offset_range(tp, 0, 0)
            self._empty = {partitions: self._sequences.unsafeWrapArray(made)}
        return self._empty[partitions]


def _singleton(package: Any, name: str) -> Any:
    """Return an object of Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")

"""Rows of Spark's Kafka source, for connectors whose queries compute with records.

Rules of this file:
- Rows have only the columns that the pipeline needs.
- Where records are known to be small, Spark does not measure the bytes of an Arrow batch after each
  row. Then each key, value and headers are checked: a large one ends the read.

Source:
    docs/decisions/0003-reads.md, with the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from worker.spark.batch_sizing import task_count
from worker.spark.session import held_small
from worker.spark.source_options import POLL_OPTION, range_options, stream_options
from worker.task.read_ledger import OffsetRanges, Offsets
from worker.task.source.task_source import SourceStream, TaskSource

_HEADERS = "array<struct<key: string, value: binary>>"
_HEADER_BYTES = 16  # overhead of each header, such as its offsets in Arrow
_OF_ANY_SIZE = {"key": "binary", "value": "binary", "headers": _HEADERS}


@dataclass(slots=True)
class SourceRows(TaskSource):
    """The rows of one task."""

    # a column is made by dozens of calls into the JVM, and can be used in any number of reads
    _selected: dict[bool, list[Column]] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def spark_task_count(ranges: OffsetRanges, cores: int, *, is_ordered: bool) -> int:
        """Return how many Spark tasks read a batch that is not small."""
        counts = ranges.record_counts()
        uncombined = len(counts) if is_ordered else max(len(counts), cores)
        return task_count(counts, cores) or uncombined

    def batch(
        self,
        ranges: OffsetRanges,
        *,
        may_pass_ends: bool = False,  # noqa: ARG002 - of the base; Spark reads exactly the ranges
    ) -> DataFrame:
        """Return the rows of ranges."""
        moved = ranges.not_empty()
        is_small = self.sizes.is_small(ranges.record_count_max)
        are_small = self.sizes.are_small
        options = self._options(moved.ends, is_small=is_small)
        reader = (
            self._spark(are_small=are_small)
            .read.format("kafka")
            .options(**options, **range_options(moved.starts, moved.ends))
        )
        return self._chosen(reader.load(), ranges, are_small=are_small)

    def stream(self, starts: Offsets, records_max: int, *, is_small: bool) -> SourceStream:
        """Return a stream; its plan holds for all of its batches."""
        are_small = self.sizes.are_small
        options = self._options(starts, is_small=is_small)
        reader = (
            self._spark(are_small=are_small)
            .readStream.format("kafka")
            .options(**options, **stream_options(starts, records_max))
        )
        return SourceStream(
            reader.load(), lambda rows, ranges: self._chosen(rows, ranges, are_small=are_small)
        )

    def _chosen(self, rows: DataFrame, ranges: OffsetRanges, *, are_small: bool) -> DataFrame:
        """Return the needed columns, over the right number of Spark tasks.

        Args:
            rows: of the source.
            ranges: their offsets.
            are_small: whether records were known to be small when the rows were made.
        """
        if are_small not in self._selected:
            self._selected[are_small] = [
                source_column(name, is_small=are_small) for name in self.columns
            ]
        chosen = rows.select(*self._selected[are_small])
        if self.sizes.is_small(ranges.record_count_max):
            return chosen.coalesce(1)
        count = task_count(ranges.record_counts(), self.session.cores)
        return chosen.coalesce(count) if count else chosen

    def _options(self, partitions: Offsets, *, is_small: bool) -> dict[str, str]:
        options = dict(self.options)
        polled = self.sizes.poll_records(len(partitions))
        if polled < int(options[POLL_OPTION]):
            options[POLL_OPTION] = str(polled)
            options["kafka.group.id"] += f"-{polled}"
        may_split = not is_small and not self.is_ordered
        if may_split and len(partitions) < self.session.cores:  # cores would be idle otherwise
            options["minPartitions"] = str(self.session.cores)
        return options

    def _spark(self, *, are_small: bool) -> SparkSession:
        return self.session.of_rows if are_small else self.session.spark


def source_column(name: str, *, is_small: bool) -> Column:
    """Return a column of the source: headers are never null, the size of small values is checked.

    Headers must not be null: where Spark reads the size of the Arrow vectors after each row, Arrow
    fills the list offsets from the last value that is not null. That takes quadratic time.
    """
    column, text = F.col(name), F.col(name)
    if name == "headers":
        column = F.coalesce(column, F.array().cast(_HEADERS))
        values = F.col("headers.value").cast("array<string>")
        text = F.concat_ws("", F.col("headers.key"), values)
    if is_small and name in _OF_ANY_SIZE:
        size = F.octet_length(text)
        if name == "headers":
            size = size + _HEADER_BYTES * F.size(column)
        column = held_small(column, size, _OF_ANY_SIZE[name])
    return column.alias(name)

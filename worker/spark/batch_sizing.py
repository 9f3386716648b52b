"""Decides how much a task reads at once, in records and in bytes.

Rules of this file:
- Kafka reports how many offsets wait, not how many bytes. Bytes are estimated from the mean size of
  the last records; before the first read, from a default.
- A Kafka consumer keeps all records of its last poll, and Spark keeps a consumer per partition. A
  fetch is bounded in compressed bytes only. So the records of a poll are bounded as well, by their
  mean size, and before that is known by a low number.
- A batch of a backlog takes a commit interval, as far as the last batches show how fast the task
  is. So a commit has one file per table and Spark task, as a commit of the Java sink has.
- Rows for outputs are held in memory until they are sent. So a batch has at most as many records as
  make ``MESSAGE_BYTES_MAX`` of them, by the mean of the last records.
- A batch with results that do not fit into memory is read again in smaller batches. The size
  doubles with each batch that succeeds.
- If records are small on average, their Arrow batches to Python are bounded in rows. A single large
  record then ends the read. This read and all later ones are bounded in bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from connect.model.layout import TopicPartition
from worker.batch.descriptors import PartitionProgress
from worker.batch.error_rows import DEAD_LETTERS_FULL, LARGE_RECORD, OUTPUT_FULL

FIRST_RECORDS: Final = 10_000
SMALL_RECORDS: Final = 200_000
BATCH_RECORDS: Final = 1_000_000
SMALL_BYTES: Final = 48 * 2**20
BATCH_GROWTH: Final = 64  # how much larger a batch may become by the measured speed
BATCH_BYTES: Final = 2**30
BATCH_MS_MAX: Final = 60_000  # of the batches of a query; a killed worker repeats so much work
BATCH_READ_MS_MAX: Final = 10_000  # of a batch read: nothing is answered until it ends
STEADY: Final = 1.25  # the speed is known once a batch is at most this much faster than the last
SIZE_CHANGE_MAX: Final = 2  # a query ends when its batches should be this much larger or smaller
IMBALANCE_MAX: Final = 1.25  # of the largest Spark task, compared with the mean
MESSAGE_BYTES_MAX: Final = 64 * 2**20  # of dead letters and rows that wait for an announcement
SMALL_ROWS: Final = 5_000  # of an Arrow batch to Python
SMALL_ROWS_BYTES: Final = 16 * 2**20  # expected size of such a batch
LARGE_BYTES: Final = 32 * 2**10  # of a key, a value or headers; a batch has at most 150 MiB of them
POLLS: Final = (
    5_000,
    500,
    50,
    5,
)  # records; only a few sizes, because each size has separate consumers
FIRST_POLL: Final = 50  # Spark asks the broker for two offsets at each poll
POLL_BYTES: Final = 128 * 2**20  # for all partitions together
_DEFAULT_BYTES: Final = 1_000
_DEFAULT_WEIGHT_RECORDS: Final = 100  # the default size has the weight of this many records
_WINDOW_RECORDS: Final = 50_000
_SHRINK: Final = 8


@dataclass(slots=True)
class ReadSpeed:
    """How fast a task processes a backlog.

    Args:
        batch_ms: how long a micro-batch should take; with 0, the speed changes nothing.

    Attributes:
        is_known: whether the last batches were about equally fast.
    """

    batch_ms: int = 0
    is_known: bool = field(default=False, init=False)
    _records_per_ms: float = field(default=0.0, init=False)

    @property
    def must_be_measured(self) -> bool:
        """Whether another batch is needed before the size of batches is fixed."""
        return self.batch_ms > 0 and not self.is_known

    @property
    def batch_records(self) -> int:
        """Number of records in a batch of ``batch_ms``."""
        return self.records_in(self.batch_ms)

    def records_in(self, duration_ms: float) -> int:
        """Return how many records the task reads in this time; 0 if that is unknown."""
        return int(self._records_per_ms * duration_ms)

    def duration_ms(self, record_count: int) -> float:
        """Return how long a batch of so many records is expected to take; 0 if that is unknown."""
        return record_count / self._records_per_ms if self._records_per_ms else 0.0

    def add(self, records: int, took_ms: float) -> None:
        """Take the last batch. The first ones are slower, because Java still compiles code."""
        records_per_ms = records / max(took_ms, 1)
        self.is_known = self.is_known or records_per_ms <= self._records_per_ms * STEADY
        self._records_per_ms = records_per_ms


@dataclass(slots=True)
class ReadSizes:
    """The sizes of one task's reads.

    Args:
        small_records: one Spark task reads up to this many records, into one file per table.
        batch_records: upper bound of a micro-batch in a backlog, until the speed is known.
        small_bytes: reads with more bytes of keys and values use all cores.
        batch_bytes: the same bound in bytes of keys and values. Rows are written while they are
            read, so memory does not depend on it.
        speed: allows larger micro-batches once it is measured.

    Attributes:
        are_known: whether the size of records is known from a batch.
        may_enlarge: whether a query may make rows of any size from the records.
    """

    small_records: int = SMALL_RECORDS
    batch_records: int = BATCH_RECORDS
    small_bytes: int = SMALL_BYTES
    batch_bytes: int = BATCH_BYTES
    speed: ReadSpeed = field(default_factory=ReadSpeed)
    _records: float = field(default=_DEFAULT_WEIGHT_RECORDS, init=False)
    _bytes: float = field(default=_DEFAULT_WEIGHT_RECORDS * _DEFAULT_BYTES, init=False)
    _output_bytes: float = field(default=0.0, init=False)
    _shrunk: int | None = field(default=None, init=False)
    are_known: bool = field(default=False, init=False)
    may_enlarge: bool = field(default=False, init=False)
    _has_large: bool = field(default=False, init=False)

    def is_small(self, record_count: int) -> bool:
        """Return whether one Spark task reads this many records."""
        return (
            self._shrunk is None
            and record_count <= self.small_records
            and record_count * self._bytes <= self.small_bytes * self._records
        )

    def bytes_of(self, record_count: int) -> int:
        """Return the expected bytes of keys and values of so many records."""
        return int(record_count * self._bytes / self._records)

    @property
    def records_max(self) -> int:
        """Upper bound of records in a micro-batch of a backlog; at least one."""
        fitting = int(self.batch_bytes * self._records / max(self._bytes, 1))
        least = min(self.batch_records, fitting)
        timely = min(self.speed.batch_records, least * BATCH_GROWTH)
        largest = max(least, timely)
        if self._output_bytes:
            largest = min(largest, int(MESSAGE_BYTES_MAX * self._records / self._output_bytes))
        return max(1, min(largest, self._shrunk or largest))

    def has_outgrown(self, records_max: int) -> bool:
        """Return whether the bound has changed so much that a query should not keep this one.

        Not after a batch that did not fit: a query then keeps the size that fits.
        """
        now = self.records_max
        return (
            self._shrunk is None
            and not records_max / SIZE_CHANGE_MAX <= now <= records_max * SIZE_CHANGE_MAX
        )

    @property
    def must_measure_speed(self) -> bool:
        """Whether batches may become larger by their speed, which is not known yet.

        Not after a batch that did not fit: a query then keeps the size that fits.
        """
        return self._shrunk is None and self.speed.must_be_measured

    @property
    def are_small(self) -> bool:
        """Whether records are expected to be small; the size of each is still checked."""
        if self.may_enlarge or self._has_large or not self.are_known:
            return False
        return self._bytes * SMALL_ROWS <= SMALL_ROWS_BYTES * self._records

    @property
    def first_records(self) -> int:
        """Number of records in a batch that may run twice."""
        return min(FIRST_RECORDS, self.records_max)

    def poll_records(self, partition_count: int) -> int:
        """Return how many records each consumer may poll, with this many partitions."""
        if not self.are_known:
            return FIRST_POLL
        each = self._bytes / self._records * partition_count
        return next((records for records in POLLS if records * each <= POLL_BYTES), POLLS[-1])

    def add(
        self,
        progress: Mapping[TopicPartition, PartitionProgress],
        took_ms: float = 0,
        *,
        output_bytes: int = 0,
    ) -> None:
        """Update the mean size of records, and the speed, with a batch that succeeded.

        Args:
            progress: its records.
            took_ms: its duration; 0 if it was not measured.
            output_bytes: of its rows for outputs.
        """
        read = sum(counted.read for counted in progress.values())
        if read > self.small_records and took_ms:
            self.speed.add(read, took_ms)
        size = sum(counted.bytes_read for counted in progress.values())
        self.are_known = True
        share = min(1.0, max(0, _WINDOW_RECORDS - read) / self._records)
        self._records, self._bytes = self._records * share + read, self._bytes * share + size
        self._output_bytes = self._output_bytes * share + output_bytes
        if self._shrunk is not None:
            grown = self._shrunk * 2
            self._shrunk = grown if grown < self.batch_records else None

    def adapt_to(self, code: str, record_count: int) -> bool:
        """Change the sizes after a failed read; return whether a retry can succeed.

        Args:
            code: code of the error that ended the read.
            record_count: upper bound of records in one batch of that read.
        """
        if code == LARGE_RECORD:
            is_first = not self._has_large
            self._has_large = True
            return is_first
        return code in (DEAD_LETTERS_FULL, OUTPUT_FULL) and self.shrink(record_count)

    def shrink(self, record_count: int) -> bool:
        """Read fewer records from now on; return whether batches can become smaller."""
        before = min(record_count, self.records_max)
        self._shrunk = max(1, before // _SHRINK)
        return self._shrunk < before


def task_count(records: Collection[int], cores: int) -> int | None:
    """Return how many Spark tasks read the partitions of a backlog; None for one per partition.

    Each Spark task makes a file per table, so there should be one per core. Spark groups whole
    partitions by their number and not by their records. With unequal partitions a core would be
    idle at the end, so they stay single and Spark gives the next one to a free core.

    Args:
        records: number of records of each partition.
        cores: number of Spark tasks that run in parallel.
    """
    if len(records) <= cores:
        return None
    group = -(-len(records) // cores)
    largest = sum(sorted(records, reverse=True)[:group])
    return cores if largest * cores <= IMBALANCE_MAX * sum(records) else None

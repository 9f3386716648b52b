"""How much a task reads at once: bounded in records and in bytes.

Rules of this file:
- The log tells how many offsets wait, not how many bytes. Those come from the mean of the records
  read last; before any were read, of a guess.
- Kafka's consumer keeps all records of its last poll, and Spark keeps a consumer per partition. A
  fetch is bounded in compressed bytes only, so polls are bounded by the mean, too; before it is
  known, by few records.
- A batch that held too much to be kept is read again in smaller ones. They grow again with each
  batch that goes well.
- Records that are small on average go to Python in batches bounded in rows. That one of them is
  large all the same ends the read; it is read again, as is all that comes, with bytes bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from connect.model.layout import TopicPartition
from worker.batch.descriptors import PartitionProgress
from worker.batch.error_rows import LARGE_RECORD, LETTERS_FULL

FIRST_RECORDS: Final = 10_000
SMALL_RECORDS: Final = 200_000
BATCH_RECORDS: Final = 1_000_000
SMALL_BYTES: Final = 48 * 2**20
BATCH_BYTES: Final = 2**30
LETTER_BYTES_MAX: Final = 64 * 2**20  # of dead letters that wait for a round
SMALL_ROWS: Final = 5_000  # of a batch on its way to Python
SMALL_ROWS_BYTES: Final = 16 * 2**20  # expected of such a batch
LARGE_BYTES: Final = 32 * 2**10  # a key, a value or headers; so a batch has 150 MiB of them at most
POLLS: Final = (5_000, 500, 50, 5)  # records; few sizes, as each has consumers of its own
FIRST_POLL: Final = 50  # Spark asks the broker for two offsets at each poll
POLL_BYTES: Final = 128 * 2**20  # of all partitions together
_GUESS_BYTES: Final = 1_000
_GUESS_RECORDS: Final = 100  # so many records weigh as much as the guess
_WINDOW_RECORDS: Final = 50_000
_SHRINK: Final = 8


@dataclass(slots=True)
class ReadSizes:
    """The sizes of one task's reads.

    Args:
        small_records: up to so many records are read by one Spark task into one file per table.
        batch_records: bound of a micro-batch in a backlog.
        small_bytes: more bytes than these, keys and values, are spread over all cores.
        batch_bytes: as ``batch_records``, in bytes of keys and values; it is aimed at.

    Attributes:
        are_known: whether a batch was read yet.
        may_enlarge: whether rows of any size may follow the records to Python.
    """

    small_records: int = SMALL_RECORDS
    batch_records: int = BATCH_RECORDS
    small_bytes: int = SMALL_BYTES
    batch_bytes: int = BATCH_BYTES
    _records: float = field(default=_GUESS_RECORDS, init=False)
    _bytes: float = field(default=_GUESS_RECORDS * _GUESS_BYTES, init=False)
    _shrunk: int | None = field(default=None, init=False)
    are_known: bool = field(default=False, init=False)
    may_enlarge: bool = field(default=False, init=False)
    _has_large: bool = field(default=False, init=False)

    def is_small(self, record_count: int) -> bool:
        """Whether so many records are one Spark task's work."""
        return (
            self._shrunk is None
            and record_count <= self.small_records
            and record_count * self._bytes <= self.small_bytes * self._records
        )

    @property
    def records_max(self) -> int:
        """Records of a micro-batch in a backlog; of each partition that moves, one at least."""
        fitting = int(self.batch_bytes * self._records / max(self._bytes, 1))
        return max(1, min(self.batch_records, fitting, self._shrunk or self.batch_records))

    @property
    def are_small(self) -> bool:
        """Whether records may be taken to be small, as long as each is looked at."""
        if self.may_enlarge or self._has_large or not self.are_known:
            return False
        return self._bytes * SMALL_ROWS <= SMALL_ROWS_BYTES * self._records

    @property
    def first_records(self) -> int:
        """Records of a batch that may have to be run twice."""
        return min(FIRST_RECORDS, self.records_max)

    def poll_records(self, partition_count: int) -> int:
        """Records that the consumers of so many partitions may get from one poll each."""
        if not self.are_known:
            return FIRST_POLL
        each = self._bytes / self._records * partition_count
        return next((records for records in POLLS if records * each <= POLL_BYTES), POLLS[-1])

    def add(self, progress: Mapping[TopicPartition, PartitionProgress]) -> None:
        """Learn from a batch that went well."""
        read = sum(counted.read for counted in progress.values())
        size = sum(counted.bytes_read for counted in progress.values())
        self.are_known = True
        share = min(1.0, max(0, _WINDOW_RECORDS - read) / self._records)
        self._records, self._bytes = self._records * share + read, self._bytes * share + size
        if self._shrunk is not None:
            grown = self._shrunk * 2
            self._shrunk = grown if grown < self.batch_records else None

    def can_adapt(self, code: str, record_count: int) -> bool:
        """Whether what was not kept can be read in another way from now on.

        Args:
            code: of the error that ended a read, whatever it was.
            record_count: what a batch of it had at most.
        """
        if code == LARGE_RECORD:
            was_known, self._has_large = self._has_large, True
            return not was_known
        return code == LETTERS_FULL and self.shrink(record_count)

    def shrink(self, record_count: int) -> bool:
        """A batch of so many records, or fewer, held too much; whether smaller ones can be read."""
        before = min(record_count, self.records_max)
        self._shrunk = max(1, before // _SHRINK)
        return self._shrunk < before

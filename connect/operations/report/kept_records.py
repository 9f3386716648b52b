"""The records that a report keeps: the latest of each key, or all.

Rules of this file:
- Two records have the same key if the bytes of their keys are equal, as in Kafka's compaction.
- The latest record of a key in one partition has the highest offset. If partitions were added, a
  key may be in several; then the record with the latest timestamp counts.
- A tombstone is kept while records are read: it may be later than a record of another partition.
- Memory is bounded. The limits are those of the whole report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from connect.errors import ConfigError
from connect.model.records import KafkaRecord

RECORD_BYTES: Final = 600
"""Memory of a record besides its bytes: objects of Python."""
CELL_BYTES: Final = 8
"""Memory of a value in a column besides its bytes, also of null."""


class ReportTooLarge(ConfigError):  # noqa: N818 - says what the report is
    """The report needs more records or memory than its limits allow."""

    default_code = "report_too_large"


@dataclass(slots=True)
class ReportLimits:
    """Limits of one report, and what its tables use of them.

    Attributes:
        records_max: records that are kept at a time.
        bytes_max: their memory.
        records: kept now.
        size_bytes: their memory now.
        cells: values in the columns of the tables.
    """

    records_max: int
    bytes_max: int
    records: int = 0
    size_bytes: int = 0
    cells: int = 0

    def replace(self, old: KafkaRecord | None, new: KafkaRecord) -> None:
        """Count a record, in place of another one.

        Raises:
            ReportTooLarge: it exceeds a limit.
        """
        self.records += old is None
        self.size_bytes += _size(new) - (0 if old is None else _size(old))
        if self.records > self.records_max:
            raise ReportTooLarge(
                f"the report keeps more than {self.records_max:,} records: raise --max-records, "
                "or read less with --from-timestamp",
                topic=new.topic,
            )
        if self.size_bytes > self.bytes_max:
            raise ReportTooLarge(
                f"the records of the report need more than {self.bytes_max:,} bytes: raise "
                "--max-bytes, or read less with --from-timestamp",
                topic=new.topic,
            )

    def add_cells(self, cells: int, topic: str) -> None:
        """Count the values of a record in the columns of its table.

        Raises:
            ReportTooLarge: the tables need too much memory.
        """
        self.cells += cells
        if self.cells * CELL_BYTES > self.bytes_max:
            raise ReportTooLarge(
                f"the tables of the report need more than {self.bytes_max:,} bytes: raise "
                "--max-bytes, or read less with --from-timestamp. A field of one record takes "
                "memory in all of them",
                topic=topic,
            )


class KeptRecords:
    """The records of one topic that a report keeps.

    Args:
        limits: of the report.
        is_latest: keep the latest record of each key; otherwise all.

    Attributes:
        without_key: records without a key, if only the latest of each key are kept.
    """

    def __init__(self, limits: ReportLimits, *, is_latest: bool) -> None:
        self._limits = limits
        self._is_latest = is_latest
        self._all: list[KafkaRecord] = []
        self._latest: dict[tuple[int, bytes], KafkaRecord] = {}
        self.without_key: list[KafkaRecord] = []

    def add(self, records: Iterable[KafkaRecord]) -> None:
        """Keep records; those of a partition come in the order of their offsets.

        Raises:
            ReportTooLarge: a limit is exceeded.
        """
        for record in records:
            if not self._is_latest:
                self._limits.replace(None, record)
                self._all.append(record)
            elif record.key is None:
                self._limits.replace(None, record)
                self.without_key.append(record)
            else:
                place = record.partition, record.key
                self._limits.replace(self._latest.get(place), record)
                self._latest[place] = record

    def rows(self) -> list[KafkaRecord]:
        """Return the records of the table, by partition and offset; no tombstones of keys."""
        if not self._is_latest:
            return sorted(self._all, key=lambda r: (r.partition, r.offset))
        by_key: dict[bytes, KafkaRecord] = {}
        for (_, key), record in self._latest.items():
            other = by_key.get(key)
            if other is None or _age(other) < _age(record):
                by_key[key] = record
        present = (record for record in by_key.values() if record.value is not None)
        return sorted(present, key=lambda r: (r.partition, r.offset))


def _age(record: KafkaRecord) -> tuple[int, int]:
    return (-1 if record.timestamp_ms is None else record.timestamp_ms, record.partition)


def _size(record: KafkaRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers

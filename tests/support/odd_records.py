"""Records with nulls, headers and odd bytes, and what a read returns of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.support.source_reads import as_records
from worker.task.read_ledger import OffsetRanges

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
ODD_RECORDS: tuple[dict[str, Any], ...] = (
    {"value": b"{}"},
    {"value": None, "key": b"tombstone"},
    {"value": b"", "key": b""},
    {"value": b"x", "headers": []},
    {"value": b"y", "headers": [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]},
    {"value": b"\xff\x00" * 70_000, "key": "schlüssel", "headers": [("größe", b"\x00")]},
    {"value": None, "headers": [("only", b"header")]},
)


class Records:
    """Collects the records of micro-batches, with all columns."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def __call__(self, rows: DataFrame, _: OffsetRanges) -> None:
        """Take a batch."""
        self.tables.append(
            as_records(
                rows,
                topic="string",
                partition="int",
                offset="bigint",
                timestamp="timestamp",
                key="binary",
                value="binary",
                headers="array<struct<key: string, value: binary>>",
            )
        )

    def sorted(self) -> list[dict[str, Any]]:
        """Return all records in the order of their coordinates."""
        rows: list[dict[str, Any]] = pa.concat_tables(self.tables).to_pylist()
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))

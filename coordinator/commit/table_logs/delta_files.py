"""Announced data files as files of a Delta table: partition values and statistics.

Rules of this file:
- A statistic that is not certainly right for Delta's readers is left out. Bounds of floating point
  numbers are, unless the worker counted no NaN: Parquet leaves NaN out, and Spark orders it last.
- A file whose columns the table does not have with the same types is refused: the table's schema
  was replaced after the file was written.

Source:
    Delta transaction log protocol, "Partition Value Serialization", "Per-file Statistics".
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from connect.errors import CommitRefused
from connect.gateways.delta.delta_model import DeltaFile, DeltaVersion
from connect.gateways.delta.delta_schema import Leaf, Path, leaves
from connect.model.partition_text import date_text, instant_text
from control_schemas.events import ContentFile, FileContent
from coordinator.commit.rules.announced_files import verify_present
from coordinator.commit.rules.held_files import (
    created_ms,
    history_expired,
    oldest_created_ms,
)

_DAY_US: Final = 86_400_000_000
_FIRST_US: Final = -719_162 * _DAY_US
"""Begin of the year 1. Readers know no other years."""
_END_US: Final = 2_932_897 * _DAY_US
"""End of the year 9999."""
_BOUNDED: Final = (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
_JSON_DIGITS_MAX: Final = 15


def delta_file(file: ContentFile, table: DeltaVersion, now_ms: int) -> DeltaFile:
    """Return an announced file as a file to add.

    Args:
        file: below the table's location.
        table: the version that it is added to.
        now_ms: wall clock; the time of a file whose name does not say when it was written.

    Raises:
        CommitRefused: ``delta_deletes``, ``schema_replaced``, ``file_outside_table``.
    """
    if file.content is not FileContent.DATA:
        raise CommitRefused(
            "delete files cannot be committed to a Delta table; skip them, and find the "
            "process that announced them",
            code="delta_deletes",
            file=file.file_path,
        )
    root = f"{table.location}/"
    if not file.file_path.startswith(root):
        raise CommitRefused(
            "an announced file lies outside the table's location; skip it, and find the "
            "process that announced it",
            code="file_outside_table",
            file=file.file_path,
        )
    columns = leaves(table.schema)
    if unknown := set(file.column_sizes or ()) - columns.keys():
        raise CommitRefused(
            f"a file has {len(unknown)} columns that the table does not have with the same types: "
            "its schema was replaced after the file was written; restore the schema and "
            "retry, or skip the file",
            code="schema_replaced",
            file=file.file_path,
        )
    return DeltaFile(
        path=file.file_path.removeprefix(root),
        size_bytes=file.file_size_in_bytes,
        partition_values=_partition_values(file, table),
        modified_ms=created_ms(file.file_path) or now_ms,
        stats=delta_stats(file, table, columns),
    )


def held_before(
    table: DeltaVersion,
    unverified: Collection[str],
    older: Collection[str],
    now_ms: int,
    *,
    are_verified_later: bool = False,
) -> frozenset[str]:
    """Return which announced files a version of the table held; see ``LogCommitter``.

    Args:
        table: as it was loaded.
        unverified: files that may be gone.
        older: those of them that may be older than the memory of this process.
        now_ms: wall clock.
        are_verified_later: the commit itself asks the store for its files.

    Raises:
        CommitRefused: ``file_history_expired``, ``announced_file_missing``.
        RetriableError: ``catalog_unavailable``, ``storage_unavailable``.
    """
    held: frozenset[str] = frozenset()
    timed = [path for path in older if created_ms(path) is not None]
    if timed:
        changed = table.files_since(oldest_created_ms(timed, now_ms) or 0)
        if changed is None:
            raise history_expired(timed[0])
        held = frozenset(p for p in older if p.removeprefix(f"{table.location}/") in changed)
    if not are_verified_later:
        verify_present(table.io, [path for path in unverified if path not in held])
    return held


def _partition_values(file: ContentFile, table: DeltaVersion) -> dict[str, str | None]:
    partition = {field.field_id: field.value for field in file.partition}
    expected = {part.field_id: part for part in table.spec.fields}
    if partition.keys() != expected.keys():
        raise CommitRefused(
            "a file has other partition columns than the table: its partitioning was replaced "
            "after the file was written; restore it and retry, or skip the file",
            code="schema_replaced",
            file=file.file_path,
        )
    values = {}
    for field_id, part in expected.items():
        kind = table.schema.find_type(part.source_id)
        value = partition[field_id]
        if _is_out_of_years(kind, value):
            raise CommitRefused(
                f"a file has rows with {value!r} in partition column {part.name}, outside of the "
                "years 1 to 9999, and readers would no longer open the table: skip the file, and "
                "let a transformation drop such records",
                code="delta_unsupported",
                file=file.file_path,
            )
        values[part.name] = None if value is None else partition_text(kind, value)
    return values


def _is_out_of_years(kind: IcebergType, value: Any) -> bool:
    if value is None or not isinstance(kind, DateType | TimestampType | TimestamptzType):
        return False
    instant_us = value * _DAY_US if isinstance(kind, DateType) else value
    return not _FIRST_US <= instant_us < _END_US


def partition_text(kind: IcebergType, value: Any) -> str:
    """Return a partition value in Delta's text form.

    Args:
        kind: type of the column.
        value: in Iceberg's internal form.
    """
    if isinstance(kind, BooleanType):
        return "true" if value else "false"
    if isinstance(kind, DateType):
        return date_text(value)
    if isinstance(kind, TimestamptzType):
        return f"{instant_text(value, 'T')}Z"
    if isinstance(kind, TimestampType):
        return instant_text(value, " ")
    return str(value)


def delta_stats(file: ContentFile, table: DeltaVersion, columns: Mapping[int, Leaf]) -> str:
    """Return the statistics of a file with metrics of Iceberg, as JSON.

    There are bounds of all top-level columns with values, or none: delta-rs finds no rows by a
    column without bounds if another one has them. A column with NaN has none: readers order NaN
    above all numbers, and Parquet leaves it out. The worker counts NaN.
    """
    in_folders = {part.name for part in table.spec.fields}
    stats: dict[str, Any] = {"numRecords": file.record_count}
    lows, highs, nulls = {}, {}, {}
    is_whole = True
    for field_id, leaf in columns.items():
        if leaf.is_repeated or leaf.path[0] in in_folders:
            continue
        if (count := (file.null_value_counts or {}).get(field_id)) is not None:
            nulls[leaf.path] = count
        low = _bound(leaf.kind, (file.lower_bounds or {}).get(field_id))
        high = _bound(leaf.kind, (file.upper_bounds or {}).get(field_id))
        if isinstance(leaf.kind, FloatType | DoubleType):
            may_be_nan = (file.nan_value_counts or {}).get(field_id) != 0
            low = None if may_be_nan else low
        if low is not None and high is not None:
            lows[leaf.path], highs[leaf.path] = low, high
        elif len(leaf.path) == 1 and count != file.record_count:
            is_whole = False
    if not is_whole:
        lows, highs = {}, {}
    for name, by_path in (("minValues", lows), ("maxValues", highs), ("nullCount", nulls)):
        if by_path:
            stats[name] = _nested(by_path)
    return json.dumps(stats, separators=(",", ":"), ensure_ascii=False)


def _bound(kind: IcebergType, value: bytes | None) -> Any:
    if value is None or not isinstance(kind, _BOUNDED):
        return None
    assert isinstance(kind, PrimitiveType)
    read: Any = from_bytes(kind, value)
    if _is_out_of_years(kind, read):
        return None
    if isinstance(kind, DateType):
        return date_text(read)
    if isinstance(kind, TimestamptzType | TimestampType):
        return f"{instant_text(read, 'T')}{'Z' if isinstance(kind, TimestamptzType) else ''}"
    if isinstance(kind, DecimalType):  # JSON numbers are exact up to 15 digits everywhere
        return float(read) if kind.precision <= _JSON_DIGITS_MAX else None
    if isinstance(read, float) and not math.isfinite(read):
        return None  # JSON has no such number
    return read


def _nested(by_path: Mapping[Path, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path, value in by_path.items():
        at = out
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = value
    return out

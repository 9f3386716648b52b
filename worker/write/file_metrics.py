"""Metrics of a data file from its Parquet footer, for Iceberg's manifests.

Rules of this file:
- Bounds come from the footer's raw values: dates and timestamps of any year work, and no Python
  object is made of them.
- A bound that is not known exactly is left out or made wider, never narrower.

Source:
    Iceberg's table specification, "Bounds"; truncation as in Java's ``UnicodeUtil`` and
    ``BinaryUtil``. PyIceberg's ``data_file_statistics_from_parquet_metadata`` returns equal metrics
    where it can read the values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import MetricModeTypes, StatisticsCollector
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.truncate import (
    truncate_upper_bound_binary_string,
    truncate_upper_bound_text_string,
)

_FIXED_FORMS: Final[Mapping[type[IcebergType], str]] = {
    BooleanType: "?",
    IntegerType: "<i",
    DateType: "<i",
    LongType: "<q",
    TimeType: "<q",
    TimestampType: "<q",
    TimestamptzType: "<q",
    FloatType: "<f",
    DoubleType: "<d",
}


@dataclass(slots=True)
class FileMetrics:
    """Metrics by column field id, and the starts of the row groups."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)
    split_offsets: list[int] = field(default_factory=list)


def file_metrics(
    footer: Any, collectors: Mapping[int, StatisticsCollector], ids: Mapping[str, int]
) -> FileMetrics:
    """Read the metrics of a file.

    Args:
        footer: ``pyarrow.parquet.FileMetaData``.
        collectors: which metrics to keep, by field id (``compute_statistics_plan``).
        ids: field id of each Parquet path.
    """
    metrics = FileMetrics()
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    for group in groups:
        first = group.column(0)
        starts = [first.data_page_offset]
        if first.has_dictionary_page and first.dictionary_page_offset:
            starts.append(first.dictionary_page_offset)
        metrics.split_offsets.append(min(starts))
    metrics.split_offsets.sort()
    for position in range(footer.num_columns):
        chunks = [group.column(position) for group in groups]
        if not chunks:
            continue
        field_id = ids[chunks[0].path_in_schema]
        metrics.column_sizes[field_id] = sum(c.total_compressed_size for c in chunks)
        collector = collectors[field_id]
        if collector.mode.type == MetricModeTypes.NONE:
            continue
        metrics.value_counts[field_id] = sum(c.num_values for c in chunks)
        statistics: list[Any] = [c.statistics if c.is_stats_set else None for c in chunks]
        if not all(s is not None and s.has_null_count for s in statistics):
            continue
        metrics.null_value_counts[field_id] = sum(s.null_count for s in statistics)
        if collector.mode.type != MetricModeTypes.COUNTS:
            _bounds(metrics, field_id, collector, chunks, statistics)
    return metrics


def _bounds(
    metrics: FileMetrics,
    field_id: int,
    collector: StatisticsCollector,
    chunks: list[Any],
    statistics: list[Any],
) -> None:
    """Return bounds over all row groups; none when a group with values lacks its own."""
    kind = collector.iceberg_type
    lows, highs = [], []
    for chunk, statistic in zip(chunks, statistics, strict=True):
        if statistic.null_count == chunk.num_values:
            continue
        if not statistic.has_min_max:
            return
        try:
            lows.append(_comparable(statistic.min_raw, kind))
            highs.append(_comparable(statistic.max_raw, kind))
        except pa.ArrowNotImplementedError:  # some physical types have no raw values
            return
    if not lows:
        return
    low = _low_bytes(min(lows), kind, collector.mode.length)
    high = _high_bytes(max(highs), kind, collector.mode.length)
    if low is not None:
        metrics.lower_bounds[field_id] = low
    if high is not None:
        metrics.upper_bounds[field_id] = high


def _comparable(raw: Any, kind: IcebergType) -> Any:
    """Return a raw value in a form that has the column's order."""
    if isinstance(kind, StringType):
        return raw.decode() if isinstance(raw, bytes) else raw
    if isinstance(kind, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _low_bytes(value: Any, kind: IcebergType, length: int | None) -> bytes | None:
    if isinstance(kind, StringType):
        return bytes((value if length is None else value[:length]).encode())
    if isinstance(kind, BinaryType):
        return bytes(value if length is None else value[:length])
    return _plain_bytes(value, kind)


def _high_bytes(value: Any, kind: IcebergType, length: int | None) -> bytes | None:
    if isinstance(kind, StringType):
        text = truncate_upper_bound_text_string(value, length)
        return None if text is None else text.encode()
    if isinstance(kind, BinaryType):
        data = truncate_upper_bound_binary_string(value, length)
        return None if data is None else bytes(data)
    return _plain_bytes(value, kind)


def _plain_bytes(value: Any, kind: IcebergType) -> bytes | None:
    form = _FIXED_FORMS.get(type(kind))
    if form is not None:
        return struct.pack(form, value)
    if isinstance(kind, DecimalType):
        magnitude = value if value >= 0 else -value - 1
        return bytes(value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True))
    if isinstance(kind, FixedType | UUIDType):
        return bytes(value)
    return None

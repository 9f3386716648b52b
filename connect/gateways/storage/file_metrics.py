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
import sys
from collections.abc import Callable, Mapping
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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string

_SURROGATES: Final = range(0xD800, 0xE000)
_Truncated = Callable[[Any, IcebergType, int | None], bytes | None]

_FIXED_FORMS: Final[Mapping[type[IcebergType], str]] = {
    BooleanType: "?",
    IntegerType: "<i",
    DateType: "<i",
    LongType: "<q",
    TimeType: "<q",
    TimestampType: "<q",
    TimestamptzType: "<q",
    TimestampNanoType: "<q",
    TimestamptzNanoType: "<q",
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


@dataclass(frozen=True, slots=True)
class _Column:
    """What is kept of one Parquet column.

    Attributes:
        field_id: of the Iceberg field.
        kind: its type.
        length: characters or bytes of a truncated bound; None for whole bounds.
        has_counts: whether values and nulls are counted.
        has_bounds: whether bounds are kept.
        is_text: whether bounds are texts.
        is_unscaled: whether raw bounds are big-endian integers.
        packed: makes the bytes of a bound of a type with a fixed form; None for other types.
    """

    field_id: int
    kind: IcebergType
    length: int | None
    has_counts: bool
    has_bounds: bool
    is_text: bool
    is_unscaled: bool
    packed: Callable[[Any], bytes] | None

    @classmethod
    def of(cls, field_id: int, collector: StatisticsCollector) -> _Column:
        """Return what a collector keeps."""
        mode, kind = collector.mode, collector.iceberg_type
        form = _FIXED_FORMS.get(type(kind))
        has_counts = mode.type != MetricModeTypes.NONE
        return cls(
            field_id,
            kind,
            mode.length,
            has_counts,
            has_counts and mode.type != MetricModeTypes.COUNTS,
            isinstance(kind, StringType),
            isinstance(kind, DecimalType),
            None if form is None else struct.Struct(form).pack,
        )

    def comparable(self, raw: Any) -> Any:
        """Return a raw value in a form that has the column's order; of texts that is UTF-8."""
        if self.is_unscaled and isinstance(raw, bytes):
            return int.from_bytes(raw, "big", signed=True)
        return raw

    def add_bounds(self, metrics: FileMetrics, low: Any, high: Any) -> None:
        """Keep the bounds over all row groups."""
        if self.packed is not None:
            metrics.lower_bounds[self.field_id] = self.packed(low)
            metrics.upper_bounds[self.field_id] = self.packed(high)
            return
        if (low_bytes := self._bound(low, _low_bytes)) is not None:
            metrics.lower_bounds[self.field_id] = low_bytes
        if (high_bytes := self._bound(high, _high_bytes)) is not None:
            metrics.upper_bounds[self.field_id] = high_bytes

    def _bound(self, value: Any, truncated: _Truncated) -> bytes | None:
        if self.is_text and isinstance(value, bytes):
            if self.length is None or len(value) <= self.length:
                return value  # no more characters than bytes
            value = value.decode()
        return truncated(value, self.kind, self.length)


class FooterReader:
    """Reads the metrics of files with one schema.

    Args:
        collectors: which metrics to keep, by field id (``compute_statistics_plan``).
        ids: field id of each Parquet path.
    """

    def __init__(
        self, collectors: Mapping[int, StatisticsCollector], ids: Mapping[str, int]
    ) -> None:
        self._by_path = {
            path: _Column.of(field_id, collectors[field_id])
            for path, field_id in ids.items()
            if field_id in collectors
        }
        self._columns: tuple[_Column | None, ...] | None = None

    def read(self, footer: Any) -> FileMetrics:
        """Read the metrics of a file.

        Args:
            footer: ``pyarrow.parquet.FileMetaData``.
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
        if groups:
            # files of one schema have their columns in one order
            if self._columns is None:
                paths = [groups[0].column(i).path_in_schema for i in range(footer.num_columns)]
                self._columns = tuple(self._by_path.get(path) for path in paths)
            for position, column in enumerate(self._columns):
                if column is None:  # a part of a variant
                    continue
                _read_column(metrics, column, [group.column(position) for group in groups])
        return metrics


def _read_column(metrics: FileMetrics, column: _Column, chunks: list[Any]) -> None:
    """Read a column's metrics; no bounds when a row group with values lacks its own."""
    size = values = nulls = 0
    has_nulls, has_bounds = column.has_counts, column.has_bounds
    lows: list[Any] = []
    highs: list[Any] = []
    for chunk in chunks:
        size += chunk.total_compressed_size
        if not column.has_counts:
            continue
        count = chunk.num_values
        values += count
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            has_nulls = has_bounds = False
            continue
        null_count = statistics.null_count
        nulls += null_count
        if not has_bounds or null_count == count:
            continue
        try:
            has_bounds = statistics.has_min_max
            if has_bounds:
                lows.append(column.comparable(statistics.min_raw))
                highs.append(column.comparable(statistics.max_raw))
        except pa.ArrowNotImplementedError:  # some physical types have no raw values
            has_bounds = False
    metrics.column_sizes[column.field_id] = size
    if column.has_counts:
        metrics.value_counts[column.field_id] = values
    if has_nulls:
        metrics.null_value_counts[column.field_id] = nulls
    if has_bounds and lows:
        column.add_bounds(metrics, min(lows), max(highs))


def _low_bytes(value: Any, kind: IcebergType, length: int | None) -> bytes | None:
    if isinstance(kind, StringType):
        return bytes((value if length is None else value[:length]).encode())
    if isinstance(kind, BinaryType):
        return bytes(value if length is None else value[:length])
    return _plain_bytes(value, kind)


def _high_bytes(value: Any, kind: IcebergType, length: int | None) -> bytes | None:
    if isinstance(kind, StringType):
        return _upper_text(value, length)
    if isinstance(kind, BinaryType):
        data = truncate_upper_bound_binary_string(value, length)
        return None if data is None else bytes(data)
    return _plain_bytes(value, kind)


def _upper_text(value: str, length: int | None) -> bytes | None:
    """Return a text of limited length that is not less than another one; None if there is none.

    PyIceberg's function ends after U+D7FF: the next numbers are no characters.
    """
    if length is None or len(value) <= length:
        return value.encode()
    for at in range(length - 1, -1, -1):
        code = ord(value[at]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= sys.maxunicode:
            return (value[:at] + chr(code)).encode()
    return None


def _plain_bytes(value: Any, kind: IcebergType) -> bytes | None:
    if isinstance(kind, DecimalType):
        magnitude = value if value >= 0 else -value - 1
        return bytes(value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True))
    if isinstance(kind, FixedType | UUIDType):
        return bytes(value)
    return None

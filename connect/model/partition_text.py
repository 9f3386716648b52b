"""Partition values as text, for every value that a column can have.

Rules of this file:
- Instants and dates outside of the years 1 to 9999 are values of a table as others: a number in the
  wrong unit is one. PyIceberg and Python's dates raise an error for them.
- The name of a folder is only a name: readers take the values of partitions from the metadata.

Source:
    PyIceberg 0.12.0 ``PartitionSpec.partition_to_path``; Iceberg 1.12.0 ``TransformUtil``, whose
    dates have any year.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform
from pyiceberg.types import IcebergType

_EPOCH: Final = date(1970, 1, 1)
_CYCLE_DAYS: Final = 146_097
_CYCLE_YEARS: Final = 400
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """A partition as a location provider takes it."""

    path: str

    def to_path(self) -> str:
        """Return the partition's folder."""
        return self.path


def partition_folder(spec: PartitionSpec, schema: Schema, values: Sequence[Any]) -> str:
    """Return the folder of a partition below the data of a table.

    Args:
        spec: with fields.
        schema: of the table.
        values: of the fields of the spec, in Iceberg's internal form.
    """
    kinds = spec.partition_type(schema).fields
    parts = zip(spec.fields, kinds, values, strict=True)
    return "/".join(
        f"{quote_plus(part.name, safe='')}="
        f"{quote_plus(value_text(part.transform, kind.field_type, value), safe='')}"
        for part, kind, value in parts
    )


def value_text(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> str:
    """Return a partition value as Iceberg writes it; outside of the years 1 to 9999 as a number.

    Args:
        transform: of the field.
        kind: of the value.
        value: in Iceberg's internal form.
    """
    try:
        return transform.to_human_string(kind, value)
    except OverflowError:
        return f"epoch{value:+d}"


def date_text(days: int) -> str:
    """Return a date as year, month and day; the year has four digits or more.

    Args:
        days: since 1970.
    """
    cycles, day_of_cycle = divmod(days, _CYCLE_DAYS)
    within = _EPOCH + timedelta(days=day_of_cycle)
    year = within.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{within:%m-%d}"


def instant_text(instant_us: int, separator: str) -> str:
    """Return an instant with microseconds, and a year as in ``date_text``.

    Args:
        instant_us: since 1970.
        separator: between date and time.
    """
    days, time_us = divmod(instant_us, _DAY_US)
    seconds, micros = divmod(time_us, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    time = f"{hour:02d}:{minute:02d}:{second:02d}.{micros:06d}"
    return f"{date_text(days)}{separator}{time}"

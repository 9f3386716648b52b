"""Partition specs, parsed from the terms of ``iceberg.tables.default-partition-by``.

Rules of this file:
- The terms are those of the Java sink: a column name, or year(s), month(s), day(s), hour(s) of a
  column, ``bucket(column, count)``, ``truncate(column, width)``. Transforms are lower case. Column
  names match exactly.
- An invalid term is an error. It never results in an unpartitioned table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from connect.errors import ConfigError, RecordError

_CALL: Final = re.compile(r"(\w+)\((.+)\)")
_TIMES: Final[dict[str, tuple[Callable[[], Transform[Any, Any]], str]]] = {
    "year": (YearTransform, "year"),
    "month": (MonthTransform, "month"),
    "day": (DayTransform, "day"),
    "hour": (HourTransform, "hour"),
}


@dataclass(frozen=True, slots=True)
class Term:
    """A field of a partition spec, not yet bound to a column.

    Attributes:
        text: the term as written.
        column: the source column's full name.
        transform: pyiceberg's transform.
        suffix: suffix of the partition field's name; empty for identity.
    """

    text: str
    column: str
    transform: Transform[Any, Any]
    suffix: str


def parse_terms(texts: Sequence[str]) -> tuple[Term, ...]:
    """Parse terms.

    Raises:
        ConfigError: code ``partition_spec``; a term is invalid.
    """
    return tuple(_term(text) for text in texts if text)


def check_terms(texts: Sequence[str]) -> None:
    """Check terms as far as possible without a schema.

    Raises:
        ConfigError: a term is invalid or duplicated, or two terms conflict.
    """
    taken: set[str] = set()
    times: dict[str, str] = {}
    for term in parse_terms(texts):
        name = term.column + term.suffix
        if name in taken:
            raise _bad(term.text, f"the partition field {name!r} already exists")
        taken.add(name)
        if isinstance(term.transform, TimeTransform):
            if term.column in times:
                raise _bad(term.text, f"redundant with {times[term.column]!r}")
            times[term.column] = term.text


def _term(text: str) -> Term:
    try:
        return read_term(text)
    except ValueError as error:
        raise _bad(text, str(error)) from None


def read_term(text: str) -> Term:
    """Parse a term.

    Raises:
        ValueError: the term is invalid; the message says why.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        return Term(text, text, IdentityTransform(), "")
    name, argument = match[1], match[2]
    time = _TIMES.get(name) or (_TIMES.get(name[:-1]) if name.endswith("s") else None)
    if time is not None:
        return Term(text, argument, time[0](), "_" + time[1])
    if name not in ("bucket", "truncate"):
        raise ValueError(f"unknown transform {name!r}")
    parts = [part.strip() for part in argument.split(",")]
    if len(parts) != 2 or not re.fullmatch(r"[+-]?[0-9]{1,9}", parts[1]):
        raise ValueError(f"{name} requires a column and a whole number")
    number = int(parts[1])
    if number <= 0:
        raise ValueError(f"{name} requires a number above 0")
    if name == "bucket":
        return Term(text, parts[0], BucketTransform(number), "_bucket")
    return Term(text, parts[0], TruncateTransform(number), "_trunc")


def _bad(text: str, message: str) -> ConfigError:
    return ConfigError(f"partition term {text!r}: {message}", code="partition_spec")


def spec_for(texts: Sequence[str], schema: Schema) -> PartitionSpec:
    """Build the spec of a new table.

    Args:
        texts: terms, e.g. ``("day(ts)", "bucket(id, 16)")``.
        schema: the table's schema with its final field ids.

    Raises:
        ConfigError: a term is invalid, or two terms conflict.
        RecordError: code ``partition_spec``; the record that defines the table's schema lacks the
            column, or the transform does not support the column's type.
    """
    fields: list[PartitionField] = []
    taken: dict[str, str] = {}
    times: dict[int, str] = {}
    for term in parse_terms(texts):
        column = _source(term, schema)
        name = term.column + term.suffix
        if name in taken:
            raise _bad(term.text, f"the partition field {name!r} already exists")
        if term.suffix and name in schema.column_names:
            raise RecordError(
                f"partition term {term.text!r}: the table already has a column {name!r}",
                code="partition_spec",
            )
        if isinstance(term.transform, TimeTransform):
            if column.field_id in times:
                raise _bad(term.text, f"redundant with {times[column.field_id]!r}")
            times[column.field_id] = term.text
        taken[name] = term.text
        fields.append(
            PartitionField(
                source_id=column.field_id,
                field_id=PARTITION_FIELD_ID_START + len(fields),
                transform=term.transform,
                name=name,
            )
        )
    return PartitionSpec(*fields)


def _source(term: Term, schema: Schema) -> NestedField:
    try:
        return source_column(term, schema)
    except ValueError as error:
        raise RecordError(f"partition term {term.text!r}: {error}", code="partition_spec") from None


def source_column(term: Term, schema: Schema) -> NestedField:
    """Return the column of a term.

    Raises:
        ValueError: the column does not exist, is inside a list or map, or has an unsupported type.
    """
    try:
        column = schema.find_field(term.column)
    except ValueError:
        raise ValueError(f"the table has no column {term.column!r}") from None
    if not column.field_type.is_primitive or not term.transform.can_transform(column.field_type):
        why = f"the transform does not support {column.field_type}"
        if isinstance(term.transform, TimeTransform) and isinstance(
            column.field_type, StringType | IntegerType | LongType
        ):
            why += f"; {term.column} is no time: convert it with the transformation ParseTimestamp"
        raise ValueError(why)
    try:
        schema.accessor_for_field(column.field_id)
    except ValueError:
        raise ValueError(f"column {term.column!r} is inside a list or map") from None
    return column

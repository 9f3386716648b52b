"""Sort orders, parsed from the terms of ``iceberg.tables.default-sort-by``.

Rules of this file:
- A term is a term of a partition spec, then optionally ``asc`` or ``desc``, then optionally ``nulls
  first`` or ``nulls last``, in any case. As in Spark, the number of ``bucket`` and ``truncate`` may
  be the first argument.
- The default is ascending. By default, nulls are first in ascending and last in descending order.
- An invalid term is an error. It never results in an unsorted table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import Transform

from connect.errors import ConfigError, RecordError
from connect.records.tables.partition_spec import Term, read_term, source_column

_TERM: Final = re.compile(
    r"(?P<by>\w+\(.+\)|\S+?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?",
    re.IGNORECASE,
)
_NUMBER_FIRST: Final = re.compile(r"(bucket|truncate)\(\s*([0-9]+)\s*,\s*(.*[^0-9\s].*?)\s*\)")


@dataclass(frozen=True, slots=True)
class SortTerm:
    """A field of a sort order, not yet bound to a column."""

    text: str
    by: Term
    direction: SortDirection
    nulls: NullOrder


def parse_sort_terms(texts: Sequence[str]) -> tuple[SortTerm, ...]:
    """Parse terms.

    Raises:
        ConfigError: code ``sort_order``; a term is invalid, or repeats an earlier term.
    """
    terms: list[SortTerm] = []
    taken: dict[tuple[str, Transform[Any, Any]], str] = {}
    for text in filter(None, texts):
        term = _term(text)
        before = taken.setdefault((term.by.column, term.by.transform), text)
        if before is not text:
            raise _bad(text, f"it repeats {before!r}")
        terms.append(term)
    return tuple(terms)


def _term(text: str) -> SortTerm:
    match = _TERM.fullmatch(text)
    if match is None:
        raise _bad(text, "expected <column or transform> [asc|desc] [nulls first|last]")
    try:
        by = read_term(_NUMBER_FIRST.sub(r"\1(\3,\2)", match["by"]))
    except ValueError as error:
        raise _bad(text, str(error)) from None
    is_down = (match["way"] or "").lower() == "desc"
    nulls = (match["nulls"] or ("last" if is_down else "first")).lower()
    return SortTerm(
        text,
        by,
        SortDirection.DESC if is_down else SortDirection.ASC,
        NullOrder.NULLS_FIRST if nulls == "first" else NullOrder.NULLS_LAST,
    )


def _bad(text: str, message: str) -> ConfigError:
    return ConfigError(f"sort term {text!r}: {message}", code="sort_order")


def sort_order_for(texts: Sequence[str], schema: Schema) -> SortOrder:
    """Build the sort order of a new table.

    Args:
        texts: terms, e.g. ``("ts desc nulls last", "bucket(id, 16)")``.
        schema: the table's schema with its final field ids.

    Raises:
        ConfigError: a term is invalid or duplicated.
        RecordError: code ``sort_order``; the record that defines the table's schema lacks the
            column, or the transform does not support the column's type.
    """
    fields = []
    for term in parse_sort_terms(texts):
        try:
            column = source_column(term.by, schema)
        except ValueError as error:
            raise RecordError(f"sort term {term.text!r}: {error}", code="sort_order") from None
        fields.append(SortField(column.field_id, term.by.transform, term.direction, term.nulls))
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER

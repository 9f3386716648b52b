"""``MaskField`` by columns; ``connect.records.transforms.mask_field`` defines the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect.errors import RecordError
from connect.java_compat.java_numbers import decimal_of
from connect.records.transforms.mask_field import masked as masked_value
from worker.convert.typed_columns import is_32_bits, with_meaning
from worker.transforms.cast import Changed, unknown
from worker.transforms.each_field import EachFieldStep
from worker.transforms.rows import (
    ColumnStep,
    Rows,
    as_mask,
    valid,
)


def mask_column(column: pa.Array, replacement: str | None) -> Changed:
    """Return a column without its values, and the ambiguous rows."""
    if column.null_count == len(column):
        return column, None
    kind = column.type
    if pa.types.is_decimal(kind):
        return unknown(column)
    sample: Any = _samples(kind)
    if sample is None:
        return unknown(column)
    try:
        hidden = masked_value(sample, replacement)
    except RecordError:
        return unknown(column)
    if pa.types.is_struct(kind):
        children = [pa.nulls(len(column), f.type) for f in kind]
        mask = pa.array(~valid(column))
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask), None
    filled = pa.repeat(pa.scalar(hidden, kind), len(column))
    return pc.if_else(column.is_valid(), filled, pa.scalar(None, kind)), None


def _samples(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {}
    if pa.types.is_list(kind):
        return []
    return {"string": "x", "int64": 1, "double": 1.5, "bool": True}.get(str(kind))


class _Mask(EachFieldStep):
    """Replaces values; a struct with a schema has no empty value.

    Args:
        replacement: of values. One of a byte fits every number, any other is cut to the size in the
            schema, and a fraction to a whole number where the value is one.
    """

    def __init__(self, names: Sequence[str], replacement: str | None) -> None:
        guesses = dict.fromkeys(names, _not_decimal)
        super().__init__(guesses, lambda _, column: mask_column(column, replacement))
        self._is_cut = replacement is not None and not _is_byte(replacement)
        self._is_fraction = replacement is not None and _is_fraction(replacement)

    def apply(self, rows: Rows) -> None:
        if rows.is_typed and self._is_cut:
            for name in rows.columns.keys() & self._guesses.keys():
                if is_32_bits(rows.columns[name].type):
                    rows.suspect(valid(rows.columns[name]))
        if self._is_fraction and not (rows.is_typed or rows.had_schema):
            for name in self._guesses:
                column = rows.column(name)
                if pa.types.is_float64(column.type):  # 1 and 1.0 are the same in it
                    rows.suspect(as_mask(pc.equal(column, pc.trunc(column))))
        if rows.had_schema:
            for name in self._guesses:
                column = rows.column(name)
                if pa.types.is_nested(column.type):
                    rows.suspect(valid(column))
        self._replace(rows)

    def _replace(self, rows: Rows) -> None:
        """Replace the values; numbers keep the meaning that their schema names."""
        typed = rows.columns.keys() & self._guesses.keys() if rows.is_typed else ()
        kinds = {name: rows.columns[name].type for name in typed}
        EachFieldStep.apply(self, rows)
        for name, kind in kinds.items():
            rows.columns[name] = with_meaning(rows.columns[name], kind)


def mask(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``MaskField``."""
    return _Mask(options["fields"], options["replacement"])


def _is_byte(text: str) -> bool:
    try:
        return -128 <= decimal_of(text) < 128
    except ValueError:
        return False


def _is_fraction(text: str) -> bool:
    try:
        number = decimal_of(text)
    except ValueError:
        return False
    return number != number.to_integral_value()


def _not_decimal(guess: pa.DataType | None) -> pa.DataType:
    """Return a guess under which integers stay integers."""
    if guess is None or pa.types.is_null(guess):
        return pa.string()
    return pa.int64() if pa.types.is_decimal(guess) else guess

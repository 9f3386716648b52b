"""Users' transformations of columns: a function over ``pyarrow`` tables, and its record form.

Rules of this file:
- The function gets the columns it declared, in their types, and gives others, row by row: what it
  gives for a row may depend on nothing but that row.
- Its record form is the same function over a table of one row, so both give the same.
- What it raises, or gives in a wrong form, refuses rows; halves of a table are tried alone until
  the bad rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from connect.errors import ConfigError, RecordError
from connect.model.records import SinkRecord, Timestamp
from connect.records.transforms.transform import refused, with_side
from connect.records.transforms.value_paths import fields_of

ABOUT_A_RECORD: Final = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError),
    pa.ArrowNotImplementedError,  # the one error of Arrow's about values that is none of these
)
_PURPOSE: Final = "a function of columns"
_INSTANT: Final = pa.timestamp("us", "UTC")
_WRITABLE: Final = (pa.string(), pa.bool_(), pa.int64(), pa.float64(), _INSTANT)
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class ColumnFunction:
    """What an entry point returns for a transformation of columns.

    Attributes:
        reads: fields of the value, top level, that the function gets, with the types it gets them
            in; a field that is missing is null.
        writes: fields that it gives: ``string``, ``bool``, ``int64``, ``float64``,
            ``timestamp("us", "UTC")`` or a ``decimal128``.
        function: gets a table of ``reads``, returns a table or record batch with the columns of
            ``writes`` and as many rows, in the same order.
    """

    reads: Mapping[str, pa.DataType]
    writes: Mapping[str, pa.DataType]
    function: Callable[[pa.Table], Any]


class ColumnApply:
    """A user's function as a transformation.

    Args:
        name: of the entry point.
        declared: what it returned.

    Raises:
        ConfigError: it declares no columns, or of types that tables have no use for.
    """

    def __init__(self, name: str, declared: ColumnFunction) -> None:
        self.name = name
        self.reads = dict(declared.reads)
        self.writes = dict(declared.writes)
        self._function = declared.function
        if not self.reads or not self.writes:
            raise ConfigError(
                f"transformation {name} must read and write columns", code="transform_class"
            )
        for column, kind in self.writes.items():
            if kind not in _WRITABLE and not pa.types.is_decimal128(kind):
                raise ConfigError(
                    f"transformation {name} cannot write {column} as {kind}", code="transform_class"
                )

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record form; the value has no schema afterwards."""
        if record.value is None:
            return record
        value = fields_of(record.value, _PURPOSE)
        try:
            columns = [_single(value.get(name), kind) for name, kind in self.reads.items()]
        except ABOUT_A_RECORD:
            raise refused(f"{self.name} gets a value of another type", "wrong_type") from None
        made = self.over(pa.Table.from_arrays(columns, names=list(self.reads)))
        found = {name: _value(made.column(name)[0]) for name in self.writes}
        return with_side(record, "value", None, {**value, **found})

    def over(self, table: pa.Table) -> pa.Table:
        """Call the function.

        Raises:
            RecordError: it raised, or did not give what it declared.
        """
        try:
            found = self._function(table)
        except ABOUT_A_RECORD as error:
            raise refused(f"{self.name} raised {type(error).__name__}", "custom") from None
        if isinstance(found, pa.RecordBatch):
            found = pa.Table.from_batches([found])
        if not isinstance(found, pa.Table):
            raise refused(f"{self.name} returned a {type(found).__name__}, no table", "custom")
        if found.num_rows != table.num_rows:
            raise refused(f"{self.name} returned another number of rows", "custom")
        for name, kind in self.writes.items():
            if name not in found.column_names or found.schema.field(name).type != kind:
                raise refused(f"{self.name} did not return {name} as {kind}", "custom")
        return found.select(list(self.writes))

    def tried(self, table: pa.Table) -> tuple[pa.Table, list[int]]:
        """Call the function so that no row spoils the others.

        Returns:
            what it gives, nulls for bad rows; and the positions of these.
        """
        try:
            return self.over(table), []
        except RecordError:
            if table.num_rows <= 1:
                empty = [pa.nulls(table.num_rows, kind) for kind in self.writes.values()]
                names = list(self.writes)
                return pa.Table.from_arrays(empty, names=names), list(range(table.num_rows))
        half = table.num_rows // 2
        first, bad = self.tried(table.slice(0, half))
        second, more = self.tried(table.slice(half))
        return pa.concat_tables([first, second]), [*bad, *(half + place for place in more)]


def _single(value: Any, kind: pa.DataType) -> pa.Array:
    if type(value) is int and pa.types.is_floating(kind):
        value = float(value)
    if isinstance(value, bool) and not pa.types.is_boolean(kind):
        raise TypeError
    return pa.array([value], kind)


def _value(found: pa.Scalar) -> Any:
    """A value as records have it."""
    if found.is_valid and found.type == _INSTANT:
        return Timestamp(found.value // _MILLI, found.value % _MILLI * _MILLI)
    return found.as_py()

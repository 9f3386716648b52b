"""Custom transformations over columns: a function over ``pyarrow`` tables.

Rules of this file:
- The function receives the columns that it declares, in the declared types, and returns other
  columns. The result of a row may depend on that row only.
- A single record is transformed by the same function over a table of one row.
- If the function raises an exception or returns an invalid result, the table is split into halves
  until the bad rows are found. These rows are rejected.
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
    pa.ArrowNotImplementedError,  # an Arrow error about values that is not one of the classes above
)
_PURPOSE: Final = "a function of columns"
_INSTANT: Final = pa.timestamp("us", "UTC")
_WRITABLE: Final = (pa.string(), pa.bool_(), pa.int64(), pa.float64(), _INSTANT)
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class ColumnFunction:
    """A transformation over columns, returned by an entry point.

    Attributes:
        reads: top-level fields of the value that the function receives, with their types; a
            missing field is null.
        writes: fields that the function returns, with their types: ``string``, ``bool``,
            ``int64``, ``float64``, ``timestamp("us", "UTC")`` or a ``decimal128``.
        function: receives a table of ``reads`` and returns a table or record batch with the
            columns of ``writes`` and the same rows in the same order.
    """

    reads: Mapping[str, pa.DataType]
    writes: Mapping[str, pa.DataType]
    function: Callable[[pa.Table], Any]


class ColumnApply:
    """Runs a custom function over columns as a transformation.

    Args:
        name: name of the entry point.
        declared: the transformation that the entry point returned.

    Raises:
        ConfigError: it declares no columns, or columns of unsupported types.
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
        """Transform one record. The result has no value schema."""
        if record.value is None:
            return record
        value = fields_of(record.value, _PURPOSE)
        try:
            columns = [_single(value.get(name), kind) for name, kind in self.reads.items()]
        except ABOUT_A_RECORD:
            raise refused(
                f"the value of a field does not have the type that {self.name} declares",
                "wrong_type",
            ) from None
        columns_made = self.over(pa.Table.from_arrays(columns, names=list(self.reads)))
        written = {name: _value(columns_made.column(name)[0]) for name in self.writes}
        return with_side(record, "value", None, {**value, **written})

    def over(self, table: pa.Table) -> pa.Table:
        """Call the function.

        Raises:
            RecordError: the function raised an exception, or its result is not as declared.
        """
        try:
            result = self._function(table)
        except ABOUT_A_RECORD as error:
            raise refused(f"{self.name} raised {type(error).__name__}", "custom") from None
        if isinstance(result, pa.RecordBatch):
            result = pa.Table.from_batches([result])
        if not isinstance(result, pa.Table):
            raise refused(f"{self.name} returned a {type(result).__name__}, not a table", "custom")
        if result.num_rows != table.num_rows:
            raise refused(
                f"{self.name} returned {result.num_rows} rows for {table.num_rows} rows", "custom"
            )
        for name, kind in self.writes.items():
            if name not in result.column_names or result.schema.field(name).type != kind:
                raise refused(f"{self.name} did not return {name} as {kind}", "custom")
        return result.select(list(self.writes))

    def tried(self, table: pa.Table) -> tuple[pa.Table, list[int]]:
        """Call the function and isolate the rows that fail.

        Returns:
            The function's result with nulls for the bad rows, and the positions of the bad rows.
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
        return pa.concat_tables([first, second]), [*bad, *(half + row for row in more)]


def _single(value: Any, kind: pa.DataType) -> pa.Array:
    if type(value) is int and pa.types.is_floating(kind):
        value = float(value)
    if isinstance(value, bool) and not pa.types.is_boolean(kind):
        raise TypeError
    return pa.array([value], kind)


def _value(scalar: pa.Scalar) -> Any:
    """Convert an Arrow scalar to a value of a record."""
    if scalar.is_valid and scalar.type == _INSTANT:
        return Timestamp(scalar.value // _MILLI, scalar.value % _MILLI * _MILLI)
    return scalar.as_py()

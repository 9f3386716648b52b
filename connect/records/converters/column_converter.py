"""Custom converters over columns: a function from binary arrays to ``pyarrow`` tables.

Rules of this file:
- The result of a row may depend on the bytes of that row only.
- A single record is converted by the same function over an array of one row.
- If the function raises an exception or returns an invalid result, the array is split into halves
  until the bad rows are found. These rows are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from connect.errors import ConfigError, RecordError
from connect.model.records import ConnectSchema, Date, Struct, Timestamp
from connect.records.converters.converter import Headers, Role, refusal
from connect.records.converters.custom_function import CODE, guarded

_CONNECT: Final = "org.apache.kafka.connect.data."
_INSTANT: Final = pa.timestamp("us", "UTC")
_DECIMAL_DIGITS_MAX: Final = 37  # wider decimals have no column form
_MILLI: Final = 1000
_SCHEMAS: Final[Mapping[pa.DataType, ConnectSchema]] = {
    pa.bool_(): ConnectSchema("boolean", optional=True),
    pa.int32(): ConnectSchema("int32", optional=True),
    pa.int64(): ConnectSchema("int64", optional=True),
    pa.float64(): ConnectSchema("float64", optional=True),
    pa.string(): ConnectSchema("string", optional=True),
    pa.binary(): ConnectSchema("bytes", optional=True),
    pa.date32(): ConnectSchema("int32", optional=True, name=_CONNECT + "Date"),
    _INSTANT: ConnectSchema("int64", optional=True, name=_CONNECT + "Timestamp"),
}


@dataclass(frozen=True, slots=True)
class ColumnConverter:
    """A converter over columns, returned by the function of an entry point.

    Attributes:
        fields: the fields of the value, with their types: ``bool``, ``int32``, ``int64``,
            ``float64``, ``string``, ``binary``, ``date32``, ``timestamp("us", "UTC")`` or a
            ``decimal128`` with at most 37 digits.
        function: receives a binary array without nulls. It returns a table or record batch with
            the columns of ``fields`` and the same rows in the same order.
        name: full name of the value's schema, for ``${schema}`` in name templates.
    """

    fields: Mapping[str, pa.DataType]
    function: Callable[[pa.Array], Any]
    name: str | None = None


class CustomColumnConverter:
    """Runs a user's function over columns as a converter.

    Args:
        name: name of the entry point.
        declared: the converter that the entry point returned.
        role: key, value or header.

    Attributes:
        schema: schema of the values.

    Raises:
        ConfigError: it declares no fields, or fields of unsupported types.
    """

    def __init__(self, name: str, declared: ColumnConverter, role: Role) -> None:
        self._name = name
        self._function = declared.function
        self._types = dict(declared.fields)
        self._role: Role = role
        if not self._types:
            raise ConfigError(f"converter {name} declares no fields", code="converter_class")
        self.schema = ConnectSchema(
            "struct",
            name=declared.name,
            fields=tuple((field, self._schema(field, kind)) for field, kind in self._types.items()),
        )

    def _schema(self, field: str, kind: pa.DataType) -> ConnectSchema:
        schema = _SCHEMAS.get(kind)
        if schema is not None:
            return schema
        if pa.types.is_decimal128(kind) and kind.precision <= _DECIMAL_DIGITS_MAX:
            scale = {"scale": str(kind.scale)}
            return ConnectSchema(
                "bytes", optional=True, name=_CONNECT + "Decimal", parameters=scale
            )
        raise ConfigError(
            f"converter {self._name} cannot convert {field} to {kind}", code="converter_class"
        )

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``Converter``."""
        del topic, headers
        if data is None:
            return None, None
        table = self.over(pa.array([data], pa.binary()))
        values = {field: _value(table.column(field)[0]) for field in self._types}
        return self.schema, Struct(self.schema, values)

    def over(self, values: pa.Array) -> pa.Table:
        """Call the function.

        Args:
            values: binary, no nulls.

        Raises:
            RecordError: the function raised an exception, or its result is not as declared.
            RetriableError: a service that the function uses is not available.
        """
        table = guarded(self._name, self._role, lambda: self._converted(values))
        if not isinstance(table, pa.Table):
            raise self._refused(f"a {type(table).__name__}, not a table")
        if table.num_rows != len(values):
            raise self._refused(f"{table.num_rows} rows for {len(values)} rows")
        for field, kind in self._types.items():
            if table.column_names.count(field) != 1 or table.schema.field(field).type != kind:
                raise self._refused(f"no column {field} of type {kind}")
        return table.select(list(self._types))

    def _converted(self, values: pa.Array) -> Any:
        table = self._function(values)
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if isinstance(table, pa.Table):
            table.validate(full=True)  # invalid buffers would end the process
        return table

    def tried(self, values: pa.Array) -> tuple[pa.Table, list[int]]:
        """Call the function and isolate the rows that fail.

        Args:
            values: binary, no nulls.

        Returns:
            The columns of the good rows, and the positions of the bad rows.

        Raises:
            RetriableError: a service that the function uses is not available.
        """
        try:
            return self.over(values), []
        except RecordError:
            if len(values) <= 1:
                empty = [pa.array([], kind) for kind in self._types.values()]
                made = pa.Table.from_arrays(empty, names=list(self._types))
                return made, list(range(len(values)))
        half = len(values) // 2
        first, bad = self.tried(values.slice(0, half))
        second, more = self.tried(values.slice(half))
        return pa.concat_tables([first, second]), [*bad, *(half + row for row in more)]

    def _refused(self, result: str) -> RecordError:
        return refusal(self._role, CODE, f"{self._name} returned {result}")


def _value(scalar: pa.Scalar) -> Any:
    """Convert an Arrow scalar to a value of a record."""
    if not scalar.is_valid:
        return None
    if scalar.type == _INSTANT:
        return Timestamp(scalar.value // _MILLI, scalar.value % _MILLI * _MILLI)
    if scalar.type == pa.date32():
        return Date(scalar.value)
    return scalar.as_py()

"""Column types as the union of what records have.

Rules of this file:
- Fields of all records become columns; a record without a field has null there.
- Numbers of different types become the wider type. Values that have no common type become text:
  numbers and booleans as they are written, structs and lists as JSON. So do structs and lists at a
  level that no table has.
- The number of fields is limited: names that are data would make a column each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    UUIDType,
)

from connect.errors import RecordError
from connect.model.records import Struct
from connect.operations.report.kept_records import ReportTooLarge
from connect.records.conversion.numbers import DECIMAL_PRECISION_MAX
from connect.records.tables.type_inference import (
    COLUMN_LEVELS_MAX,
    infer_type,
    list_of,
    optional_field,
)

FIELDS_MAX: Final = 10_000

CellCount: TypeAlias = Callable[[Any], int]
"""Returns the number of plain values, null included, that a value takes in its column."""

_TEXT: Final = StringType()
_BYTES: Final = BinaryType()
_WHOLE: Final = (IntegerType, LongType)
_NUMBERS: Final = (IntegerType, LongType, FloatType, DoubleType, DecimalType)


class ColumnType:
    """The type of a column, widened by each value.

    Args:
        outer: the type that has this one inside.

    Attributes:
        fields: types by name, for structs.
        fields_left: that this type and all around it may get.
        level: types around this one.
    """

    __slots__ = ("_element", "_is_struct", "_kind", "fields", "fields_left", "level")

    def __init__(self, outer: ColumnType | None = None) -> None:
        self.level: int = 0 if outer is None else outer.level + 1
        self.fields_left: list[int] = [FIELDS_MAX] if outer is None else outer.fields_left
        self._kind: IcebergType | None = None
        self._element: ColumnType | None = None
        self._is_struct = False
        self.fields: dict[str, ColumnType] = {}

    def add_value(self, value: Any) -> None:
        """Widen the type for a value without schema; null changes nothing.

        Raises:
            ReportTooLarge: there are too many fields.
        """
        kind = type(value)
        if kind in {dict, list} and self.level > COLUMN_LEVELS_MAX:
            self._add_plain(_TEXT)
        elif kind is dict:
            self._is_struct = True
            for name, inner in value.items():
                self._field(str(name)).add_value(inner)
        elif kind is list:
            if self._element is None:
                self._element = ColumnType(self)
            for inner in value:
                self._element.add_value(inner)
        elif kind is bytes:
            self._add_plain(_BYTES)
        elif value is not None:
            try:
                kind_of_value = infer_type(value)
            except RecordError:  # integers outside the range of a long, for example
                kind_of_value = None
            self._add_plain(kind_of_value or _TEXT)

    def add_type(self, kind: IcebergType) -> None:
        """Widen the type for the values of a schema."""
        if isinstance(kind, StructType):
            self._is_struct = True
            for field in kind.fields:
                self._field(field.name).add_type(field.field_type)
        elif isinstance(kind, ListType):
            if self._element is None:
                self._element = ColumnType(self)
            self._element.add_type(kind.element_type)
        else:
            self._add_plain(kind)

    def _field(self, name: str) -> ColumnType:
        field = self.fields.get(name)
        if field is None:
            if not self.fields_left[0]:
                raise ReportTooLarge(
                    f"the records have more than {FIELDS_MAX:,} fields, which would be columns: "
                    "read them as text with --value-converter "
                    "org.apache.kafka.connect.storage.StringConverter, and use DuckDB's functions "
                    "of JSON"
                )
            self.fields_left[0] -= 1
            field = self.fields[name] = ColumnType(self)
        return field

    def _add_plain(self, kind: IcebergType) -> None:
        kind = _TEXT if isinstance(kind, UUIDType) else kind
        self._kind = kind if self._kind is None else _common(self._kind, kind)

    def result(self) -> IcebergType:
        """Return the type; text if no value has one."""
        forms = (self._kind is not None, self._element is not None, self._is_struct)
        if sum(forms) != 1 or (self._is_struct and not self.fields):
            return _TEXT
        if self._kind is not None:
            return self._kind
        if self._element is not None:
            return list_of(self._element.result())
        return self.struct()

    def struct(self) -> StructType:
        """Return the fields as a struct."""
        return StructType(
            *(optional_field(name, field.result()) for name, field in self.fields.items())
        )


def _common(one: IcebergType, other: IcebergType) -> IcebergType:
    if one is other or one == other:
        return one
    if not (isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS)):
        return _common_map(one, other)
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        return DecimalType(precision, scale) if precision <= DECIMAL_PRECISION_MAX else _TEXT
    if isinstance(one, DecimalType) or isinstance(other, DecimalType):
        return _TEXT
    is_whole = isinstance(one, _WHOLE) and isinstance(other, _WHOLE)
    return LongType() if is_whole else DoubleType()


def _common_map(one: IcebergType, other: IcebergType) -> IcebergType:
    if not (isinstance(one, MapType) and isinstance(other, MapType)):
        return _TEXT
    keys, values = ColumnType(), ColumnType()
    for each in (one, other):
        keys.add_type(each.key_type)
        values.add_type(each.value_type)
    return MapType(
        key_id=0,
        key_type=keys.result(),
        value_id=0,
        value_type=values.result(),
        value_required=False,
    )


def cell_count(kind: IcebergType) -> CellCount:
    """Return the function that counts the cells of values of a type."""
    fixed, more = _cells(kind)
    return lambda value: fixed + (0 if more is None else more(value))


def _cells(kind: IcebergType) -> tuple[int, CellCount | None]:
    """Return the cells that each value of a type takes, and what counts those of its items."""
    if isinstance(kind, StructType):
        parts = [(field.name, *_cells(field.field_type)) for field in kind.fields]
        counted = [(name, more) for name, _, more in parts if more is not None]
        fixed = sum(cells for _, cells, _ in parts)
        return fixed, partial(_struct_cells, counted) if counted else None
    if isinstance(kind, ListType):
        return 1, partial(_item_cells, *_cells(kind.element_type))
    if isinstance(kind, MapType):
        keys, values = _cells(kind.key_type)[0], _cells(kind.value_type)
        return 1, partial(_item_cells, keys + values[0], values[1])
    return 1, None


def _struct_cells(counted: Iterable[tuple[str, CellCount]], value: Any) -> int:
    values = value.values if type(value) is Struct else value
    if type(values) is not dict:
        return 0
    return sum(more(values[name]) for name, more in counted if name in values)


def _item_cells(fixed: int, more: CellCount | None, value: Any) -> int:
    if isinstance(value, dict):
        return _item_cells(fixed, more, list(value.values()))
    if not isinstance(value, list):
        return 0
    return fixed * len(value) + (0 if more is None else sum(map(more, value)))

"""Column types as the union of what records have.

Rules of this file:
- Fields of all records become columns; a record without a field has null there.
- Numbers of different types become the wider type. Values that have no common type become text:
  numbers and booleans as they are written, structs and lists as JSON.
"""

from __future__ import annotations

from typing import Any, Final

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

from connect.records.tables.type_inference import (
    DECIMAL_PRECISION_MAX,
    infer_type,
    list_of,
    optional_field,
)

_TEXT: Final = StringType()
_BYTES: Final = BinaryType()
_WHOLE: Final = (IntegerType, LongType)
_NUMBERS: Final = (IntegerType, LongType, FloatType, DoubleType, DecimalType)


class ColumnType:
    """The type of a column, widened by each value.

    Attributes:
        fields: types by name, for structs.
    """

    __slots__ = ("_element", "_is_struct", "_kind", "fields")

    def __init__(self) -> None:
        self._kind: IcebergType | None = None
        self._element: ColumnType | None = None
        self._is_struct = False
        self.fields: dict[str, ColumnType] = {}

    def add_value(self, value: Any) -> None:
        """Widen the type for a value without schema; null changes nothing.

        Raises:
            RecordError: the value is nested too deeply.
        """
        kind = type(value)
        if kind is dict:
            self._is_struct = True
            for name, inner in value.items():
                self._field(str(name)).add_value(inner)
        elif kind is list:
            if self._element is None:
                self._element = ColumnType()
            for inner in value:
                self._element.add_value(inner)
        elif kind is bytes:
            self._add_plain(_BYTES)
        elif value is not None:
            # integers outside the range of a long, for example, have no type
            self._add_plain(infer_type(value) or _TEXT)

    def add_type(self, kind: IcebergType) -> None:
        """Widen the type for the values of a schema."""
        if isinstance(kind, StructType):
            self._is_struct = True
            for field in kind.fields:
                self._field(field.name).add_type(field.field_type)
        elif isinstance(kind, ListType):
            if self._element is None:
                self._element = ColumnType()
            self._element.add_type(kind.element_type)
        else:
            self._add_plain(kind)

    def _field(self, name: str) -> ColumnType:
        field = self.fields.get(name)
        if field is None:
            field = self.fields[name] = ColumnType()
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

"""Iceberg types from values and from Connect schemas.

Rules of this file:
- Inference is that of the Java sink: integers become long, fractions double, maps structs, and a
  list gets the type of its first element that has one. Nulls, values of a null key, empty
  containers and bytes have no type. Text is never inferred to be a date.
- Structs in a list have the fields of all elements. The Java sink takes the first element alone.
- A number that no column can hold is an error. The Java sink drops it.
- Field ids are placeholders. The caller that builds a schema assigns fresh ids.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.model.records import ConnectSchema, Date, Float32, Int32, Time, Timestamp
from connect.records.conversion.named_values import DECIMAL_NAME, typed_column
from connect.records.conversion.numbers import DECIMAL_PRECISION_MAX, LONG_MAX, LONG_MIN
from connect.records.conversion.text import java_text

PLACEHOLDER_ID: Final = 0
COLUMN_LEVELS_MAX: Final = 40
"""Structs, lists and maps inside each other. Readers have limits: Arrow's C interface 64 levels,
its Parquet reader 100, of which a list takes two."""

_NESTED: Final = frozenset({"struct", "array", "map"})
_LOGICAL: Final[Mapping[tuple[str, str | None], IcebergType]] = {
    ("int32", "org.apache.kafka.connect.data.Date"): DateType(),
    ("int32", "org.apache.kafka.connect.data.Time"): TimeType(),
    ("int64", "org.apache.kafka.connect.data.Timestamp"): TimestamptzType(),
    ("string", "uuid"): UUIDType(),
}
_PRIMITIVE: Final[Mapping[str, IcebergType]] = {
    "boolean": BooleanType(),
    "int8": IntegerType(),
    "int16": IntegerType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float32": FloatType(),
    "float64": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}


def _integer(value: int) -> IcebergType:
    if LONG_MIN <= value <= LONG_MAX:
        return LongType()
    raise _no_column("the number is outside the range of long")


def _decimal(value: Decimal) -> IcebergType:
    if not value.is_finite():
        raise _no_column("NaN and infinity cannot be decimals")
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale)
    if precision <= DECIMAL_PRECISION_MAX:
        return DecimalType(precision, scale)
    raise _no_column(f"the number has more than {DECIMAL_PRECISION_MAX} digits")


def _no_column(reason: str) -> RecordError:
    return RecordError(f"no column can be made for a new field: {reason}", code="unsupported_type")


def _datetime(value: dt.datetime) -> IcebergType:
    return TimestampType() if value.tzinfo is None else TimestamptzType()


_VALUES: Final[Mapping[type, Callable[[Any], IcebergType | None]]] = {
    str: lambda _: StringType(),
    bool: lambda _: BooleanType(),
    int: _integer,
    Int32: _integer,
    float: lambda _: DoubleType(),
    Float32: lambda _: DoubleType(),
    Decimal: _decimal,
    Date: lambda _: TimestamptzType(),  # Java has one class, java.util.Date, for all three
    Time: lambda _: TimestamptzType(),
    Timestamp: lambda _: TimestamptzType(),
    dt.date: lambda _: DateType(),
    dt.time: lambda _: TimeType(),
    dt.datetime: _datetime,
}


def infer_type(value: Any) -> IcebergType | None:
    """Return the type of a value without schema, or None if it has no type.

    Raises:
        RecordError: the value is nested too deeply, or has a number that no column can hold.
    """
    return _infer(value, 0)


def check_level(level: int) -> None:
    """Check that a column may have a struct, list or map at this level; its own level is 1.

    Raises:
        RecordError: code ``too_deep``.
    """
    if level > COLUMN_LEVELS_MAX:
        raise RecordError(
            f"the value is nested too deeply for a column: more than {COLUMN_LEVELS_MAX} levels",
            code="too_deep",
        )


def _infer(value: Any, level: int) -> IcebergType | None:
    kind = type(value)
    if kind is list:
        check_level(level)
        element: IcebergType | None = None
        for item in value:
            inner = _infer(item, level + 1)
            element = inner if element is None else _with_fields(element, inner)
        return list_of(element) if element is not None else None
    if kind is dict:
        check_level(level)
        fields = [
            optional_field(key if type(key) is str else java_text(key), inner)
            for key, item in value.items()
            if key is not None and (inner := _infer(item, level + 1)) is not None
        ]
        return StructType(*fields) if fields else None
    infer = _VALUES.get(kind)
    return infer(value) if infer is not None else None


def _with_fields(kind: IcebergType, other: IcebergType | None) -> IcebergType:
    """Return a type with the fields that another element of a list has, at any depth."""
    if kind is other or kind == other:
        return kind
    if isinstance(kind, ListType) and isinstance(other, ListType):
        return list_of(_with_fields(kind.element_type, other.element_type))
    if not isinstance(kind, StructType) or not isinstance(other, StructType):
        return kind
    types = {field.name: field.field_type for field in kind.fields}
    for field in other.fields:
        before = types.get(field.name)
        inner = field.field_type
        types[field.name] = inner if before is None else _with_fields(before, inner)
    return StructType(*(optional_field(name, inner) for name, inner in types.items()))


def list_of(element: IcebergType, *, required: bool = False) -> ListType:
    """Return a list type with placeholder ids.

    Raises:
        RecordError: the elements are structs without fields, which PyIceberg takes for no type.
    """
    if isinstance(element, StructType) and not element.fields:
        raise RecordError("a struct without fields cannot be written", code="unsupported_type")
    return ListType(element_id=PLACEHOLDER_ID, element=element, element_required=required)


def optional_field(name: str, kind: IcebergType) -> NestedField:
    """Return an optional field with a placeholder id."""
    return NestedField(field_id=PLACEHOLDER_ID, name=name, field_type=kind, required=False)


def column_type(schema: ConnectSchema, config: ConnectorConfig) -> IcebergType:
    """Return the type of a new column, or of a record, as a connector's configuration says.

    Raises:
        RecordError: no column type corresponds to the schema.
    """
    named = partial(typed_column, has_times=config.is_iceberg) if config.has_typed_columns else None
    return type_of(schema, force_optional=config.schema_force_optional, named=named)


def type_of(
    schema: ConnectSchema,
    *,
    force_optional: bool,
    level: int = 0,
    named: Callable[[ConnectSchema], IcebergType | None] | None = None,
) -> IcebergType:
    """Return the type of a Connect schema.

    Args:
        schema: the schema.
        force_optional: make nested fields, elements and values optional in any case.
        level: of the type; as ``check_level``.
        named: returns the type by the schema's name; None, or if it returns None: as the Java sink.

    Raises:
        RecordError: no column type corresponds to the schema.
    """
    kind = None if named is None else named(schema)
    if kind is not None:
        return kind
    if schema.type in _NESTED:
        check_level(level)
    part_of = partial(type_of, force_optional=force_optional, level=level + 1, named=named)
    if schema.type == "struct":
        return StructType(
            *(
                NestedField(
                    field_id=PLACEHOLDER_ID,
                    name=name,
                    field_type=part_of(inner),
                    required=not (force_optional or inner.optional),
                )
                for name, inner in schema.fields
            )
        )
    if schema.type == "array":
        element = _part(schema.value_schema)
        return list_of(
            part_of(element),
            required=not (force_optional or element.optional),
        )
    if schema.type == "map":
        key, value = _part(schema.key_schema), _part(schema.value_schema)
        return MapType(
            key_id=PLACEHOLDER_ID,
            key_type=part_of(key),
            value_id=PLACEHOLDER_ID,
            value_type=part_of(value),
            value_required=not (force_optional or value.optional),
        )
    if schema.type == "bytes" and schema.name == DECIMAL_NAME:
        return _decimal_of(schema)
    kind = _LOGICAL.get((schema.type, schema.name)) or _PRIMITIVE.get(schema.type)
    if kind is None:
        raise RecordError(
            f"no column type corresponds to Connect's {schema.type}", code="unsupported_type"
        )
    return kind


def _part(schema: ConnectSchema | None) -> ConnectSchema:
    if schema is None:
        raise RecordError(
            "an array or map schema lacks the schema of its elements", code="unsupported_type"
        )
    return schema


def _decimal_of(schema: ConnectSchema) -> DecimalType:
    text = (schema.parameters or {}).get("scale", "")
    try:
        scale = int(text)
    except ValueError:
        raise RecordError("a decimal schema lacks its scale", code="unsupported_type") from None
    return DecimalType(DECIMAL_PRECISION_MAX, scale)

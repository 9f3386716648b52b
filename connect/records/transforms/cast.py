"""``Cast``: casts fields, or the whole key or value, to other types."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from connect.config.key import REQUIRED, CompleteMessage, Key, displayed, invalid
from connect.errors import ConfigError
from connect.java_compat.java_numbers import (
    double_of,
    float32,
    float32_of,
    float64,
    integer_of,
    narrowed,
)
from connect.model.records import (
    ConnectSchema,
    Date,
    Float32,
    Int8,
    Int16,
    Int32,
    SinkRecord,
    Struct,
    Time,
    Timestamp,
)
from connect.records.conversion.text import java_double, java_float
from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.transform import (
    DATE,
    KAFKA,
    NULL_DEFAULT,
    TIME,
    TIMESTAMP,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_map,
    a_struct,
    all_values,
    connect_type,
    java_class,
    refused,
    side_of,
    struct_like,
    with_side,
)

_PURPOSE: Final = "cast types"
_DAY_MS: Final = 86_400_000
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_SIZED: Final[Mapping[str, Callable[[int], Any]]] = {
    "int8": Int8,
    "int16": Int16,
    "int32": Int32,
    "int64": int,
}
_TARGETS: Final = (*_BITS, "float32", "float64", "boolean", "string")
_SOURCES: Final = frozenset({*_TARGETS, "bytes"})
_CONNECT_NAMES: Final = frozenset({*_SOURCES, "array", "map", "struct"})
_FORMATS: Final = (
    DateFormat("HH:mm:ss.SSS'Z'"),
    DateFormat("yyyy-MM-dd"),
    DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
)


def parsed_spec(spec: list[str]) -> tuple[dict[str, str], str | None]:
    """Parse a spec into types by field name, or into the type of the whole value.

    Raises:
        ConfigError: the spec is invalid; the message is Kafka's.
    """
    fields: dict[str, str] = {}
    whole: str | None = None
    for item in spec:
        parts = item.split(":")
        if len(parts) > 2:
            raise ConfigError(
                invalid("renames", displayed(spec), f"Invalid rename mapping: {item}"),
                code="transform_option",
            )
        kind = _target(parts[-1].strip())
        if len(parts) == 1:
            whole = kind
        else:
            fields[parts[0].strip()] = kind
    if whole is not None and len(spec) > 1:
        raise ConfigError(
            "Cast transformations that specify a type to cast the entire value to may only "
            "specify a single cast in their spec",
            code="transform_option",
        )
    return fields, whole


def _target(name: str) -> str:
    kind = name.lower()
    if kind in _TARGETS:
        return kind
    if kind in _CONNECT_NAMES:
        raise ConfigError(
            f"Cast transformation does not support casting to {kind.upper()}; supported types are "
            f"[{', '.join(t.upper() for t in _TARGETS)}]",
            code="transform_option",
        )
    raise ConfigError(
        "Invalid value java.lang.IllegalArgumentException: No enum constant "
        f"org.apache.kafka.connect.data.Schema.Type.{name.upper()} for configuration Invalid type "
        f"found in casting spec: {name}",
        code="transform_option",
    )


def _spec(value: Any) -> str | None:
    """Return the error of a spec, or None if it is valid."""
    if not value:
        return CompleteMessage("Must specify at least one field to cast.")
    try:
        parsed_spec(value)
    except ConfigError as error:
        return CompleteMessage(error.message)
    return None


def cast(value: Any, target: str, schema: ConnectSchema | None = None) -> Any:
    """Cast a value to another type.

    Args:
        value: a value of the data model; null stays null.
        target: a Connect type.
        schema: schema of the value, or None. With a schema the result is a plain number, without
            one it is a sized number.

    Raises:
        RecordError: the value cannot be cast to the type.
    """
    if value is None:
        return None
    source = schema.type if schema is not None else connect_type(value)
    if source is None:
        raise refused(
            f"Cast transformation was passed a value of type class {java_class(value)} which is "
            "not supported by Connect's data API",
            "wrong_type",
        )
    if source not in _SOURCES:
        raise refused(
            f"Cast transformation does not support casting from {source.upper()}", "wrong_type"
        )
    if schema is not None and schema.name is not None and target != "string":
        value = _raw(schema, value)
    try:
        if target in _BITS:
            number = _whole(value, _BITS[target])
            return number if schema is not None else _SIZED[target](number)
        return _CASTS[target](value)
    except ValueError:
        raise refused("A text was out of range for requested data type", "bad_text") from None


def _raw(schema: ConnectSchema, value: Any) -> Any:
    if schema.name == DATE and isinstance(value, Date):
        return value.days
    if schema.name in (TIME, TIMESTAMP) and isinstance(value, Time | Timestamp):
        return value.millis
    return value


def _unexpected(value: Any) -> Exception:
    return refused(f"Unexpected type in Cast transformation: class {java_class(value)}")


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, str):
        return integer_of(value, bits)
    if isinstance(value, int | float | Decimal):
        return narrowed(value, bits)
    raise _unexpected(value)


def _to_float32(value: Any) -> Float32:
    if isinstance(value, str):
        return float32_of(value)
    if isinstance(value, int | float | Decimal):
        return float32(value)
    raise _unexpected(value)


def _to_float64(value: Any) -> float:
    if isinstance(value, str):
        return double_of(value)
    if isinstance(value, int | float | Decimal):
        return float64(value)
    raise _unexpected(value)


def _to_boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, int | float | Decimal):
        return narrowed(value, 64) != 0
    raise _unexpected(value)


def _to_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Float32):
        return java_float(value)
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Date | Time | Timestamp):
        millis = value.days * _DAY_MS if isinstance(value, Date) else value.millis
        at_midnight = 1 if millis % _DAY_MS == 0 else 2
        return _FORMATS[0 if millis < _DAY_MS else at_midnight].format(millis)
    return str(value)


_CASTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "float32": _to_float32,
    "float64": _to_float64,
    "boolean": _to_boolean,
    "string": _to_string,
}


def _cast_schema(schema: ConnectSchema, target: str) -> ConnectSchema:
    has_default = schema.default is not None
    return ConnectSchema(
        target,
        optional=schema.optional,
        default=cast(schema.default, target, schema) if has_default else None,
        has_default=has_default,
        keeps_nulls=schema.keeps_nulls,
    )


def _whole_schema(schema: ConnectSchema, target: str) -> ConnectSchema:
    plain = _cast_schema(schema, target)
    return replace(
        plain,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
    )


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    fields, whole = parsed_spec(options["spec"])
    default = options["replace.null.with.default"]

    def rebuilt(schema: ConnectSchema) -> ConnectSchema:
        if whole is not None:
            return _whole_schema(schema, whole)
        inner = [(n, _cast_schema(s, fields[n]) if n in fields else s) for n, s in schema.fields]
        changes = {"optional": schema.optional}
        return struct_like(schema, inner, **changes)

    new_schema = SchemaCache(rebuilt)

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if value is None:
            return record
        if whole is not None:
            updated = None if schema is None else new_schema(schema)
            return with_side(record, side, updated, cast(value, whole, schema))
        if schema is None:
            new = dict(a_map(value, _PURPOSE))
            new.update({name: cast(new.get(name), kind) for name, kind in fields.items()})
            return with_side(record, side, None, new)
        struct = a_struct(value, _PURPOSE)
        values = all_values(struct, default=default)
        for name, inner in struct.schema.fields:
            if name in fields:
                values[name] = cast(values[name], fields[name], inner)
        updated = new_schema(struct.schema)
        return with_side(record, side, updated, Struct(updated, values))

    return apply


DECLARATION: Final = Declaration(
    "Cast",
    KAFKA,
    "Casts fields, or the whole key or value, to another type. Numbers out of range are narrowed "
    "as in Java: 300 as int8 becomes 44. Text that is not a number is an error.",
    make,
    Example(
        {"spec": "amount:float64,count:int32"},
        {"value": {"amount": "12.5", "count": "3", "name": "pen"}},
        {"value": {"amount": 12.5, "count": 3, "name": "pen"}},
    ),
    keys=(
        Key(
            "spec",
            "LIST",
            "Fields and their types, `field:type,...`, or one type for the whole key or value. "
            "The types are int8, int16, int32, int64, float32, float64, boolean and string.",
            REQUIRED,
            "HIGH",
            check=_spec,
        ),
        NULL_DEFAULT,
    ),
    has_sides=True,
    is_column=True,
)

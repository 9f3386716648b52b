"""``Flatten``: converts nested fields to top-level fields."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from connect.config.key import Key
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.transforms.transform import (
    KAFKA,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_map,
    a_struct,
    connect_type,
    field_value,
    java_class,
    refused,
    side_of,
    struct_like,
    with_side,
)

_PURPOSE: Final = "flattening"


def _named(prefix: str, delimiter: str, name: str) -> str:
    return prefix + delimiter + name if prefix else name


def _flat_map(value: dict[Any, Any], delimiter: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    pending = [(_named("", delimiter, str(name)), item) for name, item in value.items()]
    while pending:
        name, item = pending.pop(0)
        kind = connect_type(item)
        if kind == "map":
            inner = [(_named(name, delimiter, str(n)), i) for n, i in item.items()]
            pending[:0] = inner
        elif item is None or kind not in (None, "struct"):
            flat[name] = item
        elif kind is None:
            raise refused(
                f"Flatten transformation was passed a value of type class {java_class(item)} "
                "which is not supported by Connect's data API",
                "wrong_type",
            )
        else:
            raise refused(
                "Flatten transformation does not support STRUCT for record without schemas "
                f"(for field {name}).",
                "wrong_type",
            )
    return flat


def _flat_fields(
    schema: ConnectSchema, prefix: str, delimiter: str, *, optional: bool, defaults: Any
) -> list[tuple[str, ConnectSchema]]:
    fields: list[tuple[str, ConnectSchema]] = []
    for name, inner in schema.fields:
        full = _named(prefix, delimiter, name)
        is_optional = optional or inner.optional
        default = inner.default
        if default is None and type(defaults) is Struct:
            default = defaults.values.get(name)
        if inner.type == "struct":
            fields += _flat_fields(inner, full, delimiter, optional=is_optional, defaults=default)
        elif inner.type == "map":
            raise refused(
                f"Flatten transformation does not support MAP for record with schemas "
                f"(for field {full}).",
                "wrong_type",
            )
        else:
            leaf = dataclasses.replace(
                inner, optional=is_optional, default=default, has_default=default is not None
            )
            fields.append((full, leaf))
    return fields


def _flat_values(struct: Struct, prefix: str, delimiter: str, into: dict[str, Any]) -> None:
    for name, inner in struct.schema.fields:
        full = _named(prefix, delimiter, name)
        value = field_value(struct, name, inner)
        if inner.type != "struct":
            into[full] = value
        elif value is not None:
            _flat_values(value, full, delimiter, into)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    delimiter = options["delimiter"]

    def rebuilt(schema: ConnectSchema) -> ConnectSchema:
        fields = _flat_fields(
            schema, "", delimiter, optional=schema.optional, defaults=schema.default
        )
        return struct_like(schema, fields)

    new_schema = SchemaCache(rebuilt)

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if value is None:
            return record
        if schema is None:
            return with_side(record, side, None, _flat_map(a_map(value, _PURPOSE), delimiter))
        struct = a_struct(value, _PURPOSE)
        updated = new_schema(struct.schema)
        values: dict[str, Any] = {name: None for name, _ in updated.fields}
        _flat_values(struct, "", delimiter, values)
        return with_side(record, side, updated, Struct(updated, values))

    return apply


DECLARATION: Final = Declaration(
    "Flatten",
    KAFKA,
    "Converts the fields of nested structs and maps to top-level fields that are named by their "
    "path. Lists do not change. An empty map results in no field.",
    make,
    Example(
        {"delimiter": "_"},
        {"value": {"id": 7, "user": {"name": "ann", "tags": ["x"]}}},
        {"value": {"id": 7, "user_name": "ann", "user_tags": ["x"]}},
    ),
    keys=(Key("delimiter", "STRING", "Delimiter between the names of a path.", "."),),
    has_sides=True,
    is_column=True,
)

"""``ValueToKey``: creates the key from fields of the value."""

from __future__ import annotations

import dataclasses
from typing import Final

from connect.config.key import REQUIRED, Distinct, Key
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.transforms.transform import (
    KAFKA,
    NULL_DEFAULT,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_map,
    a_struct,
    field_schema,
    field_value,
    refused,
)

_PURPOSE: Final = "copying fields from value to key"


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    names = tuple(dict.fromkeys(options["fields"]))
    default = options["replace.null.with.default"]
    if not names:
        raise ConfigError(
            "Configuration 'fields' must not be empty. Valid values include: any non-empty value",
            code="transform_option",
        )

    def rebuilt(schema: ConnectSchema) -> ConnectSchema:
        fields: list[tuple[str, ConnectSchema]] = []
        for name in names:
            inner = field_schema(schema, name)
            if inner is None:
                raise refused(f"Field does not exist: {name}", "unknown_field")
            fields.append((name, inner))
        return ConnectSchema("struct", fields=tuple(fields))

    key_schema = SchemaCache(rebuilt)

    def apply(record: SinkRecord) -> SinkRecord:
        if record.value_schema is None:
            fields = a_map(record.value, _PURPOSE)
            key = {name: fields.get(name) for name in names}
            return dataclasses.replace(record, key=key, key_schema=None)
        struct = a_struct(record.value, _PURPOSE)
        schema = key_schema(struct.schema)
        values = {n: field_value(struct, n, s, default=default) for n, s in schema.fields}
        return dataclasses.replace(record, key=Struct(schema, values), key_schema=schema)

    return apply


DECLARATION: Final = Declaration(
    "ValueToKey",
    KAFKA,
    "Replaces the key with fields of the value.",
    make,
    Example(
        {"fields": "id"},
        {"value": {"id": 7, "name": "pen"}, "key": None},
        {"value": {"id": 7, "name": "pen"}, "key": {"id": 7}},
    ),
    keys=(
        Key(
            "fields",
            "LIST",
            "Fields of the value for the new key.",
            REQUIRED,
            "HIGH",
            check=Distinct("fields"),
        ),
        NULL_DEFAULT,
    ),
    is_column=True,
)

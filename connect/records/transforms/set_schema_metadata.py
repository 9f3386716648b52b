"""``SetSchemaMetadata``: sets the name or version of the schema."""

from __future__ import annotations

import dataclasses
from typing import Final

from connect.config.key import Key
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
    all_values,
    refused,
    side_of,
    with_side,
)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    name, version = options["schema.name"], options["schema.version"]
    default = options["replace.null.with.default"]
    if name is None and version is None:
        raise ConfigError("Neither schema name nor version configured", code="transform_option")

    def rebuilt(schema: ConnectSchema) -> ConnectSchema:
        return dataclasses.replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )

    new_schema = SchemaCache(rebuilt)

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if schema is None:
            if value is None:
                return record
            raise refused("Schema required for [updating schema metadata]", "no_schema")
        if schema.type != "struct":
            raise refused("Cannot list fields on non-struct type", "wrong_type")
        updated = new_schema(schema)
        if type(value) is Struct:
            value = Struct(updated, all_values(value, default=default))
        return with_side(record, side, updated, value)

    return apply


DECLARATION: Final = Declaration(
    "SetSchemaMetadata",
    KAFKA,
    "Sets the name or version of a struct's schema. A record without schema is an error.",
    make,
    Example(
        {"schema.name": "shop.Order", "schema.version": "2"},
        {
            "value": {
                "schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]},
                "payload": {"id": 7},
            },
            "schemas": True,
        },
        {"value": {"id": 7}, "schema_name": "shop.Order"},
        "Keys and values with schema are shown as JsonConverter writes them.",
    ),
    keys=(
        Key("schema.name", "STRING", "The schema's new name.", None, "HIGH"),
        Key("schema.version", "INT", "The schema's new version.", None, "HIGH"),
        NULL_DEFAULT,
    ),
    has_sides=True,
    is_column=True,
)

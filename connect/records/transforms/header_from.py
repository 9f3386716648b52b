"""``HeaderFrom``: moves or copies fields to headers."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from connect.config.key import REQUIRED, Key, one_of
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, Header, SinkRecord, Struct
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
    side_of,
    struct_like,
    with_side,
)


def _not_empty(value: Any) -> str | None:
    return None if value else "Empty list"


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    names, headers = options["fields"], options["headers"]
    operation = options["operation"]
    default = options["replace.null.with.default"]
    if len(names) != len(headers):
        raise ConfigError(
            "'fields' config must have the same number of elements as 'headers' config.",
            code="transform_option",
        )
    moved = frozenset(names) if operation == "move" else frozenset()
    new_schema = SchemaCache(
        lambda schema: struct_like(schema, [f for f in schema.fields if f[0] not in moved])
    )

    def from_map(value: Any) -> tuple[Any, list[Header]]:
        fields = a_map(value, f"header {operation}")
        added = [Header(h, fields.get(n)) for n, h in zip(names, headers, strict=True)]
        return {n: v for n, v in fields.items() if n not in moved}, added

    def from_struct(value: Any) -> tuple[ConnectSchema, Any, list[Header]]:
        struct = a_struct(value, f"header {operation}")
        added: list[Header] = []
        for name, header in zip(names, headers, strict=True):
            inner = field_schema(struct.schema, name)
            if inner is None:
                raise refused(f"the record has no field {name}", "unknown_field")
            value = field_value(struct, name, inner, default=default)
            added.append(Header(header, value, inner))
        if not moved:
            return struct.schema, struct, added
        updated = new_schema(struct.schema)
        values = {n: field_value(struct, n, s, default=default) for n, s in updated.fields}
        return updated, Struct(updated, values), added

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if schema is None:
            new, added = from_map(value)
        else:
            schema, new, added = from_struct(value)
        changed = with_side(record, side, schema, new)
        return dataclasses.replace(changed, headers=(*record.headers, *added))

    return apply


DECLARATION: Final = Declaration(
    "HeaderFrom",
    KAFKA,
    "Moves or copies fields to headers. Existing headers with the same name are kept.",
    make,
    Example(
        {"fields": "trace", "headers": "trace-id", "operation": "move"},
        {"value": {"id": 7, "trace": "a1"}, "headers": {}},
        {"value": {"id": 7}, "headers": {"trace-id": "a1"}},
    ),
    keys=(
        Key("fields", "LIST", "Fields to move or copy.", REQUIRED, "HIGH", check=_not_empty),
        Key(
            "headers",
            "LIST",
            "Names of the headers, in the order of the fields.",
            REQUIRED,
            "HIGH",
            check=_not_empty,
        ),
        Key(
            "operation",
            "STRING",
            "`move` removes the fields from the record, `copy` keeps them.",
            REQUIRED,
            "HIGH",
            check=one_of(("move", "copy")),
        ),
        NULL_DEFAULT,
    ),
    has_sides=True,
    needs_headers=True,
    is_column=True,
)

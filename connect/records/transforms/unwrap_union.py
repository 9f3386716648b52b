"""``UnwrapUnion``: replaces a union by the value of its one type."""

from __future__ import annotations

from typing import Any, Final

from connect.model.records import ConnectSchema, SinkRecord
from connect.records.transforms.transform import (
    OWN,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    a_map,
    field_schema,
    refused,
    with_side,
)

_PURPOSE: Final = "unwrapping a union"
_UNIONS: Final = (
    "io.confluent.connect.avro.Union",
    "io.confluent.connect.json.OneOf",
    "io.confluent.connect.protobuf.Union.",
)


def is_union(schema: ConnectSchema) -> bool:
    """Return whether a schema is that of a union of Avro, JSON Schema or Protobuf."""
    return schema.type == "struct" and (schema.name or "").startswith(_UNIONS)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del options, side

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = record.value_schema, record.value
        if value is None or (schema is not None and not is_union(schema)):
            return record
        branches: dict[Any, Any] = a_map(value, _PURPOSE) if schema is None else value.values
        set_branches = [(name, branch) for name, branch in branches.items() if branch is not None]
        if len(set_branches) != 1:
            raise refused(
                f"{len(set_branches)} types of the union have a value, not one", "wrong_type"
            )
        ((name, branch),) = set_branches
        return with_side(record, "value", schema and field_schema(schema, name), branch)

    return apply


DECLARATION: Final = Declaration(
    "UnwrapUnion",
    OWN,
    "Replaces a union by the value of its one type, with the schema of that type. Converters "
    "convert a union of Avro, a `oneOf` of JSON Schema or a `oneof` of Protobuf to a struct with "
    "one field per type, of which one is set. A value with another schema is not changed. A value "
    "without schema must be an object with one field that is not null.",
    make,
    Example(
        {},
        {"value": {"SignedUp": {"id": 7, "mail": "a@b.c"}, "Bought": None}},
        {"value": {"id": 7, "mail": "a@b.c"}},
        "The template `events.${schema}` then names a table for each type.",
    ),
)

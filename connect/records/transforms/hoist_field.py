"""``HoistField``: wraps the whole key or value in a field of a struct or map."""

from __future__ import annotations

from typing import Final

from connect.config.key import REQUIRED, Key
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.transforms.transform import (
    KAFKA,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    refused,
    side_of,
    with_side,
)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    name = options["field"]
    new_schema = SchemaCache(lambda schema: ConnectSchema("struct", fields=((name, schema),)))

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if schema is None:
            return with_side(record, side, None, {name: value})
        if value is None and not schema.optional:
            raise refused(f"Invalid value: null used for required field: {name!r}", "required_null")
        updated = new_schema(schema)
        return with_side(record, side, updated, Struct(updated, {name: value}))

    return apply


DECLARATION: Final = Declaration(
    "HoistField",
    KAFKA,
    "Wraps the whole key or value in a field, so that a plain value can become a row.",
    make,
    Example({"field": "line"}, {"value": "GET / 200"}, {"value": {"line": "GET / 200"}}),
    keys=(Key("field", "STRING", "Name of the field.", REQUIRED),),
    has_sides=True,
    is_column=True,
)

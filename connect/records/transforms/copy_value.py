"""``CopyValue``: copies the value of a field to another field."""

from __future__ import annotations

from typing import Final

from connect.config.key import REQUIRED, Key
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.transforms.transform import (
    ICEBERG,
    TABULAR,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_map,
    a_struct,
    all_values,
    field_schema,
    refused,
    side_of,
    struct_like,
    with_side,
)

_PURPOSE: Final = "copying value"


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    source, target = options["source.field"], options["target.field"]

    def rebuilt(schema: ConnectSchema) -> ConnectSchema:
        inner = field_schema(schema, source)
        if inner is None:
            raise refused(f"the record has no field {source}", "unknown_field")
        return struct_like(schema, [*schema.fields, (target, inner)])

    new_schema = SchemaCache(rebuilt)

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if value is None:
            return record
        if schema is None:
            fields = a_map(value, _PURPOSE)
            return with_side(record, side, None, {**fields, target: fields.get(source)})
        struct = a_struct(value, _PURPOSE)
        updated = new_schema(struct.schema)
        values = all_values(struct)
        return with_side(record, side, updated, Struct(updated, {**values, target: values[source]}))

    return apply


DECLARATION: Final = Declaration(
    "CopyValue",
    ICEBERG,
    "Copies a field of the value to another field.",
    make,
    Example(
        {"source.field": "id", "target.field": "order_id"},
        {"value": {"id": 7}},
        {"value": {"id": 7, "order_id": 7}},
    ),
    keys=(
        Key("source.field", "STRING", "The field to copy.", REQUIRED, "HIGH"),
        Key("target.field", "STRING", "The field to copy to.", REQUIRED, "HIGH"),
    ),
    also=(TABULAR,),
    is_column=True,
)

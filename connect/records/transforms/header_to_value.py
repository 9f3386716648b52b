"""``HeaderToValue``: copies the text of headers to fields of the value."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from connect.config.key import REQUIRED, Key, one_of
from connect.errors import ConfigError
from connect.model.records import SinkRecord, Struct
from connect.records.conversion.text import java_text
from connect.records.transforms.transform import (
    OPTIONAL_STRING,
    OWN,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_map,
    a_struct,
    struct_like,
    with_side,
)

DEBEZIUM: Final = "io.debezium.transforms."
_PURPOSE: Final = "adding headers"


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    names, fields = options["headers"], options["fields"]
    if not names or len(names) != len(fields) or len(set(fields)) < len(fields):
        raise ConfigError(
            "headers and fields must have the same number of entries, and no field twice",
            code="transform_option",
        )
    moved = frozenset(names if options["operation"] == "move" else ())
    schema_of = SchemaCache(
        lambda schema: struct_like(
            schema,
            [
                *((n, s) for n, s in schema.fields if n not in fields),
                *((n, OPTIONAL_STRING) for n in fields),
            ],
        )
    )

    def apply(record: SinkRecord) -> SinkRecord:
        if record.value is None:
            return record
        last = {header.key: header.value for header in record.headers}
        new = {f: _text(last.get(n)) for n, f in zip(names, fields, strict=True)}
        if moved:
            kept = tuple(header for header in record.headers if header.key not in moved)
            record = dataclasses.replace(record, headers=kept)
        if record.value_schema is None:
            return with_side(record, "value", None, {**a_map(record.value, _PURPOSE), **new})
        struct = a_struct(record.value, _PURPOSE)
        schema = schema_of(struct.schema)
        return with_side(record, "value", schema, Struct(schema, {**struct.values, **new}))

    return apply


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if type(value) is bytes else java_text(value)


DECLARATION: Final = Declaration(
    "HeaderToValue",
    OWN,
    "Copies or moves the text of headers to fields of the value, for example to route by them. The "
    "last header with a name counts. A field of the same name is replaced. Without the header the "
    "field is null.",
    make,
    Example(
        {"headers": "event-type", "fields": "event_type"},
        {"value": {"id": 7}, "headers": {"event-type": "signed-up"}},
        {"value": {"id": 7, "event_type": "signed-up"}, "headers": {"event-type": "signed-up"}},
    ),
    keys=(
        Key("headers", "LIST", "Names of the headers.", REQUIRED, "HIGH"),
        Key("fields", "LIST", "Names of the fields, in the same order.", REQUIRED, "HIGH"),
        Key(
            "operation",
            "STRING",
            "Whether the record keeps the headers: `copy`, or `move` to remove them.",
            "copy",
            "HIGH",
            check=one_of(("copy", "move")),
        ),
    ),
    also=(DEBEZIUM,),
    differs="The field is always text. In Debezium, it has the type of the header.",
    needs_headers=True,
)

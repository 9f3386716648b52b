"""``InsertField``: adds fields with the record's coordinates or a fixed text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from connect.config.key import Key, invalid
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, Int32, SinkRecord, Struct, Timestamp
from connect.records.transforms.transform import (
    KAFKA,
    NULL_DEFAULT,
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
    side_of,
    struct_like,
    with_side,
)

_PURPOSE: Final = "field insertion"
_KEYS: Final = ("topic", "partition", "offset", "timestamp", "static")
_SCHEMAS: Final[Mapping[str, tuple[str, str | None]]] = {
    "topic": ("string", None),
    "partition": ("int32", None),
    "offset": ("int64", None),
    "timestamp": ("int64", TIMESTAMP),
    "static": ("string", None),
}


@dataclass(frozen=True, slots=True)
class InsertedField:
    """A field to insert.

    Attributes:
        kind: ``topic``, ``partition``, ``offset``, ``timestamp`` or ``static``.
        name: name of the field.
        optional: whether the field is optional in the schema.
    """

    kind: str
    name: str
    optional: bool


def insertions(options: Options) -> tuple[InsertedField, ...]:
    """Return the fields to insert, in schema order.

    Raises:
        ConfigError: there are no fields, or the static field has no value.
    """
    inserted = tuple(
        InsertedField(kind, name.rstrip("!?") if name[-1] in "!?" else name, not name.endswith("!"))
        for kind in _KEYS
        if (name := options[f"{kind}.field"])
    )
    if not inserted:
        raise ConfigError("No field insertion configured", code="transform_option")
    if options["static.field"] and options["static.value"] is None:
        raise ConfigError(
            invalid("static.value", None, "No value specified for static field"),
            code="transform_option",
        )
    return inserted


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    inserted_fields = insertions(options)
    static = options["static.value"]
    default = options["replace.null.with.default"]
    read: Mapping[str, Callable[[SinkRecord], Any]] = {
        "topic": lambda record: record.topic,
        "partition": lambda record: record.partition,
        "offset": lambda record: record.offset,
        "timestamp": lambda record: record.timestamp_ms,
        "static": lambda _: static,
    }

    def rebuilt(schema: ConnectSchema) -> ConnectSchema:
        new = [
            (w.name, ConnectSchema(_SCHEMAS[w.kind][0], w.optional, *_logical(w.kind)))
            for w in inserted_fields
        ]
        return struct_like(schema, [*schema.fields, *new])

    new_schema = SchemaCache(rebuilt)

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if value is None:
            return record
        if schema is None:
            fields = dict(a_map(value, _PURPOSE))
            for w in inserted_fields:
                inserted = read[w.kind](record)
                if inserted is None:
                    continue
                fields[w.name] = Int32(inserted) if w.kind == "partition" else inserted
            return with_side(record, side, None, fields)
        struct = a_struct(value, _PURPOSE)
        updated = new_schema(struct.schema)
        values = all_values(struct, default=default)
        for w in inserted_fields:
            inserted = read[w.kind](record)
            is_instant = w.kind == "timestamp" and inserted is not None
            values[w.name] = Timestamp(inserted) if is_instant else inserted
        return with_side(record, side, updated, Struct(updated, values))

    return apply


def _logical(kind: str) -> tuple[str | None, int | None]:
    name = _SCHEMAS[kind][1]
    return name, None if name is None else 1


def _field(kind: str, doc: str) -> Key:
    end = " The suffix `!` makes the field required, `?` makes it optional (the default)."
    return Key(f"{kind}.field", "STRING", doc + end)


DECLARATION: Final = Declaration(
    "InsertField",
    KAFKA,
    "Adds fields with the record's topic, partition, offset, timestamp or a fixed text. If a field "
    "with the name exists, it is replaced; in a record with schema this is an error. A null key or "
    "value does not change.",
    make,
    Example(
        {
            "topic.field": "_topic",
            "offset.field": "_offset",
            "static.field": "_source",
            "static.value": "eu-1",
        },
        {"value": {"id": 7}, "topic": "orders", "offset": 42},
        {"value": {"id": 7, "_topic": "orders", "_offset": 42, "_source": "eu-1"}},
    ),
    keys=(
        _field("topic", "Field for the topic."),
        _field("partition", "Field for the partition."),
        _field("offset", "Field for the source offset."),
        _field("timestamp", "Field for the record's timestamp."),
        _field("static", "Field for the fixed text."),
        Key("static.value", "STRING", "The fixed text."),
        NULL_DEFAULT,
    ),
    has_sides=True,
    is_column=True,
)

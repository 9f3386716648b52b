"""``KafkaMetadataTransform``: adds topic, partition, offset and timestamp as fields."""

from __future__ import annotations

from typing import Any, Final

from connect.config.key import Key
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, Int32, SinkRecord, Struct
from connect.records.transforms.transform import (
    ICEBERG,
    STRING_SCHEMA,
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
    struct_like,
    with_side,
)

_PURPOSE: Final = "KafkaMetadata transform"
_FIELDS: Final[tuple[tuple[str, ConnectSchema], ...]] = (
    ("topic", STRING_SCHEMA),
    ("partition", ConnectSchema("int32")),
    ("offset", ConnectSchema("int64")),
    ("timestamp", ConnectSchema("int64", optional=True)),
)


def external_of(text: str | None) -> tuple[str, str] | None:
    """Parse name and value of the external field.

    Raises:
        ConfigError: the text does not have exactly one comma.
    """
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2:
        raise ConfigError(f"Could not parse {text} for external_field", code="transform_option")
    return parts[0], parts[1]


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    name, nested = options["field_name"], options["nested"]
    external = external_of(options["external_field"])
    fields = list(_FIELDS)
    if external is not None:
        fields.append((external[0], STRING_SCHEMA))
    group = ConnectSchema("struct", fields=tuple(fields))
    new: list[tuple[str, ConnectSchema]] = (
        [(name, group)] if nested else [(f"{name}_{n}", s) for n, s in fields]
    )
    new_schema = SchemaCache(lambda schema: struct_like(schema, [*schema.fields, *new]))

    def metadata(record: SinkRecord) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
        }
        if external is not None:
            fields[external[0]] = external[1]
        return fields

    def apply(record: SinkRecord) -> SinkRecord:
        if record.value is None:
            return record
        fields = metadata(record)
        if record.value_schema is None:
            value = a_map(record.value, _PURPOSE)
            fields["partition"] = Int32(record.partition)
            if record.timestamp_ms is None:
                del fields["timestamp"]
            inner = {name: fields} if nested else {f"{name}_{n}": v for n, v in fields.items()}
            return with_side(record, "value", None, {**value, **inner})
        struct = a_struct(record.value, _PURPOSE)
        updated = new_schema(struct.schema)
        typed: dict[str, Any] = (
            {name: Struct(group, fields)}
            if nested
            else {f"{name}_{n}": v for n, v in fields.items()}
        )
        values = {**all_values(struct), **typed}
        return with_side(record, "value", updated, Struct(updated, values))

    return apply


DECLARATION: Final = Declaration(
    "KafkaMetadataTransform",
    ICEBERG,
    "Adds the record's topic, partition, offset and timestamp, and optionally a fixed text. The "
    "fields are `<field_name>_topic` and so on, or the fields of one struct.",
    make,
    Example(
        {"field_name": "_kafka", "nested": "true", "external_field": "cluster,eu-1"},
        {
            "value": {"id": 7},
            "topic": "orders",
            "partition": 2,
            "offset": 42,
            "timestamp": 1700000000123,
        },
        {
            "value": {
                "id": 7,
                "_kafka": {
                    "topic": "orders",
                    "partition": 2,
                    "offset": 42,
                    "timestamp": 1700000000123,
                    "cluster": "eu-1",
                },
            }
        },
    ),
    keys=(
        Key(
            "field_name",
            "STRING",
            "Name of the struct, or prefix of the fields' names.",
            "_kafka_metadata",
            "LOW",
        ),
        Key("nested", "BOOLEAN", "Add one struct instead of several fields.", "false", "LOW"),
        Key(
            "external_field",
            "STRING",
            "Name and value of an additional field with a fixed text: `name,value`.",
            None,
            "LOW",
        ),
    ),
    also=(TABULAR,),
    differs="Two transformations of this class in one chain have separate settings. In Java, the "
    "second one changes the first one.",
    is_column=True,
)

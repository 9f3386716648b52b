"""``ByLogicalTableRouter``: gives the changes of several source tables one topic."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

from connect.config.key import REQUIRED, Key, any_case
from connect.errors import ConfigError
from connect.java_compat.java_regex import compile_java_regex, replacement
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.transforms.extract_new_record_state import (
    DEBEZIUM,
    ENVELOPE_SUFFIX,
    is_event,
)
from connect.records.transforms.regex_router import valid_regex
from connect.records.transforms.transform import (
    STRING_SCHEMA,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_struct,
    all_values,
    field_schema,
    refused,
    struct_like,
)

_PURPOSE: Final = "Updating schema"
_SIDES: Final = ("before", "after")
_TOPICS_KEPT: Final = 256
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.]")


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    topic_of = _renaming(options["topic.regex"], options["topic.replacement"])
    identity_of = _identity(options)
    field = options["key.field.name"] if options["key.enforce.uniqueness"] else None
    adjusted = _adjusted if options["schema.name.adjustment.mode"].lower() == "avro" else str

    @lru_cache(_TOPICS_KEPT)
    def key_schemas(topic: str) -> SchemaCache:
        more = [] if field is None else [(field, STRING_SCHEMA)]
        name = adjusted(f"{topic}.Key")
        return SchemaCache(lambda old: _renamed(old, name, [*old.fields, *more]))

    @lru_cache(_TOPICS_KEPT)
    def event_schemas(topic: str) -> SchemaCache:
        names = adjusted(f"{topic}.Value"), adjusted(topic + ENVELOPE_SUFFIX)
        return SchemaCache(partial(_event_schema, names=names))

    def apply(record: SinkRecord) -> SinkRecord:
        topic = topic_of(record.topic)
        if not topic:
            return record
        key_schema, key = None, None
        if record.key is not None:
            old = a_struct(record.key, _PURPOSE)
            key_schema = key_schemas(topic)(old.schema)
            values = all_values(old, default=False)
            if field is not None:
                values[field] = identity_of(record.topic) or record.topic
            key = Struct(key_schema, values)
        routed = dataclasses.replace(record, topic=topic, key_schema=key_schema, key=key)
        if record.value is None or not is_event(record.value_schema):
            return routed
        old = a_struct(record.value, _PURPOSE)
        event = _event(old, event_schemas(topic)(old.schema))
        return dataclasses.replace(routed, value_schema=event.schema, value=event)

    return apply


def _renaming(regex: str, text: str) -> Callable[[str], str | None]:
    """Return a function that renames what a regular expression matches; None otherwise."""
    compiled, expand = compile_java_regex(regex), replacement(text)

    def renamed(topic: str) -> str | None:
        match = compiled.fullmatch(topic)
        try:
            return None if match is None else expand(match)
        except ValueError as error:
            raise refused(f"the replacement does not match the regex: {error}") from None

    return renamed


def _identity(options: Options) -> Callable[[str], str | None]:
    """Return a function of topics that names the source table in keys."""
    regex, text = options["key.field.regex"], options["key.field.replacement"]
    if not (regex or "").strip():
        return lambda _: None
    if not text:
        raise ConfigError(
            "key.field.replacement must be non-empty if key.field.regex is set.",
            code="transform_option",
        )
    return _renaming(regex, text)


def _event_schema(event: ConnectSchema, names: tuple[str, str]) -> ConnectSchema:
    """Return the schema of change events, with names of the row and of the event."""
    row = field_schema(event, "before")
    if row is None or row.type != "struct":
        raise refused("the change event has no struct before", "unknown_field")
    row = _renamed(row, names[0], row.fields)
    fields = [(n, row if n in _SIDES else inner) for n, inner in event.fields]
    return _renamed(event, names[1], fields)


def _event(event: Struct, schema: ConnectSchema) -> Struct:
    """Return a change event with a schema whose names are others."""
    row = field_schema(schema, "before")
    assert row is not None
    values = all_values(event, default=True)
    for name in _SIDES:
        if values.get(name) is not None:
            values[name] = Struct(row, all_values(a_struct(values[name], _PURPOSE), default=False))
    return Struct(schema, values)


def _renamed(schema: ConnectSchema, name: str, fields: Any) -> ConnectSchema:
    return struct_like(schema, fields, name=name, optional=schema.optional)


def _adjusted(name: str) -> str:
    """Return a name with the characters that Avro allows."""
    return _NO_NAME.sub("_", name if not name[0].isdigit() else f"_{name}")


DECLARATION: Final = Declaration(
    "ByLogicalTableRouter",
    DEBEZIUM,
    "Gives the changes of several source tables one topic, such as those of shards. The key gets a "
    "field with the source table, because tables may have equal keys.",
    make,
    Example(
        {"topic.regex": "(.*)_shard[0-9]+", "topic.replacement": "$1"},
        {
            "schemas": True,
            "topic": "shop.orders_shard1",
            "key": {
                "schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]},
                "payload": {"id": 7},
            },
            "value": None,
        },
        {
            "topic": "shop.orders",
            "key": {"id": 7, "__dbz__physicalTableIdentifier": "shop.orders_shard1"},
        },
    ),
    keys=(
        Key(
            "topic.regex",
            "STRING",
            "Java regular expression for the whole topic name.",
            REQUIRED,
            "LOW",
            check=valid_regex,
        ),
        Key(
            "topic.replacement",
            "STRING",
            "The new topic; `$1` and `${name}` refer to groups.",
            REQUIRED,
            "LOW",
        ),
        Key(
            "key.enforce.uniqueness",
            "BOOLEAN",
            "Whether the key gets a field with the source table.",
            "true",
            "LOW",
        ),
        Key(
            "key.field.name",
            "STRING",
            "Name of this field.",
            "__dbz__physicalTableIdentifier",
            "LOW",
        ),
        Key(
            "key.field.regex",
            "STRING",
            "Java regular expression for the whole topic name, to make the field's text. Without "
            "it, or if it does not match, the text is the topic.",
            None,
            "LOW",
        ),
        Key(
            "key.field.replacement",
            "STRING",
            "The field's text, required with `key.field.regex`.",
            None,
            "LOW",
        ),
        Key(
            "schema.name.adjustment.mode",
            "STRING",
            "`none`, or `avro`: schema names have only characters that Avro allows.",
            "none",
            "LOW",
            check=any_case("NONE", "AVRO"),
        ),
        Key(
            "logical.table.cache.size",
            "INT",
            "Accepted without effect.",
            "16",
            "LOW",
            java_only="schemas are made for each record",
        ),
    ),
)

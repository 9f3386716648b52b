"""``EventRouter``: replaces a change event of an outbox table with the event in its row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from connect.config.key import Key, any_case
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, Header, SinkRecord, Struct
from connect.records.transforms import regex_router
from connect.records.transforms.expanded_json import NotExpandable, expanded
from connect.records.transforms.extract_new_record_state import is_event
from connect.records.transforms.transform import (
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    a_struct,
    field_schema,
    field_value,
    refused,
    struct_like,
    with_side,
)

OUTBOX: Final = "io.debezium.transforms.outbox."
_PURPOSE: Final = "Read Outbox Event"
_PLACES: Final = ("header", "envelope", "partition")
_PER_MS: Final = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}


@dataclass(frozen=True, slots=True)
class AdditionalField:
    """A column that is added to headers or value."""

    field: str
    place: str
    alias: str


def additional_fields(texts: list[str]) -> tuple[AdditionalField, ...]:
    """Return the columns that ``table.fields.additional.placement`` names.

    Raises:
        ConfigError: an entry is not ``column:place`` or ``column:place:name``.
    """
    fields: list[AdditionalField] = []
    for text in texts:
        parts = [part.strip() for part in text.split(":")]
        place = parts[1].lower() if len(parts) > 1 else ""
        if len(parts) > 3 or place not in _PLACES:
            raise ConfigError(
                f"table.fields.additional.placement: {text} is not column:header, "
                "column:envelope:name or column:partition",
                code="transform_option",
            )
        alias = parts[2] if len(parts) == 3 else parts[0]
        fields.append(AdditionalField(parts[0], place, alias))
    return tuple(fields)


class OutboxRouter:
    """Routes events of an outbox table.

    Args:
        options: typed options.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._fields = additional_fields(options["table.fields.additional.placement"])
        self._skips_missing = options["table.field.additional.missing"].lower() == "ignore"
        self._is_bare = all(field.place != "envelope" for field in self._fields)
        self._topics = regex_router.make(
            {
                "regex": options["route.topic.regex"],
                "replacement": options["route.topic.replacement"],
            },
            "value",
        )

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        """Return the event of a row; None drops the change."""
        if record.value is None:
            return None
        if not is_event(record.value_schema):
            return record
        change = a_struct(record.value, _PURPOSE)
        op = _text(change, "op")
        if op == "u" and self._options["table.op.invalid.behavior"].lower() == "fatal":
            raise refused("a row of the outbox table was updated")
        if op in {"d", "u"}:
            return None
        row = a_struct(_part(change, "after")[1], _PURPOSE)
        event = self._event(record, change, row)
        topic = self._topics(event)
        assert isinstance(topic, SinkRecord)
        return topic

    def _event(self, record: SinkRecord, change: Struct, row: Struct) -> SinkRecord:
        options = self._options
        key_schema, key = _part(row, options["table.field.event.key"])
        identity_schema, identity = _part(row, options["table.field.event.id"])
        topic = _text(row, options["route.by.field"])
        payload_schema, payload = self._payload(row)
        headers = [Header("id", identity, identity_schema)]
        for field in self._present(row):
            schema, value = _part(row, field.field)
            if field.place == "header":
                headers.append(Header(field.alias, value, schema))
        routed = dataclasses.replace(
            record,
            topic=topic,
            timestamp_ms=self._timestamp(change, row),
            key_schema=key_schema,
            key=key,
            headers=(*record.headers, *headers),
        )
        is_empty = payload is None or (type(payload) is str and not payload.strip())
        if is_empty and options["route.tombstone.on.empty.payload"]:
            return with_side(routed, "value", None, None)
        if self._is_bare:
            return with_side(routed, "value", payload_schema, payload)
        enveloped = self._enveloped(row, topic, payload_schema, payload)
        return with_side(routed, "value", enveloped.schema, enveloped)

    def _present(self, row: Struct) -> Iterator[AdditionalField]:
        for field in self._fields:
            if not self._skips_missing or field_schema(row.schema, field.field) is not None:
                yield field

    def _payload(self, row: Struct) -> tuple[ConnectSchema, Any]:
        name = self._options["table.field.event.payload"]
        schema, payload = _part(row, name)
        if type(payload) is str and self._options["table.expand.json.payload"]:
            behavior = self._options["table.json.payload.null.behavior"].lower()
            try:
                struct = expanded(payload, name, keeps_null=behavior == "optional_bytes")
            except NotExpandable:
                return schema, payload
            return struct.schema, struct
        return schema, payload

    def _enveloped(
        self, row: Struct, topic: str, payload_schema: ConnectSchema, payload: Any
    ) -> Struct:
        package, dot, last = (row.schema.name or "").rpartition(".")
        name = f"{package}{dot}{topic}.{last}" if row.schema.name else topic
        fields, values = [("payload", payload_schema)], {"payload": payload}
        for field in self._present(row):
            if field.place == "envelope":
                schema, values[field.alias] = _part(row, field.field)
                fields.append((field.alias, schema))
        column = self._options["table.field.event.schema.version"]
        version = None
        if column:
            schema, version = _part(row, column)
            if schema.type != "int32":
                raise refused(f"the column {column} is no int32", "wrong_type")
        named = ConnectSchema("struct", name=name, version=version)
        return Struct(struct_like(named, fields), values)

    def _timestamp(self, change: Struct, row: Struct) -> int | None:
        name = self._options["table.field.event.timestamp"]
        if name:
            schema, value = _part(row, name)
            if value is not None:
                unit = _PER_MS.get(schema.name or "")
                if unit is None or schema.type != "int64":
                    raise refused(f"the column {name} is no timestamp of Debezium", "wrong_type")
                return int(value) // unit if value >= 0 else -(-int(value) // unit)
        schema, value = _part(change, "ts_ms")
        if schema.type != "int64":
            raise refused("the change has no ts_ms", "no_timestamp")
        return None if value is None else int(value)


def _part(struct: Struct, name: str) -> tuple[ConnectSchema, Any]:
    schema = field_schema(struct.schema, name)
    if schema is None:
        raise refused(f"{name} is not a valid field name", "unknown_field")
    return schema, field_value(struct, name, schema, default=True)


def _text(struct: Struct, name: str) -> str:
    schema, _ = _part(struct, name)
    value = struct.values.get(name)
    if schema.type != "string" or value is None:
        raise refused(f"the field {name} has no text", "no_field")
    return str(value)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    return OutboxRouter(options).apply


def _column(name: str, default: str | None, doc: str) -> Key:
    return Key(f"table.field.event.{name}", "STRING", doc, default, "LOW")


DECLARATION: Final = Declaration(
    "EventRouter",
    OUTBOX,
    "Replaces a Debezium change event of an outbox table with the event in its row: payload, key, "
    "header `id`, and a topic by `route.by.field`. Deletes, updates and tombstones are dropped. "
    "Records that are no change events pass unchanged.",
    make,
    Example(
        {"table.expand.json.payload": "true"},
        {
            "schemas": True,
            "value": {
                "schema": {
                    "type": "struct",
                    "name": "shop.public.outbox.Envelope",
                    "fields": [
                        {
                            "field": "after",
                            "type": "struct",
                            "optional": True,
                            "fields": [
                                {"field": name, "type": "string"}
                                for name in ("id", "aggregatetype", "aggregateid", "payload")
                            ],
                        },
                        {"field": "op", "type": "string"},
                        {"field": "ts_ms", "type": "int64"},
                    ],
                },
                "payload": {
                    "after": {
                        "id": "e1",
                        "aggregatetype": "order",
                        "aggregateid": "7",
                        "payload": '{"id": 7, "qty": 3}',
                    },
                    "op": "c",
                    "ts_ms": 1700000000123,
                },
            },
        },
        {
            "topic": "outbox.event.order",
            "key": "7",
            "headers": {"id": "e1"},
            "value": {"id": 7, "qty": 3},
        },
    ),
    keys=(
        _column("id", "id", "Column with the event's id."),
        _column("key", "aggregateid", "Column with the key."),
        _column("type", "type", "Accepted without effect, as in Java."),
        _column("timestamp", None, "Column with the timestamp; else the event's `ts_ms`."),
        _column("payload", "payload", "Column with the payload."),
        _column("schema.version", None, "Column with the version of the value's schema."),
        Key(
            "table.fields.additional.placement",
            "LIST",
            "More columns: `column:header`, `column:envelope` or `column:partition`, each with "
            "`:name` to rename. With an envelope the value is a struct with `payload`. `partition` "
            "has no effect in a sink.",
            "",
            "HIGH",
        ),
        Key(
            "table.field.additional.missing",
            "STRING",
            "Whether a row without such a column is an `error`, or it is `ignore`d.",
            "error",
            check=any_case("ERROR", "IGNORE"),
        ),
        Key(
            "table.expand.json.payload",
            "BOOLEAN",
            "Whether a payload that is a JSON object becomes a struct.",
            "false",
        ),
        Key(
            "table.json.payload.null.behavior",
            "STRING",
            "Whether a null in such a payload has no field (`ignore`) or one of `optional_bytes`.",
            "ignore",
            check=any_case("IGNORE", "OPTIONAL_BYTES"),
        ),
        Key(
            "table.op.invalid.behavior",
            "STRING",
            "`warn` and `error` drop updates; `fatal` makes them record errors.",
            "warn",
            check=any_case("WARN", "ERROR", "FATAL"),
        ),
        Key("route.by.field", "STRING", "Column that decides the topic.", "aggregatetype", "HIGH"),
        Key(
            "route.topic.regex",
            "STRING",
            "Java regular expression for the text of this column.",
            "(?<routedByValue>.*)",
            "LOW",
            check=regex_router.valid_regex,
        ),
        Key(
            "route.topic.replacement",
            "STRING",
            "The topic; `$1` and `${name}` refer to groups.",
            "outbox.event.${routedByValue}",
            "HIGH",
        ),
        Key(
            "route.tombstone.on.empty.payload",
            "BOOLEAN",
            "Whether an empty payload makes a tombstone.",
            "false",
            "HIGH",
        ),
    ),
    differs="In a sink, Debezium's class fails without a column for the partition; the results are "
    "those in a source. A payload that cannot be expanded keeps its own schema.",
)

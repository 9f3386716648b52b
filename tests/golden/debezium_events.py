"""Change events of Debezium's connectors, and the options that its transformations run with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Message = dict[str, Any]
Options = dict[str, str]

TOPIC = "shop.public.item"
UNAVAILABLE = "__debezium_unavailable_value"
OPERATIONS = ("r", "c", "u", "d", "t")


def field(called: str, kind: str, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    """A field of a schema in the envelope's form."""
    return {"field": called, "type": kind, "optional": optional, **more}


def struct(name: str | None, *fields: dict[str, Any], optional: bool = False) -> dict[str, Any]:
    """A struct schema in the envelope's form."""
    named = {} if name is None else {"name": name}
    return {"type": "struct", "optional": optional, **named, "fields": list(fields)}


ROW = (
    field("id", "int64", optional=False),
    field("name", "string"),
    field("region", "string"),
    field("qty", "int32", default=7),
    field("price", "double"),
    field("at", "int64", name="io.debezium.time.MicroTimestamp", version=1),
    field("day", "int32", name="org.apache.kafka.connect.data.Date", version=1),
    field("tags", "array", items={"type": "string", "optional": True}),
    field("live", "boolean", optional=False, default=True),
)
FULL = {
    "id": 1,
    "name": "ann",
    "region": "eu",
    "qty": 3,
    "price": 1.5,
    "at": 1_700_000_000_123_456,
    "day": 19_675,
    "tags": ["a", None],
    "live": False,
}
SOURCES: Mapping[str, tuple[tuple[dict[str, Any], ...], dict[str, Any]]] = {
    "postgresql": (
        (field("schema", "string", optional=False), field("txId", "int64"), field("lsn", "int64")),
        {"schema": "public", "txId": 771, "lsn": 24_023_128},
    ),
    "mysql": (
        (
            field("server_id", "int64", optional=False),
            field("gtid", "string"),
            field("file", "string", optional=False),
            field("pos", "int64", optional=False),
            field("row", "int32", optional=False),
        ),
        {"server_id": 223_344, "gtid": None, "file": "mysql-bin.000003", "pos": 805, "row": 0},
    ),
    "sqlserver": (
        (
            field("schema", "string", optional=False),
            field("change_lsn", "string"),
            field("commit_lsn", "string"),
            field("event_serial_no", "int64"),
        ),
        {
            "schema": "dbo",
            "change_lsn": "00000027:00000ac0:0002",
            "commit_lsn": "00000027:00000ac0:0007",
            "event_serial_no": 2,
        },
    ),
    "oracle": (
        (
            field("schema", "string", optional=False),
            field("scn", "string"),
            field("commit_scn", "string"),
            field("rs_id", "string"),
            field("ssn", "int64"),
        ),
        {"schema": "SHOP", "scn": "2868546", "commit_scn": None, "rs_id": None, "ssn": 0},
    ),
}
BLOCK = struct(
    "event.block",
    field("id", "string", optional=False),
    field("total_order", "int64", optional=False),
    field("data_collection_order", "int64", optional=False),
    optional=True,
)
KEY = struct(f"{TOPIC}.Key", field("id", "int64", optional=False), field("region", "string"))
EVENT_KEY = {"id": 1, "region": "eu"}


def envelope_schema(connector: str, row: tuple[dict[str, Any], ...] = ROW) -> dict[str, Any]:
    """The schema of a connector's change events."""
    value = struct(f"{TOPIC}.Value", *row, optional=True)
    source = struct(
        f"io.debezium.connector.{connector}.Source",
        field("version", "string", optional=False),
        field("connector", "string", optional=False),
        field("name", "string", optional=False),
        field("ts_ms", "int64", optional=False),
        field("snapshot", "string", default="false"),
        field("db", "string", optional=False),
        field("sequence", "string"),
        field("table", "string", optional=False),
        *SOURCES[connector][0],
    )
    return struct(
        f"{TOPIC}.Envelope",
        {"field": "before", **value},
        {"field": "after", **value},
        {"field": "source", **source},
        {"field": "transaction", **BLOCK},
        field("op", "string", optional=False),
        field("ts_ms", "int64"),
        field("ts_us", "int64"),
    )


def event(connector: str, op: str, before: Any, after: Any, *, block: bool = False) -> Any:
    """The payload of a change event."""
    return {
        "before": before,
        "after": after,
        "source": {
            "version": "3.6.1.Final",
            "connector": connector,
            "name": "shop",
            "ts_ms": 1_700_000_000_000,
            "snapshot": "false",
            "db": "inventory",
            "sequence": '["24023000","24023128"]' if connector == "postgresql" else None,
            "table": "item",
            **SOURCES[connector][1],
        },
        "transaction": (
            {"id": "771:24023128", "total_order": 1, "data_collection_order": 1} if block else None
        ),
        "op": op,
        "ts_ms": 1_700_000_000_321,
        "ts_us": 1_700_000_000_321_999,
    }


def message(
    schema: Any,
    payload: Any,
    *,
    key: Any = EVENT_KEY,
    key_schema: Any = KEY,
    headers: Mapping[str, str | None] | None = None,
) -> Message:
    """A message as the broker has it; a payload of None is a tombstone."""
    is_tombstone = schema is None and payload is None
    return {
        "topic": TOPIC,
        "key": None if key is None else json.dumps({"schema": key_schema, "payload": key}),
        "value": None if is_tombstone else json.dumps({"schema": schema, "payload": payload}),
        "headers": dict(headers or {}),
    }


TOMBSTONE = message(None, None)


def _rows(op: str, before: Any, after: Any) -> tuple[Any, Any]:
    return (
        None if op in ("r", "c", "t") else before,
        None if op in ("d", "t") else after,
    )


def _usual() -> Iterator[Message]:
    """Events of each operation and connector, in and outside of a transaction."""
    old = {**FULL, "name": "old", "region": "us"}
    for connector in SOURCES:
        schema = envelope_schema(connector)
        for op in OPERATIONS:
            for block in (False, True):
                before, after = _rows(op, old, FULL)
                key = None if op == "t" else EVENT_KEY
                yield message(schema, event(connector, op, before, after, block=block), key=key)
    schema = envelope_schema("postgresql")
    only_key = {**dict.fromkeys(FULL), "id": 1, "live": False}
    for op in "ud":
        before, after = _rows(op, only_key, FULL)
        yield message(schema, event("postgresql", op, before, after))
    yield message(schema, event("postgresql", "u", None, FULL))
    yield message(schema, event("postgresql", "d", None, None))


def _keys_and_values() -> Iterator[Message]:
    """Key changes, values that were not sent, nulls, defaults and texts that name topics."""
    schema = envelope_schema("postgresql")
    new_key = json.dumps({"id": 2, "region": "eu"})
    old_key = json.dumps(EVENT_KEY)
    moved = {**FULL, "id": 2}
    yield message(
        schema, event("postgresql", "d", FULL, None), headers={"__debezium.newkey": new_key}
    )
    yield TOMBSTONE
    yield message(
        schema,
        event("postgresql", "c", None, moved),
        key={"id": 2, "region": "eu"},
        headers={"__debezium.oldkey": old_key},
    )
    unsent = {**FULL, "name": UNAVAILABLE, "tags": [UNAVAILABLE]}
    yield message(schema, event("postgresql", "u", None, unsent))
    yield message(schema, event("postgresql", "u", FULL, unsent))
    for name in ("name", "region", "qty", "price", "at", "day", "tags"):
        for op in "cud":
            row = {**FULL, name: None}
            before, after = _rows(op, row, row)
            yield message(schema, event("postgresql", op, before, after))
    for region in ("", " ", "eu-1", "\u00e9"):
        for op in "cd":
            row = {**FULL, "region": region}
            before, after = _rows(op, row, row)
            yield message(schema, event("postgresql", op, before, after))
    yield message(None, None, key=None)
    yield message(None, None, headers={"h": "1"})


def _dropped_fields() -> Iterator[Message]:
    """Headers with lists of fields, and headers that are no lists."""
    schema = envelope_schema("postgresql")
    lists = ('["name"]', '["name", "id"]', '["region", "__op", "nope"]', "[]", "name", None)
    for text in lists:
        for op in "cud":
            before, after = _rows(op, FULL, FULL)
            headers = {"unchanged": text}
            yield message(schema, event("postgresql", op, before, after), headers=headers)
    yield message(
        schema,
        event("postgresql", "u", FULL, FULL),
        key="1",
        key_schema={"type": "string", "optional": False},
        headers={"unchanged": '["name"]'},
    )
    yield message(None, None, headers={"unchanged": '["name"]'})


def _odd() -> Iterator[Message]:
    """Values that are no change events, and change events that lack a part."""
    schema = envelope_schema("mysql")
    good = event("mysql", "c", None, FULL, block=True)
    for lacking in ("before", "after", "source", "transaction", "op", "ts_ms"):
        fields = [f for f in schema["fields"] if f["field"] != lacking]
        for op in "cd":
            before, after = _rows(op, FULL, FULL)
            payload = {**event("mysql", op, before, after, block=True)}
            del payload[lacking]
            yield message({**schema, "fields": fields}, payload)
    yield message({**schema, "name": "shop.item.Value"}, good)
    yield message({k: v for k, v in schema.items() if k != "name"}, good)
    yield message(struct(f"{TOPIC}.Value", *ROW), FULL)
    for op in OPERATIONS:
        before, after = _rows(op, FULL, FULL)
        yield message(None, event("mysql", op, before, after))
    yield message(None, FULL)
    taken = (*ROW, field("__deleted", "string"), field("__op", "string"))
    yield message(
        envelope_schema("mysql", taken),
        event("mysql", "c", None, {**FULL, "__deleted": "x", "__op": "y"}),
    )
    document = struct(
        f"{TOPIC}.Envelope",
        field("before", "string", name="io.debezium.data.Json"),
        field("after", "string", name="io.debezium.data.Json"),
        struct("s", field("db", "string")) | {"field": "source"},
        field("op", "string"),
    )
    for op in "cd":
        before, after = _rows(op, '{"_id": 1}', '{"_id": 1}')
        payload = {"before": before, "after": after, "source": {"db": "d"}, "op": op}
        yield message(document, payload)
    yield message(
        struct("io.debezium.connector.common.Heartbeat", field("ts_ms", "int64", optional=False)),
        {"ts_ms": 1_700_000_000_000},
    )


MESSAGES: tuple[Message, ...] = (*_usual(), *_keys_and_values(), *_dropped_fields(), *_odd())

_MODE = "delete.tombstone.handling.mode"
_DROP = {"drop.fields.header.name": "unchanged"}
_VARIATIONS: tuple[Options, ...] = (
    {},
    {"add.fields": "op,source.lsn,source.ts_ms,ts_ms"},
    {"add.fields": "op:operation, source.db:database,table", "add.fields.prefix": "_"},
    {"add.fields": "op,table,snapshot", "add.fields.prefix": ""},
    {"add.fields": "transaction.id,total_order:place,transaction.data_collection_order"},
    {"add.fields": "id,nope,ts_us,sequence,source.nope"},
    {"add.fields": "source,before.id,op"},
    {"add.headers": "op,source.lsn,total_order"},
    {"add.headers": "op:o,db:d,nope", "add.headers.prefix": "h."},
    {**_DROP, "add.fields": "op"},
    {**_DROP, "drop.fields.from.key": "true"},
    {**_DROP, "drop.fields.from.key": "true", "drop.fields.keep.schema.compatible": "false"},
    {"route.by.field": "region"},
    {"route.by.field": "region", "add.fields": "op", "add.headers": "op"},
    {"route.by.field": "id"},
    {"replace.null.with.default": "false", "add.fields": "op,lsn"},
)
MODES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "DELETE-TO-TOMBSTONE")
STATE_OPTIONS: tuple[Options, ...] = tuple(
    {_MODE: mode, **more} for mode in MODES for more in _VARIATIONS
)

# ------------------------------------------------------------------ MongoDB

COLLECTION = "shop.inventory.items"
_TEXTS = (
    '{"_id": {"$oid": "650b8b5c1e4f1a0001234567"}, "name": "ann", "qty": 3}',
    '{"_id": {"$numberLong": "1004"}, "big": {"$numberLong": "5000000000"}, "f": 1.5, "n": null}',
    '{"_id": 1, "at": {"$date": 1700000000123}, "ts": {"$timestamp": {"t": 1700000000, "i": 1}}}',
    '{"_id": 1, "d": {"$numberDecimal": "1.20"}, "b": {"$binary": "AQI=", "$type": "00"}}',
    '{"_id": 1, "a": {"b": {"c": 1}, "d": "x"}, "live": true}',
    '{"_id": 1, "tags": ["a", "b"], "numbers": [1], "empty": [], "docs": [{"x": 1}, {"y": "z"}]}',
    '{"_id": 1, "nothing": {}, "pattern": {"$regex": "^a", "$options": "i"}}',
    '{"_id": {"a": 1, "b": "x"}, "name": "key of two"}',
    '{"_id": "text", "__deleted": "x"}',
    '{"_id": 1, "mixed": [1, "a"]}',
    "{}",
)
_CHANGES = struct(
    "io.debezium.connector.mongodb.changestream.updatedescription",
    field("removedFields", "array", items={"type": "string", "optional": True}),
    field("updatedFields", "string", name="io.debezium.data.Json", version=1),
    optional=True,
)
_DOCUMENT_EVENT = struct(
    f"{COLLECTION}.Envelope",
    field("before", "string", name="io.debezium.data.Json", version=1),
    field("after", "string", name="io.debezium.data.Json", version=1),
    {"field": "updateDescription", **_CHANGES},
    {
        "field": "source",
        **struct(
            "io.debezium.connector.mongo.Source",
            field("ts_ms", "int64", optional=False),
            field("db", "string", optional=False),
            field("collection", "string", optional=False),
            field("ord", "int32"),
        ),
    },
    field("op", "string"),
    field("ts_ms", "int64"),
    {"field": "transaction", **BLOCK},
)
_DOCUMENT_KEY = struct(f"{COLLECTION}.Key", field("id", "string", optional=False))


def _document(op: str, identity: str, **parts: Any) -> Message:
    """A change event of MongoDB."""
    payload = {
        **dict.fromkeys(("before", "after", "updateDescription", "transaction")),
        "source": {"ts_ms": 1_700_000_000_000, "db": "inventory", "collection": "items", "ord": 1},
        "op": op,
        "ts_ms": 1_700_000_000_321,
        **parts,
    }
    return _of_collection(_DOCUMENT_EVENT, payload, identity)


def _of_collection(schema: Any, payload: Any, identity: str | None) -> Message:
    key = None if identity is None else {"id": identity}
    return message(schema, payload, key=key, key_schema=_DOCUMENT_KEY) | {"topic": COLLECTION}


def _documents() -> Iterator[Message]:
    identities = ('{"$oid": "650b8b5c1e4f1a0001234567"}', "1004", "1", '"text"')
    for number, text in enumerate(_TEXTS):
        identity = identities[number % len(identities)]
        yield _document("c", identity, after=text)
        yield _document("d", identity, before=text)
    for op in "ru":
        yield _document(op, "1", after=_TEXTS[0], before=_TEXTS[0])
    for updated in (
        '{"name": "bob", "a.b": 5, "c": {"d": 1}}',
        '{"_id": 7, "x": {"$numberLong": "1"}}',
        None,
    ):
        for removed in (None, ["gone", "name"]):
            changes = {"removedFields": removed, "updatedFields": updated}
            yield _document("u", "1", updateDescription=changes)
            yield _document("u", "1", updateDescription=changes, after=_TEXTS[0])
    yield _document("d", "1")
    yield _document("d", '{"$oid": "650b8b5c1e4f1a0001234567"}')
    yield _of_collection(None, None, "1")
    yield _of_collection(None, None, None)
    yield _of_collection(
        {**_DOCUMENT_EVENT, "name": "other"},
        json.loads(_document("c", "1", after=_TEXTS[0])["value"])["payload"],
        "1",
    )
    lacking = [f for f in _DOCUMENT_EVENT["fields"] if f["field"] != "updateDescription"]
    yield _of_collection(
        {**_DOCUMENT_EVENT, "fields": lacking},
        {
            "before": None,
            "after": _TEXTS[0],
            "op": "c",
            "source": {"ts_ms": 1, "db": "d", "collection": "c", "ord": None},
        },
        "1",
    )
    yield MESSAGES[0]
    yield _of_collection(None, {"a": 1}, "1")


DOCUMENTS: tuple[Message, ...] = tuple(_documents())
DOCUMENT_OPTIONS: tuple[Options, ...] = tuple(
    {_MODE: mode, **more}
    for mode in MODES
    for more in (
        {},
        {"array.encoding": "document"},
        {"flatten.struct": "true"},
        {"flatten.struct": "true", "flatten.struct.delimiter": "-"},
        {"add.fields": "op,ts_ms,source.collection,transaction.id"},
        {"add.fields": "db:d,nope", "add.fields.prefix": ""},
        {"add.headers": "op,source.ord,db"},
        {f"{_MODE}.rewrite-with-id": "true"},
    )
)

_ROUTE = {"topic.regex": "(.*)[.]([a-z]+)[.]item", "topic.replacement": "$1.all_$2"}
ROUTER_OPTIONS: tuple[Options, ...] = (
    _ROUTE,
    {**_ROUTE, "key.enforce.uniqueness": "false"},
    {**_ROUTE, "key.field.name": "table"},
    {**_ROUTE, "key.field.name": "id"},
    {**_ROUTE, "key.field.regex": "(.*)[.](.*)[.](.*)", "key.field.replacement": "$3-$2"},
    {**_ROUTE, "key.field.regex": "other", "key.field.replacement": "$1"},
    {**_ROUTE, "topic.replacement": "all-$1", "schema.name.adjustment.mode": "avro"},
    {"topic.regex": "other.*", "topic.replacement": "x"},
    {"topic.regex": "shop(.*)()", "topic.replacement": "$2"},
)

# ------------------------------------------------------------------ outbox

_OUTBOX = (
    field("id", "string", optional=False),
    field("aggregatetype", "string", optional=False),
    field("aggregateid", "string", optional=False),
    field("type", "string"),
    field("payload", "string"),
    field("tenant", "string"),
    field("version", "int32"),
    field("at", "int64", name="io.debezium.time.MicroTimestamp", version=1),
    field("plain", "int64"),
)
_EVENT_ROW = {
    "id": "4d47e190",
    "aggregatetype": "order",
    "aggregateid": "7",
    "type": "OrderCreated",
    "payload": '{"id": 7, "qty": 3}',
    "tenant": "acme",
    "version": 2,
    "at": 1_700_000_000_123_456,
    "plain": 5,
}
_PAYLOADS = (
    '{"id": 7, "name": "ann", "big": 5000000000, "f": 1.5, "live": true, "none": null}',
    '{"a": {"b": {"c": 1}}, "tags": ["x", "y"], "numbers": [1, 2], "empty": []}',
    '{"docs": [{"x": 1}, {"x": 2, "y": "z"}], "deep": [[1, 2], [3]]}',
    '{"mixed": [1, "a"]}',
    '{"numbers": [1, 5000000000]}',
    '{"docs": [{"x": 1}, {"x": 5000000000}]}',
    '{"nulls": [null, null], "some": [null, "a"]}',
    '{"huge": 123456789012345678901234567890}',
    "{}",
    "{",
    "no json",
    "",
    " ",
    None,
)


def _outbox() -> Iterator[Message]:
    schema = envelope_schema("postgresql", _OUTBOX)
    for text in _PAYLOADS:
        row = {**_EVENT_ROW, "payload": text}
        yield message(schema, event("postgresql", "c", None, row), headers={"h": "1"})
    for name in ("type", "tenant", "version", "at"):
        yield message(schema, event("postgresql", "r", None, {**_EVENT_ROW, name: None}))
    for at in (-1, -1_500, 0):
        yield message(schema, event("postgresql", "c", None, {**_EVENT_ROW, "at": at}))
    for topic in ("", "a b"):
        row = {**_EVENT_ROW, "aggregatetype": topic}
        yield message(schema, event("postgresql", "c", None, row))
    for op in ("u", "d", "t"):
        before, after = _rows(op, _EVENT_ROW, _EVENT_ROW)
        yield message(schema, event("postgresql", op, before, after))
    for lacking in ("id", "payload", "aggregateid", "aggregatetype", "tenant"):
        columns = tuple(f for f in _OUTBOX if f["field"] != lacking)
        row = {name: value for name, value in _EVENT_ROW.items() if name != lacking}
        yield message(envelope_schema("postgresql", columns), event("postgresql", "c", None, row))
    yield TOMBSTONE
    yield message(struct(f"{TOPIC}.Value", *ROW), FULL)
    yield message(None, FULL)


OUTBOX: tuple[Message, ...] = tuple(_outbox())
_PLACED = "table.fields.additional.placement"
_COLUMN = "table.field.event"
_EXPANDED = {"table.expand.json.payload": "true"}
OUTBOX_OPTIONS: tuple[Options, ...] = (
    {},
    _EXPANDED,
    {**_EXPANDED, "table.json.payload.null.behavior": "optional_bytes"},
    {**_EXPANDED, _PLACED: "tenant:envelope"},
    {_PLACED: "tenant:header,type:envelope:kind , version:envelope"},
    {_PLACED: "tenant:header:h,version:partition"},
    {_PLACED: "tenant:envelope", "table.field.additional.missing": "ignore"},
    {_PLACED: "type:envelope", f"{_COLUMN}.schema.version": "version"},
    {f"{_COLUMN}.timestamp": "at"},
    {f"{_COLUMN}.timestamp": "plain"},
    {f"{_COLUMN}.key": "tenant", f"{_COLUMN}.id": "plain", f"{_COLUMN}.payload": "type"},
    {"route.by.field": "type", "route.topic.replacement": "x.${routedByValue}"},
    {"route.topic.regex": "(o)(.*)", "route.topic.replacement": "$2-$1"},
    {"route.tombstone.on.empty.payload": "true"},
    {"table.op.invalid.behavior": "fatal"},
    {"table.op.invalid.behavior": "error", **_EXPANDED, "route.tombstone.on.empty.payload": "true"},
)

"""``ExtractNewRecordState``: replaces a Debezium change event with its row.

Rules of this file:
- As in Debezium, only values whose schema is named ``….Envelope`` are change events. Other records
  pass unchanged.
- A truncate is an error. Debezium's class drops it, and its rows would stay in the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from connect.config.key import Key, any_case
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, Header, SinkRecord, Struct
from connect.records.transforms import literals, replace_field
from connect.records.transforms.debezium_transform import TRUNCATE, truncate_refused
from connect.records.transforms.transform import (
    NULL_DEFAULT,
    OPTIONAL_STRING,
    STRING_SCHEMA,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_struct,
    field_schema,
    field_value,
    known_field,
    refused,
    side_of,
    struct_like,
    with_side,
)

DEBEZIUM: Final = "io.debezium.transforms."
DELETED: Final = "__deleted"
ENVELOPE_SUFFIX: Final = ".Envelope"
DROP_HEADER: Final = "drop.fields.header.name"

_PURPOSE: Final = "source field insertion"
event_field: Final = partial(known_field, default=True)
"""As Debezium reads an event: a null is the default of its field."""
_MODES: Final = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_REWRITES: Final = frozenset({"rewrite", "rewrite-with-tombstone"})
_STRUCTS: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(("id", "data_collection_order", "total_order"), "transaction"),
    **dict.fromkeys(("op", "ts_ms", "ts_us", "ts_ns")),
    "updateDescription": "updateDescription",
}
"""Structs of fields that are configured without one; the struct of all others is ``source``."""


@dataclass(frozen=True, slots=True)
class FieldReference:
    """A field of a change event that is added to the row or to the headers.

    Attributes:
        struct: the struct of the field; None for fields of the event itself.
        field: name of the field.
        name: name of the added field or header.
    """

    struct: str | None
    field: str
    name: str

    def schema(self, event: ConnectSchema) -> ConnectSchema | None:
        """Return the schema of the added field; None if events have no such field.

        Raises:
            RecordError: events do not have the struct.
        """
        parent = event if self.struct is None else field_schema(event, self.struct)
        if parent is None or parent.type != "struct":
            raise refused(f"the change has no struct {self.struct}", "no_field")
        schema = field_schema(parent, self.field) or field_schema(event, self.field)
        if schema is None:
            return None
        return dataclasses.replace(
            schema, optional=True, default=None, has_default=False, fields=()
        )

    def value(self, event: Struct) -> Any:
        """Return the value of the field.

        Raises:
            RecordError: the value is a struct, which cannot be added.
        """
        parent = event if self.struct is None else event.values.get(self.struct)
        if parent is None:  # a snapshot has no transaction
            return None
        is_inside = field_schema(parent.schema, self.field) is not None
        value = (parent if is_inside else event).values.get(self.field)
        if type(value) is Struct:
            raise refused(f"{self.field} is a struct, which cannot be added", "wrong_type")
        return value


def references(names: list[str], prefix: str) -> tuple[FieldReference, ...]:
    """Return the fields that ``add.fields`` or ``add.headers`` names.

    Raises:
        ConfigError: a name has more than one ``:``, or is no name.
    """
    fields: list[FieldReference] = []
    for text in filter(None, names):
        path, *renamed = _java_split(text, ":") or [""]
        parts = _java_split(path, ".")
        if not parts or len(renamed) > 1:
            raise ConfigError(f"Unexpected field name: {text}", code="transform_option")
        field = parts[0] if len(parts) == 1 else parts[1]
        struct = _STRUCTS.get(field, "source") if len(parts) == 1 else parts[0]
        plain = field if len(parts) == 1 else f"{struct}_{field}"
        fields.append(FieldReference(struct, field, prefix + (renamed[0] if renamed else plain)))
    return tuple(fields)


def _java_split(text: str, separator: str) -> list[str]:
    """Split as Java does: without empty parts at the end."""
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def is_event(schema: ConnectSchema | None) -> bool:
    """Return whether a schema is the one of a change event."""
    return schema is not None and (schema.name or "").endswith(ENVELOPE_SUFFIX)


def drops_fields(options: Options) -> bool:
    """Return whether a header names fields to drop."""
    return bool((options.get(DROP_HEADER) or "").strip())


class RecordState:
    """Replaces change events.

    Args:
        options: typed options.

    Attributes:
        is_rewriting: whether deletes stay rows, which a field marks.
        drops_deletes: whether deletes are dropped.
        keeps_tombstones: whether Debezium's own tombstones are kept.
        route: column whose text replaces the topic; may be empty.
        fields: added to the row.
        headers: added to the headers.
    """

    def __init__(self, options: Options) -> None:
        self._mode = options["delete.tombstone.handling.mode"].lower()
        self.keeps_tombstones = self._mode == "rewrite-with-tombstone"
        self.is_rewriting = self._mode in _REWRITES
        self.drops_deletes = self._mode == "drop"
        self.route = options["route.by.field"]
        self.fields = references(options["add.fields"], options["add.fields.prefix"])
        self.headers = references(options["add.headers"], options["add.headers.prefix"])
        self._dropped = _FieldDrop(options) if drops_fields(options) else None
        self._default = options.get(NULL_DEFAULT.name)
        self._schemas = {
            side: SchemaCache(partial(self._row_schema, side)) for side in ("before", "after")
        }

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        """Return the row of an event; None drops it."""
        if record.value is None:
            return self.with_headers(record, None) if self.keeps_tombstones else None
        if not is_event(record.value_schema):
            return record
        event = a_struct(record.value, _PURPOSE)
        record = self.with_headers(record, event)
        if event_field(event, "after") is not None:
            unwrapped = self._row(record, event, "after")
            return self._without_dropped(unwrapped, frozenset())
        if event_field(event, "before") is None:
            if event.values.get("op") == TRUNCATE:
                raise truncate_refused()
            return None
        return self._deleted(record, event)

    def _deleted(self, record: SinkRecord, event: Struct) -> SinkRecord | None:
        if self.drops_deletes:
            return None
        if self.is_rewriting:
            record = self._row(record, event, "before")
        else:
            is_bare = self._mode == "delete-to-tombstone"
            schema = None if is_bare else field_schema(event.schema, "after")
            record = with_side(self._routed(record, event, "before"), "value", schema, None)
        return self._without_dropped(record, frozenset(added.name for added in self.fields))

    def _row(self, record: SinkRecord, event: Struct, side: str) -> SinkRecord:
        row = a_struct(event_field(event, side), _PURPOSE)
        operation = field_schema(event.schema, "op")
        if operation is None or operation.type != "string":
            raise refused("the change has no op", "no_field")
        schema = self._schemas[side](event.schema)
        fills = self.is_rewriting and self._default
        values = {n: field_value(row, n, s, default=fills) for n, s in row.schema.fields}
        if self.is_rewriting:
            values[DELETED] = "true" if side == "before" else "false"
        values |= {a.name: a.value(event) for a in self.fields if a.schema(event.schema)}
        record = self._routed(record, event, side)
        return with_side(record, "value", schema, Struct(schema, values))

    def _row_schema(self, side: str, event: ConnectSchema) -> ConnectSchema:
        row = field_schema(event, side)
        assert row is not None
        fields = list(row.fields)
        if self.is_rewriting:
            fields.append((DELETED, OPTIONAL_STRING))
        added = ((reference.name, reference.schema(event)) for reference in self.fields)
        fields += [(name, schema) for name, schema in added if schema is not None]
        return struct_like(row, fields)

    def with_headers(self, record: SinkRecord, event: Struct | None) -> SinkRecord:
        """Return the record with the added headers; tombstones (None) have only the operation."""
        headers: list[Header] = []
        for added in self.headers:
            if event is None:
                schema, value = (STRING_SCHEMA if added.field == "op" else None), "d"
            else:
                schema, value = added.schema(event.schema), added.value(event)
            if schema is not None:
                headers.append(Header(added.name, value, schema))
        return dataclasses.replace(record, headers=(*record.headers, *headers))

    def _routed(self, record: SinkRecord, event: Struct, side: str) -> SinkRecord:
        """Return the record with the topic that a column of its row names."""
        if not self.route:
            return record
        if self.is_rewriting and side == "after" and self.route == DELETED:
            return dataclasses.replace(record, topic="false")
        row = a_struct(event.values.get(side), _PURPOSE)
        schema = field_schema(row.schema, self.route)
        if schema is None or schema.type != "string":
            raise refused(f"the row has no text {self.route} (route.by.field)", "no_field")
        topic: Any = row.values.get(self.route)
        if topic is None and side == "after" and self.is_rewriting and self._default:
            topic = schema.default
        return record if not (topic or "").strip() else dataclasses.replace(record, topic=topic)

    def _without_dropped(self, record: SinkRecord, kept: frozenset[str]) -> SinkRecord:
        return record if self._dropped is None else self._dropped.apply(record, kept)


class _FieldDrop:
    """Drops the fields that a header names."""

    def __init__(self, options: Options) -> None:
        self._name = options[DROP_HEADER]
        self._from_key = options["drop.fields.from.key"]
        self._keeps_schema = options["drop.fields.keep.schema.compatible"]

    def apply(self, record: SinkRecord, kept: frozenset[str]) -> SinkRecord:
        """Return the record without the fields that its header names, except those in ``kept``."""
        header = next((h for h in record.headers if h.key == self._name), None)
        if header is None or header.value is None:
            return record
        value = header.value
        if type(value) is bytes:
            value = literals.parsed(value.decode("utf-8", "replace"))[1]
        if type(value) is not list:
            raise refused(f"the header {self._name} is no list of fields", "wrong_type")
        names = tuple(name for name in value if type(name) is str)
        if self._from_key and record.key is not None:
            record = self._dropped(record, "key", names)
        if record.value is None:
            return record
        return self._dropped(record, "value", tuple(n for n in names if n not in kept))

    def _dropped(self, record: SinkRecord, side: Side, names: tuple[str, ...]) -> SinkRecord:
        if self._keeps_schema:
            schema = side_of(record, side)[0]
            if schema is None or schema.type != "struct":
                raise refused(f"the {side} has no fields to drop", "wrong_type")
            names = tuple(n for n, inner in schema.fields if inner.optional and n in names)
        if not names:
            return record
        result = _without(names, side)(record)
        assert isinstance(result, SinkRecord)
        return result


@lru_cache(64)
def _without(names: tuple[str, ...], side: Side) -> Apply:
    """Return ``ReplaceField`` with excluded fields."""
    options = {"exclude": names, "include": [], "renames": [], NULL_DEFAULT.name: True}
    return replace_field.make(options, side)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    return RecordState(options).apply


def _prefix(of: str) -> Key:
    return Key(f"{of}.prefix", "STRING", f"Prefix of the names of `{of}`.", "__", "LOW")


_ADDED: Final = (
    "Names are `op`, `ts_ms`, a field of `source`, or `struct.field` such as `source.lsn` and "
    "`transaction.id`. `name:new` renames."
)
STATE_KEYS: Final = (
    Key(
        "delete.tombstone.handling.mode",
        "STRING",
        "`drop` drops deletes. `tombstone` and `delete-to-tombstone` make a tombstone of a delete. "
        "`rewrite` keeps the deleted row, and adds `__deleted` to all rows. These drop Debezium's "
        "own tombstones; `rewrite-with-tombstone` keeps them.",
        "tombstone",
        check=any_case(*(mode.upper() for mode in _MODES)),
    ),
    Key(
        "route.by.field",
        "STRING",
        "Column of the row whose text replaces the topic.",
        "",
        "LOW",
    ),
    _prefix("add.fields"),
    Key("add.fields", "LIST", f"Fields of the event to add to the row. {_ADDED}", "", "LOW"),
    _prefix("add.headers"),
    Key("add.headers", "LIST", f"Fields of the event to add as headers. {_ADDED}", "", "LOW"),
)
DECLARATION: Final = Declaration(
    "ExtractNewRecordState",
    DEBEZIUM,
    "Replaces a Debezium change event with its row: `after`, or `before` for deletes in the "
    "rewrite modes. The event needs a schema whose name ends with `.Envelope`; other records pass "
    "unchanged, as in Debezium. A truncate is a record error (`truncate`). For rewritten deletes "
    "set `iceberg.tables.cdc-field=__deleted`.",
    make,
    Example(
        {"delete.tombstone.handling.mode": "rewrite", "add.fields": "op,source.lsn:lsn"},
        {
            "schemas": True,
            "value": {
                "schema": {
                    "type": "struct",
                    "name": "shop.public.item.Envelope",
                    "fields": [
                        {
                            "field": side,
                            "type": "struct",
                            "optional": True,
                            "fields": [
                                {"field": "id", "type": "int64"},
                                {"field": "name", "type": "string", "optional": True},
                            ],
                        }
                        for side in ("before", "after")
                    ]
                    + [
                        {
                            "field": "source",
                            "type": "struct",
                            "fields": [{"field": "lsn", "type": "int64", "optional": True}],
                        },
                        {"field": "op", "type": "string"},
                    ],
                },
                "payload": {
                    "before": {"id": 1, "name": "old"},
                    "after": {"id": 1, "name": "new"},
                    "source": {"lsn": 24023128},
                    "op": "u",
                },
            },
        },
        {
            "value": {
                "id": 1,
                "name": "new",
                "__deleted": "false",
                "__op": "u",
                "__lsn": 24023128,
            }
        },
    ),
    keys=(
        *STATE_KEYS,
        Key(DROP_HEADER, "STRING", "Header with a list of fields to drop.", None, "LOW"),
        Key(
            "drop.fields.from.key",
            "BOOLEAN",
            "Whether these fields are dropped from the key, too.",
            "false",
            "LOW",
        ),
        Key(
            "drop.fields.keep.schema.compatible",
            "BOOLEAN",
            "Whether only optional fields are dropped.",
            "true",
            "LOW",
        ),
        NULL_DEFAULT,
    ),
    differs="A truncate is an error; Debezium drops it. A header that names fields to drop does "
    "not fail a delete without value.",
    is_column=True,
    needs_headers=DROP_HEADER,
)

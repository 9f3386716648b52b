"""``ExtractNewDocumentState``: replaces a change event of MongoDB with its document."""

from __future__ import annotations

import dataclasses
from typing import Final

from connect.config.key import Key, any_case
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.transforms import flatten
from connect.records.transforms.extended_json import Bson, document_of, value_of
from connect.records.transforms.extract_new_record_state import (
    DELETED,
    ENVELOPE_SUFFIX,
    STATE_KEYS,
    RecordState,
    event_field,
    is_event,
)
from connect.records.transforms.mongo_debezium_transform import CHANGE, DocumentConverter
from connect.records.transforms.transform import (
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    a_struct,
    refused,
    struct_like,
    with_side,
)

MONGODB: Final = "io.debezium.connector.mongodb.transforms."
_PURPOSE: Final = "MongoDB documents"


class DocumentState:
    """Replaces change events.

    Args:
        options: typed options.
    """

    def __init__(self, options: Options) -> None:
        self._state = RecordState(options)
        is_document = options["array.encoding"].lower() == "document"
        self._documents = DocumentConverter(arrays_as_documents=is_document, names_empty=False)
        self._delimiter = options["flatten.struct.delimiter"]
        flat = flatten.make({"delimiter": self._delimiter}, "value")
        self._flat: Apply | None = flat if options["flatten.struct"] else None
        self._adds_id = options["delete.tombstone.handling.mode.rewrite-with-id"]

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        """Return the document of an event; None drops it."""
        key_schema = record.key_schema
        if key_schema is None or not (key_schema.name or "").endswith(".Key"):
            return record
        if self._state.headers:
            event = None if record.value is None else a_struct(record.value, _PURPOSE)
            record = self._state.with_headers(record, event)
        key = value_of(str(event_field(a_struct(record.key, _PURPOSE), "id")))
        if record.value is None:
            return self._rebuilt(record, None, key, {}) if self._state.keeps_tombstones else None
        if not is_event(record.value_schema):
            return record
        event = a_struct(record.value, _PURPOSE)
        after, changes = event_field(event, "after"), event_field(event, "updateDescription")
        fields: dict[str, Bson] = {}
        is_delete = after is None and changes is None
        if is_delete and self._state.drops_deletes:
            return None
        is_old = is_delete and self._state.is_rewriting
        text = event_field(event, "before") if is_old else after
        if text is not None:
            fields = dict(document_of(text).value)
        elif changes is not None:
            fields = self._changed(a_struct(changes, _PURPOSE), key)
        if self._state.is_rewriting:
            fields[DELETED] = Bson("boolean", is_delete)
            if self._adds_id:
                fields.setdefault("_id", key)
        return self._rebuilt(record, event, key, fields)

    def _changed(self, changes: Struct, key: Bson) -> dict[str, Bson]:
        """Return the fields of an update without the whole document."""
        updated = event_field(changes, "updatedFields")
        fields = {} if updated is None else dict(document_of(updated).value)
        for name in event_field(changes, "removedFields") or ():
            fields.pop(name, None)
        fields.setdefault("_id", key)
        if self._flat is None:
            return fields
        return {name.replace(".", self._delimiter): value for name, value in fields.items()}

    def _rebuilt(
        self, record: SinkRecord, event: Struct | None, key: Bson, fields: dict[str, Bson]
    ) -> SinkRecord:
        inner, key_value = self._documents.scalar(key)
        key_schema = ConnectSchema("struct", fields=(("id", inner),))
        record = dataclasses.replace(
            record, key_schema=key_schema, key=Struct(key_schema, {"id": key_value})
        )
        if event is None or not fields:
            return with_side(record, "value", None, None)
        name = (event.schema.name or "").removesuffix(ENVELOPE_SUFFIX)
        document = Bson("document", fields)
        schema = self._documents.schema(document, name)
        values = dict(self._documents.value(document, schema).values)
        added = [(a.name, a.schema(event.schema)) for a in self._state.fields]
        known = [(name, inner) for name, inner in added if inner is not None]
        if len(known) < len(added):
            raise refused("the change lacks a field of add.fields", "no_field")
        schema = struct_like(ConnectSchema("struct", name=name), [*schema.fields, *known])
        values |= {a.name: a.value(event) for a in self._state.fields}
        record = with_side(record, "value", schema, Struct(schema, values))
        if self._flat is None:
            return record
        flat = self._flat(record)
        assert isinstance(flat, SinkRecord)
        return flat


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    return DocumentState(options).apply


DECLARATION: Final = Declaration(
    "ExtractNewDocumentState",
    MONGODB,
    "Replaces a Debezium change event of MongoDB with its document, and the key with the typed "
    "`id`. An update without the whole document gives the changed fields and `_id`. Key and value "
    "need Debezium's schemas; other records pass unchanged. For rewritten deletes set "
    "`iceberg.tables.cdc-field=__deleted`.",
    make,
    Example(
        {"add.fields": "op", "delete.tombstone.handling.mode": "rewrite"},
        CHANGE,
        {
            "key": {"id": "650b8b5c1e4f1a0001234567"},
            "value": {
                "_id": "650b8b5c1e4f1a0001234567",
                "qty": 3,
                "__deleted": False,
                "__op": "c",
            },
        },
    ),
    keys=(
        *STATE_KEYS,
        Key(
            "array.encoding",
            "STRING",
            "`array`: a list stays a list, with elements of one type. `document`: a list becomes a "
            "struct with the fields `_0`, `_1` and so on.",
            "array",
            check=any_case("ARRAY", "DOCUMENT"),
        ),
        Key(
            "flatten.struct",
            "BOOLEAN",
            "Whether fields of nested documents become fields of the row.",
            "false",
            "LOW",
        ),
        Key(
            "flatten.struct.delimiter",
            "STRING",
            "Delimiter between the names of nested fields.",
            "_",
            "LOW",
        ),
        Key(
            "delete.tombstone.handling.mode.rewrite-with-id",
            "BOOLEAN",
            "Whether rows of deletes without document get `_id` from the key.",
            "false",
            "LOW",
        ),
        Key(
            "field.name.adjustment.mode",
            "STRING",
            "Only `none`: names of fields do not change.",
            "none",
            "LOW",
            check=any_case("NONE"),
        ),
    ),
    differs="Documents must be extended JSON. The notation of the MongoDB shell is an error. "
    "`route.by.field` has no effect, as in Java.",
)

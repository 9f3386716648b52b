"""``MongoDebeziumTransform``: documents in Debezium's MongoDB events become structs."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from connect.config.key import Key, one_of
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.transforms.extended_json import Bson, document_of, value_of
from connect.records.transforms.mongo_documents import Documents
from connect.records.transforms.transform import (
    ICEBERG,
    TABULAR,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    a_struct,
    all_values,
    field_schema,
    field_value,
    refused,
    struct_like,
)

_PURPOSE: Final = "MongoDB documents"
_MODES: Final = ("array", "document")


def _mode(value: Any) -> str | None:
    return one_of(_MODES)(str(value).lower())


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    mode = str(options["array_handling_mode"]).lower()
    documents = Documents(arrays_as_documents=mode == "document")

    def apply(record: SinkRecord) -> SinkRecord:
        if record.value is None:
            return record
        if not _is_named(record.key_schema, ".Key") or not _is_named(
            record.value_schema, ".Envelope"
        ):
            return dataclasses.replace(
                record, key=None, key_schema=None, value=None, value_schema=None
            )
        value = a_struct(record.value, _PURPOSE)
        key = value_of(str(_part(a_struct(record.key, _PURPOSE), "id")))
        before, after = (_document(value, name) for name in ("before", "after"))
        if after is None and _part(value, "updateDescription") is not None:
            after = _updated(value, before, key)
        elif before is None and after is None:
            raise refused("the change has neither before, after nor updateDescription", "no_row")
        return _rebuilt(record, documents, {"before": before, "after": after}, key)

    return apply


def _is_named(schema: ConnectSchema | None, ending: str) -> bool:
    return schema is not None and bool(schema.name) and str(schema.name).endswith(ending)


def _part(struct: Struct, name: str) -> Any:
    schema = field_schema(struct.schema, name)
    if schema is None:
        raise refused(f"Unknown field: {name}", "unknown_field")
    return field_value(struct, name, schema)


def _document(value: Struct, name: str) -> Bson | None:
    text = _part(value, name)
    return None if text is None else document_of(text)


def _updated(value: Struct, before: Bson | None, key: Bson) -> Bson:
    """The document after an update that tells only what it changed."""
    reported = a_struct(_part(value, "updateDescription"), _PURPOSE)
    fields = dict(before.value) if before is not None else {}
    fields.update(document_of(_part(reported, "updatedFields")).value)
    for name in _part(reported, "removedFields") or ():
        fields.pop(name, None)
    fields.setdefault("_id", key)
    return Bson("document", fields)


def _rebuilt(
    record: SinkRecord, documents: Documents, found: dict[str, Bson | None], key: Bson
) -> SinkRecord:
    value: Struct = record.value
    fields: list[tuple[str, ConnectSchema]] = []
    values = all_values(value)
    for name, inner in value.schema.fields:
        if name not in found:
            fields.append((name, inner))
            continue
        document = found[name]
        if document is None:
            del values[name]
            continue
        schema = documents.schema(document)
        fields.append((name, schema))
        values[name] = documents.value(document, schema)
    key_schema, key_value = documents.scalar(key)
    new_key = ConnectSchema("struct", fields=(("id", key_schema),))
    named = ConnectSchema("struct", name=value.schema.name)
    updated = struct_like(named, fields)
    return dataclasses.replace(
        record,
        key=Struct(new_key, {"id": key_value}),
        key_schema=new_key,
        value=Struct(updated, values),
        value_schema=updated,
    )


DECLARATION: Final = Declaration(
    "MongoDebeziumTransform",
    ICEBERG,
    "Turns the JSON documents in `before` and `after` of Debezium's MongoDB events into structs, "
    "and makes `after` of an update that tells only what it changed. Put `DebeziumTransform` "
    "behind it. Needs the schemas of the key and of the envelope; what has others becomes a "
    "tombstone.",
    make,
    Example(
        {},
        {
            "key": {
                "schema": {
                    "type": "struct",
                    "name": "shop.orders.Key",
                    "fields": [{"field": "id", "type": "string"}],
                },
                "payload": {"id": '{"$oid": "650b8b5c1e4f1a0001234567"}'},
            },
            "value": {
                "schema": {
                    "type": "struct",
                    "name": "shop.orders.Envelope",
                    "fields": [
                        {"field": "before", "type": "string", "optional": True},
                        {"field": "after", "type": "string", "optional": True},
                        {"field": "updateDescription", "type": "string", "optional": True},
                        {"field": "op", "type": "string"},
                    ],
                },
                "payload": {
                    "before": None,
                    "after": '{"_id": {"$oid": "650b8b5c1e4f1a0001234567"}, "qty": 3}',
                    "updateDescription": None,
                    "op": "c",
                },
            },
            "schemas": True,
        },
        {
            "key": {"id": "650b8b5c1e4f1a0001234567"},
            "value": {
                "after": {"_id": "650b8b5c1e4f1a0001234567", "qty": 3},
                "updateDescription": None,
                "op": "c",
            },
        },
        "Keys and values of records with schema are shown as JsonConverter writes them.",
    ),
    keys=(
        Key(
            "array_handling_mode",
            "STRING",
            "`array`: lists stay lists, all elements of one type. `document`: a struct with the "
            "fields `_0`, `_1` and so on.",
            "array",
            check=_mode,
        ),
    ),
    also=(TABULAR,),
    differs="Documents are extended JSON; notations of the MongoDB shell are an error.",
)

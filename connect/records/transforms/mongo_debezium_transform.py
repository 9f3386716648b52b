"""``MongoDebeziumTransform``: converts documents in Debezium's MongoDB events to structs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from connect.config.key import Key, one_of
from connect.model.records import ConnectSchema, SinkRecord, Struct, Timestamp
from connect.records.transforms.extended_json import Bson, document_of, value_of
from connect.records.transforms.transform import (
    ICEBERG,
    OPTIONAL_STRING,
    TABULAR,
    TIMESTAMP,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    a_struct,
    all_values,
    known_field,
    refused,
    struct_like,
)

_PURPOSE: Final = "MongoDB documents"
_MODES: Final = ("array", "document")
_INSTANT: Final = ConnectSchema("int64", optional=True, name=TIMESTAMP, version=1)
_SCALARS: Final[Mapping[str, ConnectSchema]] = {
    **dict.fromkeys(("null", "string", "object_id", "javascript", "decimal128"), OPTIONAL_STRING),
    "double": ConnectSchema("float64", optional=True),
    "binary": ConnectSchema("bytes", optional=True),
    "int32": ConnectSchema("int32", optional=True),
    "int64": ConnectSchema("int64", optional=True),
    "boolean": ConnectSchema("boolean", optional=True),
    "date_time": _INSTANT,
    "timestamp": _INSTANT,
}
_REGEX: Final = ConnectSchema(
    "struct",
    optional=True,
    name="io.debezium.mongodb.regex",
    fields=(("regex", OPTIONAL_STRING), ("options", OPTIONAL_STRING)),
)


class DocumentConverter:
    """Converts MongoDB documents to structs.

    Args:
        arrays_as_documents: convert lists to structs with fields ``_0``, ``_1`` and so on.
            Otherwise all elements of a list must have one type.
        names_empty: whether schemas of documents without fields have names.
    """

    def __init__(self, *, arrays_as_documents: bool, names_empty: bool = True) -> None:
        self._as_documents = arrays_as_documents
        self._names_empty = names_empty

    def schema(self, document: Bson, name: str | None = None) -> ConnectSchema:
        """Return the optional struct schema of a document.

        Raises:
            RecordError: a list contains values of several types.
        """
        fields = [
            (key, inner)
            for key, item in document.value.items()
            if (inner := self._field(item, f"{name or 'null'}.{key}")) is not None
        ]
        return ConnectSchema("struct", optional=True, name=name, fields=tuple(fields))

    def value(self, document: Bson, schema: ConnectSchema) -> Struct:
        """Convert a document to a struct with a schema."""
        fields = document.value
        return Struct(
            schema,
            {n: self._value(fields[n], s) if n in fields else None for n, s in schema.fields},
        )

    def scalar(self, item: Bson) -> tuple[ConnectSchema, Any]:
        """Return schema and value of a single value, as for the fields of a document."""
        schema = self._field(item, "null.id")
        if schema is None:
            raise refused(f"a key of type {item.type} is not supported", "wrong_type")
        return schema, self._value(item, schema)

    def _field(self, item: Bson, name: str) -> ConnectSchema | None:
        if item.type in _SCALARS:
            return _SCALARS[item.type]
        if item.type == "document":
            return self.schema(item, name if item.value or self._names_empty else None)
        if item.type == "regular_expression":
            return _REGEX
        if item.type == "javascript_with_scope":
            scope = self.schema(Bson("document", item.value[1]), f"{name}.scope")
            fields = (("code", OPTIONAL_STRING), ("scope", scope))
            return ConnectSchema("struct", name=name, fields=fields)
        return self._list(item, name) if item.type == "array" else None

    def _list(self, item: Bson, name: str) -> ConnectSchema:
        if self._as_documents:
            return self.schema(_numbered(item), name)
        if not item.value:
            return ConnectSchema("array", optional=True, value_schema=OPTIONAL_STRING)
        return ConnectSchema("array", optional=True, value_schema=self._elements(item.value, name))

    def _elements(self, items: list[Bson], name: str) -> ConnectSchema:
        schemas = [self._field(item, name) for item in items if item.type != "null"]
        merged: ConnectSchema | None = None
        for schema in schemas:
            if schema is None:
                raise refused("a list contains values of an unsupported type", "wrong_type")
            merged = schema if merged is None else _merged(merged, schema, name)
        return merged or OPTIONAL_STRING

    def _value(self, item: Bson, schema: ConnectSchema) -> Any:
        kind = item.type
        if kind == "document":
            return self.value(item, schema)
        if kind == "array":
            if self._as_documents:
                return self.value(_numbered(item), schema)
            inner = schema.value_schema
            assert inner is not None
            return [self._value(element, inner) for element in item.value]
        if kind in ("date_time", "timestamp"):
            return Timestamp(item.value)
        if kind == "regular_expression":
            return Struct(schema, {"regex": item.value[0], "options": item.value[1]})
        if kind == "javascript_with_scope":
            scope = self.value(Bson("document", item.value[1]), schema.fields[1][1])
            return Struct(schema, {"code": item.value[0], "scope": scope})
        return item.value


def _numbered(item: Bson) -> Bson:
    return Bson("document", {f"_{i}": element for i, element in enumerate(item.value)})


def _merged(left: ConnectSchema, right: ConnectSchema, name: str) -> ConnectSchema:
    """Merge the schemas of two elements of a list."""
    if left == right:
        return left
    if left.type == right.type == "struct" and left.name == right.name:
        fields = dict(left.fields)
        for key, inner in right.fields:
            fields[key] = _merged(fields[key], inner, f"{name}.{key}") if key in fields else inner
        return ConnectSchema("struct", optional=True, name=left.name, fields=tuple(fields.items()))
    raise refused(f"the list {name} contains values of several types", "mixed_list")


def _mode(value: Any) -> str | None:
    return one_of(_MODES)(str(value).lower())


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    mode = str(options["array_handling_mode"]).lower()
    documents = DocumentConverter(arrays_as_documents=mode == "document")

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
        key = value_of(str(known_field(a_struct(record.key, _PURPOSE), "id")))
        before, after = (_document(value, name) for name in ("before", "after"))
        if after is None and known_field(value, "updateDescription") is not None:
            after = _updated(value, before, key)
        elif before is None and after is None:
            raise refused(
                "the change event has neither before, after nor updateDescription", "no_row"
            )
        return _rebuilt(record, documents, {"before": before, "after": after}, key)

    return apply


def _is_named(schema: ConnectSchema | None, ending: str) -> bool:
    return schema is not None and bool(schema.name) and str(schema.name).endswith(ending)


def _document(value: Struct, name: str) -> Bson | None:
    text = known_field(value, name)
    return None if text is None else document_of(text)


def _updated(value: Struct, before: Bson | None, key: Bson) -> Bson:
    """Return the document after an update event that contains only the changed fields."""
    reported = a_struct(known_field(value, "updateDescription"), _PURPOSE)
    fields = dict(before.value) if before is not None else {}
    fields.update(document_of(known_field(reported, "updatedFields")).value)
    for name in known_field(reported, "removedFields") or ():
        fields.pop(name, None)
    fields.setdefault("_id", key)
    return Bson("document", fields)


def _rebuilt(
    record: SinkRecord, documents: DocumentConverter, by_name: dict[str, Bson | None], key: Bson
) -> SinkRecord:
    value: Struct = record.value
    fields: list[tuple[str, ConnectSchema]] = []
    values = all_values(value)
    for name, inner in value.schema.fields:
        if name not in by_name:
            fields.append((name, inner))
            continue
        document = by_name[name]
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


CHANGE: Final = {
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
}
"""An event, as pages show it."""
DECLARATION: Final = Declaration(
    "MongoDebeziumTransform",
    ICEBERG,
    "Converts the JSON documents in `before` and `after` of Debezium's MongoDB events to structs. "
    "If an update event contains only the changed fields, `after` is computed. Use "
    "`DebeziumTransform` after it. The key and value must have Debezium's schemas; other records "
    "become tombstones.",
    make,
    Example(
        {},
        CHANGE,
        {
            "key": {"id": "650b8b5c1e4f1a0001234567"},
            "value": {
                "after": {"_id": "650b8b5c1e4f1a0001234567", "qty": 3},
                "updateDescription": None,
                "op": "c",
            },
        },
        "Keys and values with schema are shown as JsonConverter writes them.",
    ),
    keys=(
        Key(
            "array_handling_mode",
            "STRING",
            "`array`: a list stays a list, with elements of one type. `document`: a list becomes a "
            "struct with the fields `_0`, `_1` and so on.",
            "array",
            check=_mode,
        ),
    ),
    also=(TABULAR,),
    differs="Documents must be extended JSON. The notation of the MongoDB shell is an error.",
)

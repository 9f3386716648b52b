"""Documents of MongoDB as structs: their schema, and their values in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connect.model.records import ConnectSchema, Struct, Timestamp
from connect.records.transforms.extended_json import Bson
from connect.records.transforms.transform import OPTIONAL_STRING, TIMESTAMP, refused

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


class Documents:
    """Turns documents into structs.

    Args:
        arrays_as_documents: a list becomes a struct with fields ``_0``, ``_1`` ...; otherwise all
            its elements must have one type.
    """

    def __init__(self, *, arrays_as_documents: bool) -> None:
        self._as_documents = arrays_as_documents

    def schema(self, document: Bson, name: str | None = None) -> ConnectSchema:
        """The optional struct schema of a document.

        Raises:
            RecordError: a list holds values of several types.
        """
        fields = [
            (key, inner)
            for key, item in document.value.items()
            if (inner := self._field(item, f"{name or 'null'}.{key}")) is not None
        ]
        return ConnectSchema("struct", optional=True, name=name, fields=tuple(fields))

    def value(self, document: Bson, schema: ConnectSchema) -> Struct:
        """A document's values in a schema."""
        found = document.value
        return Struct(
            schema,
            {n: self._value(found[n], s) if n in found else None for n, s in schema.fields},
        )

    def scalar(self, item: Bson) -> tuple[ConnectSchema, Any]:
        """A value of any type with its schema, as for the fields of a document."""
        schema = self._field(item, "null.id")
        if schema is None:
            raise refused(f"a key of type {item.type} has no form", "wrong_type")
        return schema, self._value(item, schema)

    def _field(self, item: Bson, name: str) -> ConnectSchema | None:
        if item.type in _SCALARS:
            return _SCALARS[item.type]
        if item.type == "document":
            return self.schema(item, name)
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
                raise refused("a list holds values without form", "wrong_type")
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
    """One schema for two elements of a list."""
    if left == right:
        return left
    if left.type == right.type == "struct" and left.name == right.name:
        fields = dict(left.fields)
        for key, inner in right.fields:
            fields[key] = _merged(fields[key], inner, f"{name}.{key}") if key in fields else inner
        return ConnectSchema("struct", optional=True, name=left.name, fields=tuple(fields.items()))
    raise refused(f"the list {name} holds values of several types", "mixed_list")

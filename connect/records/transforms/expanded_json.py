"""JSON texts as structs whose schema comes from their values, as in Debezium's outbox router.

Rules of this file:
- An object is an optional struct with optional fields. Elements of a list have one type; objects in
  a list get the fields of all of them. An empty list, and by default a null, has no field.
- A text without such a schema is not expanded.
"""

from __future__ import annotations

from typing import Any, Final

from connect.model.records import ConnectSchema, Struct
from connect.records.converters.json.json_text import JsonReader
from connect.records.converters.payload_errors import NotJson
from connect.records.transforms.transform import OPTIONAL_STRING

_READER: Final = JsonReader(decimals=False)
_BYTES: Final = ConnectSchema("bytes", optional=True)
_SCALARS: Final = {
    str: OPTIONAL_STRING,
    bool: ConnectSchema("boolean", optional=True),
    float: ConnectSchema("float64", optional=True),
}
_INTEGERS: Final = (
    (2**31, ConnectSchema("int32", optional=True)),
    (2**63, ConnectSchema("int64", optional=True)),
)
_DEPTH_MAX: Final = 100


class NotExpandable(ValueError):  # noqa: N818 - the text stays
    """The text is no object, or its values have no schema."""


def expanded(text: str, name: str, *, keeps_null: bool) -> Struct:
    """Return a JSON object as a struct.

    Args:
        text: JSON.
        name: of the schema.
        keeps_null: whether nulls are fields of bytes.

    Raises:
        NotExpandable: the text stays.
    """
    try:
        document = _READER.read_text(text) if text[:1] == "{" else None
    except NotJson as error:
        raise NotExpandable from error
    if type(document) is not dict:
        raise NotExpandable
    schema = _Schemas(keeps_null=keeps_null).of(name, document, 0)
    value = None if schema is None else _value(document, schema)
    assert isinstance(value, Struct)
    return value


class _Schemas:
    def __init__(self, *, keeps_null: bool) -> None:
        self._of_null = _BYTES if keeps_null else None

    def of(self, name: str | None, node: Any, depth: int) -> ConnectSchema | None:
        """Return the schema of a value; None if it has none."""
        if depth > _DEPTH_MAX:
            raise NotExpandable
        if node is None:
            return self._of_null
        if type(node) is dict:
            inner = [
                (key, self.of(f"{name}.{key}" if name else key, item, depth + 1))
                for key, item in node.items()
            ]
            fields = tuple((key, schema) for key, schema in inner if schema is not None)
            return ConnectSchema("struct", optional=True, name=name, fields=fields)
        if type(node) is list:
            if not node:
                return None
            items = self._of_items(name, node, depth)
            return ConnectSchema("array", optional=True, value_schema=items)
        if type(node) is int:
            for limit, schema in _INTEGERS:
                if -limit <= node < limit:
                    return schema
            raise NotExpandable
        return _SCALARS[type(node)]

    def _of_items(self, name: str | None, items: list[Any], depth: int) -> ConnectSchema:
        present = [item for item in items if item is not None]
        first = present[0] if present else None
        if type(first) is dict:
            schemas = [self.of(name, item, depth + 1) for item in present if type(item) is dict]
            if len(schemas) < len(present):
                raise NotExpandable
            return _merged([schema for schema in schemas if schema is not None])
        schema = self.of(None, first, depth + 1)
        is_number = type(first) in (int, float)
        for item in present:
            other = type(item) in (int, float) if is_number else type(item) is type(first)
            if not other or (is_number and self.of(None, item, depth + 1) is not schema):
                raise NotExpandable
        if schema is None:
            raise NotExpandable
        return schema


def _merged(schemas: list[ConnectSchema]) -> ConnectSchema:
    """Return the schema of all objects in a list; of two types of a field the first known one."""
    if all(schema == schemas[0] for schema in schemas):
        return schemas[0]
    fields: dict[str, ConnectSchema] = {}
    for schema in schemas:
        for name, inner in schema.fields:
            known = fields.get(name)
            if known is None or (known.type == "bytes" and inner.type != "bytes"):
                fields[name] = inner
    return ConnectSchema("struct", name=schemas[0].name, fields=tuple(fields.items()))


def _value(node: Any, schema: ConnectSchema) -> Any:
    if node is None:
        return None
    if schema.type == "struct" and type(node) is dict:
        return Struct(schema, {n: _value(node.get(n), inner) for n, inner in schema.fields})
    if schema.type == "array" and type(node) is list and schema.value_schema is not None:
        return [_value(item, schema.value_schema) for item in node]
    if type(node) is int:
        is_fitting = any(
            schema.type == kind.type and -limit <= node < limit for limit, kind in _INTEGERS
        )
    else:
        is_fitting = type(node) in _SCALARS and _SCALARS[type(node)].type == schema.type
    if not is_fitting:
        raise NotExpandable
    return node

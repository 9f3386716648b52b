"""``JsonToMapTransform``: parses JSON text to a struct; nested objects become string maps."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from connect.config.key import Key
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.text import to_string
from connect.records.converters.json.json_text import JsonReader
from connect.records.converters.payload_errors import NotJson
from connect.records.transforms.transform import (
    DECIMAL,
    ICEBERG,
    OPTIONAL_STRING,
    STRING_SCHEMA,
    TABULAR,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    refused,
    with_side,
)

_READER: Final = JsonReader(decimals=False)
_OBJECT: Final = ConnectSchema(
    "map", optional=True, key_schema=STRING_SCHEMA, value_schema=STRING_SCHEMA
)
_OBJECT_IN_LIST: Final = ConnectSchema(
    "map", optional=True, key_schema=OPTIONAL_STRING, value_schema=OPTIONAL_STRING
)
_SCALARS: Final = {
    "boolean": ConnectSchema("boolean", optional=True),
    "int32": ConnectSchema("int32", optional=True),
    "int64": ConnectSchema("int64", optional=True),
    "whole": ConnectSchema(
        "bytes", optional=True, name=DECIMAL, version=1, parameters={"scale": "0"}
    ),
    "float64": ConnectSchema("float64", optional=True),
    "string": OPTIONAL_STRING,
}
_KINDS: Final[Mapping[type, str]] = {str: "string", dict: "object", list: "array"}
_DEPTH_MAX: Final = 100


def text_of(node: Any) -> str:
    """Convert a JSON value to text: strings unchanged, other values as JSON."""
    if type(node) is str:
        return node
    try:
        return to_string({"v": node})[5:-1]
    except (Unconvertible, RecursionError):
        raise refused("a nested JSON value cannot be converted to text", "bad_text") from None


def _kind(node: Any) -> str:
    if type(node) is bool:
        return "boolean"
    if type(node) is int:
        if -(2**31) <= node < 2**31:
            return "int32"
        return "int64" if -(2**63) <= node < 2**63 else "whole"
    if type(node) is float:
        return "float64"
    return _KINDS.get(type(node), "null")


def _schema_of(node: Any) -> ConnectSchema | None:
    """Return the schema of a field's value, or None if the field is omitted."""
    kind = _kind(node)
    if kind == "object":
        return _OBJECT if node else None
    if kind == "array":
        return _list_schema([node], 0)
    return _SCALARS.get(kind)


def _list_schema(lists: list[Any], depth: int) -> ConnectSchema | None:
    """Return the common schema of several lists, or None if all of them are empty."""
    if depth > _DEPTH_MAX:
        raise refused("lists are nested too deeply in the JSON text", "too_deep")
    items = [item for each in lists for item in each]
    kinds = {_kind(item) for item in items}
    if not kinds:
        return None
    if kinds == {"array"}:
        inner = _list_schema(items, depth + 1)
    elif kinds == {"object"}:
        inner = _OBJECT_IN_LIST
    else:
        inner = _SCALARS.get(kinds.pop(), OPTIONAL_STRING) if len(kinds) == 1 else OPTIONAL_STRING
    if inner is None:
        return None
    return ConnectSchema("array", optional=True, value_schema=inner)


def _value_of(node: Any, schema: ConnectSchema) -> Any:
    if schema.type == "array":
        assert schema.value_schema is not None
        return [_value_of(item, schema.value_schema) for item in node]
    if schema.type == "map":
        return {name: text_of(item) for name, item in node.items()}
    if schema.name == DECIMAL:
        return Decimal(node)
    return text_of(node) if schema.type == "string" else node


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    is_root = options["json.root"]

    def apply(record: SinkRecord) -> SinkRecord:
        text = record.value
        if text is None:
            return record
        if type(text) is not str:
            raise refused("record value is not a string, use StringConverter", "wrong_type")
        try:
            document = _READER.read_text(text)
        except NotJson as error:
            raise refused(f"record.value is not valid json: {error}", error.code) from None
        if type(document) is not dict:
            raise refused("Expected json object for record.value after parsing", "bad_json")
        if is_root:
            schema = ConnectSchema("struct", fields=(("payload", _OBJECT),))
            whole = {name: text_of(item) for name, item in document.items()}
            return with_side(record, "value", schema, Struct(schema, {"payload": whole}))
        fields = [
            (name, inner)
            for name, item in document.items()
            if (inner := _schema_of(item)) is not None
        ]
        schema = ConnectSchema("struct", fields=tuple(fields))
        values = {name: _value_of(document[name], inner) for name, inner in fields}
        return with_side(record, "value", schema, Struct(schema, values))

    return apply


DECLARATION: Final = Declaration(
    "JsonToMapTransform",
    ICEBERG,
    "Parses a string value (of StringConverter) as a JSON object. The fields of the object become "
    "typed fields. Nested objects become maps from string to string, and lists of mixed types "
    "become lists of strings. Null fields, empty objects and empty lists are omitted. With "
    "`json.root`, the whole object becomes one map `payload`.",
    make,
    Example(
        {},
        {"value": '{"id": 7, "tags": [1, "x"], "user": {"name": "ann", "age": 5}}'},
        {"value": {"id": 7, "tags": ["1", "x"], "user": {"name": "ann", "age": "5"}}},
    ),
    keys=(Key("json.root", "BOOLEAN", "Convert the whole object to one map `payload`.", "false"),),
    also=(TABULAR,),
    differs="Text after the JSON document is an error, as in JsonConverter. Java ignores it.",
)

"""Parser of MongoDB extended JSON: values with their BSON types.

Both versions of extended JSON are supported (``{"$date": 5}``, ``{"$date": {"$numberLong":
"5"}}``). The notation of the MongoDB shell is not.
"""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from connect.errors import RecordError
from connect.records.converters.json.json_text import JsonReader
from connect.records.converters.payload_errors import NotJson
from connect.records.transforms.transform import refused

_READER: Final = JsonReader(decimals=False)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DEPTH_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Bson:
    """A value and the name of its BSON type in lower case."""

    type: str
    value: Any


def document_of(text: Any) -> Bson:
    """Parse a document.

    Raises:
        RecordError: the text is not a document.
    """
    if type(text) is not str:
        raise refused("a MongoDB document must be a string", "wrong_type")
    try:
        node = _READER.read_text(text)
    except NotJson as error:
        raise refused(f"a MongoDB document is not valid JSON: {error}", error.code) from None
    if type(node) is not dict:
        raise refused("a MongoDB document must be a JSON object", "bad_json")
    return Bson("document", {name: _value(item, 0) for name, item in node.items()})


def value_of(text: str) -> Bson:
    """Parse a single value, as in message keys.

    Raises:
        RecordError: the text is not a value.
    """
    value: Bson = document_of(f'{{"v":{text}}}').value["v"]
    return value


def _value(node: Any, depth: int) -> Bson:
    if depth > _DEPTH_MAX:
        raise refused("a MongoDB document is nested too deeply", "too_deep")
    kind = type(node)
    if kind is dict:
        special = _special(node)
        if special is not None:
            return special
        return Bson("document", {name: _value(item, depth + 1) for name, item in node.items()})
    if kind is list:
        return Bson("array", [_value(item, depth + 1) for item in node])
    if kind is int:
        if not -(2**63) <= node < 2**63:
            raise refused("a number in a MongoDB document has more than 64 bits", "out_of_range")
        return Bson("int32" if -(2**31) <= node < 2**31 else "int64", node)
    if node is None:
        return Bson("null", None)
    return Bson({bool: "boolean", float: "double"}.get(kind, "string"), node)


def _special(node: dict[str, Any]) -> Bson | None:
    names = frozenset(node)
    for operators, read in _SPECIAL.items():
        if names == operators:
            try:
                return read(node)
            except (ValueError, TypeError, KeyError, AttributeError, InvalidOperation) as error:
                if isinstance(error, RecordError):
                    raise
                displayed = ", ".join(sorted(names))
                raise refused(f"a value of type {displayed} is malformed", "bad_text") from None
    return None


def _date(node: dict[str, Any]) -> Bson:
    date = node["$date"]
    if type(date) is dict:
        date = int(date["$numberLong"])
    elif type(date) is str:
        instant = dt.datetime.fromisoformat(date)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=dt.UTC)
        date = (instant - _EPOCH) // dt.timedelta(milliseconds=1)
    return Bson("date_time", int(date))


def _binary(node: dict[str, Any]) -> Bson:
    binary = node["$binary"]
    text = binary["base64"] if type(binary) is dict else binary
    return Bson("binary", base64.b64decode(text, validate=True))


def _regex(node: dict[str, Any]) -> Bson:
    inner = node.get("$regularExpression")
    if inner is not None:
        return Bson("regular_expression", (str(inner["pattern"]), str(inner["options"])))
    return Bson("regular_expression", (str(node["$regex"]), str(node.get("$options", ""))))


def _scope(node: dict[str, Any]) -> Bson:
    scope = {name: _value(item, 1) for name, item in node["$scope"].items()}
    return Bson("javascript_with_scope", (str(node["$code"]), scope))


def _decimal(node: dict[str, Any]) -> Bson:
    return Bson("decimal128", str(Decimal(node["$numberDecimal"])))


def _ignored(_: dict[str, Any]) -> Bson:
    return Bson("other", None)


_SPECIAL: Final[Mapping[frozenset[str], Callable[[dict[str, Any]], Bson]]] = {
    frozenset({"$oid"}): lambda node: Bson("object_id", str(node["$oid"])),
    frozenset({"$numberLong"}): lambda node: Bson("int64", int(node["$numberLong"])),
    frozenset({"$numberInt"}): lambda node: Bson("int32", int(node["$numberInt"])),
    frozenset({"$numberDouble"}): lambda node: Bson("double", float(node["$numberDouble"])),
    frozenset({"$numberDecimal"}): _decimal,
    frozenset({"$date"}): _date,
    frozenset({"$timestamp"}): lambda node: Bson("timestamp", int(node["$timestamp"]["t"]) * 1000),
    frozenset({"$binary"}): _binary,
    frozenset({"$binary", "$type"}): _binary,
    frozenset({"$uuid"}): lambda node: Bson("binary", uuid.UUID(node["$uuid"]).bytes),
    frozenset({"$regularExpression"}): _regex,
    frozenset({"$regex"}): _regex,
    frozenset({"$regex", "$options"}): _regex,
    frozenset({"$code"}): lambda node: Bson("javascript", str(node["$code"])),
    frozenset({"$code", "$scope"}): _scope,
    frozenset({"$symbol"}): _ignored,
    frozenset({"$undefined"}): _ignored,
    frozenset({"$minKey"}): _ignored,
    frozenset({"$maxKey"}): _ignored,
}

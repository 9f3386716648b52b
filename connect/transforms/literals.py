"""Texts as Kafka's ``Values.parseString`` reads them: the literal of ``InsertHeader``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from connect.conversion.temporal import days_from_civil
from connect.records import ConnectSchema, Date, Int8, Int16, Int32, Time, Timestamp
from connect.transforms.base import DATE, DECIMAL, STRING_SCHEMA, TIME, TIMESTAMP
from connect.transforms.numbers import decimal_of, float32, float64

Typed = tuple[ConnectSchema | None, Any]

_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_TIME: Final = re.compile(r"(\d{2}):(\d{2}):(\d{2})\.(\d{3})Z")
_TOKEN: Final = re.compile(r'[^,:"\[\]{}\s\\]+')
_SIZES: Final = (("int8", 8), ("int16", 16), ("int32", 32), ("int64", 64))
_ORDER: Final = ("int8", "int16", "int32", "int64", "float32", "float64")
_EXPONENT_MAX: Final = 5_000
_DEPTH_MAX: Final = 50


class _NotThisWay(ValueError):  # noqa: N818 - ends an attempt
    """The text is no list, map or scalar of the grammar."""


def parsed(text: str) -> Typed:
    """A text with the schema and value that Kafka finds in it; itself when it finds nothing."""
    trimmed = text.strip()
    if not trimmed:
        return STRING_SCHEMA, text
    if trimmed[0] in "[{":
        try:
            (schema, value), end = _element(trimmed, 0, 0)
        except _NotThisWay:
            return STRING_SCHEMA, text
        return (schema, value) if end == len(trimmed) else (STRING_SCHEMA, text)
    whole = _scalar(trimmed)
    if whole is not None:
        return whole
    token = _TOKEN.match(trimmed)
    # Kafka looks at the text's first token alone when it is a number: 1,2 is 1
    if token is not None and trimmed[token.end() : token.end() + 1] == ",":
        return _scalar(token[0]) or (STRING_SCHEMA, text)
    return STRING_SCHEMA, text


def _scalar(word: str) -> Typed | None:
    if word == "null":
        return None, None
    if word in ("true", "false"):
        return ConnectSchema("boolean"), word == "true"
    return _temporal(word) or _number(word)


def _temporal(token: str) -> Typed | None:
    day, _, clock = token.partition("T")
    date = _DATE.fullmatch(day)
    time = _TIME.fullmatch(clock if date else token)
    if date and not clock and "T" not in token:
        return ConnectSchema("int32", name=DATE, version=1), Date(_days(date))
    if time is None:
        return None
    hours, minutes, seconds, millis = map(int, time.groups())
    clock_ms = ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis
    if date:
        instant = Timestamp(_days(date) * 86_400_000 + clock_ms)
        return ConnectSchema("int64", name=TIMESTAMP, version=1), instant
    return ConnectSchema("int32", name=TIME, version=1), Time(clock_ms)


def _days(date: re.Match[str]) -> int:
    year, month, day = map(int, date.groups())
    years, months = divmod(month - 1, 12)
    return days_from_civil(year + years, months + 1, 1) + day - 1


def _number(token: str) -> Typed | None:
    try:
        decimal = decimal_of(token)
    except ValueError:
        return None
    exponent = decimal.as_tuple().exponent
    assert isinstance(exponent, int)
    if abs(exponent) > _EXPONENT_MAX:
        return None
    if decimal == decimal.to_integral_value():
        whole = int(decimal)
        for name, bits in _SIZES:
            if -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
                return ConnectSchema(name), whole
    if exponent != 0:
        for kind, made in (("float32", float32(decimal)), ("float64", float64(decimal))):
            if made - made == 0.0:
                return ConnectSchema(kind), made
    schema = ConnectSchema("bytes", name=DECIMAL, version=1, parameters={"scale": str(-exponent)})
    return schema, decimal


# ------------------------------------------------------------------ lists and maps


def _element(text: str, index: int, depth: int) -> tuple[Typed, int]:
    index = _blank(text, index)
    if depth > _DEPTH_MAX or index >= len(text):
        raise _NotThisWay
    if text[index] == "[":
        items, index = _items(text, index, "]", depth)
        schema = ConnectSchema("array", value_schema=_common([s for ((s, _),) in items]))
        return (schema, [_aligned(schema.value_schema, *t) for (t,) in items]), index
    if text[index] == "{":
        pairs, index = _items(text, index, "}", depth)
        key = _common([k[0] for k, _ in pairs])
        value = _common([v[0] for _, v in pairs])
        schema = ConnectSchema("map", key_schema=key, value_schema=value)
        found = {_aligned(key, *k): _aligned(value, *v) for k, v in pairs}
        return (schema, found), index
    if text[index] == '"':
        return _quoted(text, index)
    token = _TOKEN.match(text, index)
    scalar = None if token is None else _scalar(token[0])
    if token is None or scalar is None:
        raise _NotThisWay
    return scalar, token.end()


def _items(text: str, index: int, close: str, depth: int) -> tuple[list[tuple[Typed, ...]], int]:
    items: list[tuple[Typed, ...]] = []
    index = _blank(text, index + 1)
    if text[index : index + 1] == close:
        return items, index + 1
    while True:
        first, index = _element(text, index, depth + 1)
        index = _blank(text, index)
        if close == "}":
            if text[index : index + 1] != ":":
                raise _NotThisWay
            second, index = _element(text, index + 1, depth + 1)
            items.append((first, second))
        else:
            items.append((first,))
        index = _blank(text, index)
        following = text[index : index + 1]
        if following == close:
            return items, index + 1
        if following != ",":
            raise _NotThisWay
        index += 1


def _quoted(text: str, index: int) -> tuple[Typed, int]:
    end = index + 1
    while end < len(text) and text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise _NotThisWay
    return (STRING_SCHEMA, text[index + 1 : end].replace('\\"', '"')), end + 1


def _blank(text: str, index: int) -> int:
    while index < len(text) and text[index].isspace():
        index += 1
    return index


def _common(schemas: Sequence[ConnectSchema | None]) -> ConnectSchema | None:
    """The schema of all elements; None when there is none."""
    kinds = {s.type if s.name is None else s.name for s in schemas if s is not None}
    if kinds and kinds <= set(_ORDER):
        return ConnectSchema(max(kinds, key=_ORDER.index))
    found = [schema for schema in schemas if schema is not None]
    return found[0] if found and all(schema == found[0] for schema in found) else None


_SIZED: Final = {"int8": Int8, "int16": Int16, "int32": Int32}


def _aligned(schema: ConnectSchema | None, own: ConnectSchema | None, value: Any) -> Any:
    """A number in the common type; in the kind of its own where there is none."""
    if own is None or isinstance(value, Decimal):
        return value
    if schema is None:
        return _SIZED[own.type](value) if own.type in _SIZED and own.name is None else value
    if schema.type == "float32":
        return float32(value)
    return float(value) if schema.type == "float64" else value

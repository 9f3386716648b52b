"""Parser of literals with the rules of Kafka's ``Values.parseString``, for ``InsertHeader``.

Rules of this file:
- The grammar is exactly that of Kafka, including its oddities. The first value of a text counts,
  and the rest is ignored (``12,x`` is 12). A list may end with a comma. A map may lack commas.
  Blanks between two delimiters vanish, even in quotes. ``[1,null]`` is not a list.
- Items of several numeric types get the widest type. Items of one type get the last item's schema.
- Unlike Kafka, the depth is limited to 50 levels. A map with lists or maps as keys, or with keys of
  several types that are equal in Python (``true`` and 1), makes the whole text a string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from connect.java_compat.java_numbers import float32, float32_of
from connect.model.records import ConnectSchema, Date, Float32, Int8, Int16, Int32, Time, Timestamp
from connect.records.conversion.numbers import DECIMAL_TEXT
from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.transform import DATE, DECIMAL, STRING_SCHEMA, TIME, TIMESTAMP

Typed = tuple[ConnectSchema | None, Any]

_TOKEN: Final = re.compile(r'(?:\\.?|[^\\:,{}\[\]"])+|.', re.DOTALL)
_BLANKS: Final = "".join(map(chr, range(33)))
_INTEGERS: Final = ((8, Int8), (16, Int16), (32, Int32), (64, int))
_WIDTHS: Final = ("int8", "int16", "int32", "int64", "float32", "float64")
_LONG_DIGITS: Final = 19
_SCALES: Final = range(-(2**31), 2**31)
_DEPTH_MAX: Final = 50
_DAY_MS: Final = 86_400_000
_TEMPORAL: Final = {
    10: (ConnectSchema("int32", name=DATE, version=1), DateFormat("yyyy-MM-dd")),
    13: (ConnectSchema("int32", name=TIME, version=1), DateFormat("HH:mm:ss.SSS'Z'")),
    24: (
        ConnectSchema("int64", name=TIMESTAMP, version=1),
        DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
    ),
}
"""Formats by the length of the text."""


class _NoMatch(ValueError):  # noqa: N818 - ends an attempt
    """The text is not a list or map of the grammar."""


class _NotRepresentable(ValueError):  # noqa: N818 - ends the attempt
    """Only Java can represent the value of the text."""


def parsed(text: str) -> Typed:
    """Return the schema and value of a text, as Kafka parses it."""
    schema, value = _Reader(text).first() if text else (STRING_SCHEMA, text)
    return schema, _to_data_model(schema, value)


class _Reader:
    """Parser of a text. A token is one of ``: , { } [ ] "`` or the text between them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._index = 0
        self._ahead: str | None = None
        self._is_held = True

    # -------------------------------------------------------------- tokens

    @property
    def _has_more(self) -> bool:
        return self._ahead is not None or self._index < len(self._text)

    def _token(self) -> str:
        token = self._ahead
        self._ahead = None
        if token is None:
            match = _TOKEN.match(self._text, self._index)
            token = "" if match is None else match[0]
            self._index += len(token)
        return token

    def _takes(self, expected: str) -> bool:
        """Consume the next non-blank token if it is the expected one; return whether it was."""
        if not self._has_more:
            return False
        token = self._token()
        while not token.strip(_BLANKS) and self._index < len(self._text):
            token = self._token()
        if token.strip(_BLANKS) == expected:
            return True
        self._ahead = token
        return False

    def _mark(self) -> int:
        return self._index - len(self._ahead or "")

    def _rewind(self, index: int) -> None:
        self._index, self._ahead = index, None

    # -------------------------------------------------------------- values

    def first(self) -> Typed:
        """Parse the first value of the text."""
        keyword = self._keyword(is_inner=False)
        if keyword is not None:
            return keyword
        try:
            typed = self._container(0)
        except _NotRepresentable:
            return STRING_SCHEMA, self._text
        except _NoMatch:
            self._rewind(0)
            typed = None
        if typed is not None:
            return typed if self._is_held else (STRING_SCHEMA, self._text)
        token = self._token()
        if not token.strip(_BLANKS):
            return STRING_SCHEMA, token
        return self._scalar(token.strip(_BLANKS)) or (STRING_SCHEMA, self._text)

    def _inner(self, depth: int) -> Typed:
        """Parse a value in a list or map. A string must be quoted or blank."""
        if self._takes('"'):
            return self._quoted()
        keyword = self._keyword(is_inner=True)
        if keyword is not None:
            return keyword
        typed = self._container(depth)
        if typed is not None:
            return typed
        if not self._has_more:
            raise _NoMatch
        token = self._token()
        if not token.strip(_BLANKS):
            return STRING_SCHEMA, token
        typed = self._scalar(token.strip(_BLANKS))
        if typed is None:
            raise _NoMatch
        return typed

    def _keyword(self, *, is_inner: bool) -> Typed | None:
        for keyword, typed in _KEYWORDS.items():
            start = self._mark()
            if self._takes(keyword) and (is_inner or not self._has_more):
                return typed
            self._rewind(start)
        return None

    def _container(self, depth: int) -> Typed | None:
        is_list = self._takes("[")
        if not is_list and not self._takes("{"):
            return None
        if depth == _DEPTH_MAX:
            raise _NotRepresentable
        return self._list(depth + 1) if is_list else self._map(depth + 1)

    def _list(self, depth: int) -> Typed:
        items: list[Typed] = []
        while self._has_more:
            if self._takes("]"):
                schema = _common([own for own, _ in items])
                values = [_aligned(schema, value) for _, value in items]
                return ConnectSchema("array", value_schema=schema), values
            if self._takes(","):
                break
            items.append(self._inner(depth))
            end = self._mark()
            if self._takes("]"):
                self._rewind(end)
            elif not self._takes(","):
                break
        raise _NoMatch

    def _map(self, depth: int) -> Typed:
        pairs: list[tuple[Typed, Typed]] = []
        while self._has_more:
            if self._takes("}"):
                schema, entries, is_held = _map_of(pairs)
                self._is_held &= is_held
                return schema, entries
            if self._takes(","):
                break
            key = self._inner(depth)
            if key[1] is None or not self._takes(":") or not self._has_more:
                break
            pairs.append((key, self._inner(depth)))
            self._takes(",")
        raise _NoMatch

    def _quoted(self) -> Typed:
        parts: list[str] = []
        while self._has_more and not self._takes('"'):
            parts.append(self._token())
        content = "".join(parts)
        return _temporal(content) or (STRING_SCHEMA, content)

    def _scalar(self, token: str) -> Typed | None:
        if token[0].isdecimal():
            start = self._mark()
            rest = [self._token() for _ in range(4) if self._has_more]
            temporal = _temporal(token + "".join(rest)) if len(rest) == 4 else None
            if temporal is not None:
                return temporal
            self._rewind(start)
            temporal = _temporal(token)
            if temporal is not None:
                return temporal
        return _number(token) if token[0].isdecimal() or token[0] in "+-" else None


_KEYWORDS: Final[dict[str, Typed]] = {
    "null": (None, None),
    "true": (ConnectSchema("boolean"), True),
    "false": (ConnectSchema("boolean"), False),
}


def _temporal(text: str) -> Typed | None:
    """Parse a date, time or instant, leniently as in Java: month 13 is January."""
    text = text.replace("\\:", ":")
    schema_and_form = _TEMPORAL.get(len(text) + sum(char > "\uffff" for char in text))
    if schema_and_form is None:
        return None
    schema, form = schema_and_form
    try:
        return schema, Timestamp(form.parse(text))
    except ValueError:
        return None


def _number(token: str) -> Typed | None:
    if not DECIMAL_TEXT.fullmatch(token):
        return None
    decimal = Decimal(token) or abs(Decimal(token))  # Java has no negative zero
    exponent = decimal.as_tuple().exponent
    assert isinstance(exponent, int)
    if -exponent not in _SCALES:
        return None
    is_long = decimal.adjusted() < _LONG_DIGITS and decimal == decimal.to_integral_value()
    whole = int(decimal) if is_long and decimal else 0
    for bits, kind in _INTEGERS:
        if (is_long or not decimal) and -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
            return ConnectSchema(f"int{bits}"), kind(whole)
    if exponent != 0:
        for kind_name, number in (
            ("float32", float32_of(str(decimal))),
            ("float64", float(decimal)),
        ):
            if number - number == 0.0:
                return ConnectSchema(kind_name), number
    schema = ConnectSchema("bytes", name=DECIMAL, version=1, parameters={"scale": str(-exponent)})
    return schema, decimal


# ------------------------------------------------------------------ lists and maps


def _map_of(pairs: Sequence[tuple[Typed, Typed]]) -> tuple[ConnectSchema, dict[Any, Any], bool]:
    """Return schema and value of a map, and whether a Python dict can represent all its entries."""
    key = _common([own for (own, _), _ in pairs])
    value = None if key is None else _common([own for _, (own, _) in pairs])
    last: dict[tuple[type, Any], Any] = {}
    for (_, one), (_, other) in pairs:
        last[type(one), repr(one) if isinstance(one, list | dict) else one] = other
    entries = {_aligned(key, one): _aligned(value, other) for (_, one), other in last.items()}
    is_held = not any(isinstance(one, list | dict) for (_, one), _ in pairs)
    is_held &= key is not None or len(entries) == len(last)
    return ConnectSchema("map", key_schema=key, value_schema=value), entries, is_held


def _common(schemas: Sequence[ConnectSchema | None]) -> ConnectSchema | None:
    """Return the common schema of items, or None if they have no common type."""
    common: ConnectSchema | None = None
    for schema in schemas:
        if schema is None:
            continue
        if common is None or common.type == schema.type:
            common = schema
        elif common.type in _WIDTHS and schema.type in _WIDTHS:
            common = max(common, schema, key=lambda one: _WIDTHS.index(one.type))
        else:
            return None
    return common


def _aligned(schema: ConnectSchema | None, value: Any) -> Any:
    """Convert a value to the common type.

    Raises:
        _NoMatch: the value cannot be converted.
    """
    if schema is None:
        return value
    if value is None:
        raise _NoMatch
    make = _NUMBERS.get(schema.type)
    if make is None or (isinstance(value, Timestamp) and schema.name is not None):
        return value
    if isinstance(value, Timestamp):
        raise _NoMatch
    if schema.name is None:
        return make(value)
    if schema.name == TIME and not 0 <= value <= _DAY_MS:
        raise _NoMatch
    return Timestamp(value * (_DAY_MS if schema.name == DATE else 1))


_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    **{f"int{bits}": kind for bits, kind in _INTEGERS},
    "float32": float32,
    "float64": float,
}


def _to_data_model(schema: ConnectSchema | None, value: Any) -> Any:
    """Convert a value to the data model. Numbers are sized only if they have no schema."""
    if isinstance(value, list):
        inner = None if schema is None else schema.value_schema
        return [_to_data_model(inner, item) for item in value]
    if isinstance(value, dict):
        key, inner = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        return {_to_data_model(key, k): _to_data_model(inner, v) for k, v in value.items()}
    if schema is None or isinstance(value, Float32):
        return value
    if isinstance(value, Timestamp):
        days, rest = divmod(value.millis, _DAY_MS)
        if schema.name == DATE and rest == 0:
            return Date(days)
        return Time(value.millis) if schema.name == TIME and days == 0 else value
    return int(value) if isinstance(value, Int8 | Int16 | Int32) else value

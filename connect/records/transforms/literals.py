"""Texts as Kafka's ``Values.parseString`` reads them: the literal of ``InsertHeader``.

Rules of this file:
- The grammar is Kafka's to the letter, also where it is odd: the first value of a text decides
  and what follows is ignored (``12,x`` is 12), a comma may end a list and may be missing in a
  map, blanks alone between two marks vanish within quotes, ``[1,null]`` is no list.
- Of two types in a list the wider number wins; of two with one bare type the last.
- Not Kafka's: 50 levels are the most; a map whose keys are lists or maps, or of several kinds
  that are equal here (``true`` and 1), leaves all a text.
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
"""By the length of the text."""


class _NotThisWay(ValueError):  # noqa: N818 - ends an attempt
    """The text is no list or map of the grammar."""


class _Unheld(ValueError):  # noqa: N818 - ends the attempt
    """The text is what only Java can hold."""


def parsed(text: str) -> Typed:
    """A text with the schema and value that Kafka finds in it; itself when it finds nothing."""
    schema, value = _Reader(text).first() if text else (STRING_SCHEMA, text)
    return schema, _displayed(schema, value)


class _Reader:
    """The tokens of a text, each one of ``: , { } [ ] "`` or what stands between them."""

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
        found = self._ahead
        self._ahead = None
        if found is None:
            match = _TOKEN.match(self._text, self._index)
            found = "" if match is None else match[0]
            self._index += len(found)
        return found

    def _takes(self, expected: str) -> bool:
        """Take the next token that is not blank if it is the expected one."""
        if not self._has_more:
            return False
        found = self._token()
        while not found.strip(_BLANKS) and self._index < len(self._text):
            found = self._token()
        if found.strip(_BLANKS) == expected:
            return True
        self._ahead = found
        return False

    def _mark(self) -> int:
        return self._index - len(self._ahead or "")

    def _rewind(self, index: int) -> None:
        self._index, self._ahead = index, None

    # -------------------------------------------------------------- values

    def first(self) -> Typed:
        """The value that the text begins with."""
        word = self._word(is_inner=False)
        if word is not None:
            return word
        try:
            found = self._container(0)
        except _Unheld:
            return STRING_SCHEMA, self._text
        except _NotThisWay:
            self._rewind(0)
            found = None
        if found is not None:
            return found if self._is_held else (STRING_SCHEMA, self._text)
        token = self._token()
        if not token.strip(_BLANKS):
            return STRING_SCHEMA, token
        return self._scalar(token.strip(_BLANKS)) or (STRING_SCHEMA, self._text)

    def _inner(self, depth: int) -> Typed:
        """A value within a list or map; a text only within quotes, or of blanks."""
        if self._takes('"'):
            return self._quoted()
        word = self._word(is_inner=True)
        if word is not None:
            return word
        found = self._container(depth)
        if found is not None:
            return found
        if not self._has_more:
            raise _NotThisWay
        token = self._token()
        if not token.strip(_BLANKS):
            return STRING_SCHEMA, token
        found = self._scalar(token.strip(_BLANKS))
        if found is None:
            raise _NotThisWay
        return found

    def _word(self, *, is_inner: bool) -> Typed | None:
        for word, found in _WORDS.items():
            start = self._mark()
            if self._takes(word) and (is_inner or not self._has_more):
                return found
            self._rewind(start)
        return None

    def _container(self, depth: int) -> Typed | None:
        is_list = self._takes("[")
        if not is_list and not self._takes("{"):
            return None
        if depth == _DEPTH_MAX:
            raise _Unheld
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
        raise _NotThisWay

    def _map(self, depth: int) -> Typed:
        pairs: list[tuple[Typed, Typed]] = []
        while self._has_more:
            if self._takes("}"):
                schema, found, is_held = _map_of(pairs)
                self._is_held &= is_held
                return schema, found
            if self._takes(","):
                break
            key = self._inner(depth)
            if key[1] is None or not self._takes(":") or not self._has_more:
                break
            pairs.append((key, self._inner(depth)))
            self._takes(",")
        raise _NotThisWay

    def _quoted(self) -> Typed:
        parts: list[str] = []
        while self._has_more and not self._takes('"'):
            parts.append(self._token())
        content = "".join(parts)
        return _temporal(content) or (STRING_SCHEMA, content)

    def _scalar(self, word: str) -> Typed | None:
        if word[0].isdecimal():
            start = self._mark()
            rest = [self._token() for _ in range(4) if self._has_more]
            found = _temporal(word + "".join(rest)) if len(rest) == 4 else None
            if found is not None:
                return found
            self._rewind(start)
            found = _temporal(word)
            if found is not None:
                return found
        return _number(word) if word[0].isdecimal() or word[0] in "+-" else None


_WORDS: Final[dict[str, Typed]] = {
    "null": (None, None),
    "true": (ConnectSchema("boolean"), True),
    "false": (ConnectSchema("boolean"), False),
}


def _temporal(text: str) -> Typed | None:
    """A date, time or instant; Java's lenient reading, so month 13 is January."""
    text = text.replace("\\:", ":")
    known = _TEMPORAL.get(len(text) + sum(char > "\uffff" for char in text))
    if known is None:
        return None
    schema, form = known
    try:
        return schema, Timestamp(form.parse(text))
    except ValueError:
        return None


def _number(word: str) -> Typed | None:
    if not DECIMAL_TEXT.fullmatch(word):
        return None
    decimal = Decimal(word) or abs(Decimal(word))  # Java has no negative zero
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
        for kind_name, made in (("float32", float32_of(str(decimal))), ("float64", float(decimal))):
            if made - made == 0.0:
                return ConnectSchema(kind_name), made
    schema = ConnectSchema("bytes", name=DECIMAL, version=1, parameters={"scale": str(-exponent)})
    return schema, decimal


# ------------------------------------------------------------------ lists and maps


def _map_of(pairs: Sequence[tuple[Typed, Typed]]) -> tuple[ConnectSchema, dict[Any, Any], bool]:
    """Schema and value of a map, and whether it is all of the map."""
    key = _common([own for (own, _), _ in pairs])
    value = None if key is None else _common([own for _, (own, _) in pairs])
    last: dict[tuple[type, Any], Any] = {}
    for (_, one), (_, other) in pairs:
        last[type(one), repr(one) if isinstance(one, list | dict) else one] = other
    found = {_aligned(key, one): _aligned(value, other) for (_, one), other in last.items()}
    is_held = not any(isinstance(one, list | dict) for (_, one), _ in pairs)
    is_held &= key is not None or len(found) == len(last)
    return ConnectSchema("map", key_schema=key, value_schema=value), found, is_held


def _common(schemas: Sequence[ConnectSchema | None]) -> ConnectSchema | None:
    """The schema of all items; None when there is none."""
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
    """A value in the common type.

    Raises:
        _NotThisWay: it cannot be one of it.
    """
    if schema is None:
        return value
    if value is None:
        raise _NotThisWay
    make = _NUMBERS.get(schema.type)
    if make is None or (isinstance(value, Timestamp) and schema.name is not None):
        return value
    if isinstance(value, Timestamp):
        raise _NotThisWay
    if schema.name is None:
        return make(value)
    if schema.name == TIME and not 0 <= value <= _DAY_MS:
        raise _NotThisWay
    return Timestamp(value * (_DAY_MS if schema.name == DATE else 1))


_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    **{f"int{bits}": kind for bits, kind in _INTEGERS},
    "float32": float32,
    "float64": float,
}


def _displayed(schema: ConnectSchema | None, value: Any) -> Any:
    """A value as the data model has it: sized numbers only where no schema tells the size."""
    if isinstance(value, list):
        inner = None if schema is None else schema.value_schema
        return [_displayed(inner, item) for item in value]
    if isinstance(value, dict):
        key, inner = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        return {_displayed(key, k): _displayed(inner, v) for k, v in value.items()}
    if schema is None or isinstance(value, Float32):
        return value
    if isinstance(value, Timestamp):
        days, rest = divmod(value.millis, _DAY_MS)
        if schema.name == DATE and rest == 0:
            return Date(days)
        return Time(value.millis) if schema.name == TIME and days == 0 else value
    return int(value) if isinstance(value, Int8 | Int16 | Int32) else value

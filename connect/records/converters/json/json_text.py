"""A bounded JSON parser, at least as strict as Jackson.

Rules of this file:
- The size of a document, its depth and the digits of a number are bounded. Deeply nested documents
  are parsed without recursion, so that no input can crash the interpreter.
- Whole numbers are exact at any size. A number with a fraction or exponent becomes the nearest
  double. It is an error if the double is infinite, is zero for a number that is not zero, or is
  another whole number. The double that was rounded to the number's digits is no other number: up
  to Java 18, ``Double.toString`` writes more digits than the shortest text (8.5218099075542917E18).
- Of duplicate names the last one counts. Text after the document is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from connect.records.converters.payload_errors import NotJson

DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
DEPTH_MAX: Final = 1000
NUMBER_DIGITS_MAX: Final = 1000
# the scanner of ``json`` recurses per level; Python allows 1000 frames in total
_RECURSIVE_DEPTH_MAX: Final = 200
_DOUBLE_EXACT_MAX: Final = 2.0**53

_SCALARS: Final = json.JSONDecoder().raw_decode
_WHITE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_BRACKETS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_BYTE_ORDER_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


def exact_double(text: str) -> float:
    """Parse a number with a fraction or exponent as the nearest double.

    Raises:
        NotJson: the double differs from the number more than by rounding.
    """
    number = float(text)
    if -_DOUBLE_EXACT_MAX < number < _DOUBLE_EXACT_MAX and number != 0.0:
        return number
    if len(text) > NUMBER_DIGITS_MAX + 8:
        raise NotJson("out_of_range", "a number has too many digits")
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent of 19 or more digits
        if not text.lower().partition("e")[0].strip("-0."):
            return number
        raise NotJson("out_of_range", "a number has too many digits") from None
    return double_of(exact)


def double_of(number: Decimal) -> float:
    """Return the nearest double of a JSON number; see ``exact_double``."""
    nearest = float(number)
    if nearest - nearest != 0.0:
        raise NotJson("out_of_range", "a number is outside the range of double")
    if -_DOUBLE_EXACT_MAX < nearest < _DOUBLE_EXACT_MAX:
        if nearest == 0.0 and number:
            raise NotJson("lost_digits", "a number is too small for a double")
    elif Decimal(repr(nearest)) != number and _rounded(nearest, number) != number:
        raise NotJson("lost_digits", "a double does not hold all digits of a number")
    return nearest


def _rounded(nearest: float, number: Decimal) -> Decimal:
    """Return a double with as many digits as a number."""
    digits = len(number.as_tuple().digits)
    return Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(Decimal(nearest))


def _bounded_int(text: str) -> int:
    if len(text.lstrip("-")) > NUMBER_DIGITS_MAX:
        raise NotJson("out_of_range", "a number has too many digits")
    return int(text)


def _bounded_decimal(text: str) -> Decimal:
    _, _, exponent = text.replace("E", "e").partition("e")
    if len(text) > NUMBER_DIGITS_MAX + 8 or len(exponent.lstrip("+-")) > 9:
        raise NotJson("out_of_range", "a number has too many digits")
    return Decimal(text)


def _no_constant(name: str) -> NoReturn:
    raise NotJson("bad_json", f"{name} is not JSON")


class JsonReader:
    """Parses documents.

    Args:
        decimals: whether numbers with a fraction or exponent become ``Decimal`` (exact) instead
            of double.
    """

    def __init__(self, *, decimals: bool) -> None:
        self._to_number: Callable[[str], Any] = _bounded_decimal if decimals else exact_double
        self._short = json.JSONDecoder(
            parse_float=self._to_number, parse_constant=_no_constant
        ).raw_decode
        self._long = json.JSONDecoder(
            parse_float=self._to_number, parse_int=_bounded_int, parse_constant=_no_constant
        ).raw_decode

    def read(self, data: bytes) -> Any:
        """Parse one document.

        Raises:
            NotJson: the text is not a valid document.
        """
        return self.read_text(decode(data))

    def read_text(self, text: str) -> Any:
        """Parse one document, already decoded.

        Raises:
            NotJson: the text is not a valid document.
        """
        value, end = self.value(text, skip(text, 0))
        if end != len(text) and skip(text, end) != len(text):
            raise NotJson("bad_json", "there is text after the JSON document")
        return value

    def value(self, text: str, start: int, *, level: int = 0) -> tuple[Any, int]:
        """Parse the value at an index; return the value and the index after it.

        Args:
            text: of the document.
            start: where the value begins.
            level: open brackets before it.
        """
        if (
            len(text) - start > _RECURSIVE_DEPTH_MAX
            and text.count("[", start) + text.count("{", start) > _RECURSIVE_DEPTH_MAX
            and _depth(text, start, level) > _RECURSIVE_DEPTH_MAX
        ):
            return self._without_recursion(text, start)
        read = self._long if len(text) - start > NUMBER_DIGITS_MAX else self._short
        try:
            return read(text, start)
        except json.JSONDecodeError as error:
            raise NotJson(
                "bad_json", f"{error.msg.removesuffix(' at')} at character {error.pos}"
            ) from None

    def _without_recursion(self, text: str, start: int) -> tuple[Any, int]:
        """Parse with an explicit stack: slow, for deeply nested documents."""
        stack: list[tuple[Any, str]] = []  # open containers, and the name of the next value
        index = start
        while True:
            value, index, opened = self._begin(text, index)
            if opened:
                name, index = _name(text, index) if type(value) is dict else ("", index)
                stack.append((value, name))
                continue
            # the value is complete: add it to its container, and close containers that end
            while stack:
                container, name = stack.pop()
                if type(container) is list:
                    container.append(value)
                else:
                    container[name] = value
                index = skip(text, index)
                mark = text[index : index + 1]
                if mark == ",":
                    index = skip(text, index + 1)
                    if type(container) is dict:
                        name, index = _name(text, index)
                    stack.append((container, name))
                    break
                if mark != ("]" if type(container) is list else "}"):
                    raise NotJson("bad_json", f"expected a comma or an end at character {index}")
                value, index = container, index + 1
            else:
                return value, index

    def _begin(self, text: str, index: int) -> tuple[Any, int, bool]:
        """Parse a scalar or an empty container, or open a container; return the index after it."""
        for opening, closing, container in (("[", "]", list), ("{", "}", dict)):
            if text.startswith(opening, index):
                index = skip(text, index + 1)
                if text.startswith(closing, index):
                    return container(), index + 1, False
                return container(), index, True
        value, index = self._scalar(text, index)
        return value, index, False

    def _scalar(self, text: str, index: int) -> tuple[Any, int]:
        char = text[index : index + 1]
        if char == '"':
            return _string(text, index)
        for literal, constant in (("true", True), ("false", False), ("null", None)):
            if text.startswith(literal, index):
                return constant, index + len(literal)
        match = _NUMBER.match(text, index)
        if match is None:
            raise NotJson("bad_json", f"expected a value at character {index}")
        if match[2] is None and match[3] is None:
            return _bounded_int(match[0]), match.end()
        return self._to_number(match[0]), match.end()


def decode(data: bytes) -> str:
    """Decode a document in UTF-8, or in UTF-16 or UTF-32 as detected from its first bytes.

    Raises:
        NotJson: the document is too large, or not in the encoding.
    """
    if len(data) > DOCUMENT_BYTES_MAX:
        raise NotJson("too_large", f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
    encoding = "utf-8"
    if b"\x00" in data[:4] or data.startswith(_BYTE_ORDER_MARKS):
        encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise NotJson("bad_json", f"the bytes are not {encoding}") from None


def _depth(text: str, start: int, level: int) -> int:
    """Return the maximum depth of brackets outside strings from an index, below a level.

    Raises:
        NotJson: the document is nested too deeply.
    """
    depth = deepest = level
    for match in _BRACKETS.finditer(text, start):
        mark = match[0]
        if mark in "[{":
            depth += 1
            if depth > deepest:
                deepest = depth
                if deepest > DEPTH_MAX:
                    raise NotJson("too_deep", f"nested deeper than {DEPTH_MAX} levels")
        elif mark in "]}":
            depth -= 1
    return deepest


def skip(text: str, index: int) -> int:
    """Return the index after white space."""
    match = _WHITE.match(text, index)
    assert match is not None  # the pattern also matches empty white space
    return match.end()


def _string(text: str, index: int) -> tuple[str, int]:
    try:
        value, end = _SCALARS(text, index)
    except json.JSONDecodeError as error:
        raise NotJson(
            "bad_json", f"{error.msg.removesuffix(' at')} at character {error.pos}"
        ) from None
    return value, end


def _name(text: str, index: int) -> tuple[str, int]:
    if text[index : index + 1] != '"':
        raise NotJson("bad_json", f"expected a name at character {index}")
    name, index = _string(text, index)
    index = skip(text, index)
    if text[index : index + 1] != ":":
        raise NotJson("bad_json", f"expected a colon at character {index}")
    return name, skip(text, index + 1)

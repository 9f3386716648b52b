"""Conversion to text: for string columns, and for route values as Java formats them.

Rules of this file:
- Numbers are formatted as in Java (``1.0E20``), so that both sinks write the same text.
- Maps and lists become JSON as Jackson writes it. Structs become JSON as Connect's JsonConverter
  writes it: a decimal is the base64 of its unscaled value, and null becomes the schema's default.
- Text that UTF-8 cannot encode (a lone surrogate) is an error.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np

from connect.model.records import (
    ConnectSchema,
    Date,
    Float32,
    Int8,
    Int16,
    Int32,
    Struct,
    Time,
    Timestamp,
)
from connect.records.conversion.conversion_failure import Unconvertible, kind_of, wrong_type
from connect.records.conversion.numbers import INTEGERS
from connect.records.conversion.temporal import civil_from_days

_CONTROL_ESCAPE: Final = re.compile(r"\\u00[01][a-f0-9]")
_DAY_MS: Final = 86_400_000


def to_string(value: Any) -> str:
    """Convert text, numbers and booleans; convert maps, lists and structs to JSON."""
    if type(value) is str:
        return _encodable(value)
    write = _PLAIN.get(type(value))
    if write is not None:
        return write(value)
    if type(value) in (dict, list):
        return _encodable(_json(value))
    if type(value) is Struct:
        return _encodable(_typed_json(value, value.schema))
    raise wrong_type(value, "string")


def _encodable(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unconvertible("bad_text", "the text contains half a surrogate pair") from None
    return text


def java_double(value: float) -> str:
    """Format a double as ``Double.toString``: exponent notation outside 1e-3 to 1e7."""
    return _java_float(value, repr(value), f"{value:.1e}")


def java_float(value: float) -> str:
    """Format a number that is already rounded to 32 bits as ``Float.toString``."""
    return _java_float(value, str(np.float32(value)), f"{value:.1e}")


def _java_float(value: float, shortest: str, two_digits: str) -> str:
    if value != value:  # noqa: PLR0124 - NaN
        return "NaN"
    if value - value != 0.0:
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).as_tuple()
    if not any(digits):
        return "-0.0" if sign else "0.0"
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - 1  # the exponent of the first digit
    if len(text) == 1 and not 1e-3 <= abs(value) < 1e7:
        # Java writes at least two digits, the closest ones: 4.9E-324
        mantissa, _, displayed = two_digits.lstrip("-").partition("e")
        text, exponent = mantissa.replace(".", ""), int(displayed)
        text = text.rstrip("0") or "0"
    lead = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if exponent < 0:
            return f"{lead}0.{'0' * (-exponent - 1)}{text}"
        whole = text[: exponent + 1].ljust(exponent + 1, "0")
        return f"{lead}{whole}.{text[exponent + 1 :] or '0'}"
    return f"{lead}{text[0]}.{text[1:] or '0'}E{exponent}"


def java_decimal(value: Decimal) -> str:
    """Format a decimal as ``BigDecimal.toString``, which differs from Python only for NaN."""
    return str(value)


_PLAIN: Final[dict[type, Callable[[Any], str]]] = {
    int: str,
    Int8: int.__repr__,
    Int16: int.__repr__,
    Int32: int.__repr__,
    bool: lambda value: "true" if value else "false",
    float: java_double,
    Float32: java_float,
    Decimal: java_decimal,
}


def _quoted(text: str) -> str:
    encoded = json.dumps(text, ensure_ascii=False)
    if "\\u00" in encoded:  # Jackson writes hexadecimal digits of escapes in upper case
        encoded = _CONTROL_ESCAPE.sub(lambda m: "\\u" + m[0][2:].upper(), encoded)
    return encoded


def _json_scalar(value: Any) -> str | None:
    """Return the JSON of a scalar that does not depend on a schema; None for other values."""
    kind = type(value)
    if value is None:
        return "null"
    if kind is str:
        return _quoted(value)
    if kind is bool or kind in INTEGERS:
        return _PLAIN[kind](value)
    if kind is float or kind is Float32:
        text = _PLAIN[kind](value)
        return text if value - value == 0.0 else f'"{text}"'
    return None


def _json(value: Any) -> str:
    """Return the JSON of a value without schema."""
    text = _json_scalar(value)
    if text is not None:
        return text
    if type(value) is dict:
        entries = [f"{_quoted(_key_text(key))}:{_json(item)}" for key, item in value.items()]
        return "{" + ",".join(entries) + "}"
    if type(value) is list:
        return "[" + ",".join([_json(item) for item in value]) + "]"
    return _json_logical(value, in_struct=False)


def _typed_json(value: Any, schema: ConnectSchema | None) -> str:
    """Return the JSON of a value in a struct; null becomes its schema's ``null_value``."""
    if value is None and schema is not None:
        value = schema.null_value
    text = _json_scalar(value)
    if text is not None:
        return text
    kind = type(value)
    if kind is Struct:
        fields = [
            f"{_quoted(name)}:{_typed_json(value.values.get(name), inner)}"
            for name, inner in value.schema.fields
        ]
        return "{" + ",".join(fields) + "}"
    inner = schema.value_schema if schema is not None else None
    if kind is list:
        return "[" + ",".join([_typed_json(item, inner) for item in value]) + "]"
    if kind is not dict:
        return _json_logical(value, in_struct=True)
    if all(type(key) is str for key in value):
        entries = [f"{_quoted(key)}:{_typed_json(item, inner)}" for key, item in value.items()]
        return "{" + ",".join(entries) + "}"
    keys = schema.key_schema if schema is not None else None
    pairs = [
        f"[{_typed_json(key, keys)},{_typed_json(item, inner)}]" for key, item in value.items()
    ]
    return "[" + ",".join(pairs) + "]"


def _key_text(key: Any) -> str:
    if type(key) is str:
        return key
    write = _PLAIN.get(type(key))
    if write is None:
        raise Unconvertible("wrong_type", f"a {kind_of(key)} cannot be a key of a JSON object")
    return write(key)


def _json_logical(value: Any, *, in_struct: bool) -> str:
    kind = type(value)
    if kind is bytes:
        return f'"{base64.b64encode(value).decode()}"'
    if kind is Decimal:
        if not in_struct:
            return java_decimal(value)
        return f'"{base64.b64encode(unscaled_bytes(value)).decode()}"'
    if kind is Timestamp or kind is Time:
        return str(value.millis)
    if kind is Date:
        return str(value.days if in_struct else value.days * _DAY_MS)
    raise Unconvertible("wrong_type", f"a nested {kind_of(value)} cannot be converted to JSON")


def unscaled_bytes(value: Decimal) -> bytes:
    """Return the decimal's unscaled value as the shortest big-endian two's complement."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    if sign:
        number = -number
    magnitude = number if number >= 0 else -number - 1
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def _java_date(millis: int) -> str:
    """Format ``java.util.Date`` in UTC; years before 1 are counted from 1 again."""
    days, clock = divmod(millis, _DAY_MS)
    year, month, day = civil_from_days(days)
    minutes, seconds = divmod(clock // 1_000, 60)
    time = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    displayed = f"{_DAYS[(days + 3) % 7]} {_MONTHS[month - 1]} {day:02} {time}"
    return f"{displayed} UTC {year if year > 0 else 1 - year}"


def java_text(value: Any) -> str:
    """Format a value as ``Object.toString``, which the Java sink matches with route patterns."""
    kind = type(value)
    if kind is str:
        return str(value)
    write = _PLAIN.get(kind)
    if write is not None:
        return write(value)
    if value is None:
        return "null"
    if kind is list:
        return "[" + ", ".join([java_text(item) for item in value]) + "]"
    if kind is dict:
        return "{" + ", ".join([f"{java_text(k)}={java_text(v)}" for k, v in value.items()]) + "}"
    if kind is Struct:
        displayed = [f"{k}={java_text(v)}" for k, v in value.values.items() if v is not None]
        return "Struct{" + ",".join(displayed) + "}"
    if kind is Date or kind is Time or kind is Timestamp:
        return _java_date(value.days * _DAY_MS if kind is Date else value.millis)
    return str(value)

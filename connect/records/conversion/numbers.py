"""Conversion to boolean, int, long, float, double and decimal columns.

Rules of this file:
- A number is stored exactly or rejected. It never wraps, is never clamped, and loses neither its
  fraction nor digits.
- Exception: a double with a fraction is rounded to the nearest 32-bit float for a float column, as
  in a cast.
- Debezium's ``VariableScaleDecimal``, a struct of ``scale`` and unscaled ``value``, is a number.
- A number given as text or decimal fits a float or double column if the shortest text of the
  column's value is the same number. ``0.1`` fits, a number of 20 digits does not.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np

from connect.model.records import Float32, Int8, Int16, Int32, Struct
from connect.records.conversion.binary import to_binary
from connect.records.conversion.conversion_failure import Unconvertible, wrong_type

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
INTEGERS: Final = frozenset({int, Int8, Int16, Int32})
FLOATS: Final = frozenset({float, Float32})

NUMBER_TEXT_LENGTH_MAX: Final = 1000
DECIMAL_PRECISION_MAX: Final = 38
_FLOAT32: Final = struct.Struct("f")
_DOUBLE_EXACT_MAX: Final = 2.0**53
# Java's parseInt and BigDecimal accept all Unicode decimal digits, parseDouble only ASCII digits.
_INTEGER_TEXT: Final = re.compile(r"[+-]?\d+")
DECIMAL_TEXT: Final = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,10})?")
_DOUBLE_TEXT: Final = re.compile(
    r"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,10})?|NaN|Infinity)"
)
_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))
_SCALED_FIELDS: Final = frozenset({"scale", "value"})
_UNSCALED_BYTES_MAX: Final = 400
_WIDE: Final = Context(prec=100, rounding=ROUND_HALF_UP)


def to_boolean(value: Any) -> bool:
    """Convert a boolean, or the text true or false in any case."""
    if type(value) is bool:
        return value
    if type(value) is str:
        lowered = value.lower()
        if lowered == "true":
            return True
        if lowered == "false":
            return False
        raise Unconvertible("bad_text", "the text is neither true nor false")
    raise wrong_type(value, "boolean")


def to_int(value: Any) -> int:
    """Convert a whole number or its text, within 32 bits."""
    if type(value) is int and INT_MIN <= value <= INT_MAX:
        return value
    return whole(value, INT_MIN, INT_MAX, "int")


def to_long(value: Any) -> int:
    """Convert a whole number or its text, within 64 bits."""
    if type(value) is int and LONG_MIN <= value <= LONG_MAX:
        return value
    return whole(value, LONG_MIN, LONG_MAX, "long")


def whole(value: Any, low: int, high: int, column: str) -> int:
    """Return the number as an integer between the bounds.

    Raises:
        Unconvertible: out_of_range, lost_fraction, not_a_number, bad_text, wrong_type.
    """
    kind = type(value)
    if kind in INTEGERS:
        number = int(value)
    elif kind in FLOATS or kind is Decimal:
        number = whole_number(value)
    elif kind is str:
        if len(value) > NUMBER_TEXT_LENGTH_MAX or not _INTEGER_TEXT.fullmatch(value):
            raise Unconvertible("bad_text", "the text is not a whole number")
        number = int(value)
    else:
        raise wrong_type(value, column)
    if low <= number <= high:
        return number
    raise Unconvertible("out_of_range", f"the number is outside the range of {column}")


def whole_number(value: float | Decimal) -> int:
    """Return a double or decimal without fraction as an integer.

    Raises:
        Unconvertible: not_a_number, out_of_range (beyond any column), lost_fraction.
    """
    if type(value) is Decimal:
        if not value.is_finite():
            raise Unconvertible("not_a_number", "NaN or infinity is no whole number")
        if value and value.adjusted() > 80:  # prevents an int of a billion digits
            raise Unconvertible("out_of_range", "the number is outside the range of any column")
        number = int(value)
    else:
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
            raise Unconvertible("not_a_number", "NaN or infinity is no whole number")
        number = int(value)
    if number != value:
        raise Unconvertible("lost_fraction", "the number has a fraction")
    return number


def to_double(value: Any) -> float:
    """Convert a number or its text to a 64-bit float without loss."""
    if type(value) is float:
        return value
    kind = type(value)
    if kind is Float32:
        return float(value)
    if kind in INTEGERS:
        return integer_to_double(int(value))
    if kind is Decimal:
        return decimal_to_double(value)
    if kind is str:
        text = number_text(value)
        number = float(text)
        if number - number != 0.0 and text[-1] in "Ny":  # the texts NaN and Infinity
            return number
        return decimal_to_double(Decimal(text))
    raise wrong_type(value, "double")


def to_float(value: Any) -> float:
    """Convert a number or its text to a 32-bit float; a double with a fraction is rounded."""
    kind = type(value)
    if kind is float:
        return double_to_float32(value)
    if kind is Float32:
        return float(value)
    if kind in INTEGERS:
        return _exact_float32(Decimal(value))
    if kind is Decimal:
        return _exact_float32(value)
    if kind is str:
        text = number_text(value)
        number = float(text)
        if number - number != 0.0 and text[-1] in "Ny":
            return number
        return _exact_float32(Decimal(text))
    raise wrong_type(value, "float")


def double_to_float32(value: float) -> float:
    """Round a double to 32 bits. Whole numbers must not change."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        raise Unconvertible("out_of_range", "the number is outside the range of float") from None
    if rounded == value or value != value:  # noqa: PLR0124 - NaN
        return rounded
    if rounded == 0.0:
        raise Unconvertible("lost_digits", "the number is too small for a float")
    if value.is_integer() and float(str(np.float32(rounded))) != value:
        raise Unconvertible("lost_digits", "a float does not hold all digits of the number")
    return rounded


def _exact_float32(number: Decimal) -> float:
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(float(number)))[0]
    except (OverflowError, ValueError):  # ValueError: a signalling NaN
        raise Unconvertible("out_of_range", "the number is outside the range of float") from None
    if not number.is_finite():
        return rounded
    if rounded - rounded != 0.0:
        raise Unconvertible("out_of_range", "the number is outside the range of float")
    if Decimal(rounded) == number or Decimal(str(np.float32(rounded))) == number:
        return rounded
    raise Unconvertible("lost_digits", "a float does not hold all digits of the number")


def integer_to_double(value: int) -> float:
    """Return the double that equals the integer, or has the integer as its shortest text."""
    try:
        number = float(value)
    except OverflowError:
        raise Unconvertible("out_of_range", "the number is outside the range of double") from None
    if -_DOUBLE_EXACT_MAX <= number <= _DOUBLE_EXACT_MAX and int(number) == value:
        return number
    if int(number) == value or Decimal(repr(number)) == value:
        return number
    raise Unconvertible("lost_digits", "a double does not hold all digits of the number")


def decimal_to_double(value: Decimal) -> float:
    """Return the double that equals the decimal, or has the decimal as its shortest text."""
    number = math.nan if value.is_nan() else float(value)  # float rejects a signalling NaN
    if not value.is_finite():
        return number
    if number - number != 0.0:
        raise Unconvertible("out_of_range", "the number is outside the range of double")
    if Decimal(repr(number)) == value or Decimal(number) == value:
        return number
    raise Unconvertible("lost_digits", "a double does not hold all digits of the number")


def number_text(value: str) -> str:
    """Return the text of a number without the white space that Java trims.

    Raises:
        Unconvertible: bad_text; also for hexadecimal digits and type suffixes, which only Java
            parses.
    """
    text = value.strip(_JAVA_SPACE)
    if len(text) > NUMBER_TEXT_LENGTH_MAX or not _DOUBLE_TEXT.fullmatch(text):
        raise Unconvertible("bad_text", "the text is not a number")
    return text


def decimal_converter(precision: int, scale: int) -> Callable[[Any], Decimal]:
    """Build the converter of a ``decimal(precision, scale)`` column."""
    unit = Decimal(1).scaleb(-scale)
    limit = Decimal(10) ** (precision - scale)
    quantize = Decimal.quantize

    def to_decimal(value: Any) -> Decimal:
        number, displayed = _as_decimal(value)
        if not number.is_finite():
            raise Unconvertible("not_a_number", "NaN and infinity cannot be decimals")
        if (number and number.adjusted() > precision - scale) or number.copy_abs() >= limit:
            raise Unconvertible("out_of_range", "the number does not fit the column's precision")
        stored = quantize(number, unit, context=_WIDE)
        if stored != displayed and (
            displayed is number or quantize(displayed, unit, context=_WIDE) != displayed
        ):
            raise Unconvertible(
                "lost_fraction", "the number has more fraction digits than the column's scale"
            )
        return stored or stored.copy_abs()  # no minus zero

    return to_decimal


def _as_decimal(value: Any) -> tuple[Decimal, Decimal]:
    """Return the number to store, and the number whose digits must be preserved.

    They differ for a 32-bit float: Java stores the double that it widens to (1.1000000238 with ten
    digits), but the producer sent the shorter number.
    """
    kind = type(value)
    if kind is Decimal:
        return value, value
    if kind in INTEGERS:
        number = Decimal(value)
    elif kind is float:
        number = Decimal(repr(value))
    elif kind is Float32:
        return Decimal(repr(float(value))), Decimal(str(np.float32(value)))
    elif kind is str:
        if len(value) > NUMBER_TEXT_LENGTH_MAX or not DECIMAL_TEXT.fullmatch(value):
            raise Unconvertible("bad_text", "the text is not a number")
        number = Decimal(value)
    else:
        number = scaled_decimal(value)
    return number, number


def scaled_decimal(value: Any) -> Decimal:
    """Return the number of a struct of ``scale`` and ``value``, which has the unscaled bytes."""
    fields = value.values if type(value) is Struct else value
    if type(fields) is not dict or fields.keys() != _SCALED_FIELDS:
        raise wrong_type(value, "decimal")
    scale, unscaled = fields["scale"], fields["value"]
    if type(scale) not in INTEGERS or type(unscaled) not in (bytes, str):
        raise wrong_type(value, "decimal")
    data = to_binary(unscaled)
    if len(data) > _UNSCALED_BYTES_MAX or abs(int(scale)) > NUMBER_TEXT_LENGTH_MAX:
        raise Unconvertible("out_of_range", "the number does not fit the column's precision")
    return Decimal(f"{int.from_bytes(data, 'big', signed=True)}E{-int(scale)}")

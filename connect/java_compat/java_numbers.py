"""Numeric narrowing and parsing as in Java, for ``Cast`` and ``MaskField``.

These functions lose digits by design, as the Java transformations do.

The texts are untrusted and may be long. Patterns use possessive quantifiers (``++``), because
backtracking over a hundred thousand digits would take minutes.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from connect.model.records import Float32

_INTEGER: Final = re.compile(r"[+-]?\d+")
_FLOAT: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++[fFdD]?)"
)
_DECIMAL: Final = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,9})?")
_BLANKS: Final = "".join(map(chr, range(33)))
_DIGITS_MAX: Final = 1_000


def wrapped(number: int, bits: int) -> int:
    """Return the low bits of a number as two's complement."""
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def narrowed(value: float | Decimal, bits: int) -> int:
    """Narrow a number as Java's ``byteValue`` to ``longValue`` do."""
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    if isinstance(exponent, int) and exponent >= 64:
        return 0  # a multiple of 2 to the power of any size
    if isinstance(value, int | Decimal):
        return wrapped(int(value), bits)
    if value != value:  # noqa: PLR0124 - NaN
        return 0
    held = 64 if bits == 64 else 32
    low, high = -(1 << (held - 1)), (1 << (held - 1)) - 1
    return wrapped(high if value >= high else low if value <= low else int(value), bits)


def integer_of(text: str, bits: int) -> int:
    """Parse a text as ``Byte.parseByte`` to ``Long.parseLong`` do.

    Raises:
        ValueError: the text is not a number in range.
    """
    if not _INTEGER.fullmatch(text) or len(text) > _DIGITS_MAX:
        raise ValueError("not a number")
    number = int(text)
    if wrapped(number, bits) != number:
        raise ValueError("out of range")
    return number


def double_of(text: str) -> float:
    """Parse a text as ``Double.parseDouble`` does.

    Raises:
        ValueError: the text is not a number in range.
    """
    trimmed = text.strip(_BLANKS)
    if not _FLOAT.fullmatch(trimmed):
        raise ValueError("not a number")
    if "x" in trimmed.lower():
        try:
            return float.fromhex(trimmed.rstrip("fFdD") if "p" in trimmed.lower() else trimmed)
        except OverflowError:
            return float("-inf") if trimmed.startswith("-") else float("inf")
    plain = trimmed.rstrip("fFdD")
    return float(plain.replace("Infinity", "inf").replace("NaN", "nan"))


def float64(value: Any) -> float:
    """Convert a number to a double; a number out of range becomes infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def float32(value: Any) -> Float32:
    """Round a number to 32 bits; a number out of range becomes infinite."""
    with np.errstate(over="ignore"):
        return Float32(np.float32(float64(value)))


def float32_of(text: str) -> Float32:
    """Parse a text as ``Float.parseFloat`` does: rounded once, without rounding to a double first.

    Raises:
        ValueError: the text is not a number in range.
    """
    double = double_of(text)
    near = float32(double)
    if not math.isfinite(near) or near == double or "x" in text.lower():
        return near
    towards = np.float32(np.copysign(np.inf, double - near))
    with np.errstate(over="ignore"):
        other = np.nextafter(np.float32(near), towards)
    if (float(near) + float(other)) / 2 != double:
        return near
    exact, middle = Decimal(text.strip(_BLANKS).rstrip("fFdD")), Decimal(double)
    if exact == middle:
        return near
    return Float32(max(near, other) if exact > middle else min(near, other))


def decimal_of(text: str) -> Decimal:
    """Parse a text of at most 1,000 characters as ``new BigDecimal`` does.

    Raises:
        ValueError: the text is not a number, or is too long.
    """
    if len(text) > _DIGITS_MAX or not _DECIMAL.fullmatch(text):
        raise ValueError("not a number")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("not a number") from None

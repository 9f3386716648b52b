"""What Java loses of values that it stores in columns: the kinds of loss of the recordings."""

from __future__ import annotations

import json
import re
from calendar import monthrange
from decimal import Decimal
from typing import Any

from connect.java_compat.java_numbers import double_of
from connect.model.records import Time, Timestamp
from tests.golden import records_model as model
from tests.golden.records_rules import Case

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PLAIN_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_OFFSET = re.compile(r"[+-]\d\d(:?\d\d)?$")
_DAY_US = 86_400_000_000
_TEXTUAL = frozenset({"string", "binary", "fixed[3]", "date", "time", "timestamp", "timestamptz"})
_INSTANTS = frozenset({"time", "timestamp", "timestamptz"})


def leaf(value: Any) -> Any:
    """The one value inside of containers that hold one each."""
    while type(value) in (dict, list, tuple) or hasattr(value, "values"):
        if type(value) is tuple:  # a pair of a map
            value = value[1]
            continue
        if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
            ((kind, inner),) = value.items()
            if kind != "$map":
                return value
            value = inner[0][1]
            continue
        inner = value if isinstance(value, list) else list(values_of(value).values())
        if len(inner) != 1:
            return None
        value = inner[0]
    return value


def values_of(value: Any) -> dict[Any, Any]:
    """The fields of a struct or map, defaults in place of nulls."""
    if isinstance(value, dict):
        return value
    defaults = {name: schema.default for name, schema in value.schema.fields}
    return {name: defaults[name] if v is None else v for name, v in value.values.items()}


def loss_of(case: Case, given: Any) -> str | None:
    """The kind of loss in what Java stored for a value; None when it stored what was given.

    Args:
        case: of ``record-conversion``, with Java's answer.
        given: the value in our model.
    """
    sent, stored = leaf(given), leaf(case["expected"].get("row"))
    column = str(case["column"])
    if sent is None or stored is None:
        return None
    if isinstance(sent, str):
        loss = _text_loss(column, sent)
        if loss is not None:
            return loss
    if column == "date" and isinstance(sent, Time):
        return "time-of-day"
    if column == "date" and isinstance(sent, Timestamp):
        return "date-moved" if sent.millis < 0 else None
    if '"io.debezium.time.Micro' in json.dumps(case["input"]) and column in _INSTANTS:
        return "unit"
    number = _number(sent)
    if number is None:
        return None
    held = _stored_number(column, stored)
    is_whole = number.is_finite() and number == number.to_integral_value()
    if column == "float" and held is not None and held.is_finite() and is_whole:
        held = Decimal(model.float32(held))  # its shortest text may be the number that was sent
    return _numeric_loss(number, held)


def _text_loss(column: str, sent: str) -> str | None:
    """What Java loses of a text, or reads though it is none."""
    if column == "boolean":
        return None if sent.lower() in ("true", "false") else "text"
    if column == "uuid":
        return None if _UUID.fullmatch(sent) else "lenient"
    if column in ("timestamp", "timestamptz") and not _is_day(sent):
        return "lenient"
    if column == "timestamp" and _OFFSET.search(sent[10:]):
        return "zone"
    is_number = column not in _TEXTUAL and _number(sent) is not None
    return "lenient" if is_number and not _PLAIN_NUMBER.fullmatch(sent) else None


def _is_day(sent: str) -> bool:
    """Whether the month has the day; of a 31st of June Java makes the 30th."""
    date = re.match(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", sent)
    if date is None or date[1] == "0000" or not 1 <= int(date[2]) <= 12:
        return True
    return int(date[3]) <= monthrange(int(date[1]), int(date[2]))[1]


def _number(sent: Any) -> Decimal | None:
    """What was given, exactly; texts as Java reads numbers."""
    if isinstance(sent, bool):
        return None
    if isinstance(sent, int | Decimal):
        return Decimal(sent)
    if isinstance(sent, float):
        return Decimal(repr(float(sent)))
    if isinstance(sent, str):
        try:
            return Decimal(sent) if _PLAIN_NUMBER.fullmatch(sent) else Decimal(double_of(sent))
        except ValueError:
            # digits of other scripts, which Java's BigDecimal reads
            return Decimal(0) if any(c.isdigit() and not c.isascii() for c in sent) else None
    return Decimal(sent.millis) if isinstance(sent, Timestamp | Time) else None


def _stored_number(column: str, stored: Any) -> Decimal | None:
    """What was stored, in the unit of numbers that are given for such a column."""
    if not isinstance(stored, dict):
        return Decimal(str(stored))
    ((kind, text),) = stored.items()
    if kind == "$date":
        return Decimal(model.days_of(text))
    if kind == "$time":
        return Decimal(clock_us(text)) / 1000
    if kind in ("$timestampntz", "$timestamptz"):
        day, _, clock = text.removesuffix("Z").partition("T")
        return Decimal(model.days_of(day) * _DAY_US + clock_us(clock)) / 1000
    if column.startswith("decimal"):
        return Decimal(text)
    return Decimal(text) if kind in ("$float32", "$float64") else None


def clock_us(text: str) -> int:
    """Microseconds since midnight of an ISO time."""
    clock, _, fraction = text.partition(".")
    hour, minute, second = map(int, clock.split(":"))
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction.ljust(6, "0")[:6])


def _numeric_loss(sent: Decimal, stored: Decimal | None) -> str | None:
    if not sent.is_finite():
        return "not-a-number" if stored is not None and stored.is_finite() else None
    if stored is None or sent == stored:
        return None
    if not stored.is_finite():
        return "digits"
    if abs(sent - stored) < 1:
        return "fraction"
    return "digits" if abs(sent - stored) < abs(sent) / 10**6 else "overflow"


LOSSES = {
    "out_of_range": {"overflow", "digits", "not-a-number", "unit"},
    "lost_fraction": {"fraction", "digits", "overflow", "lenient"},
    "not_a_number": {"not-a-number"},
    "lost_digits": {"digits", "fraction", "overflow"},
    "bad_text": {"text", "lenient"},
    "zone": {"zone"},
    "wrong_type": {"time-of-day"},
}
"""Kinds of loss that an error of ours may prevent. A double that is far from the number that was
given may lie beyond a bound or have lost digits: the sentences of both are true."""

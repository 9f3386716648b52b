"""``ParseTimestamp``: converts strings or numbers to instants with strict parsing."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from connect.config.key import REQUIRED, Key, one_of
from connect.errors import ConfigError
from connect.model.records import SinkRecord
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.temporal import TruncationCounts, timestamp_converter
from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.transform import (
    OWN,
    WHOLE,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    refused,
    with_side,
)
from connect.records.transforms.value_paths import fields_of, get_in, put_in, steps

_PURPOSE: Final = "parsing timestamps"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET: Final = re.compile(r"(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)$")
_PER_MICRO: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_ISO: Final = "iso8601"


def _zone(name: Any) -> str | None:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return "the time zone is unknown"
    return None


def _format(value: Any) -> str | None:
    if value in (_ISO, "epoch"):
        return None
    try:
        DateFormat(value or "")
    except ConfigError as error:
        return error.message
    return None


def _reader(options: Options) -> Callable[[Any], datetime]:
    form, zone = options["format"], ZoneInfo(options["timezone"])
    is_utc = options["timezone"] == "UTC"
    iso = timestamp_converter(zoned=True, unit="us", losses=TruncationCounts())
    pattern = DateFormat(form) if form not in (_ISO, "epoch") else None
    unit = _PER_MICRO[options["unit"]]

    def read(value: Any) -> datetime:
        if type(value) in WHOLE:
            if form != "epoch":
                raise ValueError("a number does not match a text format")
            return _EPOCH + timedelta(microseconds=int(value) * unit)
        if type(value) is not str or form == "epoch":
            raise ValueError("the value does not match the format")
        if pattern is None:
            micros, has_zone = iso(value), bool(_OFFSET.search(value))
        else:
            micros, has_zone = pattern.parse(value, strict=True) * 1000, pattern.has_zone
        instant = _EPOCH + timedelta(microseconds=micros)
        if has_zone or is_utc:
            return instant
        return instant.replace(tzinfo=zone).astimezone(UTC)

    return read


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    paths = [steps(path) for path in options["fields"]]
    if not paths:
        raise ConfigError("fields is empty; name at least one field", code="transform_option")
    read = _reader(options)
    is_lenient = options["invalid"] == "null"

    def apply(record: SinkRecord) -> SinkRecord:
        if record.value is None:
            return record
        value = fields_of(record.value, _PURPOSE)
        for path in paths:
            timestamp = get_in(value, path)
            if timestamp is None:
                continue
            parsed: datetime | None = None
            try:
                parsed = read(timestamp)
            except (ValueError, OverflowError, Unconvertible):
                if not is_lenient:
                    message = f"the field {'.'.join(path)} does not match the time format"
                    raise refused(message, "bad_text") from None
            value = put_in(value, path, parsed)
        return with_side(record, "value", None, value)

    return apply


DECLARATION: Final = Declaration(
    "ParseTimestamp",
    OWN,
    "Converts strings or numbers to instants with microsecond precision. Parsing is strict: text "
    "after the time, month 13 or February 30 are errors, unless `invalid` is `null`. Null and "
    "missing fields do not change. The result has no value schema.",
    make,
    Example(
        {"fields": "at", "format": "dd/MM/yyyy HH:mm", "timezone": "Europe/Paris"},
        {"value": {"id": 7, "at": "14/11/2023 23:13"}},
        {"value": {"id": 7, "at": "2023-11-14T22:13:00+00:00"}},
    ),
    keys=(
        Key(
            "fields", "LIST", "Paths of the fields; dots separate nested fields.", REQUIRED, "HIGH"
        ),
        Key(
            "format",
            "STRING",
            "`iso8601`, `epoch` for numbers, or a pattern of Java's `SimpleDateFormat`.",
            _ISO,
            "HIGH",
            check=_format,
        ),
        Key(
            "unit",
            "STRING",
            "Unit of `epoch` numbers: s, ms or us.",
            "ms",
            check=one_of(tuple(_PER_MICRO)),
        ),
        Key(
            "timezone",
            "STRING",
            "Time zone of strings without UTC offset, as an IANA name.",
            "UTC",
            check=_zone,
        ),
        Key(
            "invalid",
            "STRING",
            "`error` rejects a record if a field does not match the format; `null` sets the field "
            "to null.",
            "error",
            check=one_of(("error", "null")),
        ),
    ),
    is_column=True,
)

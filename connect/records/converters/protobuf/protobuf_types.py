"""Well-known Protobuf message types, and Confluent's field options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from connect.model.records import ConnectSchema, Date, Time, Timestamp
from connect.records.converters.binary_values import DECIMAL_BYTES_MAX, decimal_of
from connect.records.converters.payload_errors import Malformed

_CONNECT: Final = "org.apache.kafka.connect.data."
_META: Final = 1088
_EPOCH: Final = date(1970, 1, 1).toordinal()
_SECONDS: Final = (-62_135_596_800, 253_402_300_799)

Reader = Callable[[Any], Any]


def meta_of(field: Any) -> dict[str, str]:
    """Return Confluent's parameters of a field: option 1088, field 2, a map of strings."""
    parameters: dict[str, str] = {}
    for number, meta in _length_delimited(field.GetOptions().SerializeToString()):
        if number != _META:
            continue
        for inner, entry in _length_delimited(meta):
            if inner == 2:
                parts = dict(_length_delimited(entry))
                parameters[parts.get(1, b"").decode("utf-8", "replace")] = parts.get(2, b"").decode(
                    "utf-8", "replace"
                )
    return parameters


def _length_delimited(data: bytes) -> list[tuple[int, bytes]]:
    """Return the length-delimited fields of a message. The message is known to be well-formed."""
    fields: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            fields.append((tag >> 3, data[at : at + size]))
            at += size
        else:
            at += 8 if kind == 1 else 4
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, at


def decimal_schema(field: Any) -> ConnectSchema:
    """Return the schema of a field of Confluent's Decimal type."""
    meta = meta_of(field)
    scale = meta.get("scale", "0")
    parameters = {"scale": scale if scale.lstrip("-").isdigit() else "0"}
    if meta.get("precision", "").isdigit():
        parameters["connect.decimal.precision"] = meta["precision"]
    return ConnectSchema(
        "bytes", name=_CONNECT + "Decimal", version=1, parameters=parameters, optional=True
    )


def read_decimal(message: Any) -> Decimal:
    """Read a message of Confluent's Decimal type."""
    if not -1000 <= message.scale <= 1000 or len(message.value) > DECIMAL_BYTES_MAX:
        raise Malformed("a decimal is out of range", "out_of_range")
    return decimal_of(message.value or b"\0", message.scale)


def _timestamp(message: Any) -> Timestamp:
    seconds, nanos = message.seconds, message.nanos
    if not _SECONDS[0] <= seconds <= _SECONDS[1] or not 0 <= nanos < 10**9:
        raise Malformed("a timestamp is outside the years 1 to 9999", "out_of_range")
    return Timestamp(seconds * 1000 + nanos // 10**6, nanos % 10**6)


def _date(message: Any) -> Date:
    try:
        return Date(date(message.year, message.month, message.day).toordinal() - _EPOCH)
    except (ValueError, OverflowError):
        raise Malformed("a date does not exist", "out_of_range") from None


def _time(message: Any) -> Time:
    hours, minutes, seconds, nanos = message.hours, message.minutes, message.seconds, message.nanos
    if not (0 <= hours <= 23 and 0 <= minutes <= 59 and 0 <= seconds <= 59 and 0 <= nanos < 10**9):
        raise Malformed("a time of day is outside one day", "out_of_range")
    return Time(((hours * 60 + minutes) * 60 + seconds) * 1000 + nanos // 10**6)


MESSAGES: Final[Mapping[str, tuple[ConnectSchema, Reader]]] = {
    "google.protobuf.Timestamp": (
        ConnectSchema("int64", name=_CONNECT + "Timestamp", version=1, optional=True),
        _timestamp,
    ),
    "google.type.Date": (
        ConnectSchema("int32", name=_CONNECT + "Date", version=1, optional=True),
        _date,
    ),
    "google.type.TimeOfDay": (
        ConnectSchema("int32", name=_CONNECT + "Time", version=1, optional=True),
        _time,
    ),
}

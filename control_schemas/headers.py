"""Icefloe's own record headers beside an event.

Java's readers look at values only, so what the event has no field for travels here: UTF-8 JSON,
absent on Java's events.

====================  =========================  ==============================================
header                on                         content
====================  =========================  ==============================================
``icefloe.layout``    DataWritten, DataComplete  ``5``
``icefloe.batch``     DataWritten                ``2``
``icefloe.ranges``    DataComplete               a list; per source partition ``["orders",0,
                                                 start,end,read,dropped,dead_lettered,written,
                                                 timestamp_max_ms]``
``icefloe.moved``     CommitComplete of a node   a list of ``["orders",0]``; empty for all
====================  =========================  ==============================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

from control_schemas import bounded_json
from control_schemas.errors import MalformedEvent
from control_schemas.events import EventHeaders, SourceRange
from control_schemas.limits import HEADER_BYTES_MAX

LAYOUT = "icefloe.layout"
BATCH = "icefloe.batch"
RANGES = "icefloe.ranges"
MOVED = "icefloe.moved"

_RANGE_ITEMS = 9
_LONG_MAX = 2**63 - 1


def encode_headers(headers: EventHeaders) -> tuple[tuple[str, bytes], ...]:
    """The record headers of an event, without those that are None."""
    ranges = None if headers.ranges is None else [astuple(item) for item in headers.ranges]
    values = (
        (LAYOUT, headers.layout),
        (BATCH, headers.batch),
        (RANGES, ranges),
        (MOVED, headers.moved),
    )
    return tuple(
        (key, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
        for key, value in values
        if value is not None
    )


def decode_headers(headers: Iterable[tuple[str, bytes | None]] | None) -> EventHeaders:
    """Read the headers of a control record; headers of others are ignored.

    Args:
        headers: as the Kafka client gives them; None where a record has none.

    Raises:
        MalformedEvent: a header of ours is there and is not what we write.
    """
    ours = {key: value for key, value in headers or () if key in (LAYOUT, BATCH, RANGES, MOVED)}
    documents = {key: _document(key, value) for key, value in ours.items()}
    ranges, moved = (_list(key, documents.get(key)) for key in (RANGES, MOVED))
    return EventHeaders(
        layout=_number(LAYOUT, documents.get(LAYOUT)),
        batch=_number(BATCH, documents.get(BATCH)),
        ranges=None if ranges is None else tuple(_range(item) for item in ranges),
        moved=None if moved is None else tuple(_partition(item) for item in moved),
    )


def _document(key: str, value: bytes | None) -> Any:
    if value is None or len(value) > HEADER_BYTES_MAX:
        raise MalformedEvent(f"header {key}: null, or more than {HEADER_BYTES_MAX} bytes")
    try:
        return bounded_json.loads(value.decode())
    except ValueError as error:
        raise MalformedEvent(f"header {key}: {error}") from None


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LONG_MAX


def _number(key: str, value: Any) -> int | None:
    if value is None:
        return None
    if not _is_number(value):
        raise MalformedEvent(f"header {key}: no number")
    return int(value)


def _list(key: str, value: Any) -> list[Any] | None:
    if value is not None and not isinstance(value, list):
        raise MalformedEvent(f"header {key}: no list")
    return value


def _partition(item: Any) -> tuple[str, int]:
    match item:
        case [str(topic), int(number)] if _is_number(number):
            return topic, number
    raise MalformedEvent(f"header {MOVED}: an item is no partition")


def _range(item: Any) -> SourceRange:
    if not isinstance(item, list) or len(item) != _RANGE_ITEMS:
        raise MalformedEvent(f"header {RANGES}: an item has not {_RANGE_ITEMS} parts")
    topic, *numbers, timestamp_max_ms = item
    is_timestamp = timestamp_max_ms is None or (
        type(timestamp_max_ms) is int and abs(timestamp_max_ms) <= _LONG_MAX
    )
    if not isinstance(topic, str) or not is_timestamp or not all(map(_is_number, numbers)):
        raise MalformedEvent(f"header {RANGES}: an item is no range")
    start, end, read, dropped, dead_lettered, written = numbers[1:]
    if end < start:
        raise MalformedEvent(f"header {RANGES}: a range ends before it starts")
    return SourceRange(
        topic, numbers[0], start, end, read, dropped, dead_lettered, written, timestamp_max_ms
    )

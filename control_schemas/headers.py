"""Encodes and decodes Icefloe's record headers of an event.

The headers contain data for which the event has no field, as UTF-8 JSON. The Java sink ignores
headers and writes none.

=======================  =========================  ===========================================
header                   on                         content
=======================  =========================  ===========================================
``icefloe.layout``       DataWritten, DataComplete  ``5``
``icefloe.task``         DataWritten, DataComplete  ``0``
``icefloe.batch``        DataWritten                ``2``
``icefloe.coordinator``  StartCommit                ``5``: number of the coordinator's layout. Tasks
                                                    skip events with ``icefloe.layout``.
``icefloe.time``         DataWritten                ``1767323045678``: highest record timestamp
                                                    of the step's batch. Steps of two tasks in
                                                    one commit are ordered by it.
``icefloe.ranges``       DataComplete               a list; per source partition ``["orders",0,
                                                    start,end,read,dropped,dead_lettered,written,
                                                    timestamp_max_ms]``
``icefloe.rows``         DataComplete               ``[made,superseded,deleted]``: row counts of the
                                                    ranges' records. Not a part of the ranges: older
                                                    versions accept exactly nine items in a range.
``icefloe.reset``        CommitComplete of a node   ``true``: earlier VTTS are invalid
``icefloe.waiting``      CommitComplete             ``{"<commit id>":[0,2]}``: rounds, and tasks
                                                    whose answers are in no table yet
``icefloe.moved``        CommitComplete of a node   a list of ``["orders",0]``; empty for all
``icefloe.lost``         DataComplete, DataWritten  a list of ``["orders",0,start,end]``: deleted
                                                    before they were read
``icefloe.recreated``    DataComplete, DataWritten  a list of ``["orders",0,start]``: records of a
                                                    topic that was created again; the end is unknown
=======================  =========================  ===========================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple
from typing import Any
from uuid import UUID

from control_schemas import bounded_json
from control_schemas.errors import MalformedEvent
from control_schemas.events import EventHeaders, LostRange, RowCounts, SourceRange
from control_schemas.limits import HEADER_BYTES_MAX

LAYOUT = "icefloe.layout"
TASK = "icefloe.task"
BATCH = "icefloe.batch"
TIME = "icefloe.time"
COORDINATOR = "icefloe.coordinator"
RANGES = "icefloe.ranges"
MOVED = "icefloe.moved"
ROWS = "icefloe.rows"
RESET = "icefloe.reset"
WAITING = "icefloe.waiting"
LOST = "icefloe.lost"
RECREATED = "icefloe.recreated"

_OURS = frozenset(
    {LAYOUT, TASK, BATCH, TIME, COORDINATOR, RANGES, MOVED, ROWS, RESET, WAITING, LOST, RECREATED}
)
_RANGE_ITEMS = 9
_ROWS_ITEMS = 3
_LONG_MAX = 2**63 - 1


def encode_headers(headers: EventHeaders) -> tuple[tuple[str, bytes], ...]:
    """Return the record headers of an event; None values have no header."""
    ranges = None if headers.ranges is None else [astuple(item) for item in headers.ranges]
    rows = None if headers.rows is None else astuple(headers.rows)
    values = (
        (LAYOUT, headers.layout),
        (TASK, headers.task),
        (BATCH, headers.batch),
        (TIME, headers.time_ms),
        (COORDINATOR, headers.coordinator_layout),
        (RANGES, ranges),
        (MOVED, headers.moved),
        (ROWS, rows),
        (RESET, headers.is_reset or None),
        (WAITING, {str(commit_id): tasks for commit_id, tasks in headers.waiting} or None),
        (
            LOST,
            [
                astuple(lost_range)
                for lost_range in headers.lost
                if lost_range.end_offset is not None
            ]
            or None,
        ),
        (
            RECREATED,
            [
                astuple(lost_range)[:3]
                for lost_range in headers.lost
                if lost_range.end_offset is None
            ]
            or None,
        ),
    )
    return tuple(
        (key, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
        for key, value in values
        if value is not None
    )


def decode_headers(headers: Iterable[tuple[str, bytes | None]] | None) -> EventHeaders:
    """Decode the headers of a control record; unknown headers are ignored.

    Args:
        headers: from the Kafka client; None if the record has no headers.

    Raises:
        MalformedEvent: the value of an ``icefloe.`` header is invalid.
    """
    ours = {key: value for key, value in headers or () if key in _OURS}
    documents = {key: _document(key, value) for key, value in ours.items()}
    ranges, moved, rows, lost, recreated = (
        _list(key, documents.get(key)) for key in (RANGES, MOVED, ROWS, LOST, RECREATED)
    )
    return EventHeaders(
        layout=_number(LAYOUT, documents.get(LAYOUT)),
        task=_number(TASK, documents.get(TASK)),
        batch=_number(BATCH, documents.get(BATCH)),
        time_ms=_number(TIME, documents.get(TIME)),
        coordinator_layout=_number(COORDINATOR, documents.get(COORDINATOR)),
        ranges=None if ranges is None else tuple(_range(item) for item in ranges),
        moved=None if moved is None else tuple(_partition(item) for item in moved),
        rows=None if rows is None else _rows(rows),
        is_reset=_flag(RESET, documents.get(RESET)),
        waiting=_waiting(documents.get(WAITING)),
        lost=(*map(_lost, lost or ()), *map(_recreated, recreated or ())),
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
        raise MalformedEvent(f"header {key}: not a number")
    return int(value)


def _flag(key: str, value: Any) -> bool:
    if value is not None and value is not True:
        raise MalformedEvent(f"header {key}: not true")
    return value is True


def _list(key: str, value: Any) -> list[Any] | None:
    if value is not None and not isinstance(value, list):
        raise MalformedEvent(f"header {key}: not a list")
    return value


def _waiting(value: Any) -> tuple[tuple[UUID, tuple[int, ...]], ...]:
    if value is None:
        return ()
    try:
        rounds = [(UUID(key), tuple(tasks)) for key, tasks in value.items()]
    except (AttributeError, TypeError, ValueError):
        raise MalformedEvent(f"header {WAITING}: not an object of commit ids with tasks") from None
    if not all(_is_number(task) for _, tasks in rounds for task in tasks):
        raise MalformedEvent(f"header {WAITING}: a task is not a number")
    return tuple(rounds)


def _partition(item: Any) -> tuple[str, int]:
    match item:
        case [str(topic), int(number)] if _is_number(number):
            return topic, number
    raise MalformedEvent(f"header {MOVED}: an item is not a partition")


def _lost(item: Any) -> LostRange:
    match item:
        case [str(topic), *numbers] if len(numbers) == 3 and all(map(_is_number, numbers)):
            number, start, end = numbers
            if start < end:
                return LostRange(topic, number, start, end)
    raise MalformedEvent(f"header {LOST}: an item is not a range")


def _recreated(item: Any) -> LostRange:
    match item:
        case [str(topic), *numbers] if len(numbers) == 2 and all(map(_is_number, numbers)):
            return LostRange(topic, numbers[0], numbers[1], None)
    raise MalformedEvent(f"header {RECREATED}: an item is not the start of a range")


def _rows(items: list[Any]) -> RowCounts:
    if len(items) != _ROWS_ITEMS or not all(map(_is_number, items)):
        raise MalformedEvent(f"header {ROWS}: not {_ROWS_ITEMS} numbers")
    rows = RowCounts(*items)
    if rows.kept < 0:
        raise MalformedEvent(f"header {ROWS}: more rows are superseded or deleted than were made")
    return rows


def _range(item: Any) -> SourceRange:
    if not isinstance(item, list) or len(item) != _RANGE_ITEMS:
        raise MalformedEvent(f"header {RANGES}: an item does not have {_RANGE_ITEMS} parts")
    topic, *numbers, timestamp_max_ms = item
    is_timestamp = timestamp_max_ms is None or (
        type(timestamp_max_ms) is int and abs(timestamp_max_ms) <= _LONG_MAX
    )
    if not isinstance(topic, str) or not is_timestamp or not all(map(_is_number, numbers)):
        raise MalformedEvent(f"header {RANGES}: an item is not a range")
    start, end, read, dropped, dead_lettered, written = numbers[1:]
    if end < start:
        raise MalformedEvent(f"header {RANGES}: a range ends before it starts")
    return SourceRange(
        topic, numbers[0], start, end, read, dropped, dead_lettered, written, timestamp_max_ms
    )

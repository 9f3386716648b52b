"""Dead letters of one connector as JSON.

Rules of this file:
- The content of a record is part of an answer only when it is asked for.
- A replay is planned whole before its first record is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.java_compat.iso_time import instant_text
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.operations.dead_letter_replay import (
    Choice,
    DeadLetterTopic,
    LetterKind,
    Outcome,
    Sighting,
)
from connect.records.dead_letter import PREFIX, TABLE_HEADER


def kinds(letters: DeadLetterTopic) -> dict[str, Any]:
    """Counts by stage, exception, table and source topic, with the first and last of each."""
    found = letters.count()
    ordered = sorted(found.items(), key=lambda item: -item[1].count)
    return {
        "topic": letters.topic,
        "records": sum(seen.count for seen in found.values()),
        "kinds": [_kind(kind, seen) for kind, seen in ordered],
    }


def _kind(kind: LetterKind, seen: Sighting) -> dict[str, Any]:
    return {
        "stage": kind.stage or None,
        "exception": kind.exception or None,
        "table": kind.table or None,
        "source_topic": kind.topic or None,
        "records": seen.count,
        "first": _place(seen.first),
        "last": _place(seen.last),
    }


def _place(at: tuple[int, int, int | None] | None) -> Mapping[str, Any] | None:
    if at is None:
        return None
    return {"partition": at[0], "offset": at[1], "time": _instant(at[2])}


def one(
    letters: DeadLetterTopic,
    partition: int,
    offset: int,
    *,
    with_content: bool = False,
) -> dict[str, Any]:
    """One dead letter: its error headers, and sizes of key, value and other headers.

    Args:
        letters: the topic.
        partition: of the topic.
        offset: in the partition.
        with_content: add key, value and other headers as text.

    Raises:
        DeadLetterError: there is no such dead letter.
    """
    record = letters.one(partition, offset)

    def sized(value: bytes | None) -> dict[str, Any]:
        found: dict[str, Any] = {"bytes": None if value is None else len(value)}
        return {**found, "text": _text(value)} if with_content else found

    errors, own = [], []
    for name, value in record.headers:
        if name.startswith(PREFIX) or name == TABLE_HEADER:
            errors.append({"name": name, "text": _text(value)})
        else:
            own.append({"name": name, **sized(value)})
    return {
        **_coordinates(record),
        "errors": errors,
        "headers": own,
        "key": sized(record.key),
        "value": sized(record.value),
    }


def _coordinates(record: KafkaRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": _instant(record.timestamp_ms),
    }


def replay(
    letters: DeadLetterTopic,
    producer: TransactionalProducer,
    choice: Choice,
    *,
    is_applied: bool,
) -> dict[str, Any]:
    """Plan a replay, or do it.

    Args:
        letters: the topic.
        producer: with the letters' group as transactional id, not yet initialised.
        choice: which dead letters.
        is_applied: False only plans.

    Raises:
        DeadLetterError: a record has no topic to be replayed to; nothing was sent.
    """
    marks = letters.marks()
    if is_applied:
        producer.init()  # fences a replay that still runs, or was killed
    starts, gone = letters.positions(marks)
    ends = {tp: end for tp, (_, end) in marks.items()}
    outcome = letters.plan(choice, starts, ends)
    if is_applied:
        outcome = letters.replay(producer, choice, starts, ends)
    return {
        "topic": letters.topic,
        "applied": is_applied,
        "ranges": [_range(tp, at, ends[tp]) for tp, at in sorted(starts.items())],
        "gone": [_range(tp, at, starts[tp]) for tp, at in sorted(gone.items())],
        **_counts(outcome),
    }


def _range(tp: TopicPartition, start: int, end: int) -> dict[str, Any]:
    return {"partition": tp.partition, "from_offset": start, "to_offset": end}


def _counts(outcome: Outcome) -> dict[str, dict[str, int]]:
    return {
        "targets": dict(sorted(outcome.targets.items())),
        "skipped": dict(sorted(outcome.skipped.items())),
    }


def _instant(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else instant_text(timestamp_ms * 1_000_000)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")

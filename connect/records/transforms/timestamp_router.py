"""``TimestampRouter``: adds the record's timestamp to the topic name."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from connect.config.key import Key
from connect.errors import ConfigError
from connect.model.records import SinkRecord
from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.transform import (
    KAFKA,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    refused,
)


def valid_format(value: Any) -> str | None:
    """Return the error of a pattern of Java's ``SimpleDateFormat``, or None if it is valid."""
    try:
        DateFormat(value or "")
    except ConfigError as error:
        return error.message
    return None


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    topic_format = options["topic.format"] or ""
    written = DateFormat(options["timestamp.format"] or "")

    def apply(record: SinkRecord) -> SinkRecord:
        if record.timestamp_ms is None:
            raise refused("Timestamp missing on record", "no_timestamp")
        topic = topic_format.replace("${topic}", record.topic)
        topic = topic.replace("${timestamp}", written.format(record.timestamp_ms))
        return dataclasses.replace(record, topic=topic)

    return apply


DECLARATION: Final = Declaration(
    "TimestampRouter",
    KAFKA,
    "Changes the record's topic to a name that contains the record's timestamp (UTC).",
    make,
    Example(
        {"topic.format": "${topic}_${timestamp}", "timestamp.format": "yyyyMM"},
        {"value": {"id": 7}, "topic": "orders", "timestamp": 1700000000123},
        {"value": {"id": 7}, "topic": "orders_202311"},
    ),
    keys=(
        Key(
            "topic.format",
            "STRING",
            "The new topic; may contain `${topic}` and `${timestamp}`.",
            "${topic}-${timestamp}",
            "HIGH",
        ),
        Key(
            "timestamp.format",
            "STRING",
            "Pattern of Java's `SimpleDateFormat` for the timestamp.",
            "yyyyMMdd",
            "HIGH",
            check=valid_format,
        ),
    ),
    is_column=True,
)

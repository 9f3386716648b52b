"""Dead letters: builds records for the dead letter topic and reads their context headers.

Rules of this file:
- A dead letter keeps the record's key, value, headers and timestamp byte for byte. The error
  headers follow the record's headers.
- The error headers are the ten headers of Kafka Connect and the table's name, or, unless those are
  enabled, Icefloe's own. They contain the record's coordinates, but no other content of the record.
- A consumer sees headers of Kafka Connect only if they are enabled, as with Kafka Connect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.gateways.kafka.kafka_clients import ProducerMessage
from connect.model.records import KafkaRecord

PREFIX: Final = "__connect.errors."
OWN_PREFIX: Final = "__icefloe.errors."
TABLE_HEADER: Final = OWN_PREFIX + "table"
NEAR_LIMIT: Final = range(1_040_000, 1_048_589)
"""Sizes of records, in bytes, that more headers may make larger than a topic takes by default."""
_COORDINATES: Final = tuple(
    (prefix + "topic", prefix + "partition", prefix + "offset") for prefix in (PREFIX, OWN_PREFIX)
)
_OWN_REASON_CHARACTERS_MAX: Final = 300
_NO_TIMESTAMP_TYPE: Final = -1
_CODE: Final = re.compile(r"\n\tcode: (\w+)\n$")


def message(
    record: KafkaRecord, error: RecordError, config: ConnectorConfig, *, task_id: int
) -> ProducerMessage | None:
    """Build the record for the dead letter topic.

    Args:
        record: the source record as the broker delivered it.
        error: the error that rejected the record.
        config: the connector's configuration.
        task_id: id of the task that read the record.

    Returns:
        The message, or None if the connector has no dead letter topic.
    """
    topic = config.errors.dead_letter_topic
    if not topic:
        return None
    headers = record.headers
    if config.errors.dead_letter_context_headers:
        headers = (*headers, *context_headers(record, error, config, task_id=task_id))
    elif _size(record) not in NEAR_LIMIT:
        headers = (*headers, *_own_headers(record, error, config))
    has_timestamp = record.timestamp_type != _NO_TIMESTAMP_TYPE
    return ProducerMessage(
        topic=topic,
        key=record.key,
        value=record.value,
        headers=headers,
        timestamp_ms=record.timestamp_ms if has_timestamp else None,
    )


def context_headers(
    record: KafkaRecord, error: RecordError, config: ConnectorConfig, *, task_id: int
) -> tuple[tuple[str, bytes | None], ...]:
    """Return Kafka Connect's ten error headers, and the table's name if it is known."""
    kind, text = _class_of(error), str(error)
    return _headers(
        {
            **_coordinates(PREFIX, record, config),
            PREFIX + "task.id": str(task_id),
            PREFIX + "stage": error.stage,
            PREFIX + "class.name": _class_name(error, config.for_topic(record.topic)),
            PREFIX + "exception.class.name": kind,
            PREFIX + "exception.message": text,
            # an error that crosses processes has no stack frames; its code takes their place
            PREFIX + "exception.stacktrace": f"{kind}: {text}\n\tcode: {error.code}\n",
        },
        error,
    )


def _own_headers(
    record: KafkaRecord, error: RecordError, config: ConnectorConfig
) -> tuple[tuple[str, bytes | None], ...]:
    """Return what Icefloe's own tools need; with a long reason cut."""
    return _headers(
        {
            **_coordinates(OWN_PREFIX, record, config),
            OWN_PREFIX + "stage": error.stage,
            OWN_PREFIX + "exception.class.name": _class_of(error),
            OWN_PREFIX + "exception.message": str(error)[:_OWN_REASON_CHARACTERS_MAX],
            OWN_PREFIX + "code": error.code,
        },
        error,
    )


def _coordinates(prefix: str, record: KafkaRecord, config: ConnectorConfig) -> dict[str, str]:
    return {
        prefix + "topic": record.topic,
        prefix + "partition": str(record.partition),
        prefix + "offset": str(record.offset),
        prefix + "connector.name": config.name,
    }


def _headers(values: Mapping[str, str], error: RecordError) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers, and the table's name if it is known."""
    table = error.coordinates.get("table")
    named = {**values, **({} if table is None else {TABLE_HEADER: str(table)})}
    return tuple((name, text.encode("utf-8", "backslashreplace")) for name, text in named.items())


def _class_of(error: RecordError) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _size(record: KafkaRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _class_name(error: RecordError, config: ConnectorConfig) -> str:
    converters = {
        "KEY_CONVERTER": config.key_converter,
        "VALUE_CONVERTER": config.value_converter,
        "HEADER_CONVERTER": config.header_converter,
    }
    converter = converters.get(error.stage)
    if converter is not None:
        return converter.class_name
    alias = error.coordinates.get("transform")
    transforms = {each.alias: each.class_name for each in config.transforms}
    return transforms.get(str(alias), config.connector_class)


@dataclass(frozen=True, slots=True)
class Origin:
    """The source and the error of a dead letter, read from its headers. A missing header is None.

    Attributes:
        topic, partition, offset: coordinates of the source record.
        connector: name of the connector that rejected it.
        stage: Kafka Connect's stage name, or ``ROUTE``.
        exception: class name of the error, from Icefloe or from Java.
        code: error code, for errors of Icefloe.
        reason: message of the error.
        table: the record's target table.
        headers: headers of the source record.
    """

    topic: str | None
    partition: int | None
    offset: int | None
    connector: str | None
    stage: str | None
    exception: str | None
    code: str | None
    reason: str | None
    table: str | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def is_known(self) -> bool:
        """Return whether the source topic and partition are known."""
        return self.topic is not None and self.partition is not None


def origin(record: KafkaRecord) -> Origin:
    """Read the context headers of a dead letter that Icefloe or Kafka Connect wrote.

    The last block of context headers counts. A record that was read from a dead letter topic keeps
    its earlier block.
    """
    names = [name for name, _ in record.headers]
    starts = [n for n in range(len(names)) if tuple(names[n : n + 3]) in _COORDINATES]
    first = starts[-1] if starts else len(names)
    context = {
        name: (value or b"").decode("utf-8", "replace") for name, value in record.headers[first:]
    }
    prefix = OWN_PREFIX if starts and names[first].startswith(OWN_PREFIX) else PREFIX
    own = tuple(
        header
        for n, header in enumerate(record.headers)
        if n < first or not (header[0].startswith(prefix) or header[0] == TABLE_HEADER)
    )
    stack = _CODE.search(context.get(PREFIX + "exception.stacktrace", ""))
    return Origin(
        context.get(prefix + "topic"),
        _number(context.get(prefix + "partition")),
        _number(context.get(prefix + "offset")),
        context.get(prefix + "connector.name"),
        context.get(prefix + "stage"),
        context.get(prefix + "exception.class.name"),
        stack[1] if stack else context.get(OWN_PREFIX + "code"),
        context.get(prefix + "exception.message"),
        context.get(TABLE_HEADER),
        own,
    )


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= 19
    return int(text) if is_number and text is not None else None

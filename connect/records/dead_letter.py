"""Dead letters: builds records for the dead letter topic and reads their context headers.

Rules of this file:
- A dead letter keeps the record's key, value, headers and timestamp byte for byte. The error
  headers follow the record's headers.
- The error headers are the ten headers of Kafka Connect and the table's name. They contain the
  record's coordinates, but no other content of the record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.gateways.kafka.kafka_clients import ProducerMessage
from connect.model.records import KafkaRecord

PREFIX: Final = "__connect.errors."
TABLE_HEADER: Final = "__icefloe.errors.table"
_COORDINATES: Final = (PREFIX + "topic", PREFIX + "partition", PREFIX + "offset")
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
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    text = str(error)
    values: list[tuple[str, str]] = [
        (PREFIX + "topic", record.topic),
        (PREFIX + "partition", str(record.partition)),
        (PREFIX + "offset", str(record.offset)),
        (PREFIX + "connector.name", config.name),
        (PREFIX + "task.id", str(task_id)),
        (PREFIX + "stage", error.stage),
        (PREFIX + "class.name", _class_name(error, config.for_topic(record.topic))),
        (PREFIX + "exception.class.name", kind),
        (PREFIX + "exception.message", text),
        # an error that crosses processes has no stack frames; its code takes their place
        (PREFIX + "exception.stacktrace", f"{kind}: {text}\n\tcode: {error.code}\n"),
    ]
    table = error.coordinates.get("table")
    if table is not None:
        values.append((TABLE_HEADER, str(table)))
    return tuple((name, value.encode("utf-8", "backslashreplace")) for name, value in values)


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
    starts = [n for n in range(len(names)) if tuple(names[n : n + 3]) == _COORDINATES]
    first = starts[-1] if starts else len(names)
    context = {
        name: (value or b"").decode("utf-8", "replace") for name, value in record.headers[first:]
    }
    own = tuple(
        header
        for n, header in enumerate(record.headers)
        if n < first or not (header[0].startswith(PREFIX) or header[0] == TABLE_HEADER)
    )
    stack = _CODE.search(context.get(PREFIX + "exception.stacktrace", ""))
    return Origin(
        context.get(PREFIX + "topic"),
        _number(context.get(PREFIX + "partition")),
        _number(context.get(PREFIX + "offset")),
        context.get(PREFIX + "connector.name"),
        context.get(PREFIX + "stage"),
        context.get(PREFIX + "exception.class.name"),
        stack[1] if stack else None,
        context.get(TABLE_HEADER),
        own,
    )


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= 19
    return int(text) if is_number and text is not None else None

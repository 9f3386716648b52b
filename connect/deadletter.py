"""Dead letters: records that could not be handled, for the dead letter topic.

Rules of this file:
- Key, value, headers and timestamp are those of the record, byte for byte; our headers come after.
- Error headers are Kafka Connect's ten, read by the tools people have, and the table's name. They
  never hold what is in the record, except where its coordinates do.
"""

from __future__ import annotations

from typing import Final

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.gateways.kafka import Message
from connect.records import KafkaRecord

PREFIX: Final = "__connect.errors."
TABLE_HEADER: Final = "__icefloe.errors.table"
_NO_TIMESTAMP_TYPE: Final = -1


def message(
    record: KafkaRecord, error: RecordError, config: ConnectorConfig, *, task_id: int
) -> Message | None:
    """Build the dead letter topic's record.

    Args:
        record: as the broker delivered it.
        error: why it could not be handled.
        config: the connector's.
        task_id: of the task that met it.

    Returns:
        The message; None when the connector has no dead letter topic.
    """
    topic = config.errors.dead_letter_topic
    if not topic:
        return None
    headers = record.headers
    if config.errors.dead_letter_context_headers:
        headers = (*headers, *context_headers(record, error, config, task_id=task_id))
    has_timestamp = record.timestamp_type != _NO_TIMESTAMP_TYPE
    return Message(
        topic=topic,
        key=record.key,
        value=record.value,
        headers=headers,
        timestamp_ms=record.timestamp_ms if has_timestamp else None,
    )


def context_headers(
    record: KafkaRecord, error: RecordError, config: ConnectorConfig, *, task_id: int
) -> tuple[tuple[str, bytes | None], ...]:
    """Kafka Connect's ten error headers, and the table's name where it is known."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    text = str(error)
    values: list[tuple[str, str]] = [
        (PREFIX + "topic", record.topic),
        (PREFIX + "partition", str(record.partition)),
        (PREFIX + "offset", str(record.offset)),
        (PREFIX + "connector.name", config.name),
        (PREFIX + "task.id", str(task_id)),
        (PREFIX + "stage", error.stage),
        (PREFIX + "class.name", _class_name(error, config)),
        (PREFIX + "exception.class.name", kind),
        (PREFIX + "exception.message", text),
        # errors travel between processes without frames; the code tells what the frames would
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
    found = converters.get(error.stage)
    if found is not None:
        return found.class_name
    alias = error.coordinates.get("transform")
    transforms = {each.alias: each.class_name for each in config.transforms}
    return transforms.get(str(alias), config.connector_class)

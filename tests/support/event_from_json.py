"""Control events from their JSON form (``connect.cli.control_command``), for recordings of Java."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from connect.cli.control_command import BOUNDS, COUNTS, DECIMAL, NO_SPEC_ID, NS_PER_US, PLAIN
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    ContentFile,
    DataComplete,
    DataWritten,
    Event,
    EventType,
    FileContent,
    PartitionField,
    PartitionValue,
    Payload,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from tests.support.iso_parsing import date_days, instant_nanos, time_nanos


def event_from_json(document: Mapping[str, Any]) -> Event:
    """Build an event from its JSON form.

    Raises:
        KeyError: a key is missing.
        ValueError: a value does not have its type.
    """
    payload = document["payload"]
    return Event(
        id=UUID(document["id"]),
        timestamp_us=_micros(document["timestamp"]),
        group_id=document["group_id"],
        payload=_PAYLOADS[EventType[document["type"]]](UUID(payload["commit_id"]), payload),
    )


def _data_written(commit_id: UUID, payload: Mapping[str, Any]) -> DataWritten:
    return DataWritten(
        commit_id,
        _table_from_json(payload["table_reference"]),
        _optional(payload["data_files"], lambda files: tuple(map(_file_from_json, files))),
        _optional(payload["delete_files"], lambda files: tuple(map(_file_from_json, files))),
    )


def _data_complete(commit_id: UUID, payload: Mapping[str, Any]) -> DataComplete:
    assignments = payload["assignments"]
    if assignments is None:
        return DataComplete(commit_id, None)
    return DataComplete(
        commit_id,
        tuple(
            TopicPartitionOffset(
                item["topic"],
                item["partition"],
                item["offset"],
                _optional(item["timestamp"], _micros),
            )
            for item in assignments
        ),
    )


_PAYLOADS: dict[EventType, Callable[[UUID, Mapping[str, Any]], Payload]] = {
    EventType.START_COMMIT: lambda commit_id, _payload: StartCommit(commit_id),
    EventType.DATA_WRITTEN: _data_written,
    EventType.DATA_COMPLETE: _data_complete,
    EventType.COMMIT_TO_TABLE: lambda commit_id, payload: CommitToTable(
        commit_id,
        _table_from_json(payload["table_reference"]),
        payload["snapshot_id"],
        _optional(payload["valid_through_ts"], _micros),
    ),
    EventType.COMMIT_COMPLETE: lambda commit_id, payload: CommitComplete(
        commit_id, _optional(payload["valid_through_ts"], _micros)
    ),
}


def _table_from_json(document: Mapping[str, Any]) -> TableReference:
    return TableReference(
        document["catalog"],
        tuple(document["namespace"]),
        document["name"],
        _optional(document["table_uuid"], UUID),
    )


def _file_from_json(document: Mapping[str, Any]) -> ContentFile:
    def numbered(key: str, convert: Callable[[Any], Any]) -> Any:
        values = document[key]
        return None if values is None else {int(k): convert(v) for k, v in values.items()}

    maps: dict[str, Any] = {
        **{key: numbered(key, int) for key in COUNTS},
        **{key: numbered(key, bytes.fromhex) for key in BOUNDS},
    }

    return ContentFile(
        content=FileContent[document["content"]],
        file_path=document["file_path"],
        file_format=document["file_format"],
        spec_id=None if document["spec_id"] == NO_SPEC_ID else document["spec_id"],
        partition=tuple(
            PartitionField(
                field["field_id"],
                field["name"],
                field["type"],
                value_from_json(field["type"], field["value"]),
            )
            for field in document["partition"]
        ),
        record_count=document["record_count"],
        file_size_in_bytes=document["file_size_in_bytes"],
        **maps,
        key_metadata=_optional(document["key_metadata"], bytes.fromhex),
        split_offsets=_optional(document["split_offsets"], tuple),
        equality_ids=_optional(document["equality_ids"], tuple),
        **{key: document[key] for key in PLAIN},
    )


def _optional(value: Any, convert: Callable[[Any], Any]) -> Any:
    return None if value is None else convert(value)


def value_from_json(type_text: str, value: Any) -> PartitionValue:
    """Convert a partition value from its JSON form to Iceberg's internal form."""
    if value is None or type_text in ("boolean", "int", "long", "float", "double", "string"):
        return value  # type: ignore[no-any-return]  # JSON holds these as they are
    if match := DECIMAL.fullmatch(type_text):
        return _unscaled(Decimal(value), int(match[2]))
    if type_text == "date":
        return date_days(value)
    if type_text == "time":
        return time_nanos(value) // NS_PER_US
    if type_text.startswith("timestamp"):
        nanos = instant_nanos(value)
        return nanos if type_text.endswith("_ns") else nanos // NS_PER_US
    return UUID(value).bytes if type_text == "uuid" else bytes.fromhex(value)


def _unscaled(value: Decimal, scale: int) -> int:
    """Return the unscaled integer; a decimal context would round it to its precision."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent + scale < 0:
        raise ValueError(f"{value} does not have scale {scale}")
    unscaled = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return -unscaled if sign else unscaled


def _micros(text: str) -> int:
    return instant_nanos(text) // NS_PER_US

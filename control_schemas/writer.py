"""Converts events to values for fastavro, with the field names of ``schemas``.

Values of unions are pairs with the name of their branch, so that fastavro does not have to find
the branch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from control_schemas.avro import parse_event_schema
from control_schemas.datum import (
    BOOLEAN_TAG,
    INT_MAX,
    INT_MIN,
    encoded,
    fixed_tag,
    wire_schema,
)
from control_schemas.errors import UnencodableEvent
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    ContentFile,
    DataComplete,
    DataWritten,
    Event,
    EventType,
    PartitionValue,
    TableReference,
    TopicPartitionOffset,
)
from control_schemas.frame import frame_prefix
from control_schemas.limits import SCHEMA_CACHE_ENTRIES, STRING_BYTES_MAX
from control_schemas.schemas import PartitionType, avro_name, avro_type, schema_text

_UUID_BYTES = 16
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_FLOAT = struct.Struct("<f")
_NULL = ("null", None)

Tagged = tuple[str, Any]
Encode = Callable[[Any], Any]
PartitionEncode = Callable[[PartitionValue], Tagged]


def write_frame(event: Event) -> bytes:
    """Encode the frame of an event: schema and datum.

    Raises:
        UnencodableEvent: files have different partition types, or a value is out of range.
    """
    payload = event.payload
    partition: tuple[PartitionType, ...] = ()
    if isinstance(payload, DataWritten):
        partition = _partition_type(payload)
    head, schema, encoders = _writer(payload.TYPE, partition)
    value = {
        "id": event.id.bytes,
        "type": int(event.type),
        "timestamp": event.timestamp_us,
        "group_id": _text(event.group_id),
        "payload": _payload(event, encoders),
    }
    try:
        return head + encoded(schema, value)
    except OverflowError:
        raise UnencodableEvent("a number does not fit into long") from None
    except UnicodeEncodeError:
        raise UnencodableEvent("a string contains an unpaired surrogate") from None


def defined_split_offsets(
    offsets: tuple[int, ...] | None, file_size_in_bytes: int
) -> tuple[int, ...] | None:
    """Return the split offsets if they are valid, else None, as in Java.

    Source:
        Iceberg 1.12.0, ``BaseFile.hasWellDefinedOffsets``.
    """
    return offsets if offsets and offsets[-1] < file_size_in_bytes else None


@lru_cache(maxsize=SCHEMA_CACHE_ENTRIES)
def _writer(
    event_type: EventType, partition: tuple[PartitionType, ...]
) -> tuple[bytes, Any, dict[str, PartitionEncode]]:
    """Return the frame prefix, schema and encoders shared by events of one type."""
    text = schema_text(event_type, partition)
    prefix = frame_prefix(text)
    encoders = {avro_name(item.name): _partition_encoder(item.type) for item in partition}
    return prefix, wire_schema(parse_event_schema(text)), encoders


def _partition_type(payload: DataWritten) -> tuple[PartitionType, ...]:
    """Return the partition type of all files; empty without files."""
    types = {
        tuple([PartitionType(item.field_id, item.name, item.type) for item in file.partition])
        for files in (payload.data_files, payload.delete_files)
        for file in files or ()
    }
    if len(types) > 1:
        raise UnencodableEvent("a DataWritten event has files of different partition types")
    return types.pop() if types else ()


# ---------------------------------------------------------------- pieces


def _payload(event: Event, encoders: Mapping[str, PartitionEncode]) -> dict[str, Any]:
    payload = event.payload
    value: dict[str, Any] = {"commit_id": payload.commit_id.bytes}
    if isinstance(payload, DataWritten):
        value["table_reference"] = _table(payload.table)
        for name, files in (
            ("data_files", payload.data_files),
            ("delete_files", payload.delete_files),
        ):
            listed = None if files is None else [_file(file, encoders) for file in files]
            value[name] = _optional("array", listed)
    elif isinstance(payload, DataComplete):
        items = payload.assignments
        value["assignments"] = (
            _NULL if items is None else ("array", [_assignment(item) for item in items])
        )
    elif isinstance(payload, CommitToTable):
        value["table_reference"] = _table(payload.table)
        value["snapshot_id"] = _optional("long", payload.snapshot_id)
        value["valid_through_ts"] = _optional("long", payload.valid_through_us)
    elif isinstance(payload, CommitComplete):
        value["valid_through_ts"] = _optional("long", payload.valid_through_us)
    return value


def _optional(branch: str, value: Any) -> Tagged:
    return _NULL if value is None else (branch, value)


def _optional_int(value: int | None) -> Tagged:
    return _NULL if value is None else ("int", _int(value))


def _int(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise UnencodableEvent(f"{value} does not fit into int")
    return value


def _long(value: int) -> int:
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise UnencodableEvent(f"{value} does not fit into long")
    return value


def _bytes(value: bytes) -> bytes:
    if len(value) > STRING_BYTES_MAX:
        raise UnencodableEvent(f"a string of {len(value)} bytes, more than {STRING_BYTES_MAX}")
    return value


def _text(value: str) -> str:
    if len(value) > STRING_BYTES_MAX // 4:  # of bytes there are at most four for a character
        _bytes(value.encode())
    return value


def _float(value: float) -> float:
    try:
        _FLOAT.pack(value)
    except OverflowError:
        raise UnencodableEvent(f"{value} does not fit into float") from None
    return value


def _pairs(values: Mapping[int, Any] | None) -> Tagged:
    if values is None:
        return _NULL
    if values:
        _int(min(values))
        _int(max(values))
    return "array", [{"key": key, "value": value} for key, value in values.items()]


def _bounds(values: Mapping[int, bytes] | None) -> Tagged:
    if values:
        _bytes(max(values.values(), key=len))
    return _pairs(values)


def _table(table: TableReference) -> dict[str, Any]:
    table_uuid = None if table.table_uuid is None else table.table_uuid.bytes
    return {
        "catalog": _text(table.catalog),
        "namespace": [_text(level) for level in table.namespace],
        "name": _text(table.name),
        "table_uuid": _optional(fixed_tag(_UUID_BYTES), table_uuid),
    }


def _assignment(item: TopicPartitionOffset) -> dict[str, Any]:
    return {
        "topic": _text(item.topic),
        "partition": _int(item.partition),
        "offset": _optional("long", item.offset),
        "timestamp": _optional("long", item.timestamp_us),
    }


def _file(file: ContentFile, encoders: Mapping[str, PartitionEncode]) -> dict[str, Any]:
    metadata, referenced = file.key_metadata, file.referenced_data_file
    ids = file.equality_ids
    return {
        "content": ("int", int(file.content)),
        "file_path": _text(file.file_path),
        "file_format": _text(file.file_format),
        "spec_id": _optional_int(file.spec_id),
        "partition": {
            name: _NULL if field.value is None else encode(field.value)
            for field, (name, encode) in zip(file.partition, encoders.items(), strict=True)
        },
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        "column_sizes": _pairs(file.column_sizes),
        "value_counts": _pairs(file.value_counts),
        "null_value_counts": _pairs(file.null_value_counts),
        "nan_value_counts": _pairs(file.nan_value_counts),
        "lower_bounds": _bounds(file.lower_bounds),
        "upper_bounds": _bounds(file.upper_bounds),
        "key_metadata": _NULL if metadata is None else ("bytes", _bytes(metadata)),
        "split_offsets": _optional(
            "array", defined_split_offsets(file.split_offsets, file.file_size_in_bytes)
        ),
        "equality_ids": _NULL if ids is None else ("array", [_int(item) for item in ids]),
        "sort_order_id": _optional_int(file.sort_order_id),
        "first_row_id": _optional("long", file.first_row_id),
        "referenced_data_file": _NULL if referenced is None else ("string", _text(referenced)),
        "content_offset": _optional("long", file.content_offset),
        "content_size_in_bytes": _optional("long", file.content_size_in_bytes),
    }


# ---------------------------------------------------------------- partition values


def _partition_encoder(text: str) -> PartitionEncode:
    """Return the encoder of a partition type; it raises UnencodableEvent for other values."""
    schema = avro_type(text)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "uuid_fixed":
        return _fixed_encoder(text, _UUID_BYTES)
    if kind == "fixed" and "precision" in schema:
        return _decimal_encoder(text, schema["size"], schema["precision"])
    if kind == "fixed":
        return _fixed_encoder(text, schema["size"])
    branch, accepted, checked = _SCALARS[kind]

    def encode(value: PartitionValue) -> Tagged:
        if type(value) not in accepted:
            raise UnencodableEvent(f"a {type(value).__name__} in a partition of type {text}")
        return branch, checked(value)

    return encode


_SCALARS: dict[str, tuple[str, tuple[type, ...], Encode]] = {
    "boolean": (BOOLEAN_TAG, (bool,), lambda value: b"\x01" if value else b"\x00"),
    "int": ("int", (int,), _int),
    "long": ("long", (int,), _long),
    "float": ("float", (float, int), _float),
    "double": ("double", (float, int), float),
    "string": ("string", (str,), _text),
    "bytes": ("bytes", (bytes,), _bytes),
}


def _fixed_encoder(text: str, size: int) -> PartitionEncode:
    def encode(value: PartitionValue) -> Tagged:
        if not isinstance(value, bytes) or len(value) != size:
            raise UnencodableEvent(f"not {size} bytes in a partition of type {text}")
        return fixed_tag(size), value

    return encode


def _decimal_encoder(text: str, size: int, precision: int) -> PartitionEncode:
    unscaled_max = 10**precision - 1

    def encode(value: PartitionValue) -> Tagged:
        if type(value) is not int or abs(value) > unscaled_max:
            raise UnencodableEvent(f"not an unscaled integer in a partition of type {text}")
        return fixed_tag(size), value.to_bytes(size, signed=True)

    return encode

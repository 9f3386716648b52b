"""Events -> datum bytes, in the field order of ``schemas``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from control_schemas.datum import (
    bytes_bytes,
    double_bytes,
    float_bytes,
    int_bytes,
    long_bytes,
    string_bytes,
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
from control_schemas.limits import SCHEMA_CACHE_ENTRIES
from control_schemas.schemas import PartitionType, avro_type, schema_text

_NULL, _PRESENT, _END = b"\x00", b"\x02", b"\x00"
_UUID_BYTES = 16

Encode = Callable[[Any], bytes]


def write_frame(event: Event) -> bytes:
    """Schema and datum of one event.

    Raises:
        UnencodableEvent: files of two partition types, or a value its type has no room for.
    """
    payload = event.payload
    partition: tuple[PartitionType, ...] = ()
    if isinstance(payload, DataWritten):
        partition = _partition_type(payload)
    head, encoders = _writer(payload.TYPE, partition)
    parts = [
        head,
        event.id.bytes,
        int_bytes(event.type),
        long_bytes(event.timestamp_us),
        string_bytes(event.group_id),
        payload.commit_id.bytes,
    ]
    if isinstance(payload, DataWritten):
        _table(parts, payload.table)
        for files in (payload.data_files, payload.delete_files):
            _optional_list(parts, files, lambda parts, file: _file(parts, file, encoders))
    elif isinstance(payload, DataComplete):
        _optional_list(parts, payload.assignments, _assignment)
    elif isinstance(payload, CommitToTable):
        _table(parts, payload.table)
        _optional(parts, payload.snapshot_id, long_bytes)
        _optional(parts, payload.valid_through_us, long_bytes)
    elif isinstance(payload, CommitComplete):
        _optional(parts, payload.valid_through_us, long_bytes)
    return b"".join(parts)


def defined_split_offsets(
    offsets: tuple[int, ...] | None, file_size_in_bytes: int
) -> tuple[int, ...] | None:
    """Split offsets as Java shows and writes them: none at all where they cannot be right.

    Source:
        Iceberg 1.12.0, ``BaseFile.hasWellDefinedOffsets``.
    """
    return offsets if offsets and offsets[-1] < file_size_in_bytes else None


@lru_cache(maxsize=SCHEMA_CACHE_ENTRIES)
def _writer(
    event_type: EventType, partition: tuple[PartitionType, ...]
) -> tuple[bytes, tuple[Encode, ...]]:
    """What is the same for all events of a shape: the frame up to the datum, and the encoders."""
    prefix = frame_prefix(schema_text(event_type, partition))
    return prefix, tuple(_partition_encoder(item.type) for item in partition)


def _partition_type(payload: DataWritten) -> tuple[PartitionType, ...]:
    """The one partition type of all files; that of an unpartitioned table where there are none."""
    types = {
        tuple([PartitionType(item.field_id, item.name, item.type) for item in file.partition])
        for files in (payload.data_files, payload.delete_files)
        for file in files or ()
    }
    if len(types) > 1:
        raise UnencodableEvent("files of two partition types in one DataWritten")
    return types.pop() if types else ()


# ---------------------------------------------------------------- pieces


def _optional(parts: list[bytes], value: Any, encode: Encode) -> None:
    if value is None:
        parts.append(_NULL)
    else:
        parts += (_PRESENT, encode(value))


def _optional_list(
    parts: list[bytes],
    items: tuple[Any, ...] | None,
    write: Callable[[list[bytes], Any], None],
) -> None:
    if items is None:
        parts.append(_NULL)
        return
    parts.append(_PRESENT)
    if items:
        parts.append(long_bytes(len(items)))
        for item in items:
            write(parts, item)
    parts.append(_END)


def _list_bytes(values: Iterable[Any], encode: Encode) -> bytes:
    items = [encode(value) for value in values]
    return long_bytes(len(items)) + b"".join(items) + _END if items else _END


def _map_bytes(values: Mapping[int, Any], encode: Encode) -> bytes:
    if not values:
        return _END
    parts = [long_bytes(len(values))]
    for key, value in values.items():
        parts += (int_bytes(key), encode(value))
    parts.append(_END)
    return b"".join(parts)


def _count_map(values: Mapping[int, int]) -> bytes:
    return _map_bytes(values, long_bytes)


def _bound_map(values: Mapping[int, bytes]) -> bytes:
    return _map_bytes(values, bytes_bytes)


def _table(parts: list[bytes], table: TableReference) -> None:
    parts += (
        string_bytes(table.catalog),
        _list_bytes(table.namespace, string_bytes),
        string_bytes(table.name),
    )
    _optional(parts, None if table.table_uuid is None else table.table_uuid.bytes, bytes)


def _assignment(parts: list[bytes], item: TopicPartitionOffset) -> None:
    parts += (string_bytes(item.topic), int_bytes(item.partition))
    _optional(parts, item.offset, long_bytes)
    _optional(parts, item.timestamp_us, long_bytes)


def _file(parts: list[bytes], file: ContentFile, encoders: tuple[Encode, ...]) -> None:
    parts += (
        _PRESENT,
        int_bytes(file.content),
        string_bytes(file.file_path),
        string_bytes(file.file_format),
    )
    _optional(parts, file.spec_id, int_bytes)
    for field, encode in zip(file.partition, encoders, strict=True):
        _optional(parts, field.value, encode)
    parts += (long_bytes(file.record_count), long_bytes(file.file_size_in_bytes))
    _optional(parts, file.column_sizes, _count_map)
    _optional(parts, file.value_counts, _count_map)
    _optional(parts, file.null_value_counts, _count_map)
    _optional(parts, file.nan_value_counts, _count_map)
    _optional(parts, file.lower_bounds, _bound_map)
    _optional(parts, file.upper_bounds, _bound_map)
    _optional(parts, file.key_metadata, bytes_bytes)
    offsets = defined_split_offsets(file.split_offsets, file.file_size_in_bytes)
    _optional(parts, offsets, lambda values: _list_bytes(values, long_bytes))
    _optional(parts, file.equality_ids, lambda values: _list_bytes(values, int_bytes))
    _optional(parts, file.sort_order_id, int_bytes)
    _optional(parts, file.first_row_id, long_bytes)
    _optional(parts, file.referenced_data_file, string_bytes)
    _optional(parts, file.content_offset, long_bytes)
    _optional(parts, file.content_size_in_bytes, long_bytes)


# ---------------------------------------------------------------- partition values


def _partition_encoder(text: str) -> Encode:
    """How values of one partition type are written; each checks that it was given one."""
    schema = avro_type(text)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "uuid_fixed":
        return _fixed_encoder(text, _UUID_BYTES)
    if kind == "fixed" and "precision" in schema:
        return _decimal_encoder(text, schema["size"], schema["precision"])
    if kind == "fixed":
        return _fixed_encoder(text, schema["size"])
    accepted, write = _SCALARS[kind]

    def encode(value: PartitionValue) -> bytes:
        if type(value) not in accepted:
            raise UnencodableEvent(f"a {type(value).__name__} in a partition of type {text}")
        return write(value)

    return encode


_SCALARS: dict[str, tuple[tuple[type, ...], Encode]] = {
    "boolean": ((bool,), lambda value: b"\x01" if value else b"\x00"),
    "int": ((int,), int_bytes),
    "long": ((int,), long_bytes),
    "float": ((float, int), float_bytes),
    "double": ((float, int), double_bytes),
    "string": ((str,), string_bytes),
    "bytes": ((bytes,), bytes_bytes),
}


def _fixed_encoder(text: str, size: int) -> Encode:
    def encode(value: PartitionValue) -> bytes:
        if not isinstance(value, bytes) or len(value) != size:
            raise UnencodableEvent(f"no {size} bytes in a partition of type {text}")
        return value

    return encode


def _decimal_encoder(text: str, size: int, precision: int) -> Encode:
    unscaled_max = 10**precision - 1

    def encode(value: PartitionValue) -> bytes:
        if type(value) is not int or abs(value) > unscaled_max:
            raise UnencodableEvent(f"no unscaled integer in a partition of type {text}")
        return value.to_bytes(size, signed=True)

    return encode

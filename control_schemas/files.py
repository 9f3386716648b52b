"""Decoders of content files and of their partition tuples."""

from __future__ import annotations

from typing import Any

from control_schemas.avro import AvroType
from control_schemas.errors import MalformedEvent
from control_schemas.events import ContentFile, FileContent, PartitionField
from control_schemas.limits import PARTITION_FIELDS_MAX
from control_schemas.schemas import FILE_FIELDS, FILES_NAMESPACE, REQUIRED_FILE_FIELDS
from control_schemas.shapes import (
    UUID_BYTES,
    Column,
    Make,
    Shape,
    as_read,
    described,
    field_ids,
    int_map,
    list_of,
    logical_type,
    null_only,
    nullable,
    record,
    scalar,
)
from control_schemas.writer import defined_split_offsets

FILE_FORMATS = frozenset({"PARQUET", "ORC", "AVRO", "PUFFIN"})
_DECIMAL_PRECISION_MAX = 38


def data_file(node: AvroType) -> Make:
    """Return the decoder of data files for a schema."""
    return record(f"{FILES_NAMESPACE}.GenericDataFile", _COLUMNS, _data_file, extra=null_only)(node)


def delete_file(node: AvroType) -> Make:
    """Return the decoder of delete files for a schema."""
    return record(f"{FILES_NAMESPACE}.GenericDeleteFile", _COLUMNS, _delete_file, extra=null_only)(
        node
    )


def _data_file(content: int | None, *values: Any) -> ContentFile:
    if content not in (None, FileContent.DATA):
        raise MalformedEvent(f"datum: content {content} in a data file")
    return _content_file(FileContent.DATA, *values)


def _delete_file(content: int | None, *values: Any) -> ContentFile:
    if content not in (FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES):
        raise MalformedEvent(f"datum: content {content} in a delete file")
    return _content_file(FileContent(content), *values)


def _content_file(content: FileContent, *values: Any) -> ContentFile:
    path, file_format, spec_id, partition, record_count, file_size, *rest = values
    if file_format.upper() not in FILE_FORMATS:
        raise MalformedEvent(f"datum: file format {file_format[:40]!r}")
    if not path or record_count < 0 or file_size < 0:
        raise MalformedEvent("datum: a file has no path, or a negative count or size")
    rest[_SPLIT_OFFSETS] = defined_split_offsets(rest[_SPLIT_OFFSETS], file_size)
    return ContentFile(
        content, path, file_format.upper(), spec_id, partition, record_count, file_size, *rest
    )


# ---------------------------------------------------------------- partition tuples


def partition_record(node: AvroType) -> Make:
    """Return the decoder of partition tuples for a schema: primitive fields with distinct ids.

    Raises:
        MalformedEvent: the record has another name, a field has no id, or a type is not a
            primitive type of Iceberg.
    """
    if node.kind != "record" or node.name != f"{FILES_NAMESPACE}.PartitionData":
        raise MalformedEvent(f"schema: {described(node)} where PartitionData is expected")
    ids = set(field_ids(node))
    if None in ids or len(ids) != len(node.fields) or len(ids) > PARTITION_FIELDS_MAX:
        raise MalformedEvent("schema: too many partition fields, or field ids missing or duplicate")
    fields = [
        (field_id, field.name, *_partition_value(field.type))
        for field, field_id in zip(node.fields, field_ids(node), strict=True)
        if field_id is not None
    ]

    def make(datum: dict[str, Any]) -> tuple[PartitionField, ...]:
        return tuple(
            [
                PartitionField(field_id, name, text, make_value(datum[name]))
                for field_id, name, text, make_value in fields
            ]
        )

    return make


def _partition_value(node: AvroType) -> tuple[str, Make]:
    """Return the Iceberg type of a partition field, and the decoder of its values."""
    types = [branch for branch in node.branches or (node,) if branch.kind != "null"]
    if len(types) != 1:
        raise MalformedEvent("schema: a partition field of several types")
    text, shape = _partition_type(types[0])
    return text, nullable(shape)(node)


def _partition_type(node: AvroType) -> tuple[str, Shape]:
    if node.kind == "fixed":
        return _fixed_type(node)
    text = _TYPES.get((node.kind, logical_type(node)))
    if text is None:
        raise MalformedEvent(f"schema: a partition field of type {node.kind}")
    if text.startswith("timestamp") and (node.properties or {}).get("adjust-to-utc") is True:
        text = text.replace("timestamp", "timestamptz")
    return text, scalar(node.kind)


def _fixed_type(node: AvroType) -> tuple[str, Shape]:
    size = node.size
    if logical_type(node) == "decimal":
        properties = node.properties or {}
        precision, scale = properties.get("precision"), properties.get("scale", 0)
        if (
            type(precision) is not int
            or type(scale) is not int
            or not 1 <= precision <= _DECIMAL_PRECISION_MAX
            or not 0 <= scale <= precision
            or size > UUID_BYTES
        ):
            raise MalformedEvent("schema: a decimal has an invalid precision, scale or size")
        return f"decimal({precision}, {scale})", _decimal(10**precision)
    if not size:
        raise MalformedEvent("schema: a partition field has a size of 0 bytes")
    text = "uuid" if logical_type(node) == "uuid" and size == UUID_BYTES else f"fixed[{size}]"
    return text, lambda _node: as_read


def _decimal(beyond: int) -> Shape:
    def make(value: bytes) -> int:
        unscaled = int.from_bytes(value, signed=True)
        if abs(unscaled) >= beyond:
            raise MalformedEvent("datum: a decimal has more digits than its precision")
        return unscaled

    return lambda _node: make


_TYPES = {
    ("boolean", None): "boolean",
    ("int", None): "int",
    ("int", "date"): "date",
    ("long", None): "long",
    ("long", "time-micros"): "time",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "timestamp-nanos"): "timestamp_ns",
    ("float", None): "float",
    ("double", None): "double",
    ("string", None): "string",
    ("bytes", None): "binary",
}


def _file_shape(kind: Any) -> Shape:
    if kind is None:
        return partition_record
    if isinstance(kind, str):
        return scalar(kind)
    return list_of(scalar(kind[2])) if kind[0] == "list" else int_map(kind[3])


_COLUMNS = {
    field_id: Column(name, _file_shape(kind), name in REQUIRED_FILE_FIELDS)
    for name, field_id, kind, _doc in FILE_FIELDS
}
_SPLIT_OFFSETS = [name for name, *_ in FILE_FIELDS].index("split_offsets") - len(
    ("content", "file_path", "file_format", "spec_id", "partition", "count", "size")
)

"""Announced files as PyIceberg's data files.

Rules of this file:
- Partition values are matched by field id, in the order of the file's own spec; readers and
  writers of events may spell the names differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import DecimalType, FixedType, IcebergType, UUIDType
from pyiceberg.utils.decimal import unscaled_to_decimal

from connect.errors import CommitRefused
from control_schemas.events import ContentFile, PartitionField

_Slot = tuple[int, Callable[[Any], Any]]


class FileConverter:
    """Converts the files of one table; knows its specs.

    Args:
        schema: the table's current schema, for the types of partition values.
        specs: every partition spec of the table by id.
        default_spec_id: of files whose event names none (Java sinks before 1.5).
        version: format version of the manifests.
        former: all schemas of the table: a column may be dropped while files of its spec wait.
    """

    def __init__(
        self,
        schema: Schema,
        specs: Mapping[int, PartitionSpec],
        default_spec_id: int,
        version: TableVersion = 2,
        former: Sequence[Schema] = (),
    ) -> None:
        self._former = former
        self._schema = schema
        self._specs = specs
        self._default_spec_id = default_spec_id
        self._version = version
        self._slots: dict[int, tuple[_Slot, ...]] = {}

    def data_file(self, file: ContentFile) -> DataFile:
        """The file as a manifest holds it.

        Raises:
            CommitRefused: ``spec_missing``: the table has no such spec; ``file_format_unknown``;
                ``partition_type_unsupported``.
        """
        spec_id = self._default_spec_id if file.spec_id is None else file.spec_id
        out = DataFile.from_args(
            self._version,
            content=DataFileContent(int(file.content)),
            file_path=file.file_path,
            file_format=_file_format(file),
            partition=self._partition(spec_id, file),
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            column_sizes=_dict(file.column_sizes),
            value_counts=_dict(file.value_counts),
            null_value_counts=_dict(file.null_value_counts),
            nan_value_counts=_dict(file.nan_value_counts),
            lower_bounds=_dict(file.lower_bounds),
            upper_bounds=_dict(file.upper_bounds),
            key_metadata=file.key_metadata,
            split_offsets=list(file.split_offsets) if file.split_offsets else None,
            equality_ids=list(file.equality_ids) if file.equality_ids else None,
            sort_order_id=file.sort_order_id,
        )
        out.spec_id = spec_id
        return out

    def _partition(self, spec_id: int, file: ContentFile) -> Record:
        slots = self._slots.get(spec_id)
        if slots is None:
            spec = self._specs.get(spec_id)
            if spec is None:
                raise CommitRefused(
                    f"a file was written with partition spec {spec_id}, which the table lacks",
                    code="spec_missing",
                    file=file.file_path,
                )
            fields = spec.partition_type(source_schema(spec, self._schema, self._former)).fields
            if any(isinstance(f.field_type, FixedType) for f in fields):
                raise CommitRefused(
                    "a table partitioned by the value of a fixed[n] column cannot be written: "
                    "Iceberg's Java library encodes such partitions against the specification, "
                    "so either it or every other reader would fail",
                    code="partition_type_unsupported",
                )
            slots = tuple((f.field_id, _converter(f.field_type)) for f in fields)
            self._slots[spec_id] = slots
        by_id: dict[int, PartitionField] = {f.field_id: f for f in file.partition}
        values = []
        for field_id, convert in slots:
            field = by_id.get(field_id)
            values.append(None if field is None or field.value is None else convert(field.value))
        return Record(*values)


def source_schema(spec: PartitionSpec, schema: Schema, former: Sequence[Schema]) -> Schema:
    """Return the schema that has the source columns of a spec; the newest of those.

    Args:
        spec: of the table.
        schema: the current one.
        former: all schemas of the table, oldest first.

    Raises:
        CommitRefused: ``spec_missing``: no schema has them.
    """
    for each in (schema, *reversed(former)):
        if all(each.find_column_name(part.source_id) is not None for part in spec.fields):
            return each
    raise CommitRefused(
        f"a file was written with partition spec {spec.spec_id}, and the table's metadata no "
        "longer has its columns",
        code="spec_missing",
    )


def _converter(kind: IcebergType) -> Callable[[Any], Any]:
    if isinstance(kind, DecimalType):
        scale = kind.scale
        return lambda unscaled: unscaled_to_decimal(unscaled, scale)
    if isinstance(kind, UUIDType):
        return lambda raw: UUID(bytes=bytes(raw))
    return lambda value: value


def _file_format(file: ContentFile) -> FileFormat:
    try:
        return FileFormat(file.file_format.upper())
    except ValueError:
        raise CommitRefused(
            f"file format {file.file_format!r} is unknown",
            code="file_format_unknown",
            file=file.file_path,
        ) from None


def _dict(values: Mapping[int, Any] | None) -> dict[int, Any] | None:
    return None if values is None else dict(values)

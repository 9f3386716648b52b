"""The columns of copies: field ids for files that have none, and metrics.

Rules of this file:
- A file without field ids gets all of them from the table's name mapping, or none. With some of
  them, readers would no longer find the other columns by their names.
- Bounds are kept only where the column's values have the unit of the table's column.
- A part of a variant has no metrics, as in files of workers.

Source:
    Iceberg specification, "Column Projection", "Name Mapping Serialization"; Iceberg 1.12.0
    ``ApplyNameMapping``, which names elements of lists, and keys and values of maps, in this way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    UnsupportedPyArrowTypeException,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.typedef import TableVersion
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType

from connect.gateways.storage.file_metrics import FileMetrics, FooterReader
from coordinator.row_deletes.file_copies import FileCopy
from coordinator.row_deletes.limits import FORM, NotResolved

_FIELD_ID: Final = b"PARQUET:field_id"
_NANOS: Final = (TimestampNanoType, TimestamptzNanoType)


def with_field_ids(schema: pa.Schema, mapping: NameMapping) -> pa.Schema:
    """Return the schema of a file without field ids, with those of a name mapping.

    Raises:
        NotResolved: a column is not in the mapping, or two have one id.
    """
    used: set[int] = set()
    return pa.schema([_field(field, field.name, mapping.root, used) for field in schema])


def _field(field: pa.Field, name: str, mapped: Sequence[MappedField], used: set[int]) -> pa.Field:
    match = next((each for each in mapped if name in each.names), None)
    if match is None or match.field_id is None or match.field_id in used:
        raise NotResolved(
            FORM, f"a data file has no field ids, and the name mapping none for its column {name}"
        )
    used.add(match.field_id)
    metadata = {**(field.metadata or {}), _FIELD_ID: str(match.field_id)}
    return pa.field(field.name, _type(field.type, match.fields, used), field.nullable, metadata)


def _type(kind: pa.DataType, mapped: Sequence[MappedField], used: set[int]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(each, each.name, mapped, used) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field, "element", mapped, used))
    if pa.types.is_map(kind):
        key = _field(kind.key_field, "key", mapped, used)
        return pa.map_(key, _field(kind.item_field, "value", mapped, used))
    if pa.types.is_nested(kind):
        raise NotResolved(FORM, f"a data file without field ids has a column of type {kind}")
    return kind


def metrics_of(
    copy: FileCopy,
    table_schema: Schema,
    mapping: NameMapping | None,
    properties: Mapping[str, str],
    version: TableVersion,
) -> FileMetrics:
    """Return the metrics of a copy.

    Args:
        copy: with rows.
        table_schema: of the table.
        mapping: names of columns in files without field ids.
        properties: of the table, which say what metrics to keep.
        version: of the table's manifests.

    Raises:
        NotResolved: the columns are not Iceberg's.
    """
    assert copy.schema is not None
    try:
        plain = _without_variants(copy.schema, copy.variants)
        schema = pyarrow_to_schema(plain, mapping, format_version=version)
        collectors = compute_statistics_plan(schema, dict(properties))
        ids = parquet_path_to_id_mapping(schema)
        metrics = FooterReader(collectors, ids).read(copy.footer)
    except (ValueError, TypeError, KeyError, UnsupportedPyArrowTypeException) as error:
        raise NotResolved(FORM, "the columns of a data file are not Iceberg's") from error
    for field_id in _of_other_units(copy.footer.schema, ids, table_schema):
        metrics.lower_bounds.pop(field_id, None)
        metrics.upper_bounds.pop(field_id, None)
    return metrics


def _without_variants(schema: pa.Schema, variants: Collection[tuple[str, ...]]) -> pa.Schema:
    """Return a schema with each variant as one column: PyIceberg has no such type."""
    if not variants:
        return schema
    return pa.schema([_plain(field, (field.name,), variants) for field in schema])


def _plain(
    field: pa.Field, path: tuple[str, ...], variants: Collection[tuple[str, ...]]
) -> pa.Field:
    if path in variants:
        return field.with_type(pa.binary())
    if not pa.types.is_struct(field.type):
        return field
    inner = [_plain(each, (*path, each.name), variants) for each in field.type]
    return field.with_type(pa.struct(inner))


def _of_other_units(columns: Any, ids: Mapping[str, int], table_schema: Schema) -> Collection[int]:
    """Return the field ids of instants and times in another unit than the table's column."""
    out = set()
    for place in range(len(columns)):
        column = columns.column(place)
        field_id, unit = ids.get(column.path), str(column.logical_type)
        is_other = "timeUnit=milliseconds" in unit or (
            "timeUnit=nanoseconds" in unit and not _has_nanos(table_schema, field_id)
        )
        if field_id is not None and is_other:
            out.add(field_id)
    return out


def _has_nanos(schema: Schema, field_id: int | None) -> bool:
    if field_id is None or schema.find_column_name(field_id) is None:
        return False
    return isinstance(schema.find_type(field_id), _NANOS)

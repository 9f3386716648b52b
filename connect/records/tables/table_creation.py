"""Creation of tables from the first record that is written to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    StructType,
)

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.model.records import SinkRecord
from connect.records.conversion.conversion_failure import kind_of
from connect.records.tables.folder_columns import folder_struct
from connect.records.tables.partition_spec import spec_for
from connect.records.tables.sort_order import sort_order_for
from connect.records.tables.table_location import check_names, location_for
from connect.records.tables.type_inference import check_level, column_type, infer_type

# Iceberg's Java library sets this property on new tables
DEFAULT_PROPERTIES: Final[Mapping[str, str]] = {"write.parquet.compression-codec": "zstd"}


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table to create.

    Attributes:
        identifier: namespace levels and name.
        schema: the schema with fresh ids and identifier fields.
        spec: the partition spec.
        sort_order: the sort order for writers that sort.
        location: the table's location; None lets the catalog choose it.
        properties: table properties, including ``format-version`` if configured.
    """

    identifier: tuple[str, ...]
    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    location: str | None
    properties: Mapping[str, str]


def table_for(name: str, record: SinkRecord, config: ConnectorConfig) -> NewTable:
    """Return the table to create for a record.

    Raises:
        RecordError: the record does not define a schema, its schema does not fit the configured
        partition spec or sort order, or the table's name cannot be part of a location.
        ConfigError: the configuration is invalid for any record.
    """
    table = config.table(name)
    if not table.location:
        check_names(table.identifier)
    schema = schema_for_record(record, config, id_columns=table.id_columns)
    return NewTable(
        identifier=table.identifier,
        schema=schema,
        spec=spec_for(table.partition_by, schema),
        sort_order=sort_order_for(table.sort_by, schema),
        location=location_for(table.location, table.identifier) if table.location else None,
        properties={**DEFAULT_PROPERTIES, **config.auto_create_properties}
        if config.is_iceberg
        else dict(config.auto_create_properties),
    )


def schema_for_record(
    record: SinkRecord, config: ConnectorConfig, *, id_columns: Sequence[str] = ()
) -> Schema:
    """Return the schema of the table to create for a record.

    Required id columns become identifier fields. Optional id columns must exist.

    Raises:
        RecordError: code ``no_schema``, ``unsupported_type``, ``ambiguous_name`` or
            ``id_columns``.
    """
    kind = _type(record, config)
    check_type(kind, case_insensitive=config.schema_case_insensitive)
    if not config.is_iceberg:
        kind = folder_struct(kind)
    try:
        schema = assign_fresh_schema_ids(Schema(*kind.fields))
    except ValueError:
        raise RecordError(
            "the name of a field equals the full name of a nested field", code="bad_column_name"
        ) from None
    identifiers = []
    for column in id_columns:
        try:
            field = schema.find_field(column)
        except ValueError:
            raise RecordError(
                f"the record has no field for the id column {column!r}", code="id_columns"
            ) from None
        plain = field.field_type.is_primitive
        if field.required and plain and not isinstance(field.field_type, FloatType | DoubleType):
            identifiers.append(field.field_id)
    return Schema(*schema.fields, identifier_field_ids=identifiers) if identifiers else schema


def _type(record: SinkRecord, config: ConnectorConfig) -> StructType:
    kind: IcebergType | None
    if record.value_schema is not None:
        kind = column_type(record.value_schema, config)
    else:
        kind = infer_type(record.value)
        if kind is None:
            raise RecordError("the record has no field with a value", code="no_schema")
    if not isinstance(kind, StructType):
        raise RecordError(
            f"a {kind_of(record.value)} cannot be a row of a table", code="wrong_type"
        )
    return kind


def check_type(kind: IcebergType, *, case_insensitive: bool, level: int = 0) -> None:
    """Check that a table can have a column of this type.

    Args:
        kind: the type.
        case_insensitive: names that differ in their case only are equal.
        level: of the type in the table; 0 for the record itself, 1 for its fields.

    Raises:
        RecordError: a name is empty or ambiguous, a struct has no fields, a decimal's scale is
            not supported, or the type is nested too deeply.
    """
    if not kind.is_primitive:
        check_level(level)
    if isinstance(kind, StructType):
        if not kind.fields:
            raise RecordError("a struct without fields cannot be written", code="unsupported_type")
        by_name: dict[str, Any] = {}
        for field in kind.fields:
            name = field.name.lower() if case_insensitive else field.name
            if not name:
                raise RecordError("a field has an empty name", code="bad_column_name")
            if name in by_name:
                raise RecordError("two fields have the same name", code="ambiguous_name")
            by_name[name] = field
            check_type(field.field_type, case_insensitive=case_insensitive, level=level + 1)
    elif isinstance(kind, ListType):
        check_type(kind.element_type, case_insensitive=case_insensitive, level=level + 1)
    elif isinstance(kind, MapType):
        check_type(kind.key_type, case_insensitive=case_insensitive, level=level + 1)
        check_type(kind.value_type, case_insensitive=case_insensitive, level=level + 1)
    elif isinstance(kind, DecimalType) and not 0 <= kind.scale <= kind.precision:
        raise RecordError(f"tables do not support {kind}", code="unsupported_type")

"""What the pipeline is told: plain values that travel to the executors.

Rules of this file:
- Everything pickles and holds no client. ``io_properties`` may hold secrets of the object store,
  so specs are never logged.
- A spec is made per batch on the driver, from tables as loaded there: a batch that asks for
  schema changes is run again with a newer spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from connect.config.connector import ConnectorConfig, ConverterConfig
from connect.records.converters.compressed import is_gzip
from connect.records.transforms.transform_chain import needs_headers
from control_schemas.events import TableReference

_TOTAL_CONVERTERS: Final = frozenset({"String", "ByteArray", "SimpleHeader"})


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """How rows of one table are replaced and deleted.

    Attributes:
        key_ids: field ids of the key columns; none when the message key names them.
        delete_spec_json: partition spec of delete files, Iceberg's JSON: the table's, where a key
            cannot move between partitions, else one without partitions, which reaches all rows.
    """

    key_ids: tuple[int, ...]
    delete_spec_json: str


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table as the driver saw it.

    Attributes:
        name: the name routing gives, e.g. ``db.payments``.
        reference: identity for the events.
        schema_json: current schema, Iceberg's JSON.
        spec_json: default partition spec, Iceberg's JSON.
        location: the table's location.
        properties: table properties with the connector's write properties over them.
        io_properties: what opens the object store.
        changes: only for connectors of row-level changes.
    """

    name: str
    reference: TableReference
    schema_json: str
    spec_json: str
    location: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str]
    changes: ChangePlan | None = None

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return Schema.model_validate_json(self.schema_json)

    @property
    def spec(self) -> PartitionSpec:
        """The default partition spec."""
        return PartitionSpec.model_validate_json(self.spec_json)

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        name: str,
        catalog: str,
        io_properties: Mapping[str, str],
        write_properties: Mapping[str, str] | None = None,
        changes: ChangePlan | None = None,
    ) -> TablePlan:
        """Plan for a loaded table.

        Args:
            table: as the catalog gateway gave it.
            name: the name routing gives.
            catalog: the catalog's name, for events.
            io_properties: what opens the object store, ``storage_properties(table.io.properties)``.
            write_properties: the connector's ``iceberg.tables.write-props.*``.
            changes: for row-level changes.
        """
        *namespace, last = name.split(".")
        return cls(
            name=name,
            reference=TableReference(
                catalog, tuple(namespace), last, UUID(str(table.metadata.table_uuid))
            ),
            schema_json=table.schema().model_dump_json(),
            spec_json=table.spec().model_dump_json(),
            location=table.location(),
            properties={**table.properties, **(write_properties or {})},
            io_properties=dict(io_properties),
            changes=changes,
        )


@dataclass(frozen=True, slots=True)
class UnusableTable:
    """Why no row can be written to a table.

    Attributes:
        code: bounded; that of the error which its records are refused with.
        message: what is wrong.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """Bounds of one Spark task.

    Attributes:
        block_rows: records decoded at once.
        block_bytes: bytes of values decoded at once.
        block_cells: rows times fields (of all tables together) decoded at once.
        group_rows: rows of a Parquet row group.
        buffered_bytes_max: Arrow bytes waiting for their row group, all tables together.
        open_files_max: files being written at the same time.
        requests_max: tables and schema changes asked for in one run.
        letter_bytes_max: bytes of dead letters that a Spark task keeps until it ends; one is kept
            whatever its size.
        changes_bytes_max: Arrow bytes of row-level changes kept to find the newest of each key.
    """

    block_rows: int = 65_536
    block_bytes: int = 32 * 2**20
    block_cells: int = 8_000_000
    group_rows: int = 200_000
    buffered_bytes_max: int = 96 * 2**20
    open_files_max: int = 128
    requests_max: int = 1_000
    letter_bytes_max: int = 32 * 2**20
    changes_bytes_max: int = 128 * 2**20


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """Everything a Spark task needs to turn records into files.

    Attributes:
        config: the connector, placeholders resolved.
        tables: the known tables.
        absent: names looked up and not found; records for them are unmatched.
        limits: bounds.
        reference_only: take every record through the reference, to compare.
        unusable: tables that no row can be written to; records for them are refused.
        valid_through_ms: the last valid-through time that the task has seen; None before the first.
    """

    config: ConnectorConfig
    tables: tuple[TablePlan, ...]
    absent: frozenset[str] = frozenset()
    limits: PipelineLimits = field(default_factory=PipelineLimits)
    reference_only: bool = False
    unusable: Mapping[str, UnusableTable] = field(default_factory=dict)
    valid_through_ms: int | None = None

    @property
    def has_dead_letters(self) -> bool:
        """Whether records may be kept as dead letters, with key and headers."""
        return self.config.errors.tolerance_all or self.config.unmatched == "dead-letter"

    @property
    def needs_key(self) -> bool:
        """Whether keys must be read: refused, transformed, deleting rows, or dead letters."""
        return bool(
            self.has_dead_letters
            or self.config.is_row_level
            or self.config.transforms
            or not is_total(self.config.key_converter)
        )

    @property
    def needs_headers(self) -> bool:
        """Whether headers must be read: refused or dead-lettered, used, or naming schemas."""
        sides = (self.config.key_converter, self.config.value_converter)
        return (
            self.has_dead_letters
            or needs_headers(self.config.transforms)
            or not is_total(self.config.header_converter)
            or any("schema.registry.url" in side.options for side in sides)
        )

    def columns(self) -> tuple[str, ...]:
        """Columns of Spark's Kafka source that ``run`` needs, in its order."""
        columns = ["value", "topic", "partition", "offset", "timestamp"]
        if self.needs_key:
            columns.append("key")
        if self.needs_headers:
            columns.append("headers")
        return tuple(columns)


def is_total(converter: ConverterConfig) -> bool:
    """Whether a converter takes every record."""
    return converter_name(converter) in _TOTAL_CONVERTERS and not is_gzip(converter.options)


def converter_name(converter: ConverterConfig) -> str:
    """Java's class name without package and ending, e.g. ``Json``."""
    return converter.class_name.rpartition(".")[2].removesuffix("Converter")


def is_plain_json(converter: ConverterConfig) -> bool:
    """Whether a converter reads JSON without schemas."""
    enabled = str(converter.options.get("schemas.enable", "true")).strip().lower()
    return converter_name(converter).lower() == "json" and enabled == "false"

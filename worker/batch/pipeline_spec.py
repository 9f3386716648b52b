"""The input of the pipeline besides records: values that the driver sends to the executors.

Rules of this file:
- Each value can be pickled and contains no client. ``io_properties`` may contain secrets of the
  object store, so specs are never logged.
- The driver makes a spec per batch, from its loaded tables. A batch that requests schema changes
  runs again with a newer spec.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from connect.config.connector import ConnectorConfig, ConverterConfig
from connect.config.table_formats import ICEBERG
from connect.gateways.folder_catalog import table_format_of
from connect.model.layout import TopicPartition
from connect.records.converters.compressed import is_gzip
from connect.records.converters.converter_classes import is_custom
from connect.records.row_operations import Keyless
from connect.records.tables.schema_evolution import partition_names
from connect.records.transforms.transform_chain import needs_headers
from control_schemas.events import TableReference
from worker.batch.descriptors import DESCRIPTOR_DDL
from worker.batch.distribution import DISTRIBUTED_DDL, Distribution

RecordPlace: TypeAlias = tuple[str, int, int]
"""Topic, partition and source offset of a record."""

_TOTAL_CONVERTERS: Final = frozenset({"String", "ByteArray", "SimpleHeader"})


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Settings for replacing and deleting rows of one table.

    Attributes:
        key_ids: field ids of the key columns; empty if the message key names them.
        delete_spec_json: partition spec of delete files, as Iceberg JSON. It is the table's spec if
            a key cannot change its partition. Otherwise it is an unpartitioned spec, and deletes
            apply to all rows.
        keyless: what happens to records without message key, if message keys name the columns.
    """

    key_ids: tuple[int, ...]
    delete_spec_json: str
    keyless: Keyless = Keyless.REFUSE


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table in the state that the driver loaded.

    Attributes:
        name: the name that routing returns, e.g. ``db.payments``.
        reference: identity of the table in events.
        schema_json: current schema, as Iceberg JSON.
        spec_json: default partition spec, as Iceberg JSON.
        location: the table's location.
        properties: table properties, overridden by the connector's write properties.
        io_properties: properties of the client of the object store.
        changes: only for connectors with row-level changes.
        table_format: ``iceberg``, ``delta`` or ``parquet``.
        sort_json: sort order of each data file's rows, as Iceberg JSON; None leaves them as they
            come.
        partition_names: of the fields of all partition specs.
    """

    name: str
    reference: TableReference
    schema_json: str
    spec_json: str
    location: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str]
    changes: ChangePlan | None = None
    table_format: str = ICEBERG
    sort_json: str | None = None
    partition_names: frozenset[str] = frozenset()

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
        sorts: bool = False,
    ) -> TablePlan:
        """Return the plan of a loaded table.

        Args:
            table: from the catalog gateway.
            name: the name that routing returns.
            catalog: the catalog's name, for events.
            io_properties: of the object store, ``storage_properties(table.io.properties)``.
            write_properties: the connector's ``iceberg.tables.write-props.*``.
            changes: for row-level changes.
            sorts: whether rows are sorted by the table's sort order, if it has one.
        """
        *namespace, last = name.split(".")
        order = table.sort_order() if sorts else UNSORTED_SORT_ORDER
        return cls(
            name=name,
            reference=TableReference(
                catalog, tuple(namespace), last, UUID(str(table.metadata.table_uuid))
            ),
            # one object for equal texts, which then is sent to executors once
            schema_json=sys.intern(table.schema().model_dump_json()),
            spec_json=sys.intern(table.spec().model_dump_json()),
            location=table.location(),
            properties={**table.properties, **(write_properties or {})},
            io_properties=io_properties,
            changes=changes,
            # never a property of the table: its owner could choose how files are written
            table_format=table_format_of(table),
            sort_json=None if order.is_unsorted else sys.intern(order.model_dump_json()),
            partition_names=partition_names(table),
        )


@dataclass(frozen=True, slots=True)
class UnusableTable:
    """The reason why no row can be written to a table.

    Attributes:
        code: bounded; error code with which records for the table are refused.
        message: message of that error.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """Limits of one Spark task.

    Attributes:
        block_rows: records decoded at once.
        block_bytes: bytes of values decoded at once.
        block_cells: rows times fields (of all tables) decoded at once.
        group_rows: rows of a Parquet row group.
        buffered_bytes_max: Arrow bytes that wait for their row group, of all tables.
        spilled_bytes_max: Arrow bytes that wait on the disk, where rows of many tables exceed
            ``buffered_bytes_max``.
        open_files_max: files that are open at the same time.
        requests_max: tables and schema changes requested in one run.
        dead_letter_bytes_max: bytes of dead letters that a Spark task keeps until it ends. A single
            dead letter of any size is kept.
        output_bytes_max: bytes of rows for outputs that a Spark task keeps until it ends. The rows
            of a single record are kept.
        changes_bytes_max: Arrow bytes of row-level changes kept to find the newest of each key.
    """

    block_rows: int = 65_536
    block_bytes: int = 32 * 2**20
    block_cells: int = 8_000_000
    group_rows: int = 200_000
    buffered_bytes_max: int = 96 * 2**20
    spilled_bytes_max: int = 4 * 2**30
    open_files_max: int = 128
    requests_max: int = 1_000
    dead_letter_bytes_max: int = 32 * 2**20
    output_bytes_max: int = 64 * 2**20
    changes_bytes_max: int = 128 * 2**20


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """All settings with which a Spark task turns records into files.

    Attributes:
        config: the connector, placeholders resolved.
        tables: the known tables.
        absent: names of tables that do not exist; records for them are unmatched.
        missing: those of these that the first record with a value creates.
        limits: limits of a Spark task.
        reference_only: whether each record takes the reference path, for comparison.
        unusable: tables to which no row can be written; records for them are refused.
        valid_through_ms: the last VTTS that the task received; None before the first.
        distribution: which Spark task writes which rows; None if each writes what it reads.
        sources: source partitions of the connector task, whose row-level changes have an order.
        reports_keys: whether Spark tasks report the keys of their row-level changes.
        refused: records that raised an exception which no code expects, and its text.
    """

    config: ConnectorConfig
    tables: tuple[TablePlan, ...]
    absent: frozenset[str] = frozenset()
    limits: PipelineLimits = field(default_factory=PipelineLimits)
    reference_only: bool = False
    unusable: Mapping[str, UnusableTable] = field(default_factory=dict)
    valid_through_ms: int | None = None
    distribution: Distribution | None = None
    sources: tuple[TopicPartition, ...] = ()
    reports_keys: bool = False
    missing: frozenset[str] = frozenset()
    refused: Mapping[RecordPlace, str] = field(default_factory=dict)

    @property
    def has_dead_letters(self) -> bool:
        """Whether records may become dead letters, which contain key and headers."""
        return (
            self.config.errors.tolerance_all
            or self.config.unmatched == "dead-letter"
            or self.config.keeps_keyless_changes
        )

    @property
    def needs_key(self) -> bool:
        """Whether a converter, a transformation, row-level changes or dead letters need keys."""
        return bool(
            self.has_dead_letters
            or self.config.is_row_level
            or self.config.transforms
            or not all(is_total(each.key_converter) for each in self.config.converter_sets)
        )

    @property
    def needs_headers(self) -> bool:
        """Whether a converter, a transformation, a schema id or dead letters need headers."""
        sets = self.config.converter_sets
        sides = [
            each
            for converters in sets
            for each in (converters.key_converter, converters.value_converter)
        ]
        return (
            self.has_dead_letters
            or needs_headers(self.config.transforms)
            or not is_total(self.config.header_converter)
            or any(
                "schema.registry.url" in side.options or is_custom(side.class_name)
                for side in sides
            )
        )

    @property
    def descriptor_ddl(self) -> str:
        """Schema of what Spark tasks with this spec return."""
        return DESCRIPTOR_DDL if self.distribution is None else DISTRIBUTED_DDL

    def columns(self) -> tuple[str, ...]:
        """Return the columns of Spark's Kafka source that ``run`` needs, in its order."""
        columns = ["value", "topic", "partition", "offset", "timestamp"]
        if self.needs_key:
            columns.append("key")
        if self.needs_headers:
            columns.append("headers")
        return tuple(columns)


def is_total(converter: ConverterConfig) -> bool:
    """Return whether a converter accepts every record."""
    return converter_name(converter) in _TOTAL_CONVERTERS and not is_gzip(converter.options)


def converter_name(converter: ConverterConfig) -> str:
    """Return Java's class name without package and suffix, e.g. ``Json``; empty if custom."""
    if is_custom(converter.class_name):
        return ""
    return converter.class_name.rpartition(".")[2].removesuffix("Converter")


def is_plain_json(converter: ConverterConfig) -> bool:
    """Return whether a converter reads JSON without schemas."""
    enabled = str(converter.options.get("schemas.enable", "true")).strip().lower()
    return converter_name(converter).lower() == "json" and enabled == "false"

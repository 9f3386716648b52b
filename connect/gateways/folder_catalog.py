"""Tables without a catalog behind PyIceberg's interface of a catalog.

The worker loads, creates and changes such tables as it does Iceberg tables. Snapshots, branches,
tags and sort orders do not exist. Data files are committed by ``coordinator.commit``.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AddSchemaUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from connect.config.local_paths import TABLE_PATHS
from connect.config.table_formats import DELTA, FORMAT_NAMES, ICEBERG, UNSUPPORTED
from connect.errors import CommitRefused
from connect.gateways.storage.guarded_io import GuardedFileIO

_ICEBERG_ONLY: Final = ("format-version",)


class FolderSnapshot(Protocol):
    """One version of a table.

    Attributes:
        location: with a scheme.
        log_file: the file of the log that made this version.
        table_uuid: the table's identity.
        schema: as Iceberg schema.
        spec: its partition columns.
        properties: the table's.
        write_properties: properties that place its data files.
    """

    @property
    def location(self) -> str: ...  # noqa: D102 - see Attributes
    @property
    def log_file(self) -> str: ...  # noqa: D102
    @property
    def table_uuid(self) -> uuid.UUID: ...  # noqa: D102
    @property
    def schema(self) -> Schema: ...  # noqa: D102
    @property
    def spec(self) -> PartitionSpec: ...  # noqa: D102
    @property
    def properties(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def write_properties(self) -> Mapping[str, str]: ...  # noqa: D102


class FolderTables(Protocol):
    """The tables of one connector, in one format.

    Attributes:
        table_format: the format.
        properties: that open their store.
    """

    table_format: str
    properties: Mapping[str, Any]

    def load(self, identifier: Sequence[str]) -> Any:
        """Return the newest version of a table, a ``FolderSnapshot``.

        Raises:
            CommitRefused: ``table_missing`` and others; RetriableError: ``catalog_unavailable``.
        """
        ...

    def create(
        self,
        identifier: Sequence[str],
        schema: Schema,
        spec: PartitionSpec,
        properties: Mapping[str, str],
    ) -> None:
        """Create a table; a table that another writer created at the same time is no error."""
        ...

    def add_columns(self, snapshot: Any, schema: Schema) -> None:
        """Add the columns that ``schema`` has in addition, as the version after the snapshot."""
        ...


class FolderCatalog(NoopCatalog):
    """Tables by name; operations that they lack raise ``NotImplementedError``.

    Args:
        name: of the catalog, for events.
        tables: of the connector.
    """

    def __init__(self, name: str, tables: FolderTables) -> None:
        super().__init__(name, **{key: str(value) for key, value in tables.properties.items()})
        self._tables = tables

    @property
    def table_format(self) -> str:
        """The format of all of its tables."""
        return self._tables.table_format

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the newest version of a table.

        Raises:
            CommitRefused, RetriableError: as ``FolderTables.load``.
        """
        key = self.identifier_to_tuple(identifier)
        return self._table(key, self._tables.load(key))

    def create_table(  # noqa: PLR0917 - the signature of PyIceberg
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,  # noqa: ARG002 - the configuration places tables
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,  # noqa: ARG002 - validation refuses it
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table, or load it if another writer created it first."""
        assert isinstance(schema, Schema)
        key = self.identifier_to_tuple(identifier)
        own = {k: str(v) for k, v in properties.items() if k not in _ICEBERG_ONLY}
        self._tables.create(key, schema, partition_spec, own)
        return self.load_table(key)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],  # noqa: ARG002 - the version is the condition
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Add columns, on condition that the table did not change since it was loaded.

        Raises:
            CommitRefused: ``delta_unsupported``, ``parquet_unsupported``: any other change.
        """
        key = table.name()
        snapshot = self._tables.load(key)
        if snapshot.log_file != table.metadata_location:
            raise CommitFailedException("the table has a newer version")
        for update in updates:
            if isinstance(update, AddSchemaUpdate):
                self._tables.add_columns(snapshot, update.schema_)
            elif update.action != "set-current-schema":
                raise CommitRefused(
                    f"{FORMAT_NAMES[self.table_format]} do not support the change {update.action}",
                    code=UNSUPPORTED[self.table_format],
                )
        after = self.load_table(key)
        return CommitTableResponse.model_validate(
            {"metadata": after.metadata, "metadata-location": after.metadata_location}
        )

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Whether the table is there."""
        try:
            self.load_table(identifier)
        except CommitRefused as error:
            if error.code == "table_missing":
                return False
            raise
        return True

    def create_namespace_if_not_exists(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Do nothing: a namespace is a folder, which the first table makes."""

    def namespace_exists(self, namespace: str | Identifier) -> bool:  # noqa: ARG002
        """Return True: every folder may hold tables."""
        return True

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:  # noqa: ARG002
        """Return no properties: folders have none."""
        return {}

    def close(self) -> None:
        """Do nothing: connections to stores belong to the process."""

    def _table(self, identifier: Identifier, snapshot: FolderSnapshot) -> Table:
        return Table(
            identifier=identifier,
            metadata=_metadata(snapshot, has_free_spec=self.table_format == DELTA),
            metadata_location=snapshot.log_file,
            io=GuardedFileIO(self._tables.properties),
            catalog=self,
        )


def table_format_of(table: Table) -> str:
    """Return the format of a table, by the catalog that it was loaded from."""
    catalog = table.catalog
    return catalog.table_format if isinstance(catalog, FolderCatalog) else ICEBERG


def _metadata(snapshot: FolderSnapshot, *, has_free_spec: bool) -> TableMetadataV2:
    """Return a version as metadata of Iceberg.

    Args:
        snapshot: the version.
        has_free_spec: whether equality deletes may be announced, which apply to all partitions.
    """
    schema, spec = snapshot.schema, snapshot.spec
    free = [PartitionSpec(spec_id=spec.spec_id + 1)] if has_free_spec and spec.fields else []
    return TableMetadataV2.model_validate(
        {
            "format-version": 2,
            "table-uuid": snapshot.table_uuid,
            "location": snapshot.location,
            "last-updated-ms": 0,
            "last-column-id": schema.highest_field_id,
            "schemas": [schema],
            "current-schema-id": schema.schema_id,
            "partition-specs": [spec, *free],
            "default-spec-id": spec.spec_id,
            "last-partition-id": max((f.field_id for f in spec.fields), default=999),
            "sort-orders": [UNSORTED_SORT_ORDER],
            "default-sort-order-id": 0,
            "last-sequence-number": 0,
            # a file outside the table's folder cannot be committed
            "properties": {
                **{k: v for k, v in snapshot.properties.items() if k not in TABLE_PATHS},
                **snapshot.write_properties,
            },
        }
    )

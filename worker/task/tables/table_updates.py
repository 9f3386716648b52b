"""Catalog requests that create a table, or change its schema or partition specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
)

from connect.config.connector import ConnectorConfig
from connect.errors import CommitConflict, CommitStateUnknown, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway
from connect.records.row_operations import key_columns
from connect.records.tables.delete_specs import delete_spec, unpartitioned_spec_added
from worker.batch.descriptors import TableRequest

COMMITS_MAX: Final = 10

log = structlog.get_logger("worker.tables")


def create_table(catalog: CatalogGateway, request: TableRequest) -> Table:
    """Create a table, or load it if another writer created it first; ``schema_json`` is set.

    Raises:
        CommitRefused, RetriableError: as ``CatalogGateway.create``.
    """
    assert request.schema_json is not None, "a request without a schema only loads the table"
    spec = (
        UNPARTITIONED_PARTITION_SPEC
        if request.spec_json is None
        else PartitionSpec.model_validate_json(request.spec_json)
    )
    order = (
        UNSORTED_SORT_ORDER
        if request.sort_json is None
        else SortOrder.model_validate_json(request.sort_json)
    )
    return catalog.create(
        request.table.split("."),
        Schema.model_validate_json(request.schema_json),
        spec,
        request.properties,
        sort_order=order,
        location=request.location,
    )


def commit_schema(catalog: CatalogGateway, table: Table, schema: Schema) -> Table:
    """Commit a schema, on condition that the schema did not change since ``table`` was loaded.

    Raises:
        CommitConflict: another writer changed the schema.
        CommitStateUnknown: the catalog may have applied the commit.
    """
    metadata = table.metadata
    added = Schema(
        *schema.fields,
        schema_id=max(existing.schema_id for existing in metadata.schemas) + 1,
        identifier_field_ids=list(schema.identifier_field_ids),
    )
    requirements = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate(
            {"last-assigned-field-id": metadata.last_column_id}
        ),
    )
    updates = (AddSchemaUpdate(schema=added), SetCurrentSchemaUpdate())
    return catalog.commit(table, requirements, updates)


def with_delete_spec(
    catalog: CatalogGateway,
    config: ConnectorConfig,
    name: str,
    table: Table,
    load: Callable[[], Table],
) -> Table:
    """Return the table with a partition spec that delete files can use; commit one if needed.

    Args:
        catalog: of the table.
        config: of the connector.
        name: of the table.
        table: as it was loaded.
        load: loads it again.

    Raises:
        RetriableError: other writers keep changing it; as ``CatalogGateway.commit``.
    """
    for _ in range(COMMITS_MAX):
        keys = key_columns(table.schema(), config.table(name).id_columns, table=name)
        if delete_spec(table, tuple(column.field_id for column in keys)) is not None:
            return table
        try:
            return catalog.commit(table, *unpartitioned_spec_added(table))
        except (CommitConflict, CommitStateUnknown) as e:
            log.info("partition spec change repeated", table=name, code=e.code)
            table = load()
    raise contended("partition specs", config.name, name)


def contended(part: str, connector: str, table: str) -> RetriableError:
    """Return the error of a change that other writers prevented."""
    return RetriableError(
        f"the table's {part} could not be changed in {COMMITS_MAX} attempts",
        code="schema_contended",
        connector=connector,
        table=table,
    )

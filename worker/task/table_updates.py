"""Catalog requests that create a table or commit a schema. Each makes one attempt."""

from __future__ import annotations

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

from connect.gateways.catalog.catalog import CatalogGateway
from worker.batch.descriptors import TableRequest


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

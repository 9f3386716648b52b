"""The rows of a connector without tables, in the place of the tables of a task."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from connect.config.connector import ConnectorConfig
from connect.config.table_formats import ROWS, TOPIC
from connect.errors import InvariantViolation
from connect.gateways.catalog.catalog import CatalogGateway
from connect.records.transforms.sql.sql_columns import columns_schema
from control_schemas.events import TableReference
from worker.batch.descriptors import BatchResult
from worker.batch.pipeline_spec import PipelineSpec, TablePlan

_NOWHERE = "file:///icefloe-rows"  # never opened: rows without a table have no file


class BatchTables(Protocol):
    """The tables that a task writes to, as its batches need them; see ``TaskTables``."""

    @property
    def are_known(self) -> bool: ...  # noqa: D102 - see TaskTables
    def spec(self) -> PipelineSpec: ...  # noqa: D102
    def refresh(self) -> None: ...  # noqa: D102
    def confirm(self, names: Collection[str]) -> bool: ...  # noqa: D102
    def apply_requests(self, result: BatchResult) -> None: ...  # noqa: D102
    def reload(self, name: str) -> None: ...  # noqa: D102
    def reference(self, name: str) -> TableReference: ...  # noqa: D102
    def mark_unusable(self, name: str, error: Exception) -> None: ...  # noqa: D102
    def discard(self, result: BatchResult) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


@dataclass(slots=True)
class TopicRows:
    """Rows with the columns of ``icefloe.rows.columns``, which never change.

    Args:
        config: the connector, placeholders resolved.
        catalog: of the static tables that its query joins; closed by ``close``.

    Raises:
        ConfigError: the columns cannot be parsed.
    """

    config: ConnectorConfig
    catalog: CatalogGateway | None = None
    _spec: PipelineSpec = field(init=False)

    def __post_init__(self) -> None:
        plan = TablePlan(
            name=ROWS,
            reference=TableReference(TOPIC, (), ROWS, UUID(int=0)),
            schema_json=columns_schema(self.config.rows_columns or "").model_dump_json(),
            spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
            location=_NOWHERE,
            properties={},
            io_properties={},
            table_format=TOPIC,
        )
        self._spec = PipelineSpec(self.config, (plan,))

    @property
    def are_known(self) -> bool:
        """Return True."""
        return True

    def spec(self) -> PipelineSpec:
        """Return what the pipeline needs to know of the rows."""
        return self._spec

    def refresh(self) -> None:
        """Do nothing: the configuration has the columns."""

    def confirm(self, names: Collection[str]) -> bool:  # noqa: ARG002 - of TaskTables
        """Return True: the columns are as the batch knew them."""
        return True

    def apply_requests(self, result: BatchResult) -> None:
        """Raise an error: rows request no table and no column."""
        raise InvariantViolation(f"rows without a table requested {result.table_requests}")

    def reload(self, name: str) -> None:
        """Do nothing: there is no file that a store could refuse."""

    def reference(self, name: str) -> TableReference:
        """Raise an error: no file is announced."""
        raise InvariantViolation(f"a file was written for {name}, which is no table")

    def mark_unusable(self, name: str, error: Exception) -> None:
        """Raise an error: there is no file that a store could refuse."""
        raise InvariantViolation(f"{name} is no table: {error}")

    def discard(self, result: BatchResult) -> None:
        """Do nothing: there are no files."""

    def close(self) -> None:
        """Close the connections to the catalog."""
        if self.catalog is not None:
            self.catalog.close()

"""The tables of one task as its driver knows them: loaded, created and widened through the catalog.

Rules of this file:
- What is known of a table may be old: files for an older schema or spec stay right. A table that
  was replaced is refused by the coordinator, not here.
- A table that the configuration names and that was there keeps its place when it is dropped: its
  files wait with the coordinator, which says so, and the other tables go on.
- A table that is missing from the start is an error where the configuration names it, and
  unmatched where a record names it; with auto-create the first record for it makes it.
- What is wrong with one table stops no other. A known table that cannot be loaded is written as it
  was known; one that cannot be used is unusable until the next look, and its records are refused.
- Creating and widening race with other tasks and other writers: the winner's table is taken, and
  the difference is worked out again from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

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

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import (
    CommitConflict,
    CommitRefused,
    CommitStateUnknown,
    ConfigError,
    InvariantViolation,
    RetriableError,
)
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.catalog.table_properties import ignored
from connect.gateways.storage.guarded_io import table_storage
from connect.gateways.storage.object_store import delete_files
from connect.records.row_operations import key_columns
from connect.records.tables.delete_specs import delete_spec, unpartitioned_spec_added
from connect.records.tables.schema_changes import SchemaChanges, apply_changes, merge
from worker.batch.descriptors import BatchResult, SchemaRequest, TableRequest
from worker.batch.pipeline_spec import ChangePlan, PipelineSpec, TablePlan, UnusableTable
from worker.task.unusable_tables import UNSUITABLE, judge, unusable

REFRESH_MS = 60_000
COMMITS_MAX = 10

log = structlog.get_logger("worker.tables")


@dataclass(slots=True)
class TaskTables:
    """Tables of one task.

    Args:
        config: the connector, placeholders resolved.
        catalog: where its tables are; closed by ``close``.
        clock: for the age of what is known.
    """

    config: ConnectorConfig
    catalog: CatalogGateway
    clock: Clock
    _tables: dict[str, Table] = field(default_factory=dict, init=False)
    _plans: dict[str, TablePlan] = field(default_factory=dict, init=False)
    _absent: set[str] = field(default_factory=set, init=False)
    _unusable: dict[str, UnusableTable] = field(default_factory=dict, init=False)
    _warned: dict[str, object] = field(default_factory=dict, init=False)
    _loaded_ms: int | None = field(default=None, init=False)
    _spec: PipelineSpec | None = field(default=None, init=False)

    def refresh(self) -> None:
        """Look at the tables again when what is known of them is old.

        Raises:
            CommitRefused: a table that the configuration names is missing, or none of those that
                it names may be read.
            ConfigError: none of those that it names can be written.
            RetriableError: the catalog is away.
        """
        now_ms = self.clock.monotonic_ms()
        if self._loaded_ms is not None and now_ms - self._loaded_ms < REFRESH_MS:
            return
        self._absent.clear()
        for name in sorted({*self.config.tables, *self._tables, *self._unusable}):
            self._load(name, is_named=name in self.config.tables)
        named = self.config.tables
        if named and not self.config.dynamic_enabled and all(n in self._unusable for n in named):
            first = self._unusable[named[0]]
            raise ConfigError(
                f"no table of the connector can be written: {first.message}",
                code=first.code,
                connector=self.config.name,
                table=named[0],
            )
        self._loaded_ms = now_ms

    @property
    def are_known(self) -> bool:
        """Whether every table that the configuration names is known, and one at least."""
        known = self._plans.keys() | self._unusable.keys()
        return bool(self._plans) and all(name in known for name in self.config.tables)

    def spec(self) -> PipelineSpec:
        """What the pipeline is told of the tables now; errors as ``refresh``."""
        if self._loaded_ms is None:
            self.refresh()
        if self._spec is None:
            plans = tuple(plan for _, plan in sorted(self._plans.items()))
            self._spec = PipelineSpec(
                self.config, plans, frozenset(self._absent), unusable=dict(self._unusable)
            )
        return self._spec

    def serve(self, result: BatchResult) -> None:
        """Do what a batch asked for; a table that this is refused for is unusable.

        Raises:
            RecordError: more new columns than one change may bring.
            RetriableError: the catalog is away, or others change the schema all the time.
        """
        for request in result.table_requests:
            with self._alone(request.table):
                self._add(request)
        for change in result.schema_requests:
            with self._alone(change.table):
                self._widen(change)

    def reload(self, name: str) -> None:
        """Load a table again at once: what it lent may open its store."""
        self._load(name, is_named=name in self.config.tables)

    def give_up(self, name: str, error: Exception) -> None:
        """Refuse a table's records until the tables are loaded again."""
        self._plans.pop(name, None)
        self._unusable[name] = unusable(error)
        self._spec = None
        self._warn(name, "table cannot be written", self._unusable[name])

    def discard(self, result: BatchResult) -> None:
        """Delete files that nobody will announce; what stays is an orphan."""
        for name, files in result.files.items():
            if name in self._tables:
                delete_files(self._tables[name].io, [f.file_path for f in files])

    def close(self) -> None:
        """Let go of the catalog's connections."""
        self.catalog.close()

    def _plan(self, name: str, table: Table) -> TablePlan:
        return TablePlan.of(
            table,
            name=name,
            catalog=self.config.catalog_name,
            io_properties=table_storage(table, self.config.write_properties),
            write_properties=self.config.write_properties,
            changes=self._change_plan(name, table) if self.config.is_row_level else None,
        )

    def _change_plan(self, name: str, table: Table) -> ChangePlan:
        keys = key_columns(table.schema(), self.config.table(name).id_columns, table=name)
        key_ids = tuple(column.field_id for column in keys)
        spec = delete_spec(table, key_ids)
        if spec is None:
            raise InvariantViolation(
                "a table of row-level changes was not prepared for them", table=name
            )
        return ChangePlan(key_ids, spec.model_dump_json())

    def _load(self, name: str, *, is_named: bool) -> None:
        try:
            with self._alone(name):
                self._know(name, self.catalog.load(name.split(".")))
        except CommitRefused as e:  # it is missing
            if is_named and name in self._tables and not self.config.auto_create_enabled:
                log.warning("table gone; its files wait", connector=self.config.name, table=name)
                return
            self._tables.pop(name, None)
            self._plans.pop(name, None)
            self._unusable.pop(name, None)
            self._spec = None
            if self.config.auto_create_enabled:
                return  # the first record for it makes it
            if is_named and not self.config.dynamic_enabled:
                e.message += "; create it, or set iceberg.tables.auto-create-enabled to true"
                raise e.at(connector=self.config.name) from e
            self._absent.add(name)

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Keep what is wrong with a table from stopping the others.

        Raises:
            CommitRefused: ``table_missing``.
            RecordError, RetriableError: not about the table alone.
        """
        try:
            yield
        except UNSUITABLE as error:
            if isinstance(error, CommitRefused) and error.code == "table_missing":
                raise
            if isinstance(error, CommitRefused) and name in self._plans:
                self._warn(name, "table not loaded; it is written as known", unusable(error))
            else:
                self.give_up(name, error)

    def _warn(self, name: str, event: str, what: UnusableTable) -> None:
        if self._warned.get(name) != what:
            self._warned[name] = what
            log.warning(
                event,
                connector=self.config.name,
                table=name,
                code=what.code,
                error=what.message,
            )

    def _know(self, name: str, table: Table) -> None:
        table = self._tables[name] = (
            self._prepared(name, table) if self.config.is_row_level else table
        )
        self._plans.pop(name, None)  # what was known of it does not hold
        plan = self._plan(name, table)
        judge(plan)
        self._plans[name] = plan
        self._unusable.pop(name, None)
        self._spec = None
        unused = ignored(plan.properties)
        if self._warned.pop(name, {}) != unused and unused:
            log.warning(
                "table properties not used", connector=self.config.name, table=name, **unused
            )
        self._warned[name] = unused

    def _prepared(self, name: str, table: Table) -> Table:
        """The table with a partition spec that deletes can be written under."""
        for _ in range(COMMITS_MAX):
            keys = key_columns(table.schema(), self.config.table(name).id_columns, table=name)
            if delete_spec(table, tuple(column.field_id for column in keys)) is not None:
                return table
            try:
                return self.catalog.commit(table, *unpartitioned_spec_added(table))
            except (CommitConflict, CommitStateUnknown) as e:
                log.info("partition spec tried again", table=name, code=e.code)
                table = self.catalog.load(name.split("."))
        raise self._contended("partition specs", name)

    def _add(self, request: TableRequest) -> None:
        name = request.table
        if len(self._tables) >= self.config.max_tables:
            log.warning(
                "table limit reached", connector=self.config.name, limit=self.config.max_tables
            )
            self._absent.add(name)
            self._spec = None
            return
        if request.schema_json is None:
            self._load(name, is_named=False)
            return
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
        table = self.catalog.create(
            name.split("."),
            Schema.model_validate_json(request.schema_json),
            spec,
            request.properties,
            sort_order=order,
            location=request.location,
        )
        self._know(name, table)
        log.info("table created", connector=self.config.name, table=name)

    def _widen(self, request: SchemaRequest) -> None:
        """Change a table's schema; who else changed it meanwhile is taken into account.

        After an unknown outcome the table is looked at as well: what is there need not be made.
        """
        asked = merge(*map(SchemaChanges.from_json, request.changes), config=self.config)
        for _ in range(COMMITS_MAX):
            table = self.catalog.load(request.table.split("."))
            self._know(request.table, table)
            schema, _last_id = apply_changes(table.schema(), asked, table.metadata.last_column_id)
            if schema.as_struct() == table.schema().as_struct():
                return
            try:
                self._know(request.table, self._commit_schema(table, schema))
            except (CommitConflict, CommitStateUnknown) as e:
                log.info("schema change tried again", table=request.table, code=e.code)
            else:
                log.info("schema changed", connector=self.config.name, table=request.table)
                return
        raise self._contended("schema", request.table)

    def _contended(self, what: str, table: str) -> RetriableError:
        return RetriableError(
            f"the table's {what} could not be changed in {COMMITS_MAX} tries",
            code="schema_contended",
            connector=self.config.name,
            table=table,
        )

    def _commit_schema(self, table: Table, schema: Schema) -> Table:
        metadata = table.metadata
        added = Schema(
            *schema.fields,
            schema_id=max(known.schema_id for known in metadata.schemas) + 1,
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
        return self.catalog.commit(table, requirements, updates)

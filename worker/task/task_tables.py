"""The tables of one task, as its driver knows them: loaded, created and changed by the catalog.

Rules of this file:
- What is known of a table may be old. Files for an older schema or partition spec stay valid. The
  coordinator refuses files of a table that was replaced.
- A table of the configuration that is dropped later keeps its plan: its files wait with the
  coordinator, which reports them, and the other tables continue.
- A table that is missing at the start is an error if the configuration names it. If a record names
  it, the record is unmatched. With auto-create the first record for it creates it.
- A failure of one table stops no other table. A known table that cannot be loaded is written as it
  was known. An unusable table refuses its records until the next refresh; ``errors.tolerance``
  decides about them.
- Usability is checked without opening a file. Only a write shows whether a store accepts files.
- Other tasks and other writers create and change tables at the same time. Their change is loaded,
  and the difference is computed again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import structlog
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import parse_mapping_from_json

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import (
    CommitConflict,
    CommitRefused,
    CommitStateUnknown,
    ConfigError,
    IcefloeError,
    InvariantViolation,
    RetriableError,
)
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.catalog.table_properties import ignored
from connect.gateways.storage.guarded_io import table_storage
from connect.gateways.storage.object_store import delete_files
from connect.records.conversion.row_converter import NAME_MAPPING_PROPERTY
from connect.records.row_operations import key_columns
from connect.records.tables.delete_specs import delete_spec, unpartitioned_spec_added
from connect.records.tables.schema_changes import SchemaChanges, apply_changes, merge
from worker.batch.descriptors import BatchResult, SchemaRequest, TableRequest
from worker.batch.pipeline_spec import ChangePlan, PipelineSpec, TablePlan, UnusableTable
from worker.task.table_loads import TableLoads
from worker.task.table_updates import commit_schema, create_table
from worker.write.table_writer import TableWriter

REFRESH_MS = 60_000
COMMITS_MAX = 10
UNUSABLE: Final = "table_unusable"
UNSUITABLE: Final = (
    CommitRefused,
    ConfigError,
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
)
"""Errors that libraries raise for a table's metadata and properties when they plan its files."""
_MESSAGE_CHARACTERS_MAX: Final = 500

log = structlog.get_logger("worker.tables")


@dataclass(slots=True)
class TaskTables:
    """Tables of one task.

    Args:
        config: the connector, placeholders resolved.
        catalog: loads and changes the tables; closed by ``close``.
        clock: for the age of loaded tables.
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
    _loads: TableLoads = field(init=False)

    def __post_init__(self) -> None:
        self._loads = TableLoads(self.catalog)

    def refresh(self) -> None:
        """Load all tables again when the last load is old.

        Raises:
            CommitRefused: a table of the configuration is missing, or none of them may be read.
            ConfigError: no table of the configuration can be written.
            RetriableError: the catalog does not answer.
        """
        now_ms = self.clock.monotonic_ms()
        if self._loaded_ms is not None and now_ms - self._loaded_ms < REFRESH_MS:
            return
        self._absent.clear()
        names = sorted({*self.config.tables, *self._tables, *self._unusable})
        with self._loads.many(names) as loads:
            for name in names:
                self._load(name, is_named=name in self.config.tables, load=loads[name])
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
        """Whether every table of the configuration is known, and at least one table is usable."""
        known = self._plans.keys() | self._unusable.keys()
        return bool(self._plans) and all(name in known for name in self.config.tables)

    def spec(self) -> PipelineSpec:
        """Return what the pipeline needs to know of the tables; errors as ``refresh``."""
        if self._loaded_ms is None:
            self.refresh()
        if self._spec is None:
            plans = tuple(plan for _, plan in sorted(self._plans.items()))
            self._spec = PipelineSpec(
                self.config, plans, frozenset(self._absent), unusable=dict(self._unusable)
            )
        return self._spec

    def apply_requests(self, result: BatchResult) -> None:
        """Create and change tables as a batch requested; a table that refuses becomes unusable.

        Raises:
            RecordError: a change has too many new columns.
            RetriableError: the catalog does not answer, or other writers keep changing the schema.
        """
        for request in result.table_requests:
            with self._isolated(request.table):
                self._add(request)
        for change in result.schema_requests:
            with self._isolated(change.table):
                self._widen(change)

    def reload(self, name: str) -> None:
        """Load a table again at once: it may bring new credentials for its store."""
        self._load(name, is_named=name in self.config.tables)

    def mark_unusable(self, name: str, error: Exception) -> None:
        """Refuse a table's records until the tables are loaded again."""
        self._plans.pop(name, None)
        self._unusable[name] = refusal_of(error)
        self._spec = None
        self._warn(name, "table cannot be written", self._unusable[name])

    def discard(self, result: BatchResult) -> None:
        """Delete files that will not be announced; those that remain are orphans."""
        for name, files in result.files.items():
            if name in self._tables:
                delete_files(self._tables[name].io, [f.file_path for f in files])

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._loads.close()
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
                "a table for row-level changes has no partition spec for deletes", table=name
            )
        return ChangePlan(key_ids, spec.model_dump_json())

    def _load(self, name: str, *, is_named: bool, load: Callable[[], Table] | None = None) -> None:
        try:
            with self._isolated(name):
                self._remember(name, load() if load is not None else self._loads.one(name))
        except CommitRefused as e:  # only ``table_missing`` arrives
            if is_named and name in self._tables and not self.config.auto_create_enabled:
                log.warning("table missing, its files wait", connector=self.config.name, table=name)
                return
            self._tables.pop(name, None)
            self._plans.pop(name, None)
            self._unusable.pop(name, None)
            self._spec = None
            if self.config.auto_create_enabled:
                return  # the first record for it creates it
            if is_named and not self.config.dynamic_enabled:
                e.message += "; create it, or set iceberg.tables.auto-create-enabled to true"
                raise e.at(connector=self.config.name) from e
            self._absent.add(name)

    @contextlib.contextmanager
    def _isolated(self, name: str) -> Iterator[None]:
        """Keep a failure of one table from the other tables.

        Raises:
            CommitRefused: ``table_missing``.
            RecordError, RetriableError: they concern more than this table.
        """
        try:
            yield
        except UNSUITABLE as error:
            if isinstance(error, CommitRefused) and error.code == "table_missing":
                raise
            if isinstance(error, CommitRefused) and name in self._plans:
                self._warn(
                    name, "table not loaded, its last known state is used", refusal_of(error)
                )
            else:
                self.mark_unusable(name, error)

    def _warn(self, name: str, event: str, refusal: UnusableTable) -> None:
        if self._warned.get(name) != refusal:
            self._warned[name] = refusal
            log.warning(
                event,
                connector=self.config.name,
                table=name,
                code=refusal.code,
                error=refusal.message,
            )

    def _remember(self, name: str, table: Table) -> None:
        table = self._tables[name] = (
            self._prepared(name, table) if self.config.is_row_level else table
        )
        self._plans.pop(name, None)  # the old plan is invalid, also if the next line fails
        plan = self._plan(name, table)
        check_usable(plan)
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
        """Return the table with a partition spec that delete files can use."""
        for _ in range(COMMITS_MAX):
            keys = key_columns(table.schema(), self.config.table(name).id_columns, table=name)
            if delete_spec(table, tuple(column.field_id for column in keys)) is not None:
                return table
            try:
                return self.catalog.commit(table, *unpartitioned_spec_added(table))
            except (CommitConflict, CommitStateUnknown) as e:
                log.info("partition spec change repeated", table=name, code=e.code)
                table = self._loads.one(name)
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
        table = create_table(self.catalog, request)
        self._remember(name, table)
        log.info("table created", connector=self.config.name, table=name)

    def _widen(self, request: SchemaRequest) -> None:
        """Change a table's schema; changes by other writers are loaded first.

        After an unknown outcome the table is loaded again: columns that exist need no change.
        """
        requested = merge(*map(SchemaChanges.from_json, request.changes), config=self.config)
        for _ in range(COMMITS_MAX):
            table = self._loads.one(request.table)
            self._remember(request.table, table)
            schema, _ = apply_changes(table.schema(), requested, table.metadata.last_column_id)
            if schema.as_struct() == table.schema().as_struct():
                return
            try:
                self._remember(request.table, commit_schema(self.catalog, table, schema))
            except (CommitConflict, CommitStateUnknown) as e:
                log.info("schema change repeated", table=request.table, code=e.code)
            else:
                log.info("schema changed", connector=self.config.name, table=request.table)
                return
        raise self._contended("schema", request.table)

    def _contended(self, part: str, table: str) -> RetriableError:
        return RetriableError(
            f"the table's {part} could not be changed in {COMMITS_MAX} attempts",
            code="schema_contended",
            connector=self.config.name,
            table=table,
        )


def check_usable(plan: TablePlan) -> None:
    """Do what an executor does with a table before its first record.

    Raises:
        ConfigError: ``table_property``: the table's name mapping cannot be parsed.
        Exception: one of ``UNSUITABLE``.
    """
    TableWriter(plan, lambda: "")
    mapping = plan.properties.get(NAME_MAPPING_PROPERTY)
    try:
        parse_mapping_from_json(mapping) if mapping else None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"table property {NAME_MAPPING_PROPERTY} is not a name mapping", code="table_property"
        ) from error


def refusal_of(error: Exception) -> UnusableTable:
    """Return code and message with which records of an unusable table are refused."""
    if isinstance(error, IcefloeError):
        return UnusableTable(error.code, error.message)
    text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS_MAX]
    return UnusableTable(UNUSABLE, f"{type(error).__name__}: {text}")

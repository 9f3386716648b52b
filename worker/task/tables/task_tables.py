"""The tables of one task, as its driver knows them: loaded, created and changed by the catalog.

Rules of this file:
- What is known of a table may be old. Files for an older schema or partition spec stay valid. The
  coordinator refuses files of a table that was replaced.
- Tables without rows are not loaded again. So a batch may write to a table that was not loaded for
  long: the table is then loaded after the batch, which runs again if the table has changed.
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
- Only tables with rows since their last load are loaded again. A task that knows a thousand tables
  and writes to three of them loads three.
- Many tables are loaded at the same time: a catalog may take a tenth of a second for each.
- The threads are kept, because a REST catalog has a client for each thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
from pyiceberg.table import Table

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import (
    CommitConflict,
    CommitRefused,
    CommitStateUnknown,
    ConfigError,
)
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.catalog.table_properties import ignored
from connect.gateways.storage.object_store import delete_files
from connect.records.tables.schema_changes import SchemaChanges, apply_changes, merge
from control_schemas.events import TableReference
from worker.batch.descriptors import BatchResult, SchemaRequest, TableRequest
from worker.batch.pipeline_spec import PipelineSpec, TablePlan, UnusableTable
from worker.task.tables.table_plans import check_usable, plan_of, refusal_of, without_credentials
from worker.task.tables.table_updates import (
    COMMITS_MAX,
    commit_schema,
    contended,
    create_table,
    with_delete_spec,
)

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

REFRESH_MS: Final = 60_000
LOADS_MAX: Final = 8
"""Tables that are loaded at the same time. So many, or fewer, are loaded one after the other."""

log = structlog.get_logger("worker.tables")


@dataclass(slots=True)
class TableAges:
    """When tables were loaded, and which of them got rows since.

    Args:
        clock: monotonic.
    """

    clock: Clock
    _loaded_ms: dict[str, int] = field(default_factory=dict, init=False)
    _used: set[str] = field(default_factory=set, init=False)

    def loaded(self, name: str) -> None:
        """A table was loaded, or found missing."""
        self._loaded_ms[name] = self.clock.monotonic_ms()
        self._used.discard(name)

    def forget(self, names: Iterable[str]) -> None:
        """Some tables are not known any more; records may name any number of missing tables."""
        for name in names:
            self._loaded_ms.pop(name, None)
            self._used.discard(name)

    def used(self, names: Iterable[str]) -> None:
        """A batch has rows for these tables."""
        self._used.update(names)

    def old(self, names: Iterable[str]) -> list[str]:
        """Return those of some tables that were not loaded for ``REFRESH_MS``, by name.

        The time of a table that was never loaded begins now.
        """
        now_ms = self.clock.monotonic_ms()
        since_ms = self._loaded_ms.setdefault
        return sorted(n for n in names if now_ms - since_ms(n, now_ms) >= REFRESH_MS)

    def due(self) -> list[str]:
        """Return old tables that got rows since their last load, by name."""
        return self.old(self._used)


class TableLoads:
    """Loads tables of one catalog.

    Args:
        catalog: where the tables are.
    """

    def __init__(self, catalog: CatalogGateway) -> None:
        self._catalog = catalog
        self._threads = ThreadPoolExecutor(LOADS_MAX, "load-table")

    def one(self, name: str) -> Table:
        """Load the table ``namespace.table``; errors as ``CatalogGateway.load``."""
        return self._catalog.load(name.split("."), with_history=False)

    @contextlib.contextmanager
    def many(self, names: Sequence[str]) -> Iterator[Mapping[str, Callable[[], Table]]]:
        """Begin to load tables; each call returns one, or raises as ``one``."""
        with self.together({name: partial(self.one, name) for name in names}) as loads:
            yield loads

    @contextlib.contextmanager
    def together(
        self, work: Mapping[str, Callable[[], Table]]
    ) -> Iterator[Mapping[str, Callable[[], Table]]]:
        """Begin to load or make tables; each call returns the table of a name, or its error."""
        if len(work) <= LOADS_MAX:
            yield work
            return
        futures = {name: self._threads.submit(call) for name, call in work.items()}
        try:
            yield {name: future.result for name, future in futures.items()}
        finally:
            for future in futures.values():
                future.cancel()  # after an error the others are not needed

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(cancel_futures=True)


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
    _absent: dict[str, bool] = field(default_factory=dict, init=False)  # is it created?
    _unusable: dict[str, UnusableTable] = field(default_factory=dict, init=False)
    _warned: dict[str, object] = field(default_factory=dict, init=False)
    _spec: PipelineSpec | None = field(default=None, init=False)
    _loads: TableLoads = field(init=False)
    _ages: TableAges = field(init=False)
    _is_loaded: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._loads = TableLoads(self.catalog)
        self._ages = TableAges(self.clock)

    def refresh(self) -> None:
        """Load the tables of the configuration once, and used tables again when they are old.

        Raises:
            CommitRefused: a table of the configuration is missing, or none of them may be read.
            ConfigError: no table of the configuration can be written.
            RetriableError: the catalog does not answer.
        """
        if self._is_loaded:
            refused = self._ages.old(self._unusable)  # no file shows that they have records
            self._forget_absent()
            self._load_all(sorted({*self._ages.due(), *refused}))
        else:
            self._load_all(sorted(self.config.tables))
        named = self.config.tables
        if named and not self.config.dynamic_enabled and all(n in self._unusable for n in named):
            first = self._unusable[named[0]]
            message = f"no table of the connector can be written: {first.message}"
            raise ConfigError(message, code=first.code, connector=self.config.name, table=named[0])
        self._is_loaded = True

    def confirm(self, names: Collection[str]) -> bool:
        """Note the tables that a batch wrote to, and load those that were not loaded for long.

        Returns:
            Whether they are as the batch knew them. Otherwise it must run again.

        Raises:
            CommitRefused, RetriableError: as ``refresh``.
        """
        old = self._ages.old(names)
        before = [without_credentials(self._plans.get(name)) for name in old]
        self._load_all(old)
        self._ages.used(names)
        return before == [without_credentials(self._plans.get(name)) for name in old]

    @property
    def are_known(self) -> bool:
        """Whether every table of the configuration is known, and at least one table is usable."""
        known = self._plans.keys() | self._unusable.keys()
        return bool(self._plans) and all(name in known for name in self.config.tables)

    def spec(self) -> PipelineSpec:
        """Return what the pipeline needs to know of the tables; errors as ``refresh``."""
        if not self._is_loaded:
            self.refresh()
        if self._spec is None:
            plans = tuple(plan for _, plan in sorted(self._plans.items()))
            absent, unusable = frozenset(self._absent), dict(self._unusable)
            new = frozenset(filter(self._absent.get, self._absent))
            self._spec = PipelineSpec(self.config, plans, absent, unusable=unusable, missing=new)
        return self._spec

    def apply_requests(self, result: BatchResult) -> None:
        """Create and change tables as a batch requested; a table that refuses becomes unusable.

        Raises:
            RecordError: a change has too many new columns.
            RetriableError: the catalog does not answer, or other writers keep changing the schema.
        """
        self._add_all(result.table_requests)
        for change in result.schema_requests:
            with self._isolated(change.table):
                self._widen(change)

    def reload(self, name: str) -> None:
        """Load a table, and all old ones, at once: they may bring new credentials for stores."""
        self._load_all(sorted({name, *self._ages.old(self._plans)}))

    def reference(self, name: str) -> TableReference:
        """Return the identity of a known table."""
        return self._plans[name].reference

    def mark_unusable(self, name: str, error: Exception) -> None:
        """Refuse a table's records until the tables are loaded again."""
        self._plans.pop(name, None)
        self._unusable[name] = refusal_of(error)
        self._spec = None
        self._ages.loaded(name)
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

    def _load_all(self, names: Sequence[str]) -> None:
        with self._loads.many(names) as loads:
            for name in names:
                self._load(name, loads[name], is_named=name in self.config.tables)

    def _load(self, name: str, load: Callable[[], Table], *, is_named: bool) -> None:
        try:
            with self._isolated(name):
                self._remember(name, load())
        except CommitRefused as e:  # only ``table_missing`` arrives
            self._ages.loaded(name)
            if is_named and name in self._tables and not self.config.auto_create_enabled:
                log.warning("table missing, its files wait", connector=self.config.name, table=name)
                return
            self._tables.pop(name, None)
            self._plans.pop(name, None)
            self._unusable.pop(name, None)
            self._spec = None
            is_new = self.config.auto_create_enabled  # the first record for it creates it
            if is_named and not is_new and not self.config.dynamic_enabled:
                e.message += "; create it, or set iceberg.tables.auto-create-enabled to true"
                raise e.at(connector=self.config.name) from e
            self._absent[name] = is_new

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
                self._ages.loaded(name)
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
        if self.config.is_row_level:
            load = partial(self._loads.one, name)
            table = with_delete_spec(self.catalog, self.config, name, table, load)
        self._tables[name] = table
        self._plans.pop(name, None)  # the old plan is invalid, also if the next line fails
        plan = plan_of(table, name, self.config, self._plans.values())
        check_usable(plan)
        self._plans[name] = plan
        self._absent.pop(name, None)
        self._unusable.pop(name, None)
        self._spec = None
        self._ages.loaded(name)
        unused = ignored(plan.properties)
        if self._warned.pop(name, {}) != unused and unused:
            log.warning(
                "table properties not used", connector=self.config.name, table=name, **unused
            )
        self._warned[name] = unused

    def _add_all(self, requests: Sequence[TableRequest]) -> None:
        """Load or create the requested tables, as many as the connector may have."""
        while requests and (room := self.config.max_tables - len(self._tables)) > 0:
            chosen, requests = requests[:room], requests[room:]
            made = {
                request.table: _made_by(self.catalog, self._loads, request) for request in chosen
            }
            with self._loads.together(made) as tables:
                for request in chosen:
                    with self._isolated(request.table):
                        self._add(request, tables[request.table])
        if requests:
            limit = self.config.max_tables
            log.warning("table limit reached", connector=self.config.name, limit=limit)
            self._absent.update((request.table, False) for request in requests)
            self._spec = None

    def _add(self, request: TableRequest, made: Callable[[], Table]) -> None:
        name = request.table
        if request.schema_json is None:
            self._load(name, made, is_named=False)
        else:
            self._remember(name, made())
            log.info("table created", connector=self.config.name, table=name)

    def _forget_absent(self) -> None:
        """Let records request tables again that were missing a minute ago."""
        if gone := self._ages.old(self._absent):
            self._absent = {n: new for n, new in self._absent.items() if n not in gone}
            self._ages.forget(gone)
            self._spec = None

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
        raise contended("schema", self.config.name, request.table)


def _made_by(
    catalog: CatalogGateway, loads: TableLoads, request: TableRequest
) -> Callable[[], Table]:
    """Return what loads or creates a requested table."""
    if request.schema_json is None:
        return partial(loads.one, request.table)
    return partial(create_table, catalog, request)

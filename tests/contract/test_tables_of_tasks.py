"""A task's view of its tables while others drop and make them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from connect.clock import SystemClock
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from tests.differential.support import config
from tests.support.fakes.rest_catalog import MemoryCatalogServer
from tests.support.tables import connector
from worker.batch.descriptors import BatchResult, TableRequest
from worker.task.tables.table_updates import commit_schema
from worker.task.tables.task_tables import LOADS_MAX, REFRESH_MS, TaskTables

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


class ShiftedClock(SystemClock):
    """A clock that a test moves."""

    skipped_ms = 0

    def monotonic_ms(self) -> int:
        """The machine's, and what was skipped."""
        return super().monotonic_ms() + self.skipped_ms


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> Iterator[CatalogGateway]:
    """SQLite and a local folder."""
    opened = open_catalog("iceberg", sql_catalog_properties)
    yield opened
    opened.close()


def _tables(catalog: CatalogGateway, clock: ShiftedClock, **settings: str) -> TaskTables:
    config = connector("c", ["db.a", "db.b"], **settings)
    return TaskTables(config, catalog, clock)


def _drop(properties: dict[str, str], *identifier: str) -> None:
    given = {k: v for k, v in properties.items() if k != "type"}
    SqlCatalog("iceberg", **given).drop_table(identifier)


class MeetingCatalog(CatalogGateway):
    """A catalog whose loads wait until so many are under way, and which notes their kind."""

    meeting: threading.Barrier
    histories: list[bool]

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """Wait for the others, then load."""
        self.histories.append(with_history)
        self.meeting.wait(60)
        return super().load(identifier, with_history=with_history)


def test_many_tables_are_loaded_at_the_same_time(catalog: CatalogGateway) -> None:
    """And without their old snapshots, which a task does not need."""
    names = [f"db.t{n}" for n in range(2 * LOADS_MAX)]
    for name in names:
        catalog.create(tuple(name.split(".")), SCHEMA)
    meeting = MeetingCatalog(catalog.name, catalog.config)
    meeting.meeting, meeting.histories = threading.Barrier(LOADS_MAX), []
    tables = TaskTables(connector("c", names), meeting, ShiftedClock())
    tables.refresh()
    assert [plan.name for plan in tables.spec().tables] == sorted(names)
    assert meeting.histories == [False] * len(names)
    tables.close()


def test_a_dropped_table_stops_no_other_table(
    catalog: CatalogGateway, sql_catalog_properties: dict[str, str]
) -> None:
    """A running task keeps the table in its plan; a task that starts without it fails."""
    for name in ("a", "b"):
        catalog.create(("db", name), SCHEMA)
    clock = ShiftedClock()
    tables = _tables(catalog, clock)
    before = [plan.reference for plan in tables.spec().tables]
    tables.confirm(["db.b"])
    _drop(sql_catalog_properties, "db", "b")
    clock.skipped_ms = REFRESH_MS + 1
    tables.refresh()
    assert [plan.reference for plan in tables.spec().tables] == before
    with pytest.raises(CommitRefused) as e:
        _tables(catalog, clock).spec()
    assert e.value.code == "table_missing"
    assert e.value.coordinates["table"] == "db.b"


def test_a_dropped_table_leaves_the_plan_with_auto_create(
    catalog: CatalogGateway, sql_catalog_properties: dict[str, str]
) -> None:
    """With auto-create the table is unknown until a record needs it."""
    for name in ("a", "b"):
        catalog.create(("db", name), SCHEMA)
    clock = ShiftedClock()
    tables = _tables(catalog, clock, iceberg__tables__auto_create_enabled="true")
    tables.refresh()
    tables.confirm(["db.b"])
    _drop(sql_catalog_properties, "db", "b")
    clock.skipped_ms = REFRESH_MS + 1
    tables.refresh()
    assert [plan.name for plan in tables.spec().tables] == ["db.a"]


def test_several_tasks_may_create_one_namespace(
    sql_catalog_properties: dict[str, str], catalog: CatalogGateway
) -> None:
    """At the same time; each gets its table without an error."""
    del catalog
    failed: list[BaseException] = []
    line = threading.Barrier(8)

    def create(number: int) -> None:
        own = open_catalog("iceberg", sql_catalog_properties)
        try:
            line.wait()
            own.create(("deep", "down", f"t{number}"), SCHEMA)
        except BaseException as e:
            failed.append(e)
        finally:
            own.close()

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


class CountedCatalog(CatalogGateway):
    """Notes which tables are loaded."""

    loaded: list[str]

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """Note the table, then load it."""
        self.loaded.append(".".join(identifier))
        return super().load(identifier, with_history=with_history)


@pytest.fixture
def counted(catalog: CatalogGateway) -> CountedCatalog:
    """A catalog with forty tables, which notes what is loaded."""
    gateway = CountedCatalog(catalog.name, catalog.config)
    for name in NAMES:
        catalog.create(tuple(name.split(".")), SCHEMA)
    gateway.loaded = []
    return gateway


NAMES = [f"db.t{number:02d}" for number in range(40)]


def test_only_tables_with_rows_are_loaded_again(counted: CountedCatalog) -> None:
    """All tables once, then those that a batch wrote to, once they are old."""
    clock = ShiftedClock()
    tables = TaskTables(connector("c", NAMES), counted, clock)
    tables.refresh()
    assert sorted(counted.loaded) == NAMES
    spec = tables.spec()
    counted.loaded.clear()
    for _ in range(3):
        tables.refresh()
        assert tables.confirm(["db.t05", "db.t07"])
    assert counted.loaded == []
    assert tables.spec() is spec
    clock.skipped_ms += REFRESH_MS
    tables.refresh()
    assert counted.loaded == ["db.t05", "db.t07"]
    clock.skipped_ms += REFRESH_MS
    tables.refresh()  # no rows since
    assert counted.loaded == ["db.t05", "db.t07"]
    assert tables.confirm(["db.t05", "db.t30"])  # rows for tables that are old
    assert counted.loaded == ["db.t05", "db.t07", "db.t05", "db.t30"]
    tables.close()


def test_missing_tables_that_records_name_are_forgotten(catalog: CatalogGateway) -> None:
    """Records can name any number of them over the years."""
    catalog.create(("db", "a"), SCHEMA)
    clock = ShiftedClock()
    keys = {"iceberg__tables__dynamic_enabled": "true", "iceberg__tables__route_field": "table"}
    tables = TaskTables(connector("c", [], **keys), catalog, clock)
    tables.apply_requests(BatchResult(table_requests=(TableRequest("db.a"),)))
    for number in range(5):
        tables.refresh()
        name = f"db.missing{number}"
        requests = (TableRequest(name),)
        tables.apply_requests(BatchResult(table_requests=requests))
        assert name in tables.spec().absent
        clock.skipped_ms += REFRESH_MS
    tables.refresh()
    assert not tables.spec().absent
    assert set(tables._ages._loaded_ms) == {"db.a"}
    tables.close()


def test_the_threads_of_queries_share_clients_of_a_rest_catalog(tmp_path: Path) -> None:
    """Each query has a thread of its own, which loads tables that were not loaded for long."""
    server = MemoryCatalogServer(f"file://{tmp_path}/warehouse")
    server.start()
    with closing(server), closing(open_catalog("iceberg", server.properties)) as gateway:
        gateway.create(("db", "a"), SCHEMA)
        clients: set[int] = set()

        def load() -> None:
            gateway.load(("db", "a"))
            clients.add(id(gateway._client()))

        for _ in range(5):
            thread = threading.Thread(target=load)
            thread.start()
            thread.join()
        assert len(clients) == 1
        meeting = threading.Barrier(3)

        def meet() -> None:
            load()
            meeting.wait(60)

        threads = [threading.Thread(target=meet) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(clients) == 3  # threads that run never share one


def test_a_batch_for_a_table_that_changed_meanwhile_runs_again(
    counted: CountedCatalog, catalog: CatalogGateway
) -> None:
    """Its table was not loaded for long, as it had no rows; other tables do not matter."""
    clock = ShiftedClock()
    tables = TaskTables(connector("c", NAMES), counted, clock)
    tables.refresh()
    for name in ("db.t01", "db.t02"):
        table = catalog.load(name.split("."))
        wider = Schema(*SCHEMA.fields, NestedField(2, "more", LongType(), required=False))
        commit_schema(catalog, table, wider)
    assert tables.confirm(["db.t01"])  # it was loaded a moment ago
    clock.skipped_ms = REFRESH_MS
    assert tables.confirm(["db.t03"])
    assert not tables.confirm(["db.t02", "db.t03"])
    assert tables.confirm(["db.t02", "db.t03"])
    columns = {plan.name: len(plan.schema.fields) for plan in tables.spec().tables}
    assert columns["db.t02"] == 2
    tables.close()


def test_credentials_of_all_old_tables_are_renewed_after_a_refusal(counted: CountedCatalog) -> None:
    """They may have ended together: a batch must not run once for each of them."""
    clock = ShiftedClock()
    tables = TaskTables(connector("c", NAMES), counted, clock)
    tables.refresh()
    counted.loaded.clear()
    tables.reload("db.t01")
    assert counted.loaded == ["db.t01"]
    clock.skipped_ms = REFRESH_MS
    counted.loaded.clear()
    tables.reload("db.t01")
    assert sorted(counted.loaded) == NAMES
    tables.close()


def test_requested_tables_are_loaded_at_the_same_time(counted: CountedCatalog) -> None:
    """A first batch for many tables does not wait for one after the other."""
    meeting = MeetingCatalog(counted.name, counted.config)
    meeting.meeting, meeting.histories = threading.Barrier(LOADS_MAX), []
    more = {"iceberg.tables": None, "iceberg.tables.name-template": "db.${id}"}
    tables = TaskTables(config(**more), meeting, ShiftedClock())
    requests = tuple(TableRequest(name) for name in NAMES)
    tables.apply_requests(BatchResult(table_requests=requests))
    assert [plan.name for plan in tables.spec().tables] == NAMES
    tables.close()


def test_a_plan_that_many_tables_share_is_sent_once(catalog: CatalogGateway) -> None:
    """The schema and the partition spec of equal tables are one text for Spark."""
    wide = Schema(*(NestedField(i, f"c{i}", StringType(), required=False) for i in range(1, 51)))
    tables = TaskTables(config(**{"iceberg.tables": "db.a,db.b"}), catalog, SystemClock())
    for name in ("a", "b"):
        catalog.create(("db", name), wide)
    first, second = tables.spec().tables
    assert first.schema_json is second.schema_json
    assert first.spec_json is second.spec_json
    assert first.io_properties is second.io_properties
    tables.close()

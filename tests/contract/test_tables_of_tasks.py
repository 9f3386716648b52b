"""A task's view of its tables while others drop and make them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from connect.clock import SystemClock
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from tests.support.tables import connector
from worker.task.table_ages import REFRESH_MS
from worker.task.table_loads import LOADS_MAX
from worker.task.task_tables import TaskTables

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

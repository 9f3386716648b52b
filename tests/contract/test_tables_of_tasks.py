"""A task's view of its tables while others drop and make them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.clock import SystemClock
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from tests.support.tables import connector
from worker.task.task_tables import REFRESH_MS, TaskTables

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


def test_a_dropped_table_stops_no_other_table(
    catalog: CatalogGateway, sql_catalog_properties: dict[str, str]
) -> None:
    """A running task keeps the table in its plan; a task that starts without it fails."""
    for name in ("a", "b"):
        catalog.create(("db", name), SCHEMA)
    clock = ShiftedClock()
    tables = _tables(catalog, clock)
    before = [plan.reference for plan in tables.spec().tables]
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

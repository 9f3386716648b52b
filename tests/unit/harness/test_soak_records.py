"""The soak finds rows that are lost or doubled, and counts the work of maintenance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionSpec

from connect.gateways.catalog.catalog import open_catalog
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommitted
from tests.faults.soak_records import read_rows, row_differences
from tests.faults.soak_watch import TableWatch, maintained
from tests.support.table_harness import SCHEMA
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    equality_delete,
    reference,
    table_commit,
    written_file,
)

NAME = "db.t"


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    """A catalog in a file."""
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/w"}


@pytest.fixture
def catalog(properties: dict[str, str]) -> Iterator[Catalog]:
    """The table after three upserts, of which the second one repeats a row of the first."""
    gateway = open_catalog("iceberg", properties)
    gateway.create(("db", "t"), SCHEMA, PartitionSpec(), None)
    committer = Committer(gateway, connector("c", [NAME]), QuickClock())
    upserts = ([(1, "a"), (2, "a")], [(2, "b"), (3, "b"), (3, "b")], [(1, "c")])
    for offset, rows in enumerate(upserts):
        table = gateway.load(("db", "t"))
        data = written_file(table, [{"id": key, "name": text} for key, text in rows])
        deletes = [equality_delete(table, key) for key in sorted({key for key, _ in rows})]
        event = announced(reference(table), [data], deletes, offset=offset)
        assert isinstance(committer.commit(table_commit([event])), TableCommitted)
    yield load_catalog("iceberg", **properties)
    gateway.close()


def test_deletes_reach_earlier_rows_only(catalog: Catalog) -> None:
    """A delete applies to rows of older snapshots, not to those that are committed with it."""
    found = read_rows(catalog.load_table(NAME), "name")
    assert found == Counter({(1, "c"): 1, (2, "b"): 1, (3, "b"): 2})


def test_lost_and_doubled_rows_are_counted(catalog: Catalog) -> None:
    """A row twice is as wrong as a row that is missing or stale."""
    found = read_rows(catalog.load_table(NAME), "name")
    wanted = Counter({(1, "a"): 1, (2, "b"): 1, (3, "b"): 1})
    assert row_differences(wanted, found) == {"lost": 1, "twice": 2}
    assert row_differences(found, found) == {"lost": 0, "twice": 0}


def test_the_watch_knows_expired_snapshots(catalog: Catalog, properties: dict[str, str]) -> None:
    """It keeps what it has seen, and compares it with what is left."""
    watch = TableWatch(properties, (NAME,), list)
    table = catalog.load_table(NAME)
    watch.observe(NAME, table)
    first = table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    watch.observe(NAME, catalog.load_table(NAME))
    assert watch.expired[NAME] == 1
    assert (len(watch.snapshots[NAME]), watch.snapshots_max[NAME]) == (3, 3)
    assert watch.files_added[NAME] == 3
    assert watch.files_max[NAME] == 8


def test_what_ends_the_watch_is_raised(properties: dict[str, str]) -> None:
    """A watch that could not read its table has shown nothing."""
    watch = TableWatch(properties, ("db.absent",), list)
    watch.start()
    with pytest.raises(Exception, match=r"db\.absent"):
        watch.stop()


def test_maintenance_is_counted_in_the_logs(tmp_path: Path) -> None:
    """By table, work and outcome; the half line of a killed node counts for nothing."""
    done = {"event": "table maintained", "table": NAME, "work": "manifests", "state": "DONE"}
    failed = {**done, "state": "FAILED", "code": "maintenance_died"}
    log = tmp_path / "node.log"
    lines = [json.dumps(entry) for entry in (done, {"event": "other"}, failed, done)]
    log.write_text("\n".join([*lines, lines[0][:20], "[]", "5"]))
    assert maintained([log]) == {
        (NAME, "manifests", "DONE"): 2,
        (NAME, "manifests", "maintenance_died"): 1,
    }

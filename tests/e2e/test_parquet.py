"""Parquet folders of a running stack: fan-out by day, evolution, dead letters, crashes, preview."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from connect.operations.connector_clients import read_properties
from connect.operations.preview.connector_preview import preview_in_process
from tests.support.armed_points import arm
from tests.support.parquet_folders import of_duckdb
from tests.support.running_stack import RunningStack, numbered
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
# of one connector, one after the other
CRASHES = (("P1", "P2"), pytest.param(("W8",), marks=pytest.mark.faults))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The folder of a connector's tables."""
    return tmp_path / "lake"


def connector(lake: Path, topic: str, **config: str) -> dict[str, str]:
    """A connector of Parquet folders that creates them."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.control.commit.interval-ms": "1000",
        "topics": topic,
        "icefloe.format": "parquet",
        "icefloe.parquet.location": str(lake),
        "iceberg.tables.auto-create-enabled": "true",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in config.items()},
    }


def rows(running: RunningStack, lake: Path, name: str, count: int, who: str) -> list[Any]:
    """Wait until a folder has that many rows; return them as PyArrow reads them, at any moment."""

    def inspect() -> list[Any] | None:
        folder = lake / name
        files = sorted(map(str, folder.rglob("*.parquet"))) if folder.is_dir() else []
        if not files:
            return None
        each = [ds.dataset(file, format="parquet").to_table() for file in files]
        found = pa.concat_tables(each, promote_options="default").to_pylist()
        ids = [row["id"] for row in found if "id" in row]
        assert len(set(ids)) == len(ids), "a reader saw a row twice"
        return found if len(found) >= count else None

    found = running.wait_until(inspect, lambda: f"{count} rows of {name}: {running.status(who)}")
    assert len(found) == count
    return found


def test_records_fan_out_to_folders_by_day_that_grow(running: RunningStack, lake: Path) -> None:
    """Tables are created with partitions of a day and a column, and get columns."""
    name, topic = unique_name("parquet"), running.topic("parquet")
    settings = {
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.tables.route-field": "table",
        "iceberg.tables.default-partition-by": "dt,country",
        "iceberg.tables.evolve-schema-enabled": "true",
    }
    running.create(name, connector(lake, topic) | settings)
    places = ["de", "fr é/ü", "a b%3A", None]
    first = [
        {
            "table": f"db.t{n % 2}",
            "id": n,
            "country": places[n % 4],
            "dt": f"2026-11-{24 + n % 3}",
            "own": {"a": n},
        }
        for n in range(40)
    ]
    running.produce(topic, *first)
    for table in ("t0", "t1"):
        rows(running, lake, f"db/{table}", 20, name)
    more = [
        {**row, "id": row["id"] + 40, "own": {"a": row["id"], "b": "x"}, "tags": ["é"]}
        for row in first
    ]
    running.produce(topic, *more)
    for table in ("t0", "t1"):
        rows(running, lake, f"db/{table}", 40, name)
        read = of_duckdb(lake / "db" / table, "id, country, dt::varchar, own.a, own.b, tags")
        wanted = [row for row in first + more if row["table"] == f"db.{table}"]
        assert sorted(read) == sorted(
            (r["id"], r["country"], r["dt"], r["own"]["a"], r["own"].get("b"), r.get("tags"))
            for r in wanted
        )
        assert (lake / "db" / table / "dt=2026-11-24").is_dir()
    running.delete(name)


def test_bad_records_become_dead_letters(running: RunningStack, lake: Path) -> None:
    """In a topic, and in a Parquet folder: wrong types, names that not all readers know."""
    name, topic = unique_name("parquet-dlq"), running.topic("parquet-dlq")
    letters = running.topic("letters")
    settings = {
        "iceberg.tables": "db.events",
        "iceberg.tables.evolve-schema-enabled": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.max-ratio": "1",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.table": "db.letters",
    }
    running.create(name, connector(lake, topic) | settings)
    running.produce(topic, *numbered(0, 10))
    rows(running, lake, "db/events", 10, name)
    bad = [{"id": "text", "name": "x"}, b"no json", {"id": 11, "a b": 1}]
    running.produce(topic, *bad, *numbered(20, 5))
    found = rows(running, lake, "db/events", 15, name)
    assert sorted(row["id"] for row in found) == [*range(10), *range(20, 25)]
    stored = rows(running, lake, "db/letters", 3, name)
    assert len(running.records(letters)) == 3
    assert b"no json" in {row["value"] for row in stored}
    running.delete(name)


@pytest.mark.matrix
def test_a_preview_shows_what_is_written(running: RunningStack, lake: Path) -> None:
    """Without a file; operations that need snapshots are refused."""
    name, topic = unique_name("parquet-preview"), running.topic("parquet-preview")
    given = connector(lake, topic, iceberg__tables="db.events")
    given["iceberg.tables.default-partition-by"] = "name"
    running.produce(topic, *numbered(0, 3))
    node = read_properties(running.stack.state_dir / "node.properties", None)
    raw = {"name": name, **given}
    for exists in (False, True):
        report = preview_in_process(raw, node, {}, count=9, start="earliest", timeout_s=120)
        (table,) = report["tables"]
        assert (table["table"], table["exists"], len(table["rows"])) == ("db.events", exists, 3)
        assert lake.exists() is exists
        if not exists:
            running.create(name, given)
            rows(running, lake, "db/events", 3, name)
    running.api.put(f"/connectors/{name}/stop")
    for path, body in (
        ("rewind", {"beginning": True}),
        ("control/rebase", {}),
        ("control/vtts/reset", {"reason": "a test"}),
    ):
        running.wait_until(
            lambda path=path, body=body: (
                "are Parquet folders"
                in running.api.post(f"/icefloe/v1/connectors/{name}/{path}", json=body).text
            ),
            lambda path=path: f"an answer of {path} that names the format",
        )
    running.delete(name)


@pytest.mark.parametrize("points", CRASHES, ids="-".join)
def test_a_crash_loses_and_repeats_no_record(
    running: RunningStack, lake: Path, armed: Path, points: tuple[str, ...]
) -> None:
    """Also of a coordinator that dies between its commit and the publication of the files."""
    name, topic = unique_name("parquet-crash"), running.topic("p-crash", partitions=2)
    running.create(name, connector(lake, topic, iceberg__tables="db.events", tasks__max="2"))
    count = 50
    running.produce(topic, *numbered(0, count))
    rows(running, lake, "db/events", count, name)
    for point in points:
        arm(armed, point, "crash")
        for turn in range(4):
            running.produce(topic, *numbered(count, 50), partition=turn % 2)
            count += 50
        running.wait_until(
            lambda point=point: not (armed / point).exists(),
            lambda point=point: f"a crash at {point}",
        )
        found = rows(running, lake, "db/events", count, name)
        assert sorted(row["id"] for row in found) == list(range(count))
    read = of_duckdb(lake / "db/events", "id")
    assert read == sorted(((n,) for n in range(count)), key=repr)
    running.delete(name)


def test_unsupported_keys_and_operations_are_refused(running: RunningStack, lake: Path) -> None:
    """When the connector is created, and when an operation is asked for."""
    config = connector(lake, "none") | {
        "iceberg.tables": "db.events",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-partition-by": "bucket(id, 4)",
        "iceberg.catalog.uri": "http://catalog",
        "iceberg.catalog.adls.account-name": "a",
        "iceberg.maintenance.expire-snapshots.enabled": "true",
    }
    answer = running.api.post("/connectors", json={"name": "refused", "config": config})
    assert answer.status_code == 400
    text = answer.json()["message"]
    for part in (
        "rows of Parquet folders are only added",
        "Partition term 'bucket(id, 4)'",
        "iceberg.catalog.uri cannot be used",
        "options of the object store are",
        "neither compacted nor expired",
    ):
        assert part in text

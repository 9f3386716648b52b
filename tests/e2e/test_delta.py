"""Delta tables of a running stack: fan-out, evolution, dead letters, and crashes of processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.support.armed_points import arm
from tests.support.delta_tables import delta_duckdb
from tests.support.running_stack import RunningStack, numbered
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
# of one connector, one after the other; the default suite has crashes of upserts. Before a worker's
# transaction no format has a part in it: the worker crashes there in test_outputs.py
CRASHES = [
    pytest.param(("C10", "C12"), marks=pytest.mark.matrix),
    *(pytest.param(points, marks=pytest.mark.faults) for points in (("C7", "C11", "C14"),)),
    *(pytest.param(points, marks=pytest.mark.faults) for points in (("W8", "W4", "W10"),)),
]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The folder of a connector's tables."""
    return tmp_path / "lake"


def connector(lake: Path, topic: str, **config: str) -> dict[str, str]:
    """A connector of Delta tables that creates them."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.control.commit.interval-ms": "1000",
        "topics": topic,
        "icefloe.format": "delta",
        "icefloe.delta.location": str(lake),
        "iceberg.tables.auto-create-enabled": "true",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in config.items()},
    }


def rows(running: RunningStack, lake: Path, name: str, count: int, who: str) -> list[Any]:
    """Wait until a table has that many rows; return them as delta-rs reads them."""

    def inspect() -> list[Any] | None:
        try:
            found = DeltaTable(str(lake / name)).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return None
        return found if len(found) >= count else None

    found = running.wait_until(inspect, lambda: f"{count} rows of {name}: {running.status(who)}")
    assert len(found) == count
    return found


def of_duckdb(lake: Path, name: str, columns: str) -> list[Any]:
    """Rows of a table as DuckDB reads them, sorted."""
    with delta_duckdb() as duck:
        found = duck.execute(f"select {columns} from delta_scan('{lake / name}')").fetchall()
        return sorted(found)


def test_records_fan_out_to_partitioned_tables_that_grow(running: RunningStack, lake: Path) -> None:
    """Tables are created with partitions, and get columns at any depth; files are pruned."""
    name, topic = unique_name("delta"), running.topic("delta")
    settings = {
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.tables.route-field": "table",
        "iceberg.tables.default-partition-by": "country",
        "iceberg.tables.evolve-schema-enabled": "true",
    }
    running.create(name, connector(lake, topic) | settings)
    places = ["de", "fr é/ü", "a b%3A", None]
    first = [
        {"table": f"db.t{n % 2}", "id": n, "country": places[n % 4], "own": {"a": n}}
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
    found = [row for table in ("t0", "t1") for row in rows(running, lake, f"db/{table}", 40, name)]
    expected = [{**row, "tags": None, "own": {**row["own"], "b": None}} for row in first] + more
    assert sorted(found, key=lambda row: row["id"]) == expected
    for table in ("t0", "t1"):
        read = of_duckdb(lake, f"db/{table}", "id, own.a, own.b, country")
        wanted = [r for r in expected if r["table"] == f"db.{table}"]
        assert [row[0] for row in read] == [r["id"] for r in wanted]
        assert [row[3] for row in read] == [r["country"] for r in wanted]
        assert DeltaTable(str(lake / "db" / table)).metadata().partition_columns == ["country"]
    running.delete(name)


def test_bad_records_become_dead_letters(running: RunningStack, lake: Path) -> None:
    """In a topic, and in a Delta table: wrong values, columns that Delta lacks, and no JSON."""
    name, topic = unique_name("delta-dlq"), running.topic("delta-dlq")
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


@pytest.mark.parametrize("points", CRASHES, ids="-".join)
def test_a_crash_loses_and_repeats_no_record(
    running: RunningStack, lake: Path, armed: Path, points: tuple[str, ...]
) -> None:
    """Also of a coordinator that dies between its commit and the answer."""
    name, topic = unique_name("delta-crash"), running.topic("delta-crash", partitions=2)
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
    assert of_duckdb(lake, "db/events", "id") == [(n,) for n in range(count)]
    running.delete(name)


def test_upserts_and_deletes_survive_crashes(
    running: RunningStack, lake: Path, armed: Path
) -> None:
    """By key, also of keys that move to another partition; the coordinator dies at two points."""
    name, topic = unique_name("delta-upsert"), running.topic("delta-upsert", partitions=2)
    settings = {
        "iceberg.tables": "db.accounts",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-partition-by": "region",
        "iceberg.tables.default-id-columns": "id",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
    }
    running.create(name, connector(lake, topic) | settings)
    model: dict[int, tuple[str, int]] = {}

    def wave(number: int) -> None:
        changes = []
        for key in range(40):
            row = {"id": key, "region": ("eu", "us", "ü%")[(key + number) % 3], "n": number}
            value = json.dumps(row).encode()
            if number and key % 7 == number:
                value = None
                model.pop(key, None)
            else:
                model[key] = row["region"], number
            changes.append((key % 2, json.dumps({"id": key}).encode(), value))
        running.produce_keyed(topic, changes)

    def is_current() -> bool:
        try:
            found = DeltaTable(str(lake / "db/accounts")).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return False
        return len(found) == len(model) and all(
            model.get(row["id"]) == (row["region"], row["n"]) for row in found
        )

    for number, point in enumerate(("", "D1", "C11", "")):
        if point:
            arm(armed, point, "crash")
        wave(number)
        running.wait_until(is_current, lambda: f"the rows: {running.status(name)}")
        assert not point or not (armed / point).exists()
    read = of_duckdb(lake, "db/accounts", "id, region, n")
    assert read == sorted((key, *row) for key, row in model.items())
    running.delete(name)


def test_unsupported_keys_are_refused_with_what_to_do(running: RunningStack, lake: Path) -> None:
    """When the connector is created."""
    config = connector(lake, "none") | {
        "iceberg.tables": "db.events",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.write-mode": "merge-on-read",
        "iceberg.tables.default-partition-by": "day(ts)",
        "iceberg.catalog.uri": "http://catalog",
        "iceberg.maintenance.expire-snapshots.enabled": "true",
    }
    answer = running.api.post("/connectors", json={"name": "refused", "config": config})
    assert answer.status_code == 400
    text = answer.json()["message"]
    for part in (
        "Delta tables have no delete files",
        "Partition term 'day(ts)'",
        "iceberg.catalog.uri cannot be used",
        "use OPTIMIZE and VACUUM",
    ):
        assert part in text


def test_every_operation_has_a_clear_answer(
    running: RunningStack, lake: Path, tmp_path: Path
) -> None:
    """Preview and views work; what needs snapshots is refused, and nothing has changed after it."""
    name, topic = unique_name("delta-operations"), running.topic("delta-operations")
    settings = {
        "iceberg.tables": "db.operated",
        "iceberg.tables.evolve-schema-enabled": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.max-ratio": "1",
        "errors.deadletterqueue.topic.name": running.topic("delta-letters"),
    }
    config = connector(lake, topic) | settings
    running.produce(topic, *numbered(0, 5), b"no json")
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"name": name, "config": config}))

    def preview() -> Any:
        status, output = running.icefloe("preview", "-f", str(file), "-o", "json")
        assert status == 1, output  # of the dead letter
        return json.loads(output)

    before = preview()
    assert not (lake / "db").exists()
    assert before["outcomes"] == {"written": 5, "dead letter": 1}
    [table] = before["tables"]
    assert (table["exists"], [column["name"] for column in table["columns"]]) == (
        False,
        ["id", "name"],
    )
    running.create(name, config)
    rows(running, lake, "db/operated", 5, name)
    running.produce(topic, {"id": 9, "name": "x", "more": 1.5})
    found = rows(running, lake, "db/operated", 6, name)
    [table] = preview()["tables"]
    assert table["exists"]
    assert sorted(row["values"]["id"] for row in table["rows"]) == sorted(r["id"] for r in found)
    version = DeltaTable(str(lake / "db/operated")).version()
    # the table has the rows before the node receives the round's report
    running.wait_until(
        lambda: running.counts(name)["records_committed"] == 6, lambda: str(running.counts(name))
    )
    running.wait_until(
        lambda: (
            (listed := running.icefloe("tables", "list", name))[0] == 0
            and f"COMMITTED  snapshot {version}" in listed[1]
        ),
        lambda: str(running.icefloe("tables", "list", name)),
    )
    assert running.icefloe("tables", "orphan-age", name)[0] == 0
    assert running.icefloe("maintenance", "status", name)[0] == 0
    running.stop(name)
    status, output = running.icefloe("offsets", "set", name, "--to-earliest")
    assert "written a second time" in output
    assert "icefloe rewind" not in output
    for arguments in (
        ("rewind", name, "--to-beginning", "--yes"),
        ("control", "rebase", name, "--yes"),
        ("control", "vtts", "reset", name, "--reason", "wrong clock", "--yes"),
        ("audit", name),
        ("catalog", "check", "-f", str(file)),
        ("migrate", "--check", "-f", str(file)),
    ):
        status, output = running.icefloe(*arguments)
        assert status != 0, (arguments, output)
        assert "are Delta tables" in output, (arguments, output)
        assert running.status(name)["connector"]["state"] == "STOPPED"
    running.request_state(name, "resume")
    running.produce(topic, *numbered(20, 3))
    rows(running, lake, "db/operated", 9, name)
    running.delete(name)

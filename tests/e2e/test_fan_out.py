"""Many tables of one connector, many connectors of one node."""

from __future__ import annotations

import pytest

from tests.support.running_stack import RunningStack, duckdb_rows, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
TABLES = 50
CONNECTORS = 10


def test_one_connector_writes_to_fifty_tables(running: RunningStack) -> None:
    """Each record is only in the table whose regex it matches; tables are created."""
    name = unique_name("wide")
    topic = running.topic("wide", partitions=4)
    tables = [f"wide.t{n:02}" for n in range(TABLES)]
    for partition in range(4):
        records = [
            {"id": n, "name": f"t{n % TABLES:02}"} for n in range(TABLES * 8) if n % 4 == partition
        ]
        running.produce(topic, *records, partition=partition)
    routes = {f"iceberg.table.{t}.route-regex": t.removeprefix("wide.") for t in tables}
    config = running.connector(
        topics=topic, iceberg__tables=",".join(tables), iceberg__tables__route_field="name"
    )
    running.create(name, {**config, **routes, "iceberg.tables.auto-create-enabled": "true"})
    for n, table in enumerate(tables):
        rows = running.rows(table, 8, name)
        assert pick(rows, "id") == [(n + TABLES * k,) for k in range(8)]
    assert duckdb_rows(running.catalog.load_table(tables[7]), "id", "name") == [
        (7 + TABLES * k, "t07") for k in range(8)
    ]
    running.wait_until(
        lambda: running.counts(name)["records_committed"] == TABLES * 8,
        lambda: "the committed records to be counted",
    )
    running.delete(name)


def test_ten_connectors_run_on_one_node(running: RunningStack) -> None:
    """Each reads the same topic into its own table; deleting one does not affect the others."""
    topic = running.topic("shared", partitions=2)
    names = [unique_name("one-of-ten") for _ in range(CONNECTORS)]
    first = [{"id": n, "name": "first"} for n in range(20)]
    for partition in range(2):
        running.produce(topic, *first[partition::2], partition=partition)
    for name in names:
        running.table(f"ten.{name}")
        running.create(name, running.connector(topics=topic, iceberg__tables=f"ten.{name}"))
    for name in names:
        assert pick(running.rows(f"ten.{name}", 20, name), "id") == [(n,) for n in range(20)]
        running.wait_until_running(name)
    dropped, *others = names
    running.stop(dropped)  # a deletion is answered when it is stored; until the end it may read on
    running.delete(dropped)
    running.produce(topic, *({"id": n, "name": "second"} for n in range(20, 30)))
    for name in others:
        assert pick(running.rows(f"ten.{name}", 30, name), "id") == [(n,) for n in range(30)]
    assert len(running.catalog.load_table(f"ten.{dropped}").scan().to_arrow()) == 20
    assert set(others) <= set(running.api.get("/connectors").json())
    running.delete(*others)

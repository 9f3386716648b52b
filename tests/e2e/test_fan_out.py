"""Many tables of one connector; many connectors of one node: ``test_many_connectors.py``."""

from __future__ import annotations

import pytest

from tests.support.running_stack import RunningStack, duckdb_rows, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
TABLES = 50


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

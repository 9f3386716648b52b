"""Changes of several tables, distributed by table in the whole product, while processes die."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connect.gateways.kafka.bulk_producer import BulkProducer
from tests.support.armed_points import arm
from tests.support.running_stack import RunningStack, duckdb_rows
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
TABLES = 6
PARTITIONS = 4
EACH = 60_000  # changes of each partition: together more than one Spark task reads
KEYS = 24_000  # of each partition
FIRST_ROWS_MAX = 10_000  # of the first batch, which one Spark task reads
ACCOUNTS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "note", StringType(), required=False),
    identifier_field_ids=[1],
)


def changes(namespace: str, partition: int, rows: list[dict[int, str]]) -> list[bytes]:
    """Changes of the keys of one source partition; applied to the rows of the tables."""
    values = []
    for n in range(EACH):
        key = (n * 7_919 % KEYS) * PARTITIONS + partition
        table = key // PARTITIONS % TABLES
        is_delete = n % 7 == 0
        values.append(
            b'{"id":%d,"target":"%s.t%d","note":"n%d","op":"%s"}'
            % (key, namespace.encode(), table, n, b"d" if is_delete else b"u")
        )
        rows[table].pop(key, None)
        if not is_delete:
            rows[table][key] = f"n{n}"
    return values


@pytest.mark.parametrize("point", [pytest.param("S1", marks=pytest.mark.faults), "S2"])
def test_distributed_changes_survive_the_death_of_a_process(
    running: RunningStack, armed: Path, point: str
) -> None:
    """Each change counts once, in its order; the rows of a table in a batch are one file.

    S1 kills the worker while rows are on their way. S2 kills the Python process of a Spark task
    that writes, and Spark runs that task again with the same rows.
    """
    name = unique_name("spread")
    namespace = name.replace("-", "_")
    topic = running.topic("spread", partitions=PARTITIONS)
    names = [f"{namespace}.t{n}" for n in range(TABLES)]
    for table in names:
        running.table(table, schema=ACCOUNTS)
    rows: list[dict[int, str]] = [{} for _ in names]
    producer = BulkProducer({"bootstrap.servers": running.stack.bootstrap_servers})
    for partition in range(PARTITIONS):
        producer.send(topic, partition, changes(namespace, partition, rows))
    producer.finish(topic)
    arm(armed, point, "crash")
    before = running.child("worker").pid
    config = running.connector(
        topics=topic,
        iceberg__tables__dynamic_enabled="true",
        iceberg__tables__route_field="target",
        iceberg__tables__cdc_field="op",
        iceberg__tables__write_distribution_mode="hash",
    )
    running.create(name, config)
    wanted = [sorted(left.items()) for left in rows]
    read: set[str] = set()

    def has_all() -> bool:
        found = [running.catalog.load_table(table) for table in names]
        if {table.metadata_location for table in found} <= read:
            return False
        if not all(table.current_snapshot() for table in found):
            return False
        read.update(table.metadata_location for table in found)
        return [duckdb_rows(table, "id", "note") for table in found] == wanted

    running.wait_until(has_all, lambda: f"all changes: {running.status(name)}")
    assert not (armed / point).exists()
    assert (running.child("worker").pid == before) == (point == "S2")
    for table in names:
        files = running.catalog.load_table(table).inspect.files().to_pylist()
        large = [f for f in files if not f["content"] and f["record_count"] > FIRST_ROWS_MAX / 2]
        assert len(large) == 1, [f["record_count"] for f in files]
    assert not list(running.stack.state_dir.rglob("passed-*"))
    running.delete(name)

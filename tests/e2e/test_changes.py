"""Row-level changes through the whole product, compared with their replay in SQLite.

``CHANGES`` (default 8,000) and ``CHANGES_SEED`` set the size of the history and its chance.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from connect.gateways.catalog.catalog import open_catalog
from tests.support.running_stack import RunningStack, coordinator_of, duckdb_rows, pick
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import unique_name
from worker.spark.session import Session

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
CHANGES = int(os.environ.get("CHANGES", "8000"))
SEED = int(os.environ.get("CHANGES_SEED", "0"))
KEYS = 500
PARTITIONS = 3
WAVES = 8
FEW = 20
SHARED = int(os.environ.get("SHARED_KEYS", "200000"))
ACCOUNTS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "balance", DoubleType(), required=False),
    identifier_field_ids=[1],
)
# where a key's rows lie: anywhere, in one partition that the key decides, in one it does not
SPECS = {
    "plain": PartitionSpec(),
    "bucket": PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket")),
    "region": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
}
# table property format-version, and write-mode of the connector
MODES = {
    "merge-on-read": ("2", "merge-on-read"),
    "copy-on-write": ("2", "copy-on-write"),
    "copy-on-write-v3": ("3", "copy-on-write"),
    "deletion-vectors": ("3", "merge-on-read"),
}
PLAIN = ("plain", "merge-on-read")
Row = tuple[Any, ...]
Change = tuple[int, bytes, bytes | None]


class ChangeOracle:
    """The oracle: changes in, and the rows they leave, by SQLite."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("create table a (id integer primary key, region text, balance real)")

    def change(self, rng: random.Random, number: int) -> Change:
        """Make up a change, apply it, and give its source partition, key and value."""
        key = rng.randrange(KEYS)
        region = rng.choice(["eu", "us", "ap"])
        raw_key = json.dumps({"id": key}).encode()
        chance = rng.random()
        value: dict[str, Any] | None = {"id": key, "region": region, "balance": number + 0.25}
        if chance < 0.25:
            self._db.execute("delete from a where id = ?", (key,))
            value = None if chance < 0.05 else {"id": key, "change": {"op": "d"}}
        else:
            self._db.execute(
                "insert or replace into a values (?,?,?)", (key, region, number + 0.25)
            )
            assert value is not None
            value["change"] = {"op": "u"}
        return key % PARTITIONS, raw_key, None if value is None else json.dumps(value).encode()

    def rows(self) -> list[Row]:
        """What is left."""
        return sorted(self._db.execute("select id, region, balance from a").fetchall())


def by_duckdb(table: Table) -> list[Row]:
    """The table's rows as DuckDB reads them."""
    return duckdb_rows(table, "id", "region", "balance")


def spark_rows(session: Session, table: Table) -> list[Row]:
    """The table's rows as Spark reads them."""
    frame = session.spark.read.format("iceberg").load(table.metadata_location)
    return sorted(tuple(row) for row in frame.select("id", "region", "balance").collect())


def is_for_duckdb(kind: str, mode: str) -> bool:
    """Whether DuckDB 1.5 reads a table; it misreads equality deletes of a partition."""
    return (kind, mode) != ("bucket", "merge-on-read")


def wait_for(
    running: RunningStack, name: str, wanted: list[Row], read: Callable[[Table], list[Row]]
) -> Table:
    """Wait until a reader gets just these rows; each snapshot is read once."""
    heads: list[int | None] = [None]

    def inspect() -> Table | None:
        table = running.catalog.load_table(name)
        head = table.metadata.current_snapshot_id
        if head in heads:
            return None
        heads.append(head)
        return table if read(table) == wanted else None

    return running.wait_until(inspect, lambda: f"the rows that are left of {name}")


def test_row_level_changes_equal_a_replay(running: RunningStack, spark_session: Session) -> None:
    """Updates, deletes and tombstones of few keys, while worker and coordinator are killed."""
    rng = random.Random(SEED)
    name, topic = unique_name("changes"), running.topic("changes", partitions=PARTITIONS)
    tables = {
        (kind, mode): f"{name.replace('-', '_')}.{kind}_{mode.replace('-', '_')}"
        for kind in SPECS
        for mode in MODES
    }
    gateway = open_catalog("iceberg", running.stack.catalog_properties)
    for (kind, mode), table in tables.items():
        version, _ = MODES[mode]
        properties = {"format-version": version}
        gateway.create(tuple(table.split(".")), ACCOUNTS, SPECS[kind], properties=properties)
    gateway.close()
    modes = {
        f"iceberg.table.{table}.write-mode": MODES[mode][1] for (_, mode), table in tables.items()
    }
    config = running.connector(
        topics=topic,
        iceberg__tables=",".join(tables.values()),
        iceberg__tables__cdc_field="change.op",
        key__converter="org.apache.kafka.connect.json.JsonConverter",
        key__converter__schemas__enable="false",
    )
    running.create(name, {**config, **modes})
    oracle = ChangeOracle()
    victims: dict[int, Callable[[], psutil.Process]] = {
        2: lambda: running.child("worker"),
        5: lambda: coordinator_of(running, name),
    }
    for wave in range(WAVES):
        numbers = range(wave * CHANGES // WAVES, (wave + 1) * CHANGES // WAVES)
        running.produce_keyed(topic, [oracle.change(rng, number) for number in numbers])
        if wave == 0:
            running.wait_until(
                lambda: running.catalog.load_table(tables[PLAIN]).current_snapshot(),
                lambda: f"a first commit: {running.status(name)}",
            )
        if wave in victims:
            victims[wave]().kill()
    readers = {
        key: by_duckdb if is_for_duckdb(*key) else partial(spark_rows, spark_session)
        for key in tables
    }
    for key, table in tables.items():
        wait_for(running, table, oracle.rows(), readers[key])
    # a few keys: data files keep most of their rows, so they have vectors
    running.produce_keyed(topic, [oracle.change(rng, n) for n in range(CHANGES, CHANGES + FEW)])
    wanted = oracle.rows()
    for (kind, mode), table in tables.items():
        loaded = wait_for(running, table, wanted, readers[kind, mode])
        assert spark_rows(spark_session, loaded) == wanted
        head = loaded.current_snapshot()
        assert head is not None
        assert head.summary is not None
        assert head.summary.operation.value in {"overwrite", "delete"}
        has_keys = mode == "merge-on-read"  # equality deletes
        assert (head.summary["total-equality-deletes"] != "0") == has_keys
        assert (head.summary["total-position-deletes"] != "0") == (mode == "deletion-vectors")
        assert not [key for key in head.summary.additional_properties if "not-used" in key]
        if not has_keys:  # PyIceberg reads no table with them
            rows = loaded.scan().to_arrow().to_pylist()
            assert pick(rows, "id", "region", "balance") == wanted
    status, output = running.icefloe("audit", name)
    assert status == 0, output
    assert "rows made by records" in output
    running.delete(name)
    specs = running.catalog.load_table(tables["region", "merge-on-read"]).specs()
    assert [len(spec.fields) for spec in specs.values()] == [1, 0]
    assert len(running.catalog.load_table(tables["bucket", "merge-on-read"]).specs()) == 1


@pytest.mark.matrix
@pytest.mark.parametrize("tasks", ["1", "2"])
def test_a_key_in_two_partitions_has_its_newest_row(
    running: RunningStack, spark_session: Session, tasks: str
) -> None:
    """Two Spark tasks, or two tasks, read the partitions in one round; the later records stay."""
    name, topic = unique_name("shared"), running.topic("shared", partitions=2)
    tables = {mode: f"{name.replace('-', '_')}.{mode.replace('-', '_')}" for mode in MODES}
    gateway = open_catalog("iceberg", running.stack.catalog_properties)
    for mode, table in tables.items():
        version, _ = MODES[mode]
        properties = {"format-version": version}
        gateway.create(tuple(table.split(".")), ACCOUNTS, SPECS["plain"], properties=properties)
    gateway.close()
    for partition, region in ((1, "eu"), (0, "us")):  # those of partition 0 are newer
        padding = "x" * 100  # a small batch would have one Spark task
        rows = ({"id": n, "region": region, "balance": n, "note": padding} for n in range(SHARED))
        running.produce_keyed(
            topic, [(partition, b"%d" % row["id"], json.dumps(row).encode()) for row in rows]
        )
    config = running.connector(
        topics=topic,
        tasks__max=tasks,
        iceberg__tables=",".join(tables.values()),
        iceberg__tables__upsert_mode_enabled="true",
    )
    modes = {f"iceberg.table.{t}.write-mode": MODES[mode][1] for mode, t in tables.items()}
    running.create(name, {**config, **modes})
    wanted = [(n, "us", float(n)) for n in range(SHARED)]
    for table in tables.values():
        loaded = wait_for(running, table, wanted, partial(spark_rows, spark_session))
        assert len(loaded.metadata.snapshots) <= 4
    running.delete(name)

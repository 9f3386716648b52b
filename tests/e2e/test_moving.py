"""Moving a running connector from the Java sink to Icefloe, and back, in place.

The real Java sink in a real Connect worker: same JSON, groups, control topic, tables and catalog.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from typer.testing import CliRunner

from connect.gateways.kafka_admin import KafkaAdmin
from connect.layout import TopicPartition
from connect.migrate_tool import migrate_app
from control_schemas.codec import decode
from control_schemas.events import DataWritten
from tests.java_connect import JavaConnect
from tests.running_stack import INTERVAL_MS, RunningStack
from tests.stack import RestCatalog

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java]

NUMBERED = Schema(
    NestedField(1, "partition", LongType()),
    NestedField(2, "sequence", LongType()),
)
Row = tuple[int, int]
UNSAFE = 2


@pytest.fixture(scope="module")
def catalog(rest_catalog: RestCatalog) -> Catalog:
    """The catalog that both sinks commit to."""
    return load_catalog("rest", **rest_catalog.properties)


@pytest.fixture(scope="module")
def java(running: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaConnect]:
    """The Java worker on the cluster of the running stack."""
    worker = JavaConnect(tmp_path_factory.mktemp("java"), running.stack.bootstrap_servers)
    try:
        worker.start()
        yield worker
    finally:
        worker.close()


class Source:
    """A topic of numbered records, and what was written to it.

    Args:
        running: the stack.
        prefix: of the topic's name.
    """

    def __init__(self, running: RunningStack, prefix: str) -> None:
        self.topic = running.topic(prefix, partitions=2)
        self.written: list[Row] = []
        self._running = running

    def write(self, partition: int, count: int) -> None:
        """Append the next records of a partition."""
        start = sum(p == partition for p, _ in self.written)
        rows = [(partition, n) for n in range(start, start + count)]
        values = [{"partition": p, "sequence": n} for p, n in rows]
        self._running.produce(self.topic, *values, partition=partition)
        self.written += rows


def connector(
    rest_catalog: RestCatalog, source: Source, table: str, control_topic: str, **more: str
) -> dict[str, str]:
    """One JSON for both sinks."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": source.topic,
        "iceberg.tables": table,
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": rest_catalog.uri,
        "iceberg.catalog.warehouse": rest_catalog.properties["warehouse"],
        "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "iceberg.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "iceberg.control.topic": control_topic,
        "iceberg.control.commit.interval-ms": INTERVAL_MS,
        "iceberg.control.commit.timeout-ms": "2000",
        # a dead Java consumer leaves its groups sooner than after 45 s
        "consumer.override.session.timeout.ms": "6000",
        "iceberg.kafka.session.timeout.ms": "6000",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in more.items()},
    }


def rows(catalog: Catalog, table: str) -> list[Row]:
    """A table's rows, sorted."""
    found = catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted((row["partition"], row["sequence"]) for row in found)


def wait_rows(running: RunningStack, catalog: Catalog, table: str, source: Source) -> None:
    """Wait until everything that was written is in the table; then exactly that must be."""
    running.until(
        lambda: len(rows(catalog, table)) >= len(source.written),
        lambda: f"{len(source.written)} rows, now {len(rows(catalog, table))}",
    )
    assert rows(catalog, table) == sorted(source.written)


def engines(catalog: Catalog, table: str) -> list[str]:
    """Who made each snapshot, in order."""
    made = sorted(
        catalog.load_table(table).metadata.snapshots, key=lambda s: s.sequence_number or 0
    )
    return [str(s.summary["engine-name"]) if s.summary else "" for s in made]


def migrate_check(
    running: RunningStack, folder: Path, name: str, config: dict[str, str]
) -> tuple[int, dict[str, Any]]:
    """``icefloe migrate --check`` of a connector: exit status and report."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"name": name, "config": config}))
    where = ["--bootstrap-server", running.stack.bootstrap_servers]
    done = CliRunner().invoke(migrate_app, ["--check", "-f", str(file), "-o", "json", *where])
    assert done.exit_code in {0, UNSAFE}, done.exception
    report: dict[str, Any] = json.loads(done.stdout)
    return done.exit_code, report


def codes(report: dict[str, Any]) -> set[str]:
    """What a report found."""
    return {finding["code"] for finding in report["findings"]}


def announced(running: RunningStack, control_topic: str, group: str) -> int:
    """Rows in files that a group's tasks have announced."""
    events = [decode(record.value()) for record in running.records(control_topic)]
    return sum(
        file.record_count
        for event in events
        if event.group_id == group and isinstance(event.payload, DataWritten)
        for file in event.payload.data_files or ()
    )


@pytest.mark.faults
def test_to_icefloe_and_back_in_place(
    running: RunningStack,
    java: JavaConnect,
    rest_catalog: RestCatalog,
    catalog: Catalog,
    tmp_path: Path,
) -> None:
    """Stopped in order, each sink goes on where the other ended: nothing lost, nothing twice."""
    source, table, name = Source(running, "moved"), "default.moved", "moved"
    running.table(table, catalog, schema=NUMBERED)
    config = connector(rest_catalog, source, table, running.topic("control", partitions=3))
    for partition in (0, 1):
        source.write(partition, 10)
    java.create(name, config)
    wait_rows(running, catalog, table, source)
    status, report = migrate_check(running, tmp_path, name, config)
    assert (status, codes(report)) == (UNSAFE, {"group_in_use"})
    assert report["tables"][0]["writer"].startswith("kafka-connect")
    java.stop_connector(name)
    source.write(0, 5)
    # Connect answers before its tasks have left their groups
    report = running.until(
        lambda: (found := migrate_check(running, tmp_path, name, config))[0] == 0 and found[1],
        lambda: "the Java sink's members to leave",
    )
    assert codes(report) == set()
    assert {start["offset"] for start in report["starts"].values()} == {10}
    running.create(name, config)
    wait_rows(running, catalog, table, source)
    source.write(1, 5)
    wait_rows(running, catalog, table, source)
    running.delete(name)
    source.write(0, 3)
    source.write(1, 3)
    java.resume(name)
    wait_rows(running, catalog, table, source)
    java.delete(name)
    made = engines(catalog, table)
    assert made[0] == made[-1] == "kafka-connect"
    assert "icefloe" in made


@pytest.mark.faults
def test_icefloe_commits_what_a_killed_java_sink_had_announced(
    running: RunningStack,
    java: JavaConnect,
    rest_catalog: RestCatalog,
    catalog: Catalog,
    tmp_path: Path,
) -> None:
    """Announced files are committed once, records not announced are read: the source is whole."""
    source, table, name = Source(running, "killed"), "default.killed", "killed"
    made = running.table(table, catalog, schema=NUMBERED)
    data = Path(urlparse(made.location()).path, "data")
    control_topic = running.topic("control", partitions=3)
    config = connector(rest_catalog, source, table, control_topic)
    interval = {"iceberg.control.commit.interval-ms": "5000"}
    for partition in (0, 1):
        source.write(partition, 5)
    java.create(name, {**config, **interval})
    wait_rows(running, catalog, table, source)
    known = len(list(data.iterdir()))
    source.write(0, 5)
    # an open writer has loaded its table: the catalog is needed again only to commit
    java.until(lambda: len(list(data.iterdir())) > known, lambda: "a writer to be opened")
    rest_catalog.pause()
    try:
        java.until(
            lambda: announced(running, control_topic, f"connect-{name}") == 15,
            lambda: "files to be announced",
        )
        java.kill()
    finally:
        rest_catalog.resume()
    assert len(rows(catalog, table)) == 10
    source.write(1, 5)
    # its members stay until their sessions are over; what waits is seen at once
    _, report = migrate_check(running, tmp_path, name, config)
    assert codes(report) - {"group_in_use", "open_transaction"} == {"pending"}
    (left,) = report["tables"]
    assert (left["pending_files"], left["pending_records"]) == (1, 5)
    running.create(name, config)
    wait_rows(running, catalog, table, source)
    assert engines(catalog, table)[-1] == "icefloe"
    running.delete(name)


def test_icefloe_goes_on_where_the_older_sink_ended(
    running: RunningStack, rest_catalog: RestCatalog, catalog: Catalog, tmp_path: Path
) -> None:
    """State as ``io.tabular`` 0.6 leaves it: its control group counts, not Connect's copy."""
    source, table, name = Source(running, "tabular"), "default.tabular", "tabular"
    control_topic = running.topic("control", partitions=3)
    source.write(0, 10)
    running.table(table, catalog, schema=NUMBERED).append(
        pa.Table.from_pylist([{"partition": 0, "sequence": n} for n in range(6)]),
        snapshot_properties={
            f"kafka.connect.offsets.{control_topic}.cg-control-{name}": '{"0":0,"1":0}',
            "kafka.connect.vtts": "1767323045678",
        },
    )
    admin = KafkaAdmin({"bootstrap.servers": running.stack.bootstrap_servers})
    first, second = (TopicPartition(source.topic, p) for p in (0, 1))
    admin.alter_offsets(f"cg-control-{name}", {first: 6})
    admin.alter_offsets(f"connect-{name}", {first: 4, second: 2})
    control = [TopicPartition(control_topic, p) for p in (0, 1)]
    admin.alter_offsets(f"cg-control-{name}-coord", dict.fromkeys(control, 0))
    source.write(1, 5)
    del source.written[10:12]  # only the copy knows of partition 1, and it is past these
    config = connector(rest_catalog, source, table, control_topic)
    status, report = migrate_check(running, tmp_path, name, config)
    assert (status, codes(report)) == (UNSAFE, {"offsets_elsewhere", "no_control_offsets"})
    config["connector.class"] = "io.tabular.iceberg.connect.IcebergSinkConnector"
    status, report = migrate_check(running, tmp_path, name, config)
    assert (status, codes(report)) == (0, {"offsets_in_two_places"})
    assert {start["offset"] for start in report["starts"].values()} == {6, 2}
    assert report["tables"][0]["writer"] == "io.tabular"
    running.create(name, config)
    wait_rows(running, catalog, table, source)
    # the round's offsets may be stored a moment after its snapshot is seen
    running.until(
        lambda: admin.committed(f"cg-control-{name}", [first, second]) == {first: 10, second: 5},
        lambda: "source offsets in the control group",
    )
    assert admin.committed(f"connect-{name}", [first]) == {first: 4}
    admin.close()
    running.delete(name)

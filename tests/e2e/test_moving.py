"""Moving a running connector from the Java sink to Icefloe, and back, in place.

The real Java sink in a real Connect worker: same JSON, groups, control topic, tables and catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.java_connect import JavaConnect
from tests.support.moving import (
    NUMBERED,
    UNSAFE,
    SourceTopic,
    codes,
    connector,
    engines,
    migrate_check,
    wait_rows,
)
from tests.support.running_stack import RunningStack
from tests.support.stack import RestCatalog

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java]


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


@pytest.mark.faults
def test_a_connector_moves_to_icefloe_and_back(
    running: RunningStack,
    java: JavaConnect,
    rest_catalog: RestCatalog,
    catalog: Catalog,
    tmp_path: Path,
) -> None:
    """After an orderly stop each sink continues at the other's offsets."""
    source, table, name = SourceTopic(running, "moved"), "default.moved", "moved"
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
    report = running.wait_until(
        lambda: (checked := migrate_check(running, tmp_path, name, config))[0] == 0 and checked[1],
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
    writers = engines(catalog, table)
    assert writers[0] == writers[-1] == "kafka-connect"
    assert "icefloe" in writers


def test_icefloe_continues_where_the_older_sink_ended(
    running: RunningStack, rest_catalog: RestCatalog, catalog: Catalog, tmp_path: Path
) -> None:
    """With the state of ``io.tabular`` 0.6: its control group counts, not Connect's copy."""
    source, table, name = SourceTopic(running, "tabular"), "default.tabular", "tabular"
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
    running.wait_until(
        lambda: admin.committed(f"cg-control-{name}", [first, second]) == {first: 10, second: 5},
        lambda: "source offsets in the control group",
    )
    assert admin.committed(f"connect-{name}", [first]) == {first: 4}
    admin.close()
    running.delete(name)

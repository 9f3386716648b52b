"""Connectors from the Java sink's documentation, as they stand there, against a Java catalog.

Source: ``docs/docs/kafka-connect.md`` of Apache Iceberg. Only what is written between ``<`` and
``>`` there, the catalog's address and the names of topics are replaced.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import HourTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType

from tests.support.running_stack import INTERVAL_MS, RunningStack, duckdb_rows, pick
from tests.support.stack import RestCatalog, S3Server

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java]

STATIC_ROUTING = """
{
  "name": "events-sink",
  "config": {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "tasks.max": "2",
    "topics": "events",
    "iceberg.tables": "default.events_list,default.events_create",
    "iceberg.tables.route-field": "type",
    "iceberg.table.default.events_list.route-regex": "list",
    "iceberg.table.default.events_create.route-regex": "create",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://localhost",
    "iceberg.catalog.credential": "<credential>",
    "iceberg.catalog.warehouse": "<warehouse name>"
  }
}
"""
DYNAMIC_ROUTING = """
{
  "name": "events-sink",
  "config": {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "tasks.max": "2",
    "topics": "events",
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "db_table",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://localhost",
    "iceberg.catalog.credential": "<credential>",
    "iceberg.catalog.warehouse": "<warehouse name>"
  }
}
"""
SINGLE_TABLE = """
{
  "name": "events-sink",
  "config": {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "tasks.max": "2",
    "topics": "events",
    "iceberg.tables": "default.events",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://localhost",
    "iceberg.catalog.credential": "<credential>",
    "iceberg.catalog.warehouse": "<warehouse name>"
  }
}
"""
# the lines that the documentation's catalog examples have for object stores
S3_LINES = """
{
  "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
  "iceberg.catalog.client.region": "us-east-1",
  "iceberg.catalog.s3.access-key-id": "<AWS access>",
  "iceberg.catalog.s3.secret-access-key": "<AWS secret>"
}
"""
EVENTS = Schema(
    NestedField(1, "id", StringType()),
    NestedField(2, "type", StringType()),
    NestedField(3, "ts", TimestamptzType()),
    NestedField(4, "payload", StringType()),
)
BY_HOUR = PartitionSpec(PartitionField(3, 1000, HourTransform(), "ts_hour"))
INTERVAL = {"iceberg.control.commit.interval-ms": INTERVAL_MS}
COLUMNS = ("id", "type", "ts", "payload")


@pytest.fixture(scope="module")
def catalog(rest_catalog: RestCatalog) -> Catalog:
    """The Java catalog, opened with PyIceberg."""
    return load_catalog("rest", **rest_catalog.properties)


@pytest.fixture(scope="module", autouse=True)
def static_routing(
    running: RunningStack, rest_catalog: RestCatalog, catalog: Catalog
) -> tuple[httpx.Response, dict[str, Any]]:
    """Started before the other tests, which take a while: its commit interval is Java's default."""
    topic = running.topic("events", partitions=3)
    for kind in ("list", "create"):
        running.table(f"default.events_{kind}", catalog, schema=EVENTS, partition_spec=BY_HOUR)
    body = _filled(STATIC_ROUTING, rest_catalog, topics=topic)
    _produce(running, topic, _events(30, "list", "create"), partitions=3)
    return running.api.post("/connectors", json=body), body


def test_dynamic_routing_from_the_documentation(
    running: RunningStack, rest_catalog: RestCatalog, catalog: Catalog
) -> None:
    """Each record is in the table that it names; records without a table are skipped."""
    topic = running.topic("events", partitions=2)
    names = ["default.dynamic_list", "default.dynamic_create"]
    for name in names:
        running.table(name, catalog, schema=EVENTS, partition_spec=BY_HOUR)
    body = _filled(DYNAMIC_ROUTING, rest_catalog, topics=topic)
    events = [
        {**event, "db_table": table}
        for event, table in zip(_events(30, "list"), [*names, "default.nowhere"] * 10, strict=True)
    ]
    _produce(running, topic, events, partitions=2)
    config = {**body["config"], **INTERVAL, "iceberg.tables.unmatched": "drop"}
    running.create("events-sink-dynamic", config)
    for name in names:
        rows = running.rows(name, 10, "events-sink-dynamic", catalog)
        wanted = pick((_row(e) for e in events if e["db_table"] == name), *COLUMNS)
        assert pick(rows, *COLUMNS) == wanted == duckdb_rows(catalog.load_table(name), *COLUMNS)
    running.wait_until(
        lambda: running.counts("events-sink-dynamic")["records_dropped"] == 10,
        lambda: "records to be counted as dropped",
    )
    assert not catalog.table_exists("default.nowhere")
    # unlike the Java sink, no record is skipped unless the operator says so
    del config["iceberg.tables.unmatched"]
    running.reconfigure("events-sink-dynamic", config)
    running.produce(topic, events[2])
    cause = running.trace("events-sink-dynamic").partition("\n")[0]
    assert f"topic={topic}, partition=0, offset=15" in cause
    assert "set iceberg.tables.unmatched to drop or dead-letter" in cause
    running.delete("events-sink-dynamic")


@pytest.mark.matrix
def test_one_table_in_an_object_store_from_the_documentation(
    running: RunningStack, rest_catalog: RestCatalog, catalog: Catalog, s3_server: S3Server
) -> None:
    """With the documented S3 settings; the data is in the bucket and can be read."""
    topic = running.topic("events", partitions=2)
    data = f"{s3_server.warehouse}/events"
    properties = {"write.data.path": data}  # its metadata stays where the catalog can write
    running.table("default.events", catalog, schema=EVENTS, properties=properties)
    filled = S3_LINES.replace("<AWS access>", "testing").replace("<AWS secret>", "testing")
    config = {
        **_filled(SINGLE_TABLE, rest_catalog, topics=topic)["config"],
        **json.loads(filled),
        # the documentation's notes name both for stores that are not Amazon's
        "iceberg.catalog.s3.endpoint": s3_server.endpoint,
        "iceberg.catalog.s3.path-style-access": "true",
        **INTERVAL,
    }
    events = _events(20, "list")
    _produce(running, topic, events, partitions=2)
    running.create("events-sink-s3", config)
    reader = load_catalog("rest", **rest_catalog.properties, **s3_server.properties)
    rows = running.rows("default.events", 20, "events-sink-s3", reader)
    assert pick(rows, *COLUMNS) == pick(map(_row, events), *COLUMNS)
    files = [
        task.file.file_path for task in reader.load_table("default.events").scan().plan_files()
    ]
    assert files
    assert all(file.startswith(data) for file in files)
    running.delete("events-sink-s3")


def test_static_routing_from_the_documentation(
    running: RunningStack,
    static_routing: tuple[httpx.Response, dict[str, Any]],
    catalog: Catalog,
) -> None:
    """The unchanged configuration is accepted; each type is in its partitioned table.

    The commit interval is five minutes. A stop commits what the tasks have written.
    """
    answer, body = static_routing
    assert answer.status_code == 201, answer.text
    assert answer.json()["config"] == {**body["config"], "name": "events-sink"}
    running.wait_until(
        lambda: running.counts("events-sink")["records_written"] == 30,
        lambda: f"records to be written: {running.counts('events-sink')}",
    )
    running.stop("events-sink")
    for kind in ("list", "create"):
        name = f"default.events_{kind}"
        rows = running.rows(name, 15, "events-sink", catalog)
        events = _events(30, "list", "create")
        wanted = pick((_row(e) for e in events if e["type"] == kind), *COLUMNS)
        assert pick(rows, *COLUMNS) == wanted
        table = catalog.load_table(name)
        assert duckdb_rows(table, *COLUMNS) == wanted
        hours = {file.file.partition[0] for file in table.scan().plan_files()}
        assert len(hours) == 2
    running.delete("events-sink")


def _filled(text: str, catalog: RestCatalog, *, topics: str) -> dict[str, Any]:
    properties = catalog.properties
    body: dict[str, Any] = json.loads(
        text.replace("https://localhost", properties["uri"])
        .replace("<credential>", "client:secret")
        .replace("<warehouse name>", properties["warehouse"])
    )
    body["config"]["topics"] = topics
    return body


def _events(count: int, *kinds: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"event-{n:03}",
            "type": kinds[n % len(kinds)],
            "ts": f"2026-01-02T{3 + n // 15:02}:04:05.678Z",
            "payload": f'{{"n": {n}}} ünï',
        }
        for n in range(count)
    ]


def _row(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "ts": datetime.fromisoformat(event["ts"]).astimezone(UTC)}


def _produce(
    running: RunningStack, topic: str, events: list[dict[str, Any]], *, partitions: int
) -> None:
    for number in range(partitions):
        running.produce(topic, *events[number::partitions], partition=number)

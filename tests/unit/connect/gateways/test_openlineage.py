"""Lineage events as OpenLineage's own classes write them, and receivers that refuse them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import attr
import pytest
from openlineage.client import event_v2
from openlineage.client.facet_v2 import schema_dataset
from openlineage.client.serde import Serde

from connect.errors import ConfigError, RetriableError
from connect.gateways.openlineage import (
    COMMIT_FACET,
    COMMIT_SCHEMA,
    PRODUCER,
    FileSender,
    HttpOptions,
    HttpSender,
    run_event,
)
from connect.model.lineage_event import (
    DatasetName,
    InputTopic,
    LineageEvent,
    OutputTable,
    TableTotals,
    table_dataset,
    topic_dataset,
)
from connect.model.table_description import TableDescription
from connect.processes.child_process import free_port
from tests.support.lineage_samples import (
    COMMIT_ID,
    SNAPSHOT_ID,
    VALID_THROUGH_US,
    LineageReceiver,
    described,
)

RUN_ID = UUID("019c0000-0000-7000-8000-000000000001")
TOPIC = DatasetName("kafka://b:9092", "orders")
TOTALS = TableTotals(12, 4, 1200, 2, SNAPSHOT_ID, COMMIT_ID, VALID_THROUGH_US)
EVENT = LineageEvent(
    "FAIL",
    "g",
    "c",
    RUN_ID,
    1_767_323_045_678,
    inputs=(InputTopic(TOPIC, 12), InputTopic(DatasetName("kafka://b:9092", "idle"))),
    outputs=(
        OutputTable(TableDescription.from_json(described()), ("id",), (TOPIC,), TOTALS),
        OutputTable(TableDescription.from_json(described("db.u", catalog=None))),
    ),
    error="DataLost: gone\nstack",
)


@pytest.fixture(scope="module")
def server() -> Iterator[LineageReceiver]:
    """A receiver for all tests."""
    server = LineageReceiver()
    yield server
    server.close()


@pytest.fixture
def receiver(server: LineageReceiver) -> Iterator[LineageReceiver]:
    """The receiver, which has received nothing yet and accepts everything."""
    for kept in (server.events, server.paths, server.headers):
        kept.clear()
    server.status = 201
    server.answer_headers = {"content-length": "0"}
    yield server
    server.may_answer.set()


def sender(url: str, **more: Any) -> HttpSender:
    """A sender with a short time limit."""
    options = {"api_key": None, "timeout_s": 5.0, "is_compressed": False, **more}
    return HttpSender(HttpOptions(url, "api/v1/lineage", **options))


def written(event: LineageEvent = EVENT) -> dict[str, Any]:
    """An event as JSON."""
    found: dict[str, Any] = json.loads(Serde.to_json(run_event(event)))
    return found


def test_an_event_has_the_facets_of_its_run_and_datasets() -> None:
    """Every facet names its producer and its schema."""
    event = written()
    assert (event["eventType"], event["eventTime"]) == ("FAIL", "2026-01-02T03:04:05.678Z")
    assert (event["producer"], event["run"]["runId"]) == (PRODUCER, str(RUN_ID))
    assert event["schemaURL"].startswith("https://openlineage.io/spec/2")
    assert (event["job"]["namespace"], event["job"]["name"]) == ("g", "c")
    assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    error = event["run"]["facets"]["errorMessage"]
    assert (error["message"], error["stackTrace"]) == ("DataLost: gone", "stack")
    assert event["run"]["facets"]["processing_engine"]["name"] == "Icefloe"
    orders, idle = event["inputs"]
    assert (orders["namespace"], orders["name"]) == TOPIC
    assert orders["inputFacets"]["inputStatistics"]["rowCount"] == 12
    assert idle["inputFacets"] == {}
    for facet in _facets(event):
        assert facet["_producer"] == PRODUCER
        assert facet["_schemaURL"].startswith(
            ("https://openlineage.io/spec/facets/", "urn:icefloe")
        )


def test_topics_that_receive_rows_are_outputs_without_facets() -> None:
    """Before the tables."""
    topic = DatasetName("kafka://b:9092", "copies")
    first, *tables = written(replace(EVENT, output_topics=(topic,)))["outputs"]
    assert (first.pop("namespace"), first.pop("name")) == topic
    assert not any(first.values())
    assert len(tables) == 2


def test_a_table_has_its_columns_and_its_last_commit() -> None:
    """By location; nested columns; the snapshot id as text, because it is above 2**53."""
    table, quiet = written()["outputs"]
    assert (table["namespace"], table["name"]) == ("s3://lake", "warehouse/db/t")
    facets = table["facets"]
    assert facets["schema"]["fields"] == [
        {"name": "id", "type": "long", "description": "of the order"},
        {"name": "items", "type": "array", "fields": [{"name": "_element", "type": "string"}]},
    ]
    assert facets["symlinks"]["identifiers"] == [
        {"namespace": "http://catalog:8181", "name": "db.t", "type": "TABLE"}
    ]
    assert facets["storage"]["storageLayer"] == "iceberg"
    assert facets["version"]["datasetVersion"] == str(SNAPSHOT_ID)
    source = {"namespace": "kafka://b:9092", "name": "orders", "field": "id"}
    same = {"type": "DIRECT", "subtype": "IDENTITY"}
    fields = facets["columnLineage"]["fields"]
    assert fields == {"id": {"inputFields": [{**source, "transformations": [same]}]}}
    statistics = table["outputFacets"]["outputStatistics"]
    counts = statistics["rowCount"], statistics["size"], statistics["fileCount"]
    assert counts == (12, 1200, 4)
    assert table["outputFacets"][COMMIT_FACET] == {
        "_producer": PRODUCER,
        "_schemaURL": COMMIT_SCHEMA,
        "snapshotId": str(SNAPSHOT_ID),
        "commitId": COMMIT_ID,
        "commits": 2,
        "validThrough": "2026-01-02T03:04:05.678Z",
    }
    assert quiet["outputFacets"] == {}
    assert {"columnLineage", "symlinks", "version"}.isdisjoint(quiet["facets"])


def test_the_librarys_classes_accept_an_event() -> None:
    """Read back into them, it is the same event; their validators check times, ids and URIs."""
    event = written()
    again = event_v2.RunEvent(
        eventType=event_v2.RunState(event["eventType"]),
        eventTime=event["eventTime"],
        run=event_v2.Run(**event["run"]),
        job=event_v2.Job(**event["job"]),
        inputs=[event_v2.InputDataset(**each) for each in event["inputs"]],
        outputs=[event_v2.OutputDataset(**each) for each in event["outputs"]],
        producer=event["producer"],
    )
    assert json.loads(Serde.to_json(again)) == event
    known = {field.name for field in attr.fields(schema_dataset.SchemaDatasetFacetFields)}
    for table in event["outputs"]:
        assert all(known >= column.keys() for column in table["facets"]["schema"]["fields"])


def test_a_bounded_run_is_a_batch() -> None:
    """Without an error, and without datasets."""
    event = written(LineageEvent("START", "g", "c", RUN_ID, 0, is_bounded=True))
    assert event["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert event["run"]["facets"].keys() == {"processing_engine"}
    assert (event["inputs"], event["outputs"]) == ([], [])


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://lake/w/db/t", ("s3://lake", "w/db/t")),
        ("s3a://lake/w/db/t/", ("s3://lake", "w/db/t")),
        ("gs://lake/w/t", ("gs://lake", "w/t")),
        (
            "abfss://box@account.dfs.core.windows.net/w/t",
            ("abfss://box@account.dfs.core.windows.net", "w/t"),
        ),
        ("hdfs://name:8020/w/t", ("hdfs://name:8020", "/w/t")),
        ("file:///w/t", ("file", "/w/t")),
        ("/w/t", ("file", "/w/t")),
    ],
)
def test_tables_are_named_by_their_location(location: str, expected: tuple[str, str]) -> None:
    """As OpenLineage's naming specification names folders."""
    assert table_dataset(location) == expected


def test_topics_are_named_by_the_first_broker() -> None:
    """Without the protocol that Java accepts before it."""
    assert topic_dataset("SSL://a:9093, b:9093", "t") == ("kafka://a:9093", "t")


def test_a_receiver_gets_the_event(receiver: LineageReceiver) -> None:
    """Also compressed; without a key there is no authorization."""
    sender(receiver.url).send(EVENT)
    sender(receiver.url, is_compressed=True, api_key="lineage-key-3").send(EVENT)
    assert receiver.events == [written(), written()]
    sent = [headers.get("authorization") for headers in receiver.headers]
    assert sent == [None, "Bearer lineage-key-3"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_overloaded_receiver_is_tried_again(receiver: LineageReceiver, status: int) -> None:
    """With one request for each attempt."""
    receiver.status = status
    with pytest.raises(RetriableError, match=f"HTTP {status}"):
        sender(receiver.url).send(EVENT)
    assert len(receiver.headers) == 1


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refused_event_is_not_repeated(receiver: LineageReceiver, status: int) -> None:
    """The error has no address."""
    receiver.status = status
    with pytest.raises(ConfigError, match=f"HTTP {status}") as raised:
        sender(receiver.url).send(EVENT)
    assert "127.0.0.1" not in str(raised.value)


def test_a_redirect_is_not_followed(receiver: LineageReceiver) -> None:
    """The key is for one server."""
    receiver.status = 307
    receiver.answer_headers = {"content-length": "0", "location": f"{receiver.url}/other"}
    with pytest.raises(ConfigError, match="redirect"):
        sender(receiver.url, api_key="lineage-key-4").send(EVENT)
    assert receiver.paths == ["/api/v1/lineage"]


def test_no_answer_is_tried_again(receiver: LineageReceiver) -> None:
    """Whether the receiver is away or hangs; the error has no address."""
    with pytest.raises(RetriableError, match="does not answer") as away:
        sender(f"http://127.0.0.1:{free_port()}").send(EVENT)
    receiver.may_answer.clear()
    with pytest.raises(RetriableError, match="does not answer"):
        sender(receiver.url, timeout_s=0.05).send(EVENT)
    assert "127.0.0.1" not in str(away.value)


@pytest.mark.parametrize("url", ["receiver:5000", "ftp://receiver", "http://", "http://[::1"])
def test_an_address_must_be_of_http(url: str) -> None:
    """A node does not start with another one."""
    with pytest.raises(ConfigError, match=r"transport\.url"):
        sender(url)


def test_a_file_gets_a_line_for_each_event(tmp_path: Path) -> None:
    """A file that cannot be written is tried again."""
    path = tmp_path / "events.jsonl"
    to_file = FileSender(str(path))
    to_file.send(EVENT)
    to_file.send(EVENT)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [written(), written()]
    path.unlink()
    path.mkdir()
    with pytest.raises(RetriableError, match="cannot be written"):
        to_file.send(EVENT)


@pytest.mark.parametrize("path", ["s3://bucket/events", "missing-folder/events"])
def test_a_file_must_be_local_in_a_folder(path: str) -> None:
    """A node does not start with another one."""
    with pytest.raises(ConfigError, match="log_file_path"):
        FileSender(path)


def _facets(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    datasets = [*event["inputs"], *event["outputs"]]
    for holder in (event["run"], event["job"], *datasets):
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from holder.get(kind, {}).values()

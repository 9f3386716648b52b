"""Converters of an installed package, and converters of topics, on a node."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.running_stack import RunningStack, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
CANARY = "canary-91fd22"
TABLE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)


def test_topics_of_a_connector_have_installed_converters(running: RunningStack) -> None:
    """Records of all topics are in the table; bad ones are dead letters of their converter."""
    plugins = running.api.get("/connector-plugins?connectorsOnly=false").json()
    listed = [(each["class"], each["type"]) for each in plugins]
    assert {("Separated", "converter"), ("FixedWidth", "converter")} <= set(listed)
    name, letters = unique_name("own"), unique_name("letters")
    plain, separated, fixed = (running.topic(kind) for kind in ("plain", "separated", "fixed"))
    table = f"own.{name}"
    running.table(table, schema=TABLE)
    config = {
        **running.connector(topics=f"{plain},{separated},{fixed}", iceberg__tables=table),
        f"icefloe.topic.{separated}.value.converter": "Separated",
        f"icefloe.topic.{separated}.value.converter.fields": "id,name",
        "icefloe.topic.fixed.regex": "fixed.*",
        "icefloe.topic.fixed.value.converter": "FixedWidth",
        "icefloe.topic.fixed.value.converter.width": "4",
        "errors.tolerance": "all",
        "errors.deadletterqueue.max-ratio": "1",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    wrong = {key: value for key, value in config.items() if not key.endswith(".fields")}
    answer = running.api.post("/connectors", json={"name": name, "config": wrong})
    assert answer.status_code == 400
    assert "converter Separated rejects its options: 'fields'" in answer.text
    running.produce(plain, {"id": 1, "name": "a"}, CANARY.encode())
    running.produce(separated, b"2|b", CANARY.encode())
    running.produce(fixed, b"   3c", b"   4d", CANARY.encode())
    running.create(name, config)
    rows = running.rows(table, 4, name)
    assert pick(rows, "id", "name") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    running.wait_until(
        lambda: len(running.records(letters)) == 3, lambda: f"dead letters: {running.status(name)}"
    )
    headers = [dict(record.headers()) for record in running.records(letters)]
    assert {h["__connect.errors.stage"] for h in headers} == {b"VALUE_CONVERTER"}
    assert {
        h["__connect.errors.topic"].decode(): h["__connect.errors.class.name"].decode()
        for h in headers
    } == {
        plain: "org.apache.kafka.connect.json.JsonConverter",
        separated: "Separated",
        fixed: "FixedWidth",
    }
    assert not [file for file, text in running.logs().items() if CANARY in text]
    running.delete(name)

"""Every stage of a record reaches the dead letters: the topic, and a table in the same round."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.support.running_stack import RunningStack, duckdb_rows, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
CANARY = "canary-3e8d41"
STAGES = {
    "KEY_CONVERTER": {"key": f'{{"{CANARY}'},
    "VALUE_CONVERTER": {"value": f'{{"{CANARY}'.encode()},
    "HEADER_CONVERTER": {"headers": [("h", f'{{"{CANARY}'.encode())]},
    "TRANSFORMATION": {"value": {"id": 1, "n": CANARY, "kind": "good"}},
    "ROUTE": {"value": {"id": 1, "n": "1", "kind": CANARY}},
    "TASK_PUT": {"value": {"id": CANARY, "n": "1", "kind": "good"}},
}
TABLE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "n", IntegerType(), required=False),
    NestedField(3, "kind", StringType(), required=False),
)


def feed(running: RunningStack, topic: str, first: int) -> None:
    """A bad record of each stage, each behind a good one."""
    for number, bad in enumerate(STAGES.values(), first):
        good = {"id": number, "n": str(number), "kind": "good"}
        running.produce(topic, good, key=f'"k{number}"')
        running.produce(topic, bad.get("value", good), **{"key": '"k"', **_more(bad)})


def _more(bad: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in bad.items() if name != "value"}


@pytest.mark.parametrize(
    ("mode", "is_killed"),
    [
        ("append", False),
        pytest.param("append", True, marks=pytest.mark.matrix),
        pytest.param("upsert", True, marks=pytest.mark.faults),
    ],
)
def test_errors_of_every_stage_are_dead_letters_once(
    running: RunningStack, mode: str, *, is_killed: bool
) -> None:
    """In topic and table, also over a kill of the worker; no content of a record is in a log."""
    name = unique_name("stages")
    topic, dead_letters = running.topic("stages"), unique_name("letters")
    table, dead = f"stages.{name}", f"stages_dead.{name}"
    running.table(table, schema=TABLE)
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    config = {
        **running.connector(topics=topic, iceberg__tables=table),
        "key.converter": json_converter,
        "key.converter.schemas.enable": "false",
        "header.converter": json_converter,
        "header.converter.schemas.enable": "false",
        "transforms": "cast",
        "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.cast.spec": "n:int32",
        "iceberg.tables.route-field": "kind",
        f"iceberg.table.{table}.route-regex": "good",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead_letters,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        "errors.deadletterqueue.table": dead,
    }
    if mode == "upsert":
        config |= {
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.tables.default-id-columns": "id",
        }
    feed(running, topic, 0)
    running.create(name, config)
    running.rows(dead, len(STAGES), name)
    feed(running, topic, 100)
    if is_killed:
        running.child("worker").send_signal(signal.SIGKILL)
    feed(running, topic, 200)
    rows = running.rows(dead, 3 * len(STAGES), name)
    assert Counter(row["stage"] for row in rows) == dict.fromkeys(STAGES, 3)
    assert pick(rows, "offset") == [(2 * n + 1,) for n in range(3 * len(STAGES))]
    assert {(r["topic"], r["partition"], r["connector"], r["task"]) for r in rows} == {
        (topic, 0, name, 0)
    }
    assert all(row["code"] and row["message"] and row["timestamp"] for row in rows)
    source = {record.offset(): record for record in running.records(topic)}
    for row in rows:
        record = source[row["offset"]]
        headers = [(header["name"], header["value"]) for header in row["headers"]]
        assert (row["key"], row["value"]) == (record.key(), record.value())
        assert headers == (record.headers() or [])
        assert CANARY not in row["message"]
    ids = [(hundreds + n,) for hundreds in (0, 100, 200) for n in range(len(STAGES))]
    running.wait_until(
        lambda: duckdb_rows(running.catalog.load_table(table), "id") == ids,
        lambda: f"the good records of {table}",
    )
    assert len(running.records(dead_letters)) == 3 * len(STAGES)
    assert not [file for file, text in running.logs().items() if CANARY in text]
    assert CANARY not in running.api.get("/metrics").text
    assert CANARY not in running.api.get(f"/connectors/{name}/status").text
    running.delete(name)

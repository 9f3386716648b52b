"""What ``/icefloe/v1`` shows of a connector: tables, rounds, lags, dead letters, orphans' age."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from control_schemas.codec import encode
from control_schemas.events import DataWritten, Event, TableReference
from tests.support.running_node import RunningNode
from tests.support.stack import Topics

pytestmark = pytest.mark.kafka

VALID_THROUGH_S = 1_700_000_000.5


def _round(number: int, *tables: dict[str, Any]) -> dict[str, Any]:
    return {
        "event": "round",
        "commit_id": f"00000000-0000-0000-0000-00000000000{number}",
        "partial": False,
        "valid_through_us": int(VALID_THROUGH_S * 1e6),
        "duration_ms": 12,
        "records": 5,
        "topics": [],
        "tables": list(tables),
    }


def _done(table: str, snapshot_id: int | None) -> dict[str, Any]:
    return {"table": table, "snapshot_id": snapshot_id, "files": 1, "records": 5, "duration_ms": 9}


ROUNDS = [
    _round(1, _done("db.a", 11), _done("db.b", 12)),
    _round(2, _done("db.a", 13), {"table": "db.c", "code": "table_missing", "message": "gone"}),
]


def _metrics(connector: str) -> dict[str, Any]:
    task = {"connector": connector, "task": "0"}
    return {
        "event": "metrics",
        "samples": [
            ["records_uncommitted", {"connector": connector}, 40],
            ["valid_through_timestamp_seconds", {"connector": connector}, VALID_THROUGH_S],
            ["records_dead_lettered", task, 2],
            ["records_read", task, 50],
        ],
    }


@pytest.fixture(scope="module")
def node(
    kafka_properties: dict[str, str], topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningNode]:
    """Start a node; its coordinator has reported two rounds of the connector ``views``."""
    node = RunningNode(tmp_path_factory.mktemp("views"), kafka_properties["bootstrap.servers"])
    reported = [*ROUNDS, _metrics("views")]
    (node.folder / "events-coordinator.json").write_text(json.dumps(reported))
    node.start()
    topic, dead = topics.create("views", partitions=2), topics.create("views-dead")
    node.properties.update(topic=topic, dead=dead)
    answer = node.put(
        "views", topic, errors_deadletterqueue_topic_name=dead, errors_tolerance="all"
    )
    assert answer.status_code == 201, answer.text
    node.running("views", 1)
    node.wait_until(lambda: _view(node, "lag")["in_files_not_committed"] == 40)  # reported last
    yield node
    node.close()


def _view(node: RunningNode, what: str, connector: str = "views") -> dict[str, Any]:
    answer = node.call("GET", f"/icefloe/v1/connectors/{connector}/{what}")
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


def test_rounds_are_listed_in_order(node: RunningNode) -> None:
    """Each round has its result and the time at which it was received."""
    view = _view(node, "rounds")
    rounds = view["rounds"]
    assert view["answered"] is True
    assert [r["commit_id"][-1] for r in rounds] == ["1", "2"]
    assert all(r["ended_ms"] > 1_600_000_000_000 for r in rounds)
    assert rounds[0]["tables"][0] == _done("db.a", 11)


def test_tables_show_their_last_outcome(node: RunningNode) -> None:
    """Each table once, the newest outcome, failures with their code."""
    tables = {t["table"]: t for t in _view(node, "tables")["tables"]}
    assert list(tables) == ["db.a", "db.b", "db.c"]
    assert (tables["db.a"]["state"], tables["db.a"]["snapshot_id"]) == ("COMMITTED", 13)
    assert tables["db.b"]["commit_id"].endswith("1")
    assert (tables["db.c"]["state"], tables["db.c"]["code"]) == ("FAILED", "table_missing")


def test_the_two_lags_are_shown(node: RunningNode, kafka_properties: dict[str, str]) -> None:
    """Records not in files, per partition; records in files and in no table; valid-through time."""
    topic = node.properties["topic"]
    _produce(kafka_properties, topic, [{}] * 3)
    admin = KafkaAdmin(kafka_properties)
    admin.alter_offsets("connect-views", {TopicPartition(topic, 0): 1})
    admin.close()
    lag = node.wait_until(lambda: (view := _view(node, "lag"))["not_in_files"] == 2 and view)
    assert lag["in_files_not_committed"] == 40
    assert lag["valid_through_ms"] == int(VALID_THROUGH_S * 1000)
    by_partition = {p["partition"]: p for p in lag["partitions"]}
    assert (by_partition[0]["committed_offset"], by_partition[0]["end_offset"]) == (1, 3)
    assert (by_partition[1]["committed_offset"], by_partition[1]["lag"]) == (None, 0)


def test_dead_letters_have_their_origin_and_no_content(
    node: RunningNode, kafka_properties: dict[str, str]
) -> None:
    """The newest first; those of other connectors in the same topic are left out."""
    failed = {"stage": "VALUE_CONVERTER", "exception.message": "x" * 9999}
    errors = [
        {"topic": "t", "partition": "3", "offset": "7", "connector.name": "views"},
        {"topic": "t", "partition": "0", "offset": "1", "connector.name": "other"},
        {"topic": "t", "partition": "0", "offset": "2", "connector.name": "views", **failed},
        {},
    ]
    _produce(kafka_properties, node.properties["dead"], errors)
    # a node that is slow shows the part that it has read
    view = node.wait_until(lambda: len((v := _view(node, "dead-letters"))["last"]) == 3 and v)
    assert view["topic"] == node.properties["dead"]
    assert view["records"] == 2
    assert [d["offset"] for d in view["last"]] == [3, 2, 0]
    first, second = view["last"][2], view["last"][1]
    origin = (first["source_topic"], first["source_partition"], first["source_offset"])
    assert origin == ("t", 3, 7)
    assert second["stage"] == "VALUE_CONVERTER"
    assert len(second["reason"]) == 500
    assert "canary-content" not in json.dumps(view)


def test_a_connector_without_dead_letter_topic_has_an_empty_view(
    node: RunningNode, topics: Topics
) -> None:
    """Unknown views and connectors are 404."""
    node.put("plain", topics.create("plain"))
    view = _view(node, "dead-letters", "plain")
    assert (view["topic"], view["last"]) == (None, [])
    for path in ("connectors/views/nothing", "connectors/unknown/lag"):
        assert node.call("GET", f"/icefloe/v1/{path}").status_code == 404


def _produce(
    kafka_properties: dict[str, str],
    topic: str,
    errors: list[dict[str, str]],
    value: bytes = b"canary-content",
) -> None:
    producer = Producer({**kafka_properties, "log_level": 0})
    for error in errors:
        headers = [(f"__connect.errors.{name}", text) for name, text in error.items()]
        producer.produce(topic, value=value, headers=headers, partition=0)
    assert producer.flush(120) == 0


def test_the_age_of_orphans_is_above_that_of_announced_files(
    node: RunningNode, kafka_properties: dict[str, str]
) -> None:
    """An age that would remove files that wait for a commit is refused."""
    assert _view(node, "orphan-age")["oldest_announcement_ms"] is None
    assert node.icefloe("tables", "orphan-age", "views") == (0, "3\n")
    made_us = int((time.time() - 9.5 * 86_400) * 1e6)
    table = TableReference("local", ("db",), "a")
    for group_id in ("connect-views", "connect-other"):
        age_us = 0 if group_id == "connect-views" else 86_400 * 10**8
        event = Event(uuid4(), made_us - age_us, group_id, DataWritten(uuid4(), table, (), ()))
        _produce(kafka_properties, f"{node.group_id}-control", [{}], encode(event))
    view = node.wait_until(lambda: (v := _view(node, "orphan-age"))["oldest_announcement_ms"] and v)
    assert view["oldest_announcement_ms"] == made_us // 1000
    assert node.icefloe("tables", "orphan-age", "views") == (0, "11\n")
    assert node.icefloe("tables", "orphan-age", "views", "--older-than-days", "11") == (0, "")
    status, text = node.icefloe("tables", "orphan-age", "views", "--older-than-days", "10.5")
    assert (status, "use 11 days or more" in text) == (1, True)

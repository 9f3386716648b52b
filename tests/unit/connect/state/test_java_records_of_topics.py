import json
from pathlib import Path
from typing import Any

import pytest

from connect.model.layout import TopicPartition, spread
from connect.state import topic_records
from connect.state.connector_state import ConfigState
from connect.state.status_state import Status, StatusState
from connect.state.topic_records import STATUS_CONNECTOR, STATUS_TASK, STATUS_TOPIC

FOLDER = Path(__file__).parents[3] / "golden" / "connect_state"
Recorded = list[tuple[str, dict[str, Any] | None]]


def recorded(topic: str) -> Recorded:
    listed = json.loads((FOLDER / f"{topic}.json").read_text("utf-8"))
    return [(record["key"], record["value"]) for record in listed]


def test_the_config_topic_of_a_java_worker_is_read() -> None:
    """Connectors and target states are read; layouts are not, so each gets a new layout."""
    fold = ConfigState()
    seen: dict[str, list[str]] = {}
    for key, value in recorded("config"):
        fold.apply(key, value)
        for name in ("one", "two-3"):
            targets = seen.setdefault(name, [])
            if not targets or targets[-1] != fold.get(name).target:
                targets.append(fold.get(name).target)
    assert fold.names() == ["bad", "two-3"]
    assert seen["one"] == ["STARTED", "PAUSED", "STARTED", "STOPPED", "STARTED"]
    assert fold.get("two-3").target == "STOPPED"
    assert fold.get("bad").config == dict(_properties("connector-bad"))
    assert fold.get("bad").layout is None
    assert fold.get("bad").tasks_ever == 2  # whose transactional ids are taken over first


def test_keys_of_other_products_are_skipped() -> None:
    """Session keys, restart requests and log levels of Java workers change nothing."""
    fold = ConfigState()
    others = ("session-key", "restart-connector-", "logger-cluster-")
    reported = [fold.apply(k, v) for k, v in recorded("config") if k.startswith(others)]
    assert reported == [None, None, None]
    assert fold.names() == []


def test_written_records_equal_those_of_a_java_worker() -> None:
    """Keys, fields, their order and JSON types."""
    java = recorded("config")
    stopped = [r for r in java if r[0] in {"target-state-two-3", "connector-two-3"}]
    ours = topic_records.config_records("two-3", _properties("connector-two-3"), "STOPPED")
    assert _text(ours) == _text(stopped)
    paused = next(value for key, value in java if key == "target-state-one")
    assert _text([topic_records.target_record("one", "PAUSED")]) == _text(
        [("target-state-one", paused)]
    )
    layout = spread("one", 1, [TopicPartition("t", 0), TopicPartition("t", 1)], tasks=2)
    tasks = [r for r in java if r[0] in {"task-one-0", "task-one-1", "commit-one"}][:3]
    for (key, value), (java_key, java_value) in zip(
        topic_records.layout_records(layout, _properties("connector-one")), tasks, strict=True
    ):
        assert key == java_key
        assert value is not None
        assert java_value is not None
        if "tasks" in java_value:
            assert value["tasks"] == java_value["tasks"]
        else:
            assert value.keys() == java_value.keys()
            assert java_value["properties"].keys() <= value["properties"].keys()
            assert all(isinstance(text, str) for text in value["properties"].values())


def test_the_status_topic_of_a_java_worker_is_read() -> None:
    """With its last statuses and active topics."""
    fold = StatusState()
    for key, value in recorded("status"):
        fold.apply(key, value)
    two = fold.connector("two-3")
    assert two == Status("STOPPED", None, "connect.example:8083", 4, "4.3.1")
    assert {task: status.state for task, status in fold.tasks("bad").items()} == {
        0: "FAILED",
        1: "FAILED",
    }
    assert fold.connector("one") is None
    assert fold.topics("one") == frozenset()


@pytest.mark.parametrize("kind", [STATUS_CONNECTOR, STATUS_TASK])
def test_written_statuses_equal_those_of_a_java_worker(kind: str) -> None:
    """Field for field, in the same order."""
    for key, value in recorded("status"):
        if key.startswith(kind) and value is not None and value["version"] is not None:
            ours = Status(**value).to_json()
            assert json.dumps(ours) == json.dumps(value)


def test_written_active_topics_equal_those_of_a_java_worker() -> None:
    """The same key and value for the same discovery."""
    key, value = next(r for r in recorded("status") if r[0].startswith(STATUS_TOPIC))
    assert value is not None
    seen = value["topic"]
    record = topic_records.topic_record(
        "one", "t", task=seen["task"], now_ms=seen["discoverTimestamp"]
    )
    assert _text([record]) == _text([(key, value)])


def _properties(key: str) -> dict[str, str]:
    value = next(v for k, v in recorded("config") if k == key and v is not None)
    properties: dict[str, str] = value["properties"]
    return properties


def _text(reported: Any) -> list[tuple[str, bytes | None]]:
    return [(key, topic_records.encode(value)) for key, value in reported]

"""Nodes of two versions share their topics during a rolling upgrade.

Rules of this file:
- ``records_of_0_1_0.json`` is what version 0.1.0 wrote. It never changes: later versions read it.
- A version may add fields and keys. An older node ignores what it does not know.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connect.model.layout import TopicPartition
from connect.state import topic_records as stored
from connect.state.connector_state import ConfigState, Leader, Restart
from connect.state.placement import Places
from connect.state.status_state import NodeStatus, Running, Status, StatusState

RECORDED = json.loads(Path(__file__).with_name("records_of_0_1_0.json").read_text("utf-8"))
NODE = "node-1:8083"


def with_future_fields(records: list[Any]) -> list[Any]:
    """The records as a later version might write them: with more fields, and more records."""
    more = {"future": {"a": [1, None]}, "future.version": 2}
    changed = [[key, {**value, **more}] for key, value in records]
    return [*changed, ["icefloe-future-orders", more], ["task-orders-future", more]]


def folded(state: Any, records: list[Any]) -> Any:
    for key, value in records:
        state.apply(key, stored.decode(stored.encode(value)))
    return state


@pytest.mark.parametrize("change", [list, with_future_fields], ids=["0.1.0", "future fields"])
def test_the_target_state_is_read(change: Any) -> None:
    """Configuration, layout, offsets, placement, leader and restart."""
    state = folded(ConfigState(), change(RECORDED["config"]))
    found = state.get("orders")
    assert state.names() == ["orders"]
    assert found.config["password"] == "${file:secrets:p}"
    assert (found.target, found.is_ready, found.tasks_ever) == ("STARTED", True, 3)
    assert found.layout.number == 7
    assert found.layout.partitions == {TopicPartition("orders", p) for p in range(3)}
    assert found.pending_offsets == {TopicPartition("orders", 0): 12}
    assert found.source_floor.offsets == {TopicPartition("orders", 0): 5}
    assert found.places == Places(NODE, (NODE, "node-2:8083"), ("node-2:8083",))
    assert found.restart == Restart("r-1", coordinator=True, tasks=frozenset({0}))
    assert state.leader == Leader(NODE, f"http://{NODE}")


@pytest.mark.parametrize("change", [list, with_future_fields], ids=["0.1.0", "future fields"])
def test_statuses_are_read(change: Any) -> None:
    """Statuses of connectors, tasks and nodes with their version, units, problems and topics."""
    state = folded(StatusState(), change(RECORDED["status"]))
    assert state.connector("orders") == Status("RUNNING", None, NODE, 7, "0.1.0")
    assert state.tasks("orders") == {0: Status("FAILED", "why", NODE, 7, "0.1.0")}
    assert state.nodes() == {
        NODE: NodeStatus(
            NODE,
            f"http://{NODE}",
            ("coordinator", "worker"),
            is_ready=True,
            misses=1,
            version="0.1.0",
        )
    }
    assert state.running("orders") == {NODE: Running(7, frozenset({0}), coordinator=True)}
    assert state.problem("orders") == "problem"
    assert state.topics("orders") == frozenset({"orders"})

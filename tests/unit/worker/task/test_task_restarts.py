"""How long a task pauses before it starts over by itself."""

from __future__ import annotations

from typing import Any

import pytest

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.model.layout import TopicPartition
from connect.protocol.java_sink_members import GROUP_IN_USE
from connect.validation.parse import parse
from worker.task import task
from worker.task.task import RESTART_MAX_MS, RESTART_MIN_MS, ConnectorTask
from worker.task.task_context import TaskAssignment, TaskContext

ATTEMPTS = 12
CONFIG = {
    "name": "c",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.catalog.type": "sql",
    "iceberg.catalog.uri": "sqlite://",
    "iceberg.catalog.warehouse": "/nowhere",
}


def pauses(monkeypatch: pytest.MonkeyPatch, code: str) -> list[int]:
    """Of a task whose every attempt ends with this code."""
    found: list[int] = []

    class Life:
        """Ends at once."""

        def __init__(self, owner: object) -> None:
            del owner

        def live(self) -> None:
            """Fail."""
            raise RetriableError("no", code=code)

        def close(self) -> None:
            """There is nothing."""

    class Paused(ConnectorTask):
        """Counts its pauses in place of making them."""

        def pause(self, duration_ms: int) -> None:
            """Stop after some."""
            found.append(duration_ms)
            if len(found) == ATTEMPTS:
                self.stop()

    nothing: Any = None
    wiring = TaskContext(
        node={},
        node_group_id="node",
        config_topic=None,
        session=nothing,
        clock=SystemClock(),
        runner=nothing,
        report=lambda _state, _error: None,
    )
    monkeypatch.setattr(task, "_TaskRun", Life)
    Paused(parse(CONFIG), TaskAssignment(0, 1, (TopicPartition("t", 0),)), wiring).run()
    return found


def test_a_task_whose_predecessor_left_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long another sink has run: the wait for it asks twice a second, no pause is added."""
    assert set(pauses(monkeypatch, GROUP_IN_USE)) == {RESTART_MIN_MS}


def test_other_failures_are_tried_again_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubling, up to a limit."""
    found = pauses(monkeypatch, "storage_unavailable")
    assert found[:3] == [RESTART_MIN_MS, 2 * RESTART_MIN_MS, 4 * RESTART_MIN_MS]
    assert found[-1] == RESTART_MAX_MS

"""Tasks that start while Spark does."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.model.layout import TopicPartition
from worker.spark.session import Session
from worker.task.task_context import TaskAssignment, TaskContext, TaskSetup
from worker.task.task_progress import TaskProgress


class WaitingTask:
    """A task whose worker's session is not open yet.

    Attributes:
        opening: the session.
        waits: what the task reported that it waits for.
        is_waiting: set at the first report.
        setup: the task.
    """

    def __init__(self) -> None:
        self.opening: Future[Session] = Future()
        self.waits: list[str | None] = []
        self.is_waiting = threading.Event()
        nothing: Any = None
        context = TaskContext(
            node={},
            node_group_id="node",
            stored=None,
            session=self.opening,
            clock=SystemClock(),
            runner=nothing,
            report=lambda _state, _error: None,
            waits_for=self._wait_for,
        )
        self.setup = TaskSetup(
            nothing,
            TaskAssignment(0, 1, (TopicPartition("t", 0),)),
            context,
            TaskProgress(context.clock, 60_000),
        )

    def _wait_for(self, reason: str | None) -> None:
        self.waits.append(reason)
        self.is_waiting.set()


def test_a_task_waits_for_the_session_and_says_so() -> None:
    """It continues when Spark runs."""
    task = WaitingTask()
    session: Any = object()
    threading.Thread(
        target=lambda: task.is_waiting.wait() and task.opening.set_result(session)
    ).start()
    assert task.setup.session() is session
    assert task.waits == ["the Spark session"]


def test_an_open_session_is_not_waited_for() -> None:
    """Nothing is reported."""
    task = WaitingTask()
    session: Any = object()
    task.opening.set_result(session)
    assert task.setup.session() is session
    assert not task.waits


def test_a_stop_ends_the_wait() -> None:
    """Spark may need minutes to download its jars."""
    task = WaitingTask()
    threading.Thread(target=lambda: task.is_waiting.wait() and task.setup.stop.request()).start()
    with pytest.raises(RetriableError, match="the task was stopped") as caught:
        task.setup.session()
    assert caught.value.code == "spark_not_started"


def test_a_failed_start_of_spark_can_be_retried() -> None:
    """The process ends for it, and the task is started again by the next one."""
    task = WaitingTask()
    task.opening.set_exception(ValueError("no Java"))
    with pytest.raises(RetriableError, match="Spark has not started: no Java"):
        task.setup.session()

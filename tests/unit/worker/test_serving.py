"""The start of a worker whose Spark SQL does or does not start."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest

from worker.serving import EXIT_SPARK_DIED, wait_for_sql
from worker.spark.session import Session, SqlSessions


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit statuses of this process."""
    statuses: list[int] = []
    monkeypatch.setattr("worker.serving.os._exit", statuses.append)
    return statuses


def session(error: Exception | None) -> Session:
    """A session whose Spark SQL has started, or has failed."""
    sql: Future[SqlSessions] = Future()
    if error is None:
        sql.set_result(cast("SqlSessions", SimpleNamespace()))
    else:
        sql.set_exception(error)
    return cast("Session", SimpleNamespace(sql=sql))


def test_a_worker_without_spark_sql_ends(exits: list[int]) -> None:
    """The node restarts it."""
    wait_for_sql(session(None), threading.Event())
    assert not exits
    wait_for_sql(session(RuntimeError("no class")), threading.Event())
    assert exits == [EXIT_SPARK_DIED]


def test_a_stopping_worker_is_not_ended(exits: list[int]) -> None:
    """Its stop has ended Spark."""
    stopping = threading.Event()
    stopping.set()
    wait_for_sql(session(RuntimeError("stopped")), stopping)
    assert not exits

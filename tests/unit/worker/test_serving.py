"""The start of a worker whose Spark SQL does or does not start."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

from worker.serving import has_sql
from worker.spark.session import Session, SqlSessions


def session(error: Exception | None) -> Session:
    """A session whose Spark SQL has started, or has failed."""
    sql: Future[SqlSessions] = Future()
    if error is None:
        sql.set_result(cast("SqlSessions", SimpleNamespace()))
    else:
        sql.set_exception(error)
    return cast("Session", SimpleNamespace(sql=sql))


def test_a_worker_without_spark_sql_is_noticed() -> None:
    """The worker then ends, and the node restarts it."""
    assert has_sql(session(None))
    assert not has_sql(session(RuntimeError("no class")))

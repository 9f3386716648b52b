"""The start of a worker's Spark: its Python daemon starts before the first batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil

from tests.support.processes import still_running
from tests.support.spark_marks import SPARK_MARKS
from worker.spark.session import Session
from worker.spark.session_opening import start_daemon
from worker.spark.warm_up import warm_up

pytestmark = list(SPARK_MARKS)


def python_processes() -> Iterator[psutil.Process]:
    """The daemons of this process, and their forks."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "worker.spark.daemon" in process.cmdline():
                yield process


def daemons() -> set[int]:
    """The daemons alone."""
    parents = {}
    for process in python_processes():
        with contextlib.suppress(psutil.Error):
            parents[process.pid] = process.ppid()
    return {pid for pid, parent in parents.items() if parent not in parents}


def test_the_daemon_of_the_start_serves_the_first_batch(spark_session: Session) -> None:
    """A job without SQL starts it, and Spark starts no second one for a query."""
    former = list(python_processes())  # of other tests in the same session
    for process in former:
        with contextlib.suppress(psutil.Error):
            process.kill()
    assert not still_running(former, 150)
    start_daemon(spark_session.context)
    first = daemons()
    warm_up(spark_session)
    assert len(first) == 1
    assert daemons() == first

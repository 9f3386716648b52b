"""The start of a worker's Spark: its Python daemon, and the warm-up that a stop meets."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from connect.processes.ipc import VERSION, Channel
from tests.support.processes import still_running
from tests.support.spark_marks import SPARK_MARKS
from worker.spark.session import Session
from worker.spark.session_opening import start_daemon
from worker.spark.warm_up import warm_up

pytestmark = list(SPARK_MARKS)

TIMEOUT_S = 150
NODE = {  # no broker answers: the worker has no connector
    "bootstrap.servers": "127.0.0.1:9",
    "group.id": "g",
    "config.storage.topic": "configs",
    "status.storage.topic": "status",
    "offset.storage.topic": "offsets",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "spark.driver.memory": "700m",
}


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


@pytest.mark.parametrize("grace_ms", ["30000", pytest.param("100", marks=pytest.mark.matrix)])
def test_a_start_and_a_stop_during_the_warm_up_print_no_trace(
    tmp_path: Path, grace_ms: str
) -> None:
    """The warm-up ends before Spark stops: no error of Python, py4j or Java is in the output.

    Without the time for it, they are not logged. Nor is the notice about a module of Java, which
    each start of Spark causes.
    """
    ours, theirs = socket.socketpair()
    output, number = tmp_path / "worker.log", theirs.fileno()
    with theirs, output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "worker"],
            pass_fds=[number],
            env={**os.environ, "ICEFLOE_IPC_FD": str(number)},
            stdout=log,
            stderr=log,
        )
    node = Channel(ours)
    try:
        own = {"icefloe.state.dir": str(tmp_path / "state"), "icefloe.drain.grace.ms": grace_ms}
        properties = {**NODE, **own}
        node.send({"op": "configure", "version": VERSION, "properties": properties})
        names = (
            name
            for message in node.receive()
            if message["event"] == "metrics"
            for name, _, _ in message["samples"]
        )
        assert "jvm_threads_current" in names  # one second after the warm-up has begun
        node.send({"op": "shutdown", "grace_ms": 30_000})
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        node.close()
    text = output.read_text()
    assert "Spark session is ready" in text
    unwanted = ("Traceback", "Exception", "Error", "\tat ", "incubator modules")
    assert not [each for each in unwanted if each in text], text

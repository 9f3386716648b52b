"""What a worker does before its modules are there: little is imported, Spark starts at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from connect.processes.ipc import Channel
from worker.spark.opening import early

HEAVY = (
    "connect.processes.child_main",
    "connect.validation.parse",
    "fastavro",
    "pandas",
    "pyiceberg",
    "sqlalchemy",
)
OF_OTHERS = {
    "coordinator.__main__": ("fastapi", "py4j", "pyspark", "uvicorn", "worker"),
    "worker.serving": ("coordinator", "fastapi", "uvicorn"),
    "connect.node": ("coordinator", "py4j", "pyspark", "worker"),
}


def imported(module: str) -> set[str]:
    """Modules of an interpreter that has imported this one."""
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_spark_starts_before_the_modules_that_take_long() -> None:
    """A worker's first module brings Spark's client and the pipe, and none that take seconds."""
    found = imported("worker.__main__")
    assert "worker.spark.session" in found
    assert found.isdisjoint(HEAVY)


def test_a_process_imports_nothing_of_another_kind() -> None:
    """No Spark beside the committer and the API, no API beside the tasks."""
    for module, others in OF_OTHERS.items():
        found = imported(module)
        assert module in found
        assert found.isdisjoint(others), module


def test_a_session_starts_from_properties_as_they_are() -> None:
    """The properties of Spark and the folder are all that it needs."""
    given = {"group.id": "g", "spark.a": "1", "icefloe.state.dir": "/s"}
    assert early(given) == ({"spark.a": "1"}, Path("/s"))


def test_a_session_waits_for_properties_that_must_be_resolved() -> None:
    """A placeholder, or a folder that is not named, needs the whole configuration."""
    assert early({"spark.a": "${env:A}", "icefloe.state.dir": "/s"}) is None
    assert early({"spark.a": "1", "icefloe.state.dir": "${env:S}"}) is None
    assert early({"spark.a": "1"}) is None
    assert early({}) is None


def test_the_first_message_is_received_again() -> None:
    """Who starts early reads it, who serves the node receives it in its place."""
    ours, theirs = socket.socketpair()
    node, child = Channel(ours), Channel(theirs)
    node.send({"op": "configure"})
    node.send({"op": "start"})
    assert child.first() == {"op": "configure"}
    node.close()
    assert [message["op"] for message in child.receive()] == ["configure", "start"]
    child.close()


def test_a_node_that_is_gone_sent_no_first_message() -> None:
    """Nothing comes, then or later."""
    ours, theirs = socket.socketpair()
    node, child = Channel(ours), Channel(theirs)
    node.close()
    assert child.first() == {}
    assert list(child.receive()) == []
    child.close()

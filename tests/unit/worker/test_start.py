"""The start of a worker: Spark starts before most modules are imported."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from connect.processes.ipc import Channel
from worker.spark.session_opening import session_properties

HEAVY = (
    "connect.processes.child_main",
    "connect.validation.parse",
    "fastavro",
    "pandas",
    "pyiceberg",
    "sqlalchemy",
)
TELEMETRY = "opentelemetry.sdk"  # only a node that exports imports it
LINEAGE = "openlineage"  # the same
OF_OTHERS = {
    "coordinator.serving": (TELEMETRY, LINEAGE, "fastapi", "py4j", "pyspark", "uvicorn", "worker"),
    "worker.serving": (TELEMETRY, LINEAGE, "coordinator", "fastapi", "uvicorn"),
    "connect.node.node": (TELEMETRY, LINEAGE, "coordinator", "py4j", "pyspark", "worker"),
}


# of all processes; imported once, before the fork of an interpreter for each of them
COMMON = (
    "confluent_kafka",
    "pyarrow.parquet",
    "pyiceberg.io.pyarrow",
    "connect.records.record_path",
)
PROGRAM = """
import importlib, os, sys
modules, common = (argument.split() for argument in sys.argv[1:])
for name in common:
    importlib.import_module(name)
for name in modules:
    if not os.fork():
        importlib.import_module(name)
        print(*sys.modules, flush=True)
        os._exit(0)
    _, status = os.wait()
    assert status == 0, name
"""


def imported(*modules: str, common: Sequence[str] = ()) -> list[set[str]]:
    """Modules of interpreters that each imported one of these modules after the common ones."""
    command = [sys.executable, "-c", PROGRAM, " ".join(modules), " ".join(common)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_spark_starts_before_slow_imports() -> None:
    """The first module of a worker imports Spark's client and the IPC channel only."""
    (found,) = imported("worker.__main__")
    assert "worker.spark.session" in found
    assert found.isdisjoint(HEAVY)


def test_a_process_imports_no_modules_of_other_processes() -> None:
    """No Spark in coordinator and node, no REST API in the others, no telemetry."""
    every = imported(*OF_OTHERS, common=COMMON)
    for (module, others), found in zip(OF_OTHERS.items(), every, strict=True):
        assert module in found
        assert found.isdisjoint(others), module


def test_a_session_starts_without_resolved_properties() -> None:
    """It needs only Spark's properties and the state folder."""
    given = {"group.id": "g", "spark.a": "1", "icefloe.state.dir": "/s"}
    assert session_properties(given) == ({"spark.a": "1"}, Path("/s"))


def test_a_session_waits_for_properties_that_must_be_resolved() -> None:
    """With a placeholder, or without a state folder, the whole configuration is resolved first."""
    assert session_properties({"spark.a": "${env:A}", "icefloe.state.dir": "/s"}) is None
    assert session_properties({"spark.a": "1", "icefloe.state.dir": "${env:S}"}) is None
    assert session_properties({"spark.a": "1"}) is None
    assert session_properties({}) is None


def test_the_first_message_is_received_again() -> None:
    """An early start reads it, and the command loop receives it as well."""
    ours, theirs = socket.socketpair()
    node, child = Channel(ours), Channel(theirs)
    node.send({"op": "configure"})
    node.send({"op": "start"})
    assert child.first() == {"op": "configure"}
    node.close()
    assert [message["op"] for message in child.receive()] == ["configure", "start"]
    child.close()


def test_an_ended_node_sends_no_first_message() -> None:
    """The channel is empty, and stays empty."""
    ours, theirs = socket.socketpair()
    node, child = Channel(ours), Channel(theirs)
    node.close()
    assert child.first() == {}
    assert list(child.receive()) == []
    child.close()

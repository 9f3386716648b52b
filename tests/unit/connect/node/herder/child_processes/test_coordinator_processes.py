"""Coordinators of a node spread over several processes."""

from __future__ import annotations

from typing import Any

from connect.backoff import BackoffPolicy
from connect.clock import SystemClock
from connect.config.node.node_config import NodeConfig
from connect.model.layout import TopicPartition, spread
from connect.node.herder.child_processes.local_units import CoordinatorProcesses
from connect.node.herder.child_requests import ChildRequests
from connect.node.herder.units.units import ConnectorRun, TargetUnits
from connect.node.node_start import COMMANDS, _each_process
from connect.processes.coordinator_names import coordinator_names, is_coordinator

POLICY = BackoffPolicy(first_ms=1, longest_ms=1)
TARGET = TargetUnits(spread("x", 1, [TopicPartition("t", 0)], tasks=1), {}, has_coordinator=True)


def test_names_of_the_processes() -> None:
    """The first has the name that it has when it is alone."""
    assert coordinator_names(1) == ("coordinator",)
    assert coordinator_names(3) == ("coordinator", "coordinator-2", "coordinator-3")
    assert all(map(is_coordinator, coordinator_names(3)))
    assert not is_coordinator("worker")
    assert not is_coordinator("maintenance")


def test_a_node_starts_as_many_as_configured() -> None:
    """One by default."""

    def started(**more: str) -> list[str]:
        given = {
            "bootstrap.servers": "b:1",
            "group.id": "g",
            "config.storage.topic": "g-config",
            "status.storage.topic": "g-status",
        }
        config = NodeConfig.from_properties({**given, **more})
        return [name for name, _ in _each_process(COMMANDS, config)]

    assert started() == ["worker", "coordinator"]
    three = started(**{"icefloe.coordinator.processes": "3"})
    assert three == ["worker", "coordinator", "coordinator-2", "coordinator-3"]


def test_a_connector_goes_to_the_least_loaded_process_and_stays() -> None:
    """Also when it is placed on another node for a while, or deleted and created again."""
    runs: dict[str, ConnectorRun] = {}
    processes = CoordinatorProcesses(("worker", *coordinator_names(2)), runs)

    def placed(name: str) -> str:
        run = runs[name] = ConnectorRun.of(name, POLICY)
        processes.place(run)
        run.take(TARGET)
        return run.coordinator.child

    first, second = coordinator_names(2)
    assert [placed(name) for name in "abcd"] == [first, second, first, second]
    runs["b"].rest(is_paused=False)
    runs["d"].rest(is_paused=False)
    assert [placed(name) for name in "ef"] == [second, second]
    assert placed("b") == second
    del runs["c"]
    assert placed("c") == first


def test_a_command_goes_to_the_process_of_its_connector() -> None:
    """And its answer is awaited from there: the end of another process fails nothing."""

    class Process:
        """Notes what it is sent, and answers the second command."""

        sent: list[Any]

        def __init__(self) -> None:
            self.sent = []

        def send(self, message: Any, *, wait_s: float = 0.0) -> bool:
            """Take a command."""
            del wait_s
            self.sent.append(message)
            requests.exited("coordinator")
            requests.answered({"request": message["request"], "state": "done"})
            return True

    children: Any = {name: Process() for name in coordinator_names(2)}
    requests = ChildRequests(children, SystemClock(), lambda name: f"coordinator-{name[-1]}")
    answer = requests.ask("coordinator", {"op": "decide", "connector": "c2"})
    assert answer["state"] == "done"
    assert [len(children[name].sent) for name in coordinator_names(2)] == [0, 1]

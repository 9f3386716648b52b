"""A change of a connector that arrives while its convergence job runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from connect.backoff import BackoffPolicy
from connect.clock import SystemClock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition, spread
from connect.node.herder.child_processes.maintenance_runs import MaintenanceSettings
from connect.node.herder.cluster.cluster_members import ClusterMembers
from connect.node.herder.cluster.leader import ClusterLeader
from connect.node.herder.deployment.deployer import StopUnits
from connect.node.herder.herder import Herder
from connect.state.compacted_topic import StorageTopic
from connect.state.config_store import ConfigStore, StoreSettings
from connect.state.connector_state import StoredConnector
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore
from tests.support.memory_topics import CONFIG, MemoryConfigTopic

WAIT_S = 60


class RecordingChild:
    """A child process that records commands, and reports each stop as done.

    Attributes:
        commands: in order.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self.commands: list[Mapping[str, Any]] = []
        self.herder: Herder

    def send(self, message: Mapping[str, Any]) -> bool:
        """Take a command."""
        with self._changed:
            self.commands.append(message)
            self._changed.notify_all()
        if message["op"] == "stop":
            reported = {key: message.get(key) for key in ("connector", "task", "generation")}
            last = {"sequence": 1, "state": "STOPPED", "ended": True}
            self.herder.received(self._name, {"event": "state", **reported, **last})
        return True

    def trim_log(self) -> None:
        """It writes none."""

    def has_received(self, op: str) -> bool:
        """Return whether this command arrives in time."""
        with self._changed:
            return self._changed.wait_for(lambda: any(m["op"] == op for m in self.commands), WAIT_S)


class Deployer:
    """Lays out one task without a broker; a job is held once a restart was requested."""

    def __init__(self, store: ConfigStore, leader: ClusterLeader) -> None:
        self._store = store
        self._leader = leader
        self.is_held = threading.Event()
        self.may_end = threading.Event()
        self._seen: queue.Queue[StoredConnector] = queue.Queue()

    def converge(self, name: str, stop: StopUnits) -> None:
        """The steps of the real one."""
        state = self._store.get(name)
        if state.config is None or state.target != "STARTED":
            stop(with_coordinator=True)
        elif state.layout is None:
            layout = spread(name, 1, [TopicPartition("t", 0)], tasks=1)
            self._store.put_layout(layout, state.config)
            self._store.put_ready(layout, self._leader.placements.place(name, 1))
        if state.restart is not None:
            self.is_held.set()
            self.may_end.wait(WAIT_S)
        self._seen.put(state)

    def await_seen(self, is_so: Callable[[StoredConnector], bool]) -> None:
        """Wait until a job has read such a state."""
        while not is_so(self._seen.get(timeout=WAIT_S)):
            pass

    def keep_offsets(self) -> None:
        """Do nothing: there are no offsets."""

    def is_completed(self, state: StoredConnector) -> bool:
        """Return False: no run is bounded."""
        del state
        return False

    def outdated(self) -> tuple[list[str], bool]:
        """Return nothing: topics never change."""
        return [], False


class Node:
    """A herder that leads alone, with its stores in memory.

    Attributes:
        is_deaf: changes are read but not passed to the herder, as between these two steps.
    """

    def __init__(self) -> None:
        nowhere = {"bootstrap.servers": "127.0.0.1:1"}
        topics = (StorageTopic("config", "x"), StorageTopic("status", "y"))
        settings = StoreSettings("g", "a", *topics, nowhere, nowhere)
        admin, clock = KafkaAdmin(nowhere), SystemClock()
        self.is_deaf = False
        self.store = ConfigStore(settings, admin, clock, self._changed)
        self.store._topic = MemoryConfigTopic(self.store._apply)  # type: ignore[assignment]  # below what is tested
        statuses = StatusStore(settings, admin, clock)
        members = ClusterMembers(
            statuses,
            read_members=lambda: {"a"},
            worker_id="a",
            clock=clock,
            shrink_delay_ms=0,
        )
        leader = ClusterLeader(self.store, members, worker_id="a", url="http://a")
        self.deployer = Deployer(self.store, leader)
        self.worker, self.coordinator = RecordingChild("worker"), RecordingChild("coordinator")
        children: Any = {"worker": self.worker, "coordinator": self.coordinator}
        self.herder = Herder(
            store=self.store,
            statuses=statuses,
            deployer=self.deployer,  # type: ignore[arg-type]  # has what is asked of it
            leader=leader,
            children=children,
            clock=clock,
            node=NodeStatus("a", "http://a", version="1"),
            policy=BackoffPolicy(first_ms=10, longest_ms=10),
            refresh_ms=3_600_000,
            grace_ms=1_000 * WAIT_S,
            on_fatal=lambda _: None,
            on_metrics=lambda *_: None,
            maintenance=MaintenanceSettings(
                new_child=lambda _: pytest.fail("no maintenance is due"),
                orphan_age_ms=lambda _: None,
                is_allowed=False,
            ),
        )
        for child in children.values():
            child.herder = self.herder
        self.herder.start()
        for name in children:
            self.herder.received(name, {"event": "ready"})
        assert self.herder.election.joined.wait(WAIT_S)

    def _changed(self, name: str) -> None:
        if not self.is_deaf:
            self.herder.changed(name)


@pytest.fixture
def node() -> Iterator[Node]:
    """A node on which the connector ``c`` runs."""
    node = Node()
    node.store.put_connector("c", CONFIG)
    for child in (node.worker, node.coordinator):
        assert child.has_received("start")
    yield node
    node.deployer.may_end.set()
    node.herder.close()


def hold(node: Node) -> None:
    """Let a job run up to its end; it is started by a restart of no unit."""
    node.store.put_restart("1", "c", coordinator=False, tasks=[])
    assert node.deployer.is_held.wait(WAIT_S)


@pytest.mark.parametrize("target", ["PAUSED", "STOPPED"])
def test_a_target_state_read_at_the_end_of_a_job_gets_a_job(node: Node, target: Any) -> None:
    """The target state is read after the job has read the store, and before it ends."""
    hold(node)
    node.is_deaf = True
    node.store.put_target("c", target)
    node.deployer.may_end.set()
    node.deployer.await_seen(lambda state: state.target == target)
    for child in (node.worker, node.coordinator):
        assert child.has_received("stop")


def test_a_deletion_that_is_read_at_the_end_of_a_job_gets_a_job(node: Node) -> None:
    """The connector is not removed before the leader has fenced it."""
    hold(node)
    node.is_deaf = True
    node.store.delete_connector("c")
    node.deployer.may_end.set()
    node.deployer.await_seen(lambda state: state.config is None)
    for child in (node.worker, node.coordinator):
        assert child.has_received("stop")

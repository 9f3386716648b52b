"""What a herder does with a change that comes while it brings a connector to an earlier one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from connect.clock import SystemClock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition, spread
from connect.node.herder.herder import Herder
from connect.node.herder.leader import Leading
from connect.processes.backoff import BackoffPolicy
from connect.state.compacted_topic import StorageTopic
from connect.state.config_store import ConfigStore, StoreSettings
from connect.state.connector_state import StoredConnector
from connect.state.status_store import StatusStore
from tests.support.memory_topics import CONFIG, Log

WAIT_S = 60


class Hand:
    """In place of a child process: keeps what it is told, and says that it has stopped.

    Attributes:
        reported: commands in order.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self.reported: list[Mapping[str, Any]] = []
        self.herder: Herder

    def send(self, message: Mapping[str, Any]) -> bool:
        """Take a command."""
        with self._changed:
            self.reported.append(message)
            self._changed.notify_all()
        if message["op"] == "stop":
            said = {key: message.get(key) for key in ("connector", "task", "generation")}
            last = {"sequence": 1, "state": "STOPPED", "ended": True}
            self.herder.received(self._name, {"event": "state", **said, **last})
        return True

    def trim_log(self) -> None:
        """It writes none."""

    def was_told(self, op: str) -> bool:
        """Whether this command has come, or comes in time."""
        with self._changed:
            return self._changed.wait_for(lambda: any(m["op"] == op for m in self.reported), WAIT_S)


class Deployer:
    """Lays out one task without a broker; its work is held once a restart was asked for."""

    def __init__(self, store: ConfigStore, leading: Leading) -> None:
        self._store = store
        self._leading = leading
        self.is_held = threading.Event()
        self.may_end = threading.Event()
        self._seen: queue.Queue[StoredConnector] = queue.Queue()

    def converge(self, name: str, stop: Callable[[bool], None]) -> None:
        """The steps of the real one."""
        state = self._store.get(name)
        if state.config is None or state.target != "STARTED":
            stop(True)  # noqa: FBT003 - as the real one calls it
        elif state.layout is None:
            layout = spread(name, 1, [TopicPartition("t", 0)], tasks=1)
            self._store.put_layout(layout, state.config)
            self._store.put_ready(layout, self._leading.places_for(name, 1))
        if state.restart is not None:
            self.is_held.set()
            self.may_end.wait(WAIT_S)
        self._seen.put(state)

    def await_seen(self, is_so: Callable[[StoredConnector], bool]) -> None:
        """Wait until a job has been about such a state."""
        while not is_so(self._seen.get(timeout=WAIT_S)):
            pass

    def keep_offsets(self) -> None:
        """There are no offsets here."""

    def outdated(self) -> tuple[list[str], bool]:
        """Topics never change here."""
        return [], False


class Node:
    """A herder that leads alone, with its stores in memory.

    Attributes:
        is_deaf: what is read is not heard of, as in the moment between the two.
    """

    def __init__(self) -> None:
        nowhere = {"bootstrap.servers": "127.0.0.1:1"}
        topics = (StorageTopic("config", "x"), StorageTopic("status", "y"))
        settings = StoreSettings("g", "a", *topics, nowhere, nowhere)
        admin, clock = KafkaAdmin(nowhere), SystemClock()
        self.is_deaf = False
        self.store = ConfigStore(settings, admin, clock, self._changed)
        self.store._log = Log(self.store._apply)  # type: ignore[assignment]  # below what is tested
        statuses = StatusStore(settings, admin, clock)
        leading = Leading(
            self.store,
            statuses,
            members=lambda: {"a"},
            worker_id="a",
            url="http://a",
            clock=clock,
            shrink_delay_ms=0,
        )
        self.deployer = Deployer(self.store, leading)
        self.worker, self.coordinator = Hand("worker"), Hand("coordinator")
        children: Any = {"worker": self.worker, "coordinator": self.coordinator}
        self.herder = Herder(
            store=self.store,
            statuses=statuses,
            deployer=self.deployer,  # type: ignore[arg-type]  # has what is asked of it
            leading=leading,
            children=children,
            clock=clock,
            worker_id="a",
            url="http://a",
            version="1",
            policy=BackoffPolicy(first_ms=10, longest_ms=10),
            refresh_ms=3_600_000,
            grace_ms=1_000 * WAIT_S,
            on_fatal=lambda _: None,
            on_metrics=lambda *_: None,
        )
        for hand in children.values():
            hand.herder = self.herder
        self.herder.start()
        for name in children:
            self.herder.received(name, {"event": "ready"})
        assert self.herder.leadership.joined.wait(WAIT_S)

    def _changed(self, name: str) -> None:
        if not self.is_deaf:
            self.herder.changed(name)


@pytest.fixture
def node() -> Iterator[Node]:
    """A node on which the connector ``c`` runs."""
    made = Node()
    made.store.put_connector("c", CONFIG)
    for hand in (made.worker, made.coordinator):
        assert hand.was_told("start")
    yield made
    made.deployer.may_end.set()
    made.herder.close()


def hold(node: Node) -> None:
    """Let a job run up to its end; a restart of nothing is all that it is there for."""
    node.store.put_restart("1", "c", coordinator=False, tasks=[])
    assert node.deployer.is_held.wait(WAIT_S)


@pytest.mark.parametrize("target", ["PAUSED", "STOPPED"])
def test_a_wish_that_is_read_at_the_end_of_a_job_gets_a_job(node: Node, target: Any) -> None:
    """The wish is read after the job has looked, and not heard of when the job is over."""
    hold(node)
    node.is_deaf = True
    node.store.put_target("c", target)
    node.deployer.may_end.set()
    node.deployer.await_seen(lambda state: state.target == target)
    for hand in (node.worker, node.coordinator):
        assert hand.was_told("stop")


def test_a_deletion_that_is_read_at_the_end_of_a_job_gets_a_job(node: Node) -> None:
    """It is not forgotten before the leader has fenced it."""
    hold(node)
    node.is_deaf = True
    node.store.delete_connector("c")
    node.deployer.may_end.set()
    node.deployer.await_seen(lambda state: state.config is None)
    for hand in (node.worker, node.coordinator):
        assert hand.was_told("stop")

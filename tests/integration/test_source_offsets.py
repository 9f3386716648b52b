"""Source offsets that only the leader changes: kept, moved, forgotten, and by no other leader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from connect.clock import SystemClock
from connect.embedded.broker import Broker
from connect.errors import Fenced, IcefloeError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.metrics.process_metrics import PROCESS
from connect.model.layout import TopicPartition
from connect.node.herder.child_requests import ChildRequests
from connect.node.node_requests import UnavailableError
from connect.validation.parse import parse
from control_schemas.codec import encode
from control_schemas.events import CommitComplete, DataComplete, Event, Payload, StartCommit
from tests.support.leader_node import NAME, LeaderNode
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka
WAIT_S = 150
FORGETFUL = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}


@pytest.fixture
def new_leader(
    kafka_properties: dict[str, str], topics: Topics
) -> Iterator[Callable[[], LeaderNode]]:
    """Leaders of one cluster, each taking over from the one before."""
    storage, source = unique_name("config"), topics.create("source", partitions=2)
    control = topics.create("control")
    leaders: list[LeaderNode] = []

    def leader(**more: str) -> LeaderNode:
        leaders.append(LeaderNode(kafka_properties, storage, source, control, more=more))
        return leaders[-1]

    yield leader
    for started in leaders:
        started.close()


def offsets_stored() -> float:
    """Offsets that leaders of this process have stored again."""
    _, samples = PROCESS.snapshot()
    return sum(value for name, _, value in samples if name == "offsets_kept")


class FrozenMethod:
    """Stops the thread that calls a method first, as SIGSTOP does, until it is thawed."""

    def __init__(self, owner: object, name: str) -> None:
        self.is_reached, self._may_go = threading.Event(), threading.Event()
        self._first = threading.Lock()
        original = getattr(owner, name)

        def method(*arguments: Any, **named: Any) -> Any:
            if self._first.acquire(blocking=False):
                self.is_reached.set()
                assert self._may_go.wait(WAIT_S)
            return original(*arguments, **named)

        setattr(owner, name, method)

    def thaw(self) -> None:
        """Continue the frozen call."""
        self._may_go.set()


@contextmanager
def frozen_call(frozen: FrozenMethod, call: Callable[[], object]) -> Iterator[list[IcefloeError]]:
    """Run a call in a thread and freeze it while the block runs; then wait for its end.

    Returns:
        The error of the call; there is none before the block has ended.
    """
    errors: list[IcefloeError] = []

    def run() -> None:
        try:
            call()
        except IcefloeError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert frozen.is_reached.wait(WAIT_S)
    yield errors
    frozen.thaw()
    thread.join(WAIT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("owner", "name"),
    [("store", "put_source_floor"), ("admin", "refuse_members"), ("admin", "topic_id")],
)
@pytest.mark.parametrize("given", [7, pytest.param(None, marks=pytest.mark.matrix)])
def test_a_frozen_leader_changes_no_offset_of_its_successor(
    new_leader: Callable[[], LeaderNode], owner: str, name: str, given: int | None
) -> None:
    """Frozen at any step of a change, it continues after a task of a new leader has run."""
    first = new_leader()
    first.create()
    first.store_offsets(0, {0: 10, 1: 10})
    first.request_state("STOPPED")
    frozen = FrozenMethod(getattr(first, owner), name)
    change = {TopicPartition(first.topic, 0): given}
    with frozen_call(frozen, lambda: first.changes.alter(NAME, change)) as errors:
        second = new_leader()
        second.request_state("STARTED")
        second.store_offsets(0, {0: 50, 1: 50})
    assert len(errors) == 1
    assert second.committed() == {0: 50, 1: 50}


def test_a_frozen_leader_sets_no_start_offset_for_its_successor(
    new_leader: Callable[[], LeaderNode],
) -> None:
    """Only the new leader sets the offsets that were to be set at the start."""
    first = new_leader()
    first.create()
    first.store_offsets(0, {0: 10, 1: 10})
    first.request_state("STOPPED")
    first.store.put_offsets(NAME, {TopicPartition(first.topic, p): 5 for p in range(2)})
    frozen = FrozenMethod(first.store, "put_offsets")
    with frozen_call(frozen, lambda: first.request_state("STARTED")) as errors:
        second = new_leader()
        second.converge()
        assert second.committed() == {0: 5, 1: 5}
        second.store_offsets(0, {0: 50, 1: 50})
    assert [type(error) for error in errors] == [Fenced]
    assert second.committed() == {0: 50, 1: 50}


def test_the_source_floor_follows_the_offsets_until_they_are_reset(
    new_leader: Callable[[], LeaderNode],
) -> None:
    """Committed offsets are noted; set offsets move the floor, a reset clears it."""
    leader = new_leader()
    leader.create()
    assert leader.floor() == {}
    leader.store_offsets(0, {0: 10})
    leader.deployer.keep_offsets()
    assert leader.floor() == {0: 10}
    leader.store_offsets(1, {1: 4})
    leader.request_state("STOPPED")
    assert leader.floor() == {0: 10, 1: 4}
    leader.admin.delete_group(leader.group)  # expired
    leader.deployer.keep_offsets()
    assert leader.floor() == {0: 10, 1: 4}
    leader.changes.alter(NAME, {TopicPartition(leader.topic, 0): 2})
    assert leader.floor() == {0: 2, 1: 4}
    assert leader.committed() == {0: 2, 1: None}
    leader.changes.alter(NAME, {TopicPartition(leader.topic, 0): None})
    assert leader.floor() == {1: 4}
    assert leader.committed() == {0: None, 1: None}
    leader.changes.reset(NAME)
    assert leader.floor() == {}
    again = new_leader()
    assert again.floor() == {}


def test_a_group_that_consumers_left_is_recreated(
    new_leader: Callable[[], LeaderNode], kafka_properties: dict[str, str], admin: KafkaAdmin
) -> None:
    """Otherwise the broker deletes its offsets a week after they left."""
    leader = new_leader()
    member = Consumer({**kafka_properties, "group.id": leader.group, "enable.auto.commit": False})
    member.subscribe([leader.topic])
    while not member.assignment():
        member.poll(1)
    places = [ClientPartition(leader.topic, p, 3 + p) for p in range(2)]
    member.commit(offsets=places, asynchronous=False)
    member.close()
    assert admin.has_had_members(leader.group)
    leader.create()
    assert not admin.has_had_members(leader.group)
    assert leader.committed() == {0: 3, 1: 4}
    assert leader.store.get(NAME).pending_offsets is None


def test_a_frozen_leader_that_deletes_a_group_starts_nothing_from_the_policy(
    new_leader: Callable[[], LeaderNode],
) -> None:
    """A deletion is not transactional: the floor keeps the partitions known."""
    first = new_leader()
    first.create()
    first.store_offsets(0, {0: 10, 1: 10})
    first.request_state("STOPPED")
    frozen = FrozenMethod(first.admin, "delete_group")
    change = {TopicPartition(first.topic, 0): None}
    with frozen_call(frozen, lambda: first.changes.alter(NAME, change)) as errors:
        second = new_leader()
        second.request_state("STARTED")
        second.store_offsets(0, {0: 50, 1: 50})
        second.deployer.keep_offsets()
    assert [type(error) for error in errors] == [UnavailableError]
    assert second.committed() == {0: None, 1: None}
    assert second.floor() == {0: 50, 1: 50}


def test_a_frozen_leader_does_not_rebase_the_connector_of_its_successor(
    new_leader: Callable[[], LeaderNode],
) -> None:
    """It wakes after the tables were read: control offsets of the new leader stay."""
    first = new_leader()
    first.create()
    place, group = TopicPartition(first.control, 0), f"{first.group}-coord"
    first.request_state("STOPPED")
    first.changes.alter(NAME, {TopicPartition(first.topic, 0): 1})  # an event
    first.admin.alter_offsets(group, {place: 1_000})  # above the end of the log
    tables = Tables()
    frozen = FrozenMethod(tables, "ask")
    rebase = first.rebase(tables)
    with frozen_call(frozen, rebase) as errors:
        second = new_leader()
        (end,) = second.admin.ends([place]).values()
        assert end
        second.admin.alter_offsets(group, {place: end})
        second.request_state("STARTED")
    assert [type(error) for error in errors] == [Fenced]
    assert second.admin.committed(group, [place]) == {place: end}
    second.request_state("STOPPED")
    second.admin.alter_offsets(group, {place: 1_000})
    second.rebase(tables)()
    assert second.admin.committed(group, [place]) == {place: 0}


class Tables(ChildRequests):
    """The tables of a connector, as its coordinator process reads them."""

    def __init__(self) -> None:
        super().__init__({}, SystemClock())

    def ask(
        self, child: str, message: Mapping[str, Any], *, timeout_s: float = 0
    ) -> Mapping[str, Any]:
        """Return what a rebase does to them."""
        del timeout_s
        assert (child, message["op"]) == ("coordinator", "rebase")
        return {"tables": []}


def test_a_frozen_leader_does_not_delete_the_second_group_of_its_successor(
    new_leader: Callable[..., LeaderNode],
) -> None:
    """The older sink has two groups; a reset that wakes late deletes neither of them."""
    older = {"connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector"}
    first = new_leader(**older)
    first.create()
    first.store_offsets(0, {0: 10, 1: 10})
    first.request_state("STOPPED")
    copy = parse(first.config).fallback_group_id
    assert copy is not None
    place = TopicPartition(first.topic, 1)
    first.admin.alter_offsets(copy, {place: 7})
    frozen = FrozenMethod(first.admin, "refuse_members")
    with frozen_call(frozen, lambda: first.changes.reset(NAME)) as errors:
        second = new_leader(**older)
        second.request_state("STARTED")
    assert [type(error) for error in errors] == [Fenced]
    assert second.admin.committed_all(copy) == {place: 7}
    assert second.committed() == {0: 10, 1: 10}
    second.admin.delete_group(copy)  # connectors of other tests have this name


def test_the_control_offset_of_a_paused_connector_passes_foreign_events(
    new_leader: Callable[[], LeaderNode], kafka_properties: dict[str, str]
) -> None:
    """Up to its own first announcement: retention of a shared topic deletes none of its events."""
    leader = new_leader()
    leader.create()
    place, group = TopicPartition(leader.control, 0), f"{leader.group}-coord"
    producer = TransactionalProducer(kafka_properties, "events")
    producer.init()

    def send(group_id: str, payload: Payload) -> int:
        event = Event(uuid4(), 0, group_id, payload)
        producer.transact([ProducerMessage(leader.control, None, encode(event), partition=0)])
        while leader.admin.ends([place]) != leader.admin.high_watermarks([place]):
            time.sleep(0.05)
        return leader.admin.ends([place])[place]

    at = send(leader.group, StartCommit(uuid4()))
    leader.admin.alter_offsets(group, {place: 0})
    send(leader.group, CommitComplete(uuid4(), None))
    end = send("connect-other", DataComplete(uuid4(), ()))
    leader.request_state("PAUSED")
    leader.deployer.keep_offsets()
    assert at < end
    assert leader.admin.committed(group, [place]) == {place: end}
    send(leader.group, DataComplete(uuid4(), ()))
    send("connect-other", DataComplete(uuid4(), ()))
    leader.deployer.keep_offsets()
    assert leader.admin.committed(group, [place]) == {place: end}
    producer.close()


def test_offsets_of_a_group_with_members_are_not_changed(
    new_leader: Callable[[], LeaderNode], kafka_properties: dict[str, str]
) -> None:
    """The connector is stopped in Icefloe and runs in the Java sink again."""
    leader = new_leader()
    leader.create()
    leader.store_offsets(0, {0: 10})
    leader.request_state("STOPPED")
    member = Consumer({**kafka_properties, "group.id": leader.group, "enable.auto.commit": False})
    member.subscribe([leader.topic])
    while not member.assignment():
        member.poll(1)
    before = offsets_stored()
    leader.deployer.keep_offsets()
    assert offsets_stored() == before
    member.close()
    while offsets_stored() == before:  # the test's timeout bounds it
        leader.deployer.keep_offsets()


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_offsets_of_inactive_tasks_survive_the_retention_of_the_broker(tmp_path: Path) -> None:
    """Those of failed tasks, and of paused or stopped connectors, are stored again."""
    with Broker(tmp_path / "broker", settings=FORGETFUL) as broker:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        topics = Topics(broker)
        source, control = topics.create("source", partitions=2), topics.create("control")
        leader = LeaderNode(kafka, "config", source, control)
        leader.create()
        leader.store_offsets(0, {0: 3})
        leader.store_offsets(1, {1: 4})
        leader.failed = {1}
        first = TopicPartition(source, 0)

        def wait_until_forgotten(witness: str) -> None:
            leader.admin.alter_offsets(witness, {first: 1})
            while leader.admin.committed(witness, [first])[first] is not None:
                if leader.store.get(NAME).target == "STARTED":
                    leader.store_offsets(0, {0: 3})
                leader.deployer.keep_offsets()
                time.sleep(2)

        wait_until_forgotten("witness")
        assert leader.committed() == {0: 3, 1: 4}
        place, group = TopicPartition(control, 0), f"{leader.group}-coord"
        leader.admin.alter_offsets(group, {place: 0})
        for target in ("PAUSED", "STOPPED"):
            leader.request_state(target)
            wait_until_forgotten(f"witness-{target}")
            assert leader.committed() == {0: 3, 1: 4}
            assert leader.admin.committed(group, [place]) == {place: 0}
        leader.close()

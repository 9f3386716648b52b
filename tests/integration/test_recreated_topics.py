"""A leader that accepts a recreated source topic: at any crash, and by no other leader."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator

import pytest

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.node.herder.deployment.recreated_topics import CONFIRM_MS
from connect.protocol.control_topic import read_to_end
from connect.protocol.source_floor import RecreatedTopic
from tests.support.leader_node import NAME, LeaderNode
from tests.support.stack import Topics, unique_name
from tests.support.topic_deletion import delete_topic

pytestmark = pytest.mark.kafka
WAIT_S = 150
CONTINUES = {"icefloe.fail-on-data-loss": "false"}


@pytest.fixture
def made(kafka_properties: dict[str, str], topics: Topics) -> Iterator[Callable[..., LeaderNode]]:
    """Leaders of one cluster, each taking over from the one before."""
    storage, source = unique_name("config"), topics.create("source", partitions=2)
    control = topics.create("control")
    leaders: list[LeaderNode] = []

    def is_made(more: dict[str, str]) -> bool:
        try:
            leaders.append(LeaderNode(kafka_properties, storage, source, control, more=dict(more)))
        except RetriableError:  # a broker that has just started loads its coordinators first
            return False
        return True

    def leader(more: dict[str, str] = CONTINUES) -> LeaderNode:
        _wait(lambda: is_made(more))
        return leaders[-1]

    yield leader
    for one in leaders:
        one.close()


def _recreate(leader: LeaderNode, partitions: int = 2) -> str:
    delete_topic(leader.admin, leader.topic)
    _wait(lambda: leader.topic not in leader.admin.topics())
    leader.admin.ensure_topic(leader.topic, partitions, replication_factor=1)
    _wait(lambda: leader.admin.topic_id(leader.topic) is not None)
    return str(leader.admin.topic_id(leader.topic))


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _create(leader: LeaderNode) -> None:
    """Create the connector, also while the broker loads its coordinators."""

    def is_created() -> bool:
        try:
            leader.create()
        except RetriableError:
            return False
        return True

    _wait(is_created)


def _converge(leader: LeaderNode) -> None:
    """Converge until the id of the topic is confirmed, as the herder repeats the job."""
    codes = set()

    def converges() -> bool:
        try:
            leader.converge()
        except RetriableError as e:
            codes.add(e.code)
            leader.clock.skipped_ms += CONFIRM_MS
            return False
        return True

    _wait(converges)
    assert codes <= {"source_topic_recreated"}


@contextlib.contextmanager
def _replaced(owner: object, name: str, function: object) -> Iterator[None]:
    """A method of a part that misbehaves in this block."""
    setattr(owner, name, function)
    try:
        yield
    finally:
        delattr(owner, name)


def _topic_id(leader: LeaderNode) -> str:
    layout = leader.store.get(NAME).layout
    assert layout is not None
    return dict(layout.topic_ids)[leader.topic]


def _recreated(leader: LeaderNode) -> RecreatedTopic:
    return leader.store.get(NAME).source_floor.recreated[leader.topic]


def _moved(leader: LeaderNode) -> list[tuple[tuple[str, int], ...]]:
    place = TopicPartition(leader.control, 0)
    start, end = leader.admin.watermarks([place])[place]
    reader = LogReader(leader.kafka)
    try:
        records = list(read_to_end(reader, {place: start}, {place: end}, SystemClock()))
    finally:
        reader.close()
    return [r.headers.moved for r in records if r.headers.moved is not None]


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_recreated_topic_is_read_from_its_start(
    made: Callable[..., LeaderNode], partitions: int
) -> None:
    """Also an offset that a task has stored after the topic was created again is replaced."""
    leader = made()
    _create(leader)
    leader.store_offsets(0, {0: 10, 1: 4})
    leader.request_state("STOPPED")
    leader.request_state("STARTED")
    former = _topic_id(leader)
    present = _recreate(leader, partitions)
    leader.store_offsets(0, {0: 12})  # a zombie, before it is fenced
    assert set(leader.deployer.outdated()[0]) == {NAME}
    _converge(leader)
    assert _topic_id(leader) == present
    assert leader.committed(partitions) == dict.fromkeys(range(partitions), 0)
    assert leader.floor() == dict.fromkeys(range(partitions), 0)
    found = _recreated(leader)
    assert (found.topic_id, found.former_ids) == (present, (former,))
    assert not found.is_pending
    assert {p: at for p, at in found.lost_from.items() if p < 2} == {0: 10, 1: 4}
    everywhere = {(leader.topic, p) for p in range(max(2, partitions))}
    assert any(set(moved) == everywhere for moved in _moved(leader))
    leader.store_offsets(0, {0: 7})
    leader.converge()
    assert leader.committed()[0] == 7
    assert leader.deployer.outdated()[0] == []


def test_a_connector_that_stops_at_data_loss_keeps_the_id(made: Callable[..., LeaderNode]) -> None:
    """Its tasks report the recreated topic; the leader changes nothing."""
    leader = made({})
    _create(leader)
    leader.store_offsets(0, {0: 10, 1: 4})
    former = _topic_id(leader)
    _recreate(leader)
    assert leader.deployer.outdated()[0] == []
    leader.converge()
    assert _topic_id(leader) == former


STEPS = [
    ("store", "put_layout"),
    ("admin", "refuse_members"),
    ("store", "put_ready"),
    *(("store", f"put_source_floor@{n}") for n in (1, 4)),
    *(pytest.param("store", f"put_source_floor@{n}", marks=pytest.mark.matrix) for n in (2, 3)),
]


@pytest.mark.parametrize(("owner", "step"), STEPS)
def test_a_successor_completes_what_a_leader_began(
    made: Callable[..., LeaderNode], owner: str, step: str
) -> None:
    """The leader ends before any of its steps. Offsets are 0 when the layout is ready."""
    first = made()
    _create(first)
    first.store_offsets(0, {0: 10, 1: 4})
    first.request_state("STOPPED")
    first.request_state("STARTED")
    present = _recreate(first)
    first.store_offsets(0, {0: 12, 1: 5})
    name, _, number = step.partition("@")
    calls = iter(range(1, 100))
    target = getattr(first, owner)
    original = getattr(target, name)

    def ends(*arguments: object, **named: object) -> object:
        if next(calls) == int(number or 1):
            raise RuntimeError("the leader ends")
        return original(*arguments, **named)

    with _replaced(target, name, ends), pytest.raises(RuntimeError):
        _converge(first)
    second = made()
    _converge(second)
    assert second.store.get(NAME).is_ready
    assert _topic_id(second) == present
    assert second.committed() == {0: 0, 1: 0}
    assert not _recreated(second).is_pending
    assert _recreated(second).lost_from == {0: 10, 1: 4}


def test_a_broker_that_is_behind_takes_no_offset_back(
    made: Callable[..., LeaderNode],
) -> None:
    """It still reports the former id; the connector has left that and keeps its offsets."""
    leader = made()
    _create(leader)
    leader.store_offsets(0, {0: 10, 1: 4})
    former = _topic_id(leader)
    present = _recreate(leader)
    _converge(leader)
    leader.store_offsets(0, {0: 7, 1: 3})
    original = leader.admin.topic_ids

    def behind(names: Collection[str]) -> dict[str, str]:
        return original(names) | dict.fromkeys({leader.topic} & {*names}, former)

    with _replaced(leader.admin, "topic_ids", behind):
        for _ in range(5):
            with pytest.raises(RetriableError):
                leader.converge()
            leader.clock.skipped_ms += CONFIRM_MS
    leader.converge()
    assert _topic_id(leader) == present
    assert leader.committed() == {0: 7, 1: 3}


def test_offsets_that_an_operator_sets_are_kept(
    made: Callable[..., LeaderNode],
) -> None:
    """The leader has recorded the topic and written nothing else; then the connector is stopped."""
    leader = made()
    _create(leader)
    leader.store_offsets(0, {0: 10, 1: 4})
    _recreate(leader)
    with (
        _replaced(leader.store, "put_layout", None),
        pytest.raises(TypeError, match="not callable"),
    ):
        _converge(leader)
    leader.request_state("STOPPED")
    leader.changes.alter(NAME, {TopicPartition(leader.topic, p): 2 for p in range(2)})
    leader.request_state("STARTED")
    assert leader.committed() == {0: 2, 1: 2}

"""Layout numbers after the config topic was lost: above all that were announced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from connect.errors import Fenced
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.model.layout import TopicPartition
from connect.protocol.fencing import task_transactional_id
from control_schemas.codec import encode
from control_schemas.events import DataComplete, Event, EventHeaders, TopicPartitionOffset
from control_schemas.headers import encode_headers
from tests.support.leader_node import NAME, LeaderNode
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka


@pytest.fixture
def make(kafka_properties: dict[str, str], topics: Topics) -> Iterator[Callable[[str], LeaderNode]]:
    """Leaders with a config topic each, over one source topic and one control topic."""
    source, control = topics.create("source", partitions=2), topics.create("control")
    leaders: list[LeaderNode] = []

    def leader(storage: str) -> LeaderNode:
        leaders.append(LeaderNode(kafka_properties, storage, source, control))
        return leaders[-1]

    yield leader
    for started in leaders:
        started.close()


def announce(leader: LeaderNode, number: int, *, group: str | None = None) -> None:
    """Announce data of an earlier layout that no coordinator has committed yet."""
    group = group or leader.group
    stand = TopicPartitionOffset(leader.topic, 0, 3, None)
    event = Event(uuid4(), 0, group, DataComplete(uuid4(), (stand,)))
    headers = encode_headers(EventHeaders(layout=number, ranges=()))
    producer = TransactionalProducer(leader.kafka, f"announcer-{leader.control}")
    producer.init()
    message = ProducerMessage(leader.control, group.encode(), encode(event), headers, partition=0)
    producer.transact([message], group_id=group, offsets={TopicPartition(leader.topic, 0): 3})
    producer.close()


def test_a_first_layout_has_a_higher_number_than_announced_ones(
    make: Callable[[str], LeaderNode],
) -> None:
    """Otherwise its rounds would not be covered, and older rows would win."""
    leader = make(unique_name("config"))
    announce(leader, 57)
    announce(leader, 99, group="connect-other")
    leader.create()
    state = leader.store.get(NAME)
    assert state.layout is not None
    assert state.layout.number == 58
    assert state.is_ready


def test_tasks_of_a_forgotten_layout_are_fenced(make: Callable[[str], LeaderNode]) -> None:
    """All that ``tasks.max`` allows: the config topic no longer has their number."""
    leader = replace(make(unique_name("config")), tasks=5)
    announce(leader, 57)
    old = TransactionalProducer(leader.kafka, task_transactional_id(leader.group_id, NAME, 4))
    old.init()
    leader.create()
    with pytest.raises(Fenced):
        old.transact([], group_id=leader.group, offsets={TopicPartition(leader.topic, 1): 9})
    old.close()
    leader.close()


def test_a_ready_layout_below_an_announced_one_is_replaced(
    make: Callable[[str], LeaderNode],
) -> None:
    """A config topic restored from a copy is behind the control topic."""
    leader = make(unique_name("config"))
    leader.create()
    announce(leader, 57)
    again = LeaderNode(leader.kafka, leader.storage, leader.topic, leader.control)
    assert again.deployer.outdated() == ([], False)
    again.deployer.keep_offsets()
    assert again.deployer.outdated() == ([NAME], False)
    again.converge()
    state = again.store.get(NAME)
    assert state.layout is not None
    assert (state.layout.number, state.is_ready) == (58, True)
    assert again.deployer.outdated() == ([], False)
    again.close()

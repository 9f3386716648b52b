"""Placements that a leader writes, and writes again after a refusal."""

from __future__ import annotations

import pytest

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition, spread
from connect.node.herder.cluster.cluster import is_placed
from connect.node.herder.cluster.cluster_members import ClusterMembers
from connect.node.herder.cluster.leader import ClusterLeader
from connect.state.compacted_topic import StorageTopic
from connect.state.config_store import ConfigStore, StoreSettings
from connect.state.placement import Places
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore
from tests.support.memory_topics import CONFIG, MemoryConfigTopic


class Cluster:
    """The leader ``a``, its stores without a broker, and the members of its group.

    Attributes:
        members: of the group.
        log: of the configurations.
    """

    def __init__(self, *names: str) -> None:
        nowhere = {"bootstrap.servers": "127.0.0.1:1"}
        settings = StoreSettings(
            "g",
            "a",
            StorageTopic("config", "config.storage.topic"),
            StorageTopic("status", "status.storage.topic"),
            nowhere,
            nowhere,
        )
        admin, clock = KafkaAdmin(nowhere), SystemClock()
        self.store = ConfigStore(settings, admin, clock)
        self.log = MemoryConfigTopic(self.store._apply)
        self.store._topic = self.log  # type: ignore[assignment]  # the part below the rules under test
        self.statuses = StatusStore(settings, admin, clock)
        self.members = set(names)
        for name in names:
            self.statuses.put_node(NodeStatus(name, f"http://{name}", is_ready=True))
        members = ClusterMembers(
            self.statuses,
            read_members=lambda: self.members,
            worker_id="a",
            clock=clock,
            shrink_delay_ms=300_000,
        )
        self.leader = ClusterLeader(self.store, members, worker_id="a", url="http://a")
        self.leader.take_over()

    def create(self, name: str, tasks: int) -> None:
        """Create a connector with a layout and a placement."""
        layout = spread(name, 1, [TopicPartition("t", p) for p in range(tasks)], tasks=tasks)
        self.store.put_connector(name, {**CONFIG, "name": name})
        self.store.put_layout(layout, {**CONFIG, "name": name})
        self.store.put_ready(layout, self.leader.placements.place(name, tasks))

    def places(self, name: str) -> Places:
        """Return the stored placement."""
        places = self.store.get(name).places
        assert places is not None
        return places


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes; two connectors of two tasks, with work on both nodes."""
    cluster = Cluster("a", "b")
    for name in ("one", "two"):
        cluster.create(name, 2)
        assert set(cluster.places(name).tasks) == {"a", "b"}
    return cluster


def test_units_of_a_lost_node_are_placed_after_a_broker_outage(cluster: Cluster) -> None:
    """After any number of refused writes, once at the next poll."""
    cluster.members.remove("b")
    cluster.log.is_away = True
    for _ in range(2):
        with pytest.raises(RetriableError):
            cluster.leader.inspect()
        assert "b" in cluster.places("one").tasks
    cluster.log.is_away = False
    cluster.leader.inspect()
    for name in ("one", "two"):
        assert cluster.places(name) == Places("a", ("a", "a"))
    written = cluster.log.writes
    cluster.leader.inspect()
    assert cluster.log.writes == written


def test_a_node_that_joins_during_an_outage_gets_units(cluster: Cluster) -> None:
    """Another node joins between the refusal and the next poll: work is spread over both."""
    cluster.members.remove("b")
    cluster.log.is_away = True
    with pytest.raises(RetriableError):
        cluster.leader.inspect()
    cluster.log.is_away = False
    cluster.members.add("d")
    cluster.statuses.put_node(NodeStatus("d", "http://d", is_ready=True))
    cluster.leader.inspect()
    placed = [node for name in ("one", "two") for node in cluster.places(name).tasks]
    assert sorted(placed) == ["a", "a", "d", "d"]


def test_gauges_follow_the_placement(cluster: Cluster) -> None:
    """A unit counts on its node only; without a placement on all nodes."""
    places = cluster.places("one")
    units = [(None, places.coordinator), *((str(t), n) for t, n in enumerate(places.tasks))]
    for task, node in units:
        for other in ("a", "b"):
            assert is_placed(cluster.store, other, "one", task) == (other == node)
    assert not is_placed(cluster.store, "a", "one", "2")  # of an earlier layout
    assert is_placed(cluster.store, "a", "one", "other")
    assert is_placed(cluster.store, "a", "unknown", "0")


def test_a_placement_that_was_not_written_is_returned_again(cluster: Cluster) -> None:
    """If the ready record was refused, the connector gets the same placement."""
    layout = spread("three", 1, [TopicPartition("t", p) for p in range(2)], tasks=2)
    cluster.store.put_connector("three", {**CONFIG, "name": "three"})
    cluster.store.put_layout(layout, {**CONFIG, "name": "three"})
    first = cluster.leader.placements.place("three", 2)
    cluster.log.is_away = True
    with pytest.raises(RetriableError):
        cluster.store.put_ready(layout, first)
    cluster.log.is_away = False
    again = cluster.leader.placements.place("three", 2)
    assert again == first
    cluster.store.put_ready(layout, again)
    assert cluster.places("three") == first
    assert cluster.leader.placements.place("three", 2) is None

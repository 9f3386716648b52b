from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.deployment.assignment import (
    layout_for,
    next_layout,
    task_count,
    with_deleted_topics,
)
from connect.protocol.source_partitions import source_partitions
from connect.state.connector_state import ConfigState, StoredConnector
from connect.state.placement import Places, UnitId, place
from connect.state.topic_records import layout_records
from connect.validation.parse import parse
from tests.support.connector_json import aggregate_config

TOPICS = {"a": 2, "b-1": 1, "b-2": 1, "__consumer_offsets": 4, "control-iceberg": 1, "dlq": 1}


def config(**more: str) -> ConnectorConfig:
    raw = {
        "name": "c",
        "connector.class": "IcebergSinkConnector",
        "iceberg.tables": "db.t",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": "sqlite://",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    return parse(raw)


def names(partitions: list[TopicPartition]) -> list[str]:
    return sorted({tp.topic for tp in partitions})


def test_listed_topics_are_expanded_and_missing_ones_left_out() -> None:
    """A missing topic has no partitions."""
    partitions = source_partitions(config(topics="a,later"), TOPICS)
    assert partitions == [TopicPartition("a", 0), TopicPartition("a", 1)]


def test_a_regex_matches_whole_names() -> None:
    """As Java's ``matches``."""
    assert names(source_partitions(config(topics_regex="b-[0-9]"), TOPICS)) == ["b-1", "b-2"]
    assert names(source_partitions(config(topics_regex="b"), TOPICS)) == []


def test_a_regex_excludes_topics_of_the_product() -> None:
    """Internal topics, the node's topics and the control topic."""
    partitions = source_partitions(
        config(topics_regex=".*"),
        {**TOPICS, "node-config": 1},
        excluded=frozenset({"node-config"}),
    )
    assert names(partitions) == ["a", "b-1", "b-2", "dlq"]


def test_an_invalid_regex_is_a_configuration_error() -> None:
    """Also if Java accepts it."""
    with pytest.raises(ConfigError):
        source_partitions(replace(config(topics="a"), topics_regex="a("), TOPICS)


@given(st.integers(1, 50), st.integers(1, 5), st.integers(1, 5), st.integers(0, 50))
def test_task_count_respects_every_limit(
    tasks_max: int, per_worker: int, nodes: int, partitions: int
) -> None:
    """At most tasks.max, the capacity of the nodes and the partitions; at least one."""
    chosen = replace(config(topics="a"), tasks_max=tasks_max, tasks_per_worker=per_worker)
    count = task_count(chosen, nodes=nodes, partitions=partitions)
    assert 1 <= count <= min(tasks_max, per_worker * nodes)
    assert count <= max(1, partitions)
    tps = [TopicPartition("t", p) for p in range(partitions)]
    layout = layout_for(chosen, tps, number=1, nodes=nodes)
    assert len(layout.tasks) == count
    assert layout.partitions == frozenset(tps)


def test_a_new_layout_needs_a_change() -> None:
    """Of the partitions or of the configuration."""
    chosen = config(topics="a")
    partitions = source_partitions(chosen, TOPICS)
    folded = ConfigState()
    first = next_layout(folded.get("c"), chosen, partitions, nodes=1)
    assert first is not None
    assert first.number == 1
    for key, value in layout_records(first, chosen.raw):
        folded.apply(key, value)
    assert next_layout(folded.get("c"), chosen, partitions, nodes=1) is None
    more = next_layout(folded.get("c"), chosen, [*partitions, TopicPartition("a", 2)], nodes=1)
    assert more is not None
    assert more.number == 2
    changed = config(topics="a", **{"iceberg.control.commit.interval-ms": "5000"})
    assert next_layout(folded.get("c"), changed, partitions, nodes=1) is not None
    state = folded.get("c")
    assert state.layout is not None
    resolved = replace(chosen, tasks_max=7)  # a placeholder that has another value now
    assert next_layout(state, resolved, partitions, nodes=1) is not None
    of_older = replace(state, layout=replace(state.layout, tasks_max=0))
    assert next_layout(of_older, chosen, partitions, nodes=1) is None


def test_a_deleted_listed_topic_stays_in_the_layout() -> None:
    """Its task reports the loss; topics of a regex are removed."""
    deleted = TopicPartition("gone", 1)
    layout = Layout("c", 1, ((TopicPartition("a", 0), deleted),))
    state = StoredConnector("c", layout=layout)
    there = [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert with_deleted_topics(config(topics="a,gone"), state, there) == [*there, deleted]
    assert with_deleted_topics(config(topics="a"), state, there) == there
    assert with_deleted_topics(config(topics_regex=".*"), state, there) == there
    assert with_deleted_topics(config(topics="a,gone"), StoredConnector("c"), there) == there


CLUSTERS = st.tuples(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 6), max_size=6),
    st.lists(st.sampled_from(["n1", "n2", "n3", "n4"]), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(["n1", "n2", "n3", "n4"]), min_size=1, max_size=4, unique=True),
)


def units_of(placement: dict[str, Places]) -> dict[UnitId, str]:
    return {u: node for name, places in placement.items() for u, node in places.units(name)}


@given(CLUSTERS)
def test_placement_is_complete_even_and_sticky(
    cluster: tuple[dict[str, int], list[str], list[str]],
) -> None:
    """Every unit is on a live node, loads differ by one, and units move only if needed."""
    tasks, before, after = cluster
    first = place(tasks, before)
    second = place(tasks, after, first)
    units = {(c, None) for c in tasks} | {
        (c, n) for c, count in tasks.items() for n in range(count)
    }
    for placement, nodes in ((first, before), (second, after)):
        placed = units_of(placement)
        assert set(placed) == units
        for is_coordinator in (True, False):
            chosen = [node for unit, node in placed.items() if (unit[1] is None) == is_coordinator]
            loads = [chosen.count(node) for node in nodes]
            assert max(loads) - min(loads) <= 1
    if set(before) == set(after):
        assert units_of(second) == units_of(first)
    assert units_of(place(tasks, after, second)) == units_of(second)


@given(CLUSTERS, st.text("abcdef", min_size=1, max_size=3), st.integers(0, 6))
def test_a_change_of_one_connector_moves_no_other_unit(
    cluster: tuple[dict[str, int], list[str], list[str]], name: str, count: int
) -> None:
    """Units on live nodes stay when connectors are created, changed or deleted."""
    tasks, nodes, _ = cluster
    before = place(tasks, nodes)
    after = units_of(place({**tasks, name: count}, nodes, before, is_even=False))
    for unit, node in units_of(before).items():
        if unit[0] != name or unit in after:
            assert after[unit] == node
    tasks.pop(name, None)
    left = units_of(place(tasks, nodes, before, is_even=False))
    assert left == {u: n for u, n in units_of(before).items() if u[0] != name}


def test_without_nodes_nothing_is_placed() -> None:
    """An empty cluster is no error."""
    assert place({"c": 2}, []) == {}


def test_a_lost_node_moves_only_its_own_units() -> None:
    """Units on remaining nodes do not move, and no unit waits for the lost node."""
    first = place({"a": 3, "b": 3}, ["n1", "n2", "n3"])
    second = place({"a": 3, "b": 3}, ["n1", "n2"], first)
    moved = units_of(second)
    for unit, node in units_of(first).items():
        if node != "n3":
            assert moved[unit] == node
    assert all(places.after == () for places in second.values())


def test_a_unit_that_moves_starts_after_it_has_ended() -> None:
    """The placement names the nodes that must end units first."""
    first = place({"a": 2}, ["n1"])
    assert first == {"a": Places("n1", ("n1", "n1"))}
    grown = place({"a": 2}, ["n1", "n2"], first)
    assert grown == {"a": Places("n1", ("n1", "n2"), after=("n1",))}
    drained = place({"a": 2}, ["n2"], grown, leaving=["n1"])
    assert drained == {"a": Places("n2", ("n2", "n2"), after=("n1",))}


def test_a_layout_keeps_its_tasks_while_a_node_is_missing() -> None:
    """For a while; tasks.max and the partitions always reduce them."""
    chosen = config(topics="a", **{"tasks.max": "4"})
    four = [TopicPartition("a", p) for p in range(4)]
    folded = ConfigState()
    first = next_layout(folded.get("c"), chosen, four, nodes=3)
    assert first is not None
    assert len(first.tasks) == 3
    for key, value in layout_records(first, chosen.raw):
        folded.apply(key, value)
    state = folded.get("c")
    assert next_layout(state, chosen, four, nodes=2, may_shrink=False) is None
    shrunk = next_layout(state, chosen, four, nodes=2)
    assert shrunk is not None
    assert len(shrunk.tasks) == 2
    fewer = next_layout(state, chosen, four[:1], nodes=2, may_shrink=False)
    assert fewer is not None
    assert len(fewer.tasks) == 1


def test_aggregates_have_one_task() -> None:
    """The records of a group are in any partition; a layout of more tasks is not kept."""
    aggregates = parse(aggregate_config({"tasks.max": "4"}))
    partitions = [TopicPartition("signals", number) for number in range(8)]
    assert task_count(aggregates, nodes=4, partitions=8) == 1
    layout = layout_for(aggregates, partitions, number=1, nodes=4, tasks_min=3)
    assert layout.tasks == (tuple(partitions),)

"""Several nodes of one group: who leads, who runs what, what happens when one goes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer

from connect.config.connector import MaintenanceConfig
from connect.embedded.broker import Broker
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import Layout, TopicPartition
from tests.support.running_node import RunningNode
from tests.support.stack import Topics, unique_name
from tests.support.topic_deletion import delete_topic

pytestmark = [pytest.mark.kafka]
NAMES = ("a", "b", "c")


class ClusterNodes:
    """Nodes of one cluster, by name."""

    def __init__(self, folder: Any, broker: Broker) -> None:
        self.by_name = {}
        for name in NAMES:
            own = folder / name
            own.mkdir()
            self.by_name[name] = RunningNode(
                own,
                broker.bootstrap_servers,
                **{
                    "group.id": folder.name,
                    "session.timeout.ms": "12000",  # a busy machine may be silent for seconds
                    "heartbeat.interval.ms": "500",
                    "icefloe.drain.grace.ms": "30000",
                },
            )

    def __getitem__(self, name: str) -> RunningNode:
        return self.by_name[name]

    def worker_ids(self) -> dict[str, str]:
        """Worker id -> name, of those that were started."""
        return {n.url.partition("://")[2]: name for name, n in self.by_name.items() if n.url}

    def view(self, name: str) -> dict[str, Any]:
        """The cluster as a node sees it, with names for worker ids."""
        seen: dict[str, Any] = self[name].call("GET", "/icefloe/v1/cluster").json()
        known = self.worker_ids()
        return {
            "leader": known.get(seen["leader"]),
            "nodes": sorted(known.get(n["worker_id"], "?") for n in seen["nodes"]),
            "ready": sorted(known.get(n["worker_id"], "?") for n in seen["nodes"] if n["ready"]),
            "placements": {
                connector: [known.get(places["coordinator"]), *map(known.get, places["tasks"])]
                for connector, places in seen["placements"].items()
            },
        }

    def worker_ids_of(self, name: str, connector: str) -> list[str | None]:
        """The node of each task, by name, as a node answers."""
        found = self[name].call("GET", f"/connectors/{connector}/status").json()["tasks"]
        return [self.worker_ids().get(task["worker_id"]) for task in found]

    def wait_until_placed(self, name: str, connector: str, *nodes: str, tasks: int) -> list[str]:
        """Wait until a connector runs on just these nodes, and says so; where its parts are."""

        def inspect() -> list[str] | None:
            places: list[str] = self.view(name)["placements"].get(connector, [])
            is_so = set(places) == set(nodes) and len(places) == 1 + tasks
            return places if is_so and self[name].status(connector)[0] == "RUNNING" else None

        found: list[str] = self[name].wait_until(inspect)
        return found

    def wait_until_started(self, connector: str, *nodes: str, tasks: int) -> None:
        """Wait until children of these nodes received a start command for every unit.

        The status is RUNNING slightly earlier.
        """
        units = {None, *range(tasks)}
        self[nodes[0]].wait_until(
            lambda: units <= {unit for name in nodes for unit in self.started(name, connector)}
        )

    def started(self, name: str, connector: str) -> list[int | None]:
        """Return the units of a node's start commands, in order; None is the coordinator."""
        found: list[int | None] = []
        for child in ("worker", "coordinator"):
            if (self[name].folder / f"{child}.jsonl").exists():
                reported = self[name].commands(child, connector)
                found += [m.get("task") for m in reported if m["op"] == "start"]
        return found


@pytest.fixture
def nodes(broker: Broker, tmp_path: Any) -> Iterator[ClusterNodes]:
    """Three nodes that are not started yet."""
    made = ClusterNodes(tmp_path, broker)
    yield made
    for node in made.by_name.values():
        node.close()


def start(nodes: ClusterNodes, *names: str) -> None:
    """Start them at once, and wait until all see all of them ready."""
    for name in names:
        nodes[name].launch()
    for name in names:
        nodes[name].wait_until(lambda n=name: (h := nodes[n].health()) and h.status_code == 200)
    for name in names:
        nodes[name].wait_until(lambda n=name: set(nodes.view(n)["ready"]) >= set(names))
    up = [name for name, node in nodes.by_name.items() if node.url]
    nodes[names[0]].wait_until(lambda: _leads_alone(nodes, up))


def _leads_alone(nodes: ClusterNodes, up: list[str]) -> bool:
    """Whether just one says that it leads, and all agree."""
    alive = [name for name in up if nodes[name].process.poll() is None]
    leading = {
        name
        for name in alive
        if "icefloe_is_leader 1.0" in nodes[name].call("GET", "/metrics").text
    }
    return len(leading) == 1 and all(nodes.view(n)["leader"] in leading for n in alive)


def put(
    nodes: ClusterNodes, through: str, connector: str, topic: str, tasks: int, **more: str
) -> None:
    """Create or change a connector through a node; again while no leader answers."""

    def is_done() -> bool:
        answer = nodes[through].put(connector, topic, tasks_max=str(tasks), **more)
        assert answer.status_code in {200, 201, 409, 503}, answer.text
        return answer.is_success

    nodes[through].wait_until(is_done)


def test_any_node_answers_any_request(nodes: ClusterNodes, topics: Topics) -> None:
    """Work is spread; a change of one connector moves no other connector."""
    start(nodes, *NAMES)
    leader = nodes.view("a")["leader"]
    assert [nodes.view(name)["leader"] for name in NAMES] == [leader] * 3
    one, other = (name for name in NAMES if name != leader)
    topic = topics.create("cluster", partitions=6)
    put(nodes, one, "first", topic, tasks=6)
    assert nodes[one].call("GET", "/connectors").json() == ["first"]  # at once, where it was made
    places = nodes.wait_until_placed(one, "first", *NAMES, tasks=6)
    assert sorted(places[1:]) == ["a", "a", "b", "b", "c", "c"]
    for name in NAMES:
        nodes[name].wait_until(
            lambda n=name: nodes[n].status("first") == ("RUNNING", ["RUNNING"] * 6)
        )
    put(nodes, other, "second", topic, tasks=6)
    where = nodes.wait_until_placed(other, "second", *NAMES, tasks=6)[2]
    assert nodes.view(one)["placements"]["first"] == places
    for connector in ("first", "second"):
        nodes.wait_until_started(connector, *NAMES, tasks=3)
    before = [nodes.started(name, "first") for name in NAMES]
    restarted = nodes[one].call("POST", "/connectors/second/tasks/4/restart")  # in task 1
    assert restarted.status_code == 204
    nodes[where].wait_until(lambda: nodes.started(where, "second").count(1) == 2)
    assert [nodes.started(name, "first") for name in NAMES] == before
    for name, action, state in ((one, "pause", "PAUSED"), (other, "resume", "RUNNING")):
        assert nodes[name].call("PUT", f"/connectors/first/{action}").status_code == 202
        assert nodes[name].status("first")[0] == state
    level = {"level": "DEBUG"}
    path = "/admin/loggers/connect.herder"
    assert nodes[one].call("PUT", f"{path}?scope=cluster", json=level).status_code == 204
    for name in NAMES:
        nodes[name].wait_until(
            lambda n=name: nodes[n].call("GET", path).json().get("level") == "DEBUG"
        )
    tables = nodes[other].call("GET", "/icefloe/v1/connectors/first/tables")
    assert tables.json() == {"connector": "first", "tables": []}
    assert nodes[other].call("DELETE", "/connectors/first").status_code == 204
    assert nodes[other].call("GET", "/connectors/first").status_code == 404
    for name in NAMES:
        nodes[name].wait_until(lambda n=name: not nodes.view(n)["placements"].get("first"))


def _metrics(nodes: ClusterNodes, name: str) -> dict[str, Any]:
    """What a node shows of the connector ``one``, and of whom it has no figures."""
    body = nodes[name].call("GET", "/icefloe/v1/overview").json()
    known = nodes.worker_ids()
    if not body["connectors"]:
        return {"missing": []}  # the node does not know the connector yet
    (found,) = body["connectors"]
    fields = ("not_in_files", "dead_letters", "in_files_not_committed", "valid_through_ms")
    missing = [known[node["worker_id"]] for node in body["missing"]]
    return {"missing": missing, **{field: found[field] for field in fields}}


def _view(nodes: ClusterNodes, name: str, what: str) -> dict[str, Any]:
    """A view of the connector ``one``."""
    found: dict[str, Any] = nodes[name].call("GET", f"/icefloe/v1/connectors/one/{what}").json()
    return found


def test_each_node_shows_metrics_of_all_nodes(nodes: ClusterNodes, topics: Topics) -> None:
    """Sums over the nodes with tasks; if one does not answer, it is named and the sum is null."""
    for number, name in enumerate(NAMES):
        # a child also reports units that ran on it before: only gauges of present units count
        lag = [["lag_records", {"connector": "one", "task": str(t)}, 10**number] for t in range(3)]
        dead_letters = ["records_dead_lettered", {"connector": "one", "task": "0"}, 2**number]
        own = [
            ["records_uncommitted", {"connector": "one"}, 40 + number],
            ["valid_through_timestamp_seconds", {"connector": "one"}, 1_700_000_000 + number],
        ]
        for child, samples in (("worker", [*lag, dead_letters]), ("coordinator", own)):
            reported = [{"event": "metrics", "samples": samples}]
            (nodes[name].folder / f"events-{child}.json").write_text(json.dumps(reported))
        # a node that is frozen below must not leave the group
        nodes[name].properties["session.timeout.ms"] = "240000"
    start(nodes, *NAMES)
    put(nodes, "a", "one", topics.create("figures", partitions=3), tasks=3)
    places = nodes.wait_until_placed("a", "one", *NAMES, tasks=3)
    at = NAMES.index(places[0])
    all_of_it = {
        "missing": [],
        "not_in_files": 111,
        "dead_letters": 7,
        "in_files_not_committed": 40 + at,
        "valid_through_ms": (1_700_000_000 + at) * 1000,
    }
    for name in NAMES:
        nodes[name].wait_until(lambda n=name: _metrics(nodes, n) == all_of_it)
        # again: another node that is slow to answer counts as one that does not
        nodes[name].wait_until(lambda n=name: _view(nodes, n, "dead-letters")["records"] == 7)
        nodes[name].wait_until(
            lambda n=name: _view(nodes, n, "lag")["in_files_not_committed"] == 40 + at
        )
    frozen, asked = (name for name in NAMES if name != places[0])
    os.kill(nodes[frozen].process.pid, signal.SIGSTOP)
    try:
        found = nodes[asked].wait_until(
            lambda: (f := _metrics(nodes, asked))["missing"] == [frozen] and f
        )
    finally:
        os.kill(nodes[frozen].process.pid, signal.SIGCONT)
    unknown = {"not_in_files": None, "dead_letters": None}
    assert found == {**all_of_it, "missing": [frozen], **unknown}
    nodes[asked].wait_until(lambda: not _metrics(nodes, asked)["missing"])


def test_a_killed_leader_is_replaced_and_its_units_move(
    nodes: ClusterNodes, topics: Topics
) -> None:
    """The other nodes elect a leader and run its units, with the same layout."""
    start(nodes, *NAMES)
    leader = nodes.view("a")["leader"]
    left = [name for name in NAMES if name != leader]
    topic = topics.create("take-over", partitions=6)
    put(nodes, leader, "one", topic, tasks=6)
    before = nodes.wait_until_placed(left[0], "one", *NAMES, tasks=6)
    layout, _ = nodes[left[0]].layouts("one")
    nodes[leader].process.kill()
    after = nodes.wait_until_placed(left[0], "one", *left, tasks=6)
    for was, now in zip(before, after, strict=True):
        assert was in {now, leader}
    for name in left:
        nodes[name].wait_until(
            lambda n=name: nodes[n].status("one") == ("RUNNING", ["RUNNING"] * 6)
        )
        nodes[name].wait_until(lambda n=name: nodes.view(n)["nodes"] == sorted(left))
    assert nodes[left[0]].layouts("one")[0] == layout
    put(nodes, left[0], "two", topic, tasks=2)
    put(nodes, left[1], "three", topic, tasks=2)
    for name in left:
        nodes[name].wait_until(lambda n=name: nodes[n].status("three")[0] == "RUNNING")


def test_a_node_that_stops_ends_its_units_before_others_start_them(
    nodes: ClusterNodes, topics: Topics
) -> None:
    """Later it joins again."""
    start(nodes, "a", "b")
    leader = nodes.view("a")["leader"]
    stays = "b" if leader == "a" else "a"
    topic = topics.create("rolling", partitions=4)
    put(nodes, stays, "one", topic, tasks=4)
    places = nodes.wait_until_placed(stays, "one", "a", "b", tasks=4)
    nodes.wait_until_started("one", "a", "b", tasks=2)
    mine = [i - 1 for i, n in enumerate(places) if n == leader]
    assert nodes[leader].end() == 0
    nodes.wait_until_placed(stays, "one", stays, tasks=4)
    log = (nodes[leader].folder / "node.log").read_text()
    assert "did not end" not in log
    assert "cut off" not in (nodes[stays].folder / "node.log").read_text()
    for unit in mine:
        child = "coordinator" if unit < 0 else "worker"
        reported = nodes[leader].commands(child, "one")
        assert [m["op"] for m in reported][-1] == "stop"
    nodes[stays].wait_until(lambda: nodes.view(stays)["leader"] == stays)
    start(nodes, leader)
    nodes.wait_until_placed(stays, "one", "a", "b", tasks=4)


def _begun(nodes: ClusterNodes, name: str) -> list[dict[str, Any]]:
    """Commands of a node's maintenance processes."""
    return [m for m in nodes[name].commands("maintenance") if m["op"] in {"maintain", "ended"}]


@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, id="ended", marks=pytest.mark.matrix), pytest.param(True, id="killed")],
)
def test_maintenance_follows_the_coordinator(
    nodes: ClusterNodes, topics: Topics, *, is_killed: bool
) -> None:
    """One process in the cluster; the next begins when the last has ended, or its node is gone."""
    limits = {**asdict(MaintenanceConfig(min_input_files=2)), "tables": ["db.t"]}
    due = {"event": "maintenance_due", "table": "db.t", "work": {"small-files": 9}}
    events = [{"event": "maintenance_limits", "limits": limits}, due]
    for node in nodes.by_name.values():
        (node.folder / "events-coordinator.json").write_text(json.dumps(events))
    start(nodes, "a", "b")
    put(nodes, "a", "one", topics.create("maintained", partitions=1), tasks=1)
    first = nodes["a"].wait_until(lambda: nodes.view("a")["placements"].get("one"))[0]
    other = "b" if first == "a" else "a"
    nodes[first].wait_until(lambda: _begun(nodes, first))
    for name in ("a", "b"):  # any node answers for the one that runs it
        nodes[name].wait_until(
            lambda n=name: _view(nodes, n, "maintenance").get("state") == "RUNNING"
        )
    if is_killed:
        nodes[first].process.kill()
        nodes[first].process.wait()
    else:
        assert nodes[first].end() == 0
    nodes[other].wait_until(lambda: _begun(nodes, other))
    assert [m["op"] for m in _begun(nodes, other)] == ["maintain"]
    results = nodes[other].wait_until(lambda: _view(nodes, other, "maintenance").get("results"))
    assert results[0]["state"] == "RUNNING"
    if is_killed:
        [begun] = _begun(nodes, first)
        nodes[other].wait_until(lambda: not psutil.pid_exists(begun["pid"]))
    else:
        begun, ended = _begun(nodes, first)
        assert (begun["op"], ended["op"]) == ("maintain", "ended")
        assert ended["at_ns"] < _begun(nodes, other)[0]["at_ns"]


def test_a_leader_that_was_frozen_is_fenced(nodes: ClusterNodes, topics: Topics) -> None:
    """It writes nothing, forwards requests, and runs the units that are placed on it."""
    start(nodes, "a", "b")
    frozen = nodes.view("a")["leader"]
    other = "b" if frozen == "a" else "a"
    topic = topics.create("frozen", partitions=2)
    put(nodes, other, "one", topic, tasks=1)
    nodes[other].wait_until(lambda: nodes[other].status("one") == ("RUNNING", ["RUNNING"]))
    os.kill(nodes[frozen].process.pid, signal.SIGSTOP)
    try:
        nodes[other].wait_until(lambda: nodes.view(other)["leader"] == other)
        nodes.wait_until_placed(other, "one", other, tasks=1)
        put(nodes, other, "two", topic, tasks=1)
    finally:
        os.kill(nodes[frozen].process.pid, signal.SIGCONT)
    nodes[frozen].wait_until(lambda: nodes.view(frozen)["leader"] == other)
    put(nodes, frozen, "three", topic, tasks=1)
    assert nodes[other].call("GET", "/connectors").json() == ["one", "three", "two"]
    for name in ("one", "two", "three"):
        for node in (frozen, other):
            nodes[node].wait_until(
                lambda w=node, c=name: nodes[w].status(c) == ("RUNNING", ["RUNNING"])
            )
    assert nodes[frozen].process.poll() is None


def test_a_missing_topic_reported_by_a_remote_task_changes_the_layout(
    nodes: ClusterNodes, topics: Topics
) -> None:
    """The leader reads the topics without waiting for its next poll."""
    for node in nodes.by_name.values():
        node.properties["icefloe.metadata.refresh.ms"] = "3600000"
    start(nodes, "a", "b")
    leader = nodes.view("a")["leader"]
    other = nodes["b" if leader == "a" else "a"]
    kept, goes = topics.create("stays", partitions=1), topics.create("goes", partitions=1)
    put(nodes, leader, "one", "", tasks=2, topics_regex=f"{kept}|{goes}")
    _, *tasks = nodes.wait_until_placed(leader, "one", "a", "b", tasks=2)
    nodes.wait_until_started("one", "a", "b", tasks=2)
    theirs = next(t for t, name in enumerate(tasks) if nodes[name] is other)
    (other.folder / "events-worker.json").write_text('[{"event": "topic_missing"}]')
    admin = KafkaAdmin(other.kafka)
    delete_topic(admin, goes)
    other.wait_until(lambda: goes not in admin.topics())
    before = other.layouts("one")[1]
    assert nodes[leader].call("POST", f"/connectors/one/tasks/{theirs}/restart").is_success
    other.wait_until(lambda: other.layouts("one")[1] == before + 1)
    assert other.layouts("one")[0].partitions == {(kept, 0)}


def test_a_recreated_topic_is_accepted_by_the_leader_for_tasks_of_all_nodes(
    nodes: ClusterNodes, topics: Topics
) -> None:
    """Its layout has the new id, source offsets are 0, and each node starts its task with it."""
    start(nodes, "a", "b")
    name = unique_name("recreated")  # its group keeps offsets
    group, source = f"connect-{name}", topics.create(name, partitions=2)
    more = {"icefloe.fail-on-data-loss": "false", "iceberg.control.topic": topics.create("control")}
    put(nodes, "a", name, source, tasks=2, **more)
    nodes.wait_until_placed("a", name, "a", "b", tasks=2)
    nodes.wait_until_started(name, "a", "b", tasks=2)
    node = nodes["a"]
    admin = KafkaAdmin(node.kafka)
    places = [TopicPartition(source, number) for number in range(2)]
    admin.alter_offsets(group, dict.fromkeys(places, 7))
    former, before = admin.topic_id(source), node.layouts(name)[0].number
    delete_topic(admin, source)
    node.wait_until(lambda: source not in admin.topics())
    admin.ensure_topic(source, 2, replication_factor=1)
    present = node.wait_until(lambda: admin.topic_id(source))
    assert present != former

    def is_accepted() -> bool:
        layout, ready = node.layouts(name)
        return ready == layout.number and dict(layout.topic_ids).get(source) == present

    node.wait_until(is_accepted)
    assert admin.committed(group, places) == dict.fromkeys(places, 0)
    nodes.wait_until_placed("a", name, "a", "b", tasks=2)

    def starts(node_name: str) -> list[dict[str, Any]]:
        commands = nodes[node_name].commands("worker", name)
        return [c for c in commands if c["op"] == "start" and c["layout"]["layout"] > before]

    for node_name in ("a", "b"):
        for command in node.wait_until(lambda node_name=node_name: starts(node_name)):
            assert dict(Layout.from_json(command["layout"]).topic_ids)[source] == present


def test_a_node_that_joins_gets_tasks_at_once(nodes: ClusterNodes, topics: Topics) -> None:
    """Without waiting for the leader's next poll. The number of tasks stays; their nodes change."""
    for node in nodes.by_name.values():
        node.properties["icefloe.metadata.refresh.ms"] = "3600000"
    start(nodes, "a")
    put(nodes, "a", "one", topics.create("shared", partitions=2), tasks=3)
    nodes["a"].running("one", tasks=3)
    assert nodes.worker_ids_of("a", "one") == ["a"] * 3
    start(nodes, "b")
    # until the new layout is ready, the coordinator or the only task of the former one has moved
    tasks = nodes["a"].wait_until(
        lambda: (
            (found := nodes.wait_until_placed("a", "one", "a", "b", tasks=3)[1:])
            in (["a", "b", "a"], ["b", "a", "b"])
            and found
        )
    )
    for name in ("a", "b"):
        nodes[name].wait_until(
            lambda n=name: nodes[n].status("one") == ("RUNNING", ["RUNNING"] * 3)
        )
        nodes[name].wait_until(lambda n=name: nodes.worker_ids_of(n, "one") == tasks)
    assert len(nodes["b"].call("GET", "/connectors/one/tasks").json()) == 3
    nodes["a"].wait_until(
        lambda: nodes["a"].stored_tasks("one") == dict.fromkeys(range(3), "RUNNING")
    )


def test_a_node_does_not_join_a_group_of_other_clients(
    nodes: ClusterNodes, topics: Topics, kafka_properties: Any
) -> None:
    """Java's Kafka Connect workers or consumers in the group are named in health and log."""
    other = Consumer(
        {
            **kafka_properties,
            "group.id": nodes["a"].group_id,
            "partition.assignment.strategy": "range",
        }
    )
    try:
        other.subscribe([topics.create("theirs")])
        while not other.assignment():  # before the node comes, or it would be kept out itself
            other.poll(0.1)
        nodes["a"].launch()
        nodes["a"].wait_until(nodes["a"].health)

        def says_why() -> bool:
            other.poll(0.1)
            answer = nodes["a"].health()
            return answer is not None and "another kind" in json.dumps(answer.json())

        nodes["a"].wait_until(says_why)
        assert nodes["a"].health().status_code == 503  # type: ignore[union-attr]
    finally:
        other.close()
    nodes["a"].wait_until(lambda: (h := nodes["a"].health()) and h.status_code == 200)

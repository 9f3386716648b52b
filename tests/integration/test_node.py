import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import psutil
import pytest
from confluent_kafka import Consumer

from connect.errors import Fenced
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.model.layout import TopicPartition
from tests.support.running_node import TIMEOUT_S, RunningNode
from tests.support.stack import Topics
from tests.support.topic_deletion import delete_topic

pytestmark = pytest.mark.kafka


@pytest.fixture
def node(
    tmp_path_factory: pytest.TempPathFactory, kafka_properties: dict[str, str]
) -> Iterator[RunningNode]:
    """A node with topics and a group of its own, not yet started."""
    folder = tmp_path_factory.mktemp("node")
    node = RunningNode(folder, kafka_properties["bootstrap.servers"])
    yield node
    node.close()


def test_a_connector_is_stored_then_planned_then_fenced_then_started(
    node: RunningNode, topics: Topics
) -> None:
    """Then both children get the layout; secrets stay unresolved."""
    topic = topics.create("orders", partitions=3)
    node.start()
    assert node.put("c", topic, tasks_max="5", icefloe_tasks_per_worker="2").status_code == 201
    node.running("c", tasks=5)
    layout, ready = node.layouts("c")
    assert ready == layout.number == 1
    assert layout.partitions == {TopicPartition(topic, p) for p in range(3)}
    starts = node.commands("worker", "c")
    assert {start["task"] for start in starts} == {0, 1}
    assert all(start["layout"] == layout.to_json() for start in starts)
    assert starts[0]["config"]["iceberg.catalog.uri"] == "${env:NOT_RESOLVED}"
    coordinator = node.commands("coordinator", "c")[0]
    assert coordinator["op"] == "start"
    assert coordinator["layout"] == layout.to_json()
    tasks = node.call("GET", "/connectors/c/tasks").json()
    assert [json.loads(t["config"]["icefloe.partitions"]) for t in tasks] == [
        [[topic, 0]],
        [[topic, 1]],
        [[topic, 2]],
        [],
        [],
    ]
    assert node.end() == 0
    assert node.commands("worker")[-1]["op"] == "shutdown"


def test_a_connector_has_tasks_max_tasks(node: RunningNode, topics: Topics) -> None:
    """One process runs them, all are visible and restarted alike, in the topics too."""
    topic = topics.create("visible", partitions=4)
    node.start()
    assert node.put("c", topic, tasks_max="3").status_code == 201
    node.running("c", tasks=3)
    assert [start["task"] for start in node.commands("worker", "c")] == [0]
    tasks = node.call("GET", "/connectors/c/tasks").json()
    assert [task["id"] for task in tasks] == [{"connector": "c", "task": n} for n in range(3)]
    assert [task["config"]["task.id"] for task in tasks] == ["0", "1", "2"]
    assert node.call("GET", "/connectors/c").json()["tasks"] == [task["id"] for task in tasks]
    one = node.call("GET", "/connectors/c/tasks/2/status").json()
    assert (one["state"], one["worker_id"]) == ("RUNNING", node.url.removeprefix("http://"))
    assert node.call("GET", "/connectors/c/tasks/3/status").status_code == 404
    assert node.call("POST", "/connectors/c/tasks/3/restart").status_code == 404
    assert node.call("POST", "/connectors/c/tasks/2/restart").status_code == 204
    node.wait_until(lambda: len(node.commands("worker", "c")) == 2)
    node.running("c", tasks=3)
    restarted = node.call("POST", "/connectors/c/restart?includeTasks=true").json()
    assert [task["state"] for task in restarted["tasks"]] == ["RESTARTING"] * 3
    node.wait_until(lambda: len(node.commands("worker", "c")) == 3)
    node.running("c", tasks=3)
    metrics = node.call("GET", "/metrics").text
    assert 'kafka_connect_worker_connector_total_task_count{connector="c"} 3.0' in metrics
    (placed,) = node.call("GET", "/icefloe/v1/cluster").json()["placements"].values()
    assert len(placed["tasks"]) == 3
    (row,) = node.call("GET", "/icefloe/v1/overview").json()["connectors"]
    assert row["tasks"] == {"RUNNING": 3}
    assert node.call("PUT", "/connectors/c/pause").status_code == 202
    assert node.status("c") == ("PAUSED", ["PAUSED"] * 3)
    node.put("c", topic, tasks_max="2")
    assert node.call("PUT", "/connectors/c/resume").status_code == 202
    node.running("c", tasks=2)
    node.wait_until(lambda: node.stored_tasks("c") == {0: "RUNNING", 1: "RUNNING"})


def test_a_fenced_task_of_an_old_layout_cannot_write(node: RunningNode, topics: Topics) -> None:
    """After a layout is ready, earlier holders of a transactional id are fenced."""
    topic = topics.create("fenced", partitions=2)
    node.start()
    node.put("c", topic, tasks_max="2", icefloe_tasks_per_worker="2")
    node.running("c", tasks=2)
    zombies = [TransactionalProducer(node.kafka, f"{node.group_id}-c-{n}") for n in (0, 1)]
    for zombie in zombies:
        zombie.init()
    node.put("c", topic, tasks_max="1")
    node.wait_until(lambda: node.layouts("c")[1] == 2)
    for zombie in zombies:
        with pytest.raises(Fenced):
            zombie.transact([ProducerMessage(topic, None, b"late")])
        zombie.close()


def test_pause_resume_and_stop_are_visible_at_once(node: RunningNode, topics: Topics) -> None:
    """The status follows the request, not the processes; a stop ends in an empty layout."""
    topic = topics.create("lifecycle", partitions=1)
    node.start()
    node.put("c", topic)
    node.running("c", tasks=1)
    for _ in range(3):
        assert node.call("PUT", "/connectors/c/pause").status_code == 202
        assert node.status("c") == ("PAUSED", ["PAUSED"])
        assert node.call("PUT", "/connectors/c/resume").status_code == 202
        assert node.status("c") == ("RUNNING", ["RUNNING"])
    assert node.call("PUT", "/connectors/c/stop").status_code == 204
    assert node.status("c") == ("STOPPED", [])
    assert node.call("GET", "/connectors/c").json()["tasks"] == []
    assert node.call("PUT", "/connectors/c/pause").status_code == 202
    assert node.status("c") == ("PAUSED", [])  # however far the stop has come
    node.wait_until(lambda: node.has_stopped("c"))
    assert node.layouts("c")[1] == 2
    assert node.commands("worker", "c")[-1]["op"] == "stop"
    assert node.call("PUT", "/connectors/c/resume").status_code == 202
    node.running("c", tasks=1)


def _offsets(topic: str, *offsets: tuple[int, int | None]) -> dict[str, Any]:
    return {
        "offsets": [
            {
                "partition": {"kafka_partition": partition, "kafka_topic": topic},
                "offset": None if offset is None else {"kafka_offset": offset},
            }
            for partition, offset in offsets
        ]
    }


@pytest.mark.parametrize("dies", [(), ("offsets",)])
def test_offsets_of_a_stopped_connector_can_be_changed(
    node: RunningNode, topics: Topics, dies: tuple[str, ...]
) -> None:
    """Set or reset, one or all; a crash between reset and set loses no offset."""
    topic = topics.create("offsets", partitions=3)
    node.start(*dies)
    node.put("c", topic)
    node.running("c", tasks=1)
    change = partial(node.call, "PATCH", "/connectors/c/offsets")
    assert change(json=_offsets(topic, (0, 5))).status_code == 400
    assert node.call("PUT", "/connectors/c/stop").status_code == 204
    node.wait_until(lambda: change(json=_offsets(topic, (0, 5), (1, 6), (2, 7))).is_success)
    if dies:
        with pytest.raises(httpx.TransportError):
            change(json=_offsets(topic, (1, None)))
        assert node.process.wait(TIMEOUT_S) == -signal.SIGKILL
        node.start()
        node.call("PUT", "/connectors/c/resume")
        node.running("c", tasks=1)
    else:
        assert change(json=_offsets(topic, (1, None))).status_code == 200
    reported = node.call("GET", "/connectors/c/offsets").json()["offsets"]
    assert sorted(reported, key=str) == sorted(_offsets(topic, (0, 5), (2, 7))["offsets"], key=str)
    if not dies:
        assert node.call("DELETE", "/connectors/c/offsets").status_code == 200
        assert node.call("GET", "/connectors/c/offsets").json() == {"offsets": []}


def test_offset_changes_that_cannot_work_are_refused(node: RunningNode, topics: Topics) -> None:
    """400 with the reason: a group in use or a missing partition; nothing is changed."""
    topic = topics.create("used", partitions=2)
    node.start()
    node.put("in-use", topic)
    node.call("PUT", "/connectors/in-use/stop")
    change = partial(node.call, "PATCH", "/connectors/in-use/offsets")
    node.wait_until(lambda: change(json=_offsets(topic, (0, 5), (1, 6))).is_success)
    both = {"offsets": [*_offsets(topic, (0, None))["offsets"], *_offsets("no", (0, 1))["offsets"]]}
    for wrong in (_offsets("no-such-topic", (0, 1)), _offsets(topic, (7, 1)), both):
        answer = change(json=wrong)
        assert (answer.status_code, "does not exist" in answer.json()["message"]) == (400, True)
    member = Consumer({**node.kafka, "group.id": "connect-in-use", "log_level": 0})
    member.subscribe([topic])
    node.wait_until(lambda: member.poll(0.1) is None and member.assignment())
    refused = [
        change(json=_offsets(topic, (0, 1))),
        change(json=_offsets(topic, (0, None))),
        node.call("DELETE", "/connectors/in-use/offsets"),
    ]
    assert [answer.status_code for answer in refused] == [400, 400, 400]
    assert all("in-use has members" in answer.json()["message"] for answer in refused)
    member.close()
    node.call("PUT", "/connectors/in-use/resume")
    node.running("in-use", 1)
    reported = node.call("GET", "/connectors/in-use/offsets").json()
    assert reported == _offsets(topic, (0, 5), (1, 6))


def test_added_partitions_and_topics_get_a_new_layout(
    node: RunningNode, topics: Topics, admin: KafkaAdmin
) -> None:
    """New partitions, and new topics of a regex; the coordinator continues."""
    first = topics.create("daily", partitions=1)
    node.start()
    node.put("c", "", topics_regex=f"{first}.*")
    node.put("other", topics.create("other"))
    node.running("c", tasks=1)
    node.running("other", tasks=1)
    others = len(node.commands("worker", "other"))
    admin.ensure_topic(f"{first}-2", 2)
    node.wait_until(lambda: len(node.layouts("c")[0].partitions) == 3 and node.layouts("c")[1] == 2)
    node.running("c", tasks=1)
    delete_topic(admin, f"{first}-2")
    node.wait_until(lambda: len(node.layouts("c")[0].partitions) == 1 and node.layouts("c")[1] == 3)
    node.running("c", tasks=1)
    ops = [m["op"] for m in node.commands("coordinator", "c")]
    assert ops == ["start", "layout", "layout"]
    assert len(node.commands("worker", "other")) == others


def test_missing_topics_leave_a_task_without_partitions(
    node: RunningNode, topics: Topics, admin: KafkaAdmin
) -> None:
    """As in Kafka Connect: RUNNING, with one task that reads nothing until the topic appears."""
    name = topics.create("exists") + "-later"
    node.start()
    node.put("c", name)
    node.running("c", tasks=1)
    assert node.commands("worker", "c") == []
    admin.ensure_topic(name, 1)
    node.wait_until(lambda: node.commands("worker", "c"))
    node.running("c", tasks=1)


def test_failures_restart_with_back_off_except_final_ones(
    node: RunningNode, topics: Topics
) -> None:
    """A retriable failure is restarted; a final one stays, with its cause, until requested."""
    topic = topics.create("failing", partitions=1)
    retriable = {"code": "broker_unavailable", "retriable": True}
    final = {"code": "source_data_lost", "retriable": False}
    (node.folder / "fail-c-0").write_text(json.dumps(retriable))
    (node.folder / "fail-c-c").write_text(json.dumps(final))
    node.start()
    node.put("c", topic)
    node.wait_until(lambda: node.status("c") == ("FAILED", ["RUNNING"]))
    node.wait_until(lambda: len(node.commands("worker", "c")) == 2)
    node.wait_until(lambda: node.status("c") == ("FAILED", ["RUNNING"]))
    body = node.call("GET", "/connectors/c/status").json()
    assert body["connector"]["trace"].startswith("Stub: source_data_lost")
    restarted = node.call("POST", "/connectors/c/restart?onlyFailed=true")
    assert restarted.status_code == 202
    assert restarted.json()["connector"]["state"] == "RESTARTING"
    node.running("c", tasks=1)
    (node.folder / "fail-c-0").write_text(json.dumps({"code": "fenced", "retriable": False}))
    before = _starts(node)
    assert node.call("POST", "/connectors/c/tasks/0/restart").status_code == 204
    # a local restart is safe: the transactional id fences the earlier task
    node.wait_until(lambda: _starts(node) == before + 2)
    node.running("c", tasks=1)
    (node.folder / "fail-c-0").write_text(json.dumps(final))
    assert node.call("POST", "/connectors/c/tasks/0/restart").status_code == 204
    node.wait_until(lambda: node.status("c") == ("RUNNING", ["FAILED"]))
    assert node.call("POST", "/connectors/c/tasks/0/restart").status_code == 204
    node.running("c", tasks=1)
    assert node.call("POST", "/connectors/c/tasks/7/restart").status_code == 404


def _starts(node: RunningNode) -> int:
    """Count the start commands that the worker received for the connector's task."""
    return sum(command["op"] == "start" for command in node.commands("worker", "c"))


def test_a_stored_configuration_that_cannot_run_is_failed(
    node: RunningNode, topics: Topics
) -> None:
    """A record of another product or version is kept, and FAILED with the reason."""
    node.start()
    node.put("c", topics.create("was-right"))
    node.running("c", tasks=1)
    node.end()
    writer = TransactionalProducer(node.kafka, "somebody-else")
    writer.init()
    value = {"properties": {"connector.class": "IcebergSinkConnector", "iceberg.unknown": "1"}}
    topic = node.properties["config.storage.topic"]
    writer.transact([ProducerMessage(topic, b"connector-c", json.dumps(value).encode())])
    writer.close()
    node.start()
    node.wait_until(lambda: node.status("c")[0] == "FAILED")
    trace = node.call("GET", "/connectors/c/status").json()["connector"]["trace"]
    assert "Must specify table name(s)" in trace.splitlines()[0]


@pytest.mark.faults
@pytest.mark.parametrize("process", ["worker", "coordinator"])
def test_a_killed_child_is_replaced_with_its_units(
    node: RunningNode, topics: Topics, process: str
) -> None:
    """They are shown as restarting, then run with the same layout."""
    topic = topics.create("killed", partitions=1)
    node.start()
    node.put("c", topic)
    node.running("c", tasks=1)
    node.wait_until(lambda: node.commands(process, "c"))
    first = node.commands(process)[0]["pid"]
    restarts = f'icefloe_child_restarts_total{{process="{process}"}}'
    assert f"{restarts} 0.0" in node.call("GET", "/metrics").text  # so an alert sees the first one
    (node.folder / "hold").touch()
    os.kill(first, signal.SIGKILL)
    node.wait_until(lambda: "RESTARTING" in json.dumps(node.status("c")))
    node.wait_until(lambda: node.commands(process, "c")[-1]["pid"] != first)
    (node.folder / "hold").unlink()
    node.running("c", tasks=1)
    assert node.layouts("c")[1] == 1
    metrics = node.call("GET", "/metrics").text
    assert f"{restarts} 1.0" in metrics


@pytest.mark.faults
@pytest.mark.parametrize("dies", ["put", "layout", "fence"])
def test_a_node_killed_between_storing_and_starting_continues(
    node: RunningNode, topics: Topics, dies: str
) -> None:
    """The next node starts the stored connector with one layout and one start command."""
    topic = topics.create(f"dies-{dies}", partitions=2)
    node.start(dies)
    try:
        answered = node.put("c", topic).status_code
    except httpx.TransportError:
        answered = 0
    assert node.process.wait(TIMEOUT_S) == -signal.SIGKILL
    assert dies != "put" or not answered  # at a later step the answer may come too late as well
    assert node.commands("worker", "c") == []
    node.start()
    node.running("c", tasks=1)
    layout, ready = node.layouts("c")
    assert layout.number == ready == 1
    assert len(node.commands("worker", "c")) == 1


def test_a_restarted_node_restores_its_state(node: RunningNode, topics: Topics) -> None:
    """Configurations, target states and layouts; deleted connectors stay deleted."""
    topic = topics.create("restart", partitions=1)
    node.start()
    for name in ("runs", "paused", "stopped", "deleted"):
        node.put(name, topic)
        node.running(name, tasks=1)
    node.call("PUT", "/connectors/paused/pause")
    node.call("PUT", "/connectors/stopped/stop")
    assert node.call("DELETE", "/connectors/deleted").status_code == 204
    assert node.call("GET", "/connectors/deleted/status").status_code == 404
    children = [node.commands(p)[0]["pid"] for p in ("worker", "coordinator")]
    assert node.end() == 0
    assert not any(psutil.pid_exists(pid) for pid in children)
    node.start()
    assert node.call("GET", "/connectors").json() == ["paused", "runs", "stopped"]
    node.running("runs", tasks=1)
    assert node.status("paused") == ("PAUSED", ["PAUSED"])
    assert node.status("stopped") == ("STOPPED", [])
    assert node.layouts("runs")[1] == 1
    refused = node.call("POST", "/connectors", json=_named("runs", topic))
    assert refused.status_code == 409, refused.text
    assert node.call("POST", "/connectors", json=_named("deleted", topic)).status_code == 201
    node.running("deleted", tasks=1)
    assert node.layouts("deleted")[1] == 2


def _named(name: str, topic: str) -> dict[str, Any]:
    return {
        "name": name,
        "config": {
            "connector.class": "IcebergSinkConnector",
            "topics": topic,
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": "sqlite://",
            "iceberg.catalog.warehouse": "/w",
        },
    }

import threading
from dataclasses import replace

import pytest

from connect.clock import SystemClock
from connect.embedded.broker import Broker
from connect.errors import ConfigError, Fenced
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import Layout, TopicPartition, spread
from connect.state.compacted_topic import StorageTopic
from connect.state.config_store import ConfigStore, StoreSettings
from connect.state.connector_state import Leader
from connect.state.status_state import NodeStatus, Running, Status
from connect.state.status_store import StatusStore
from connect.state.topic_records import STATE_FORMAT
from tests.support.stored_layouts import read_layouts

pytestmark = pytest.mark.kafka
CONFIG = {"name": "c", "topics": "t", "secret": "${file:s:k}"}


@pytest.fixture
def settings(kafka_properties: dict[str, str], request: pytest.FixtureRequest) -> StoreSettings:
    """Topics of this test's own."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return StoreSettings(
        group_id=f"g-{name}",
        worker_id="127.0.0.1:8083",
        config_topic=StorageTopic(f"config-{name}", "config.storage.topic", is_ordered=True),
        status_topic=StorageTopic(f"status-{name}", "status.storage.topic", partitions=5),
        reader_properties=kafka_properties,
        producer_properties=kafka_properties,
    )


def opened(settings: StoreSettings, admin: KafkaAdmin) -> ConfigStore:
    store = ConfigStore(settings, admin, SystemClock())
    store.start()
    store.lead(settings.worker_id, f"http://{settings.worker_id}")
    return store


def layout(number: int, tasks: int) -> Layout:
    return spread("c", number, [TopicPartition("t", p) for p in range(4)], tasks=tasks)


def test_a_write_is_visible_at_once_and_after_a_restart(
    settings: StoreSettings, admin: KafkaAdmin
) -> None:
    """It is in the log and in memory when it returns; a new process reads the same."""
    store = opened(settings, admin)
    store.put_connector("c", CONFIG, "PAUSED")
    assert store.get("c").config == CONFIG
    store.put_layout(layout(1, 2), CONFIG)
    assert store.get("c").layout == layout(1, 2)
    assert not store.get("c").is_ready
    store.put_ready(layout(1, 2))
    assert store.get("c").is_ready
    before = store.get("c")
    store.close()
    again = opened(settings, admin)
    after = again.get("c")
    assert (after.config, after.target, after.layout, after.ready) == (
        before.config,
        before.target,
        before.layout,
        before.ready,
    )
    again.delete_connector("c")
    assert again.names() == []
    again.close()


def test_a_task_reads_the_layout_from_the_config_topic(
    settings: StoreSettings, admin: KafkaAdmin, kafka_properties: dict[str, str]
) -> None:
    """The latest committed layout and the ready number, to the end of the topic."""
    store = opened(settings, admin)
    read = lambda: read_layouts(kafka_properties, settings.config_topic.name, "c")  # noqa: E731
    assert read() == (None, None)
    store.put_connector("c", CONFIG)
    store.put_layout(layout(1, 2), CONFIG)
    store.put_ready(layout(1, 2))
    store.put_layout(layout(2, 4), CONFIG)
    assert read() == (layout(2, 4), 1)
    store.put_ready(layout(2, 4))
    assert read() == (layout(2, 4), 2)
    store.delete_connector("c")
    assert read() == (None, 2)
    store.close()


def test_concurrent_writes_have_one_order(settings: StoreSettings, admin: KafkaAdmin) -> None:
    """The last record of the log wins, in memory and on disk."""
    store = opened(settings, admin)
    threads = [
        threading.Thread(target=store.put_connector, args=("c", {"n": str(n)})) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = store.get("c")
    assert seen.revision == 8
    store.close()
    again = opened(settings, admin)
    assert again.get("c").config == seen.config
    again.close()


def test_a_second_node_of_the_same_group_fences_the_first(
    settings: StoreSettings, admin: KafkaAdmin
) -> None:
    """The last leader writes; a write of the earlier leader is refused and not in the log."""
    first = opened(settings, admin)
    first.put_connector("c", CONFIG)
    second = opened(settings, admin)
    with pytest.raises(Fenced):
        first.put_connector("c", {"stale": "1"})
    with pytest.raises(Fenced):
        first.put_connector("c", {"stale": "2"})
    second.put_connector("d", CONFIG)
    assert second.get("c").config == CONFIG
    first.lead("127.0.0.1:1", "http://127.0.0.1:1")
    assert first.names() == ["c", "d"]
    assert first.leader() == Leader("127.0.0.1:1", "http://127.0.0.1:1")
    with pytest.raises(Fenced):
        second.put_connector("d", {"stale": "3"})
    first.step_down()
    with pytest.raises(Fenced, match="does not lead"):
        first.put_connector("d", {"stale": "4"})
    first.close()
    second.close()


def test_a_node_ends_when_a_newer_one_writes_what_it_cannot_read(
    settings: StoreSettings, admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, and when it starts; what the newer one wrote is not changed."""
    reported: list[ConfigError] = []
    older = ConfigStore(settings, admin, SystemClock(), on_newer=reported.append)
    older.start()
    older.lead("older:1", "http://older:1")
    with monkeypatch.context() as upgraded:
        upgraded.setattr("connect.state.topic_records.STATE_FORMAT", STATE_FORMAT + 1)
        newer = opened(settings, admin)
    newer.put_connector("c", CONFIG)
    assert older.await_position(newer.position(), 60)
    assert [error.code for error in reported] == ["state_format"]
    assert "upgrade this node" in reported[0].message
    older.close()
    again = ConfigStore(settings, admin, SystemClock())
    with pytest.raises(ConfigError, match=f"format {STATE_FORMAT + 1}"):
        again.start()
    again.close()
    newer.close()


@pytest.mark.parametrize(
    ("partitions", "policy", "message"),
    [(1, "delete", "cleanup.policy=compact"), (2, "compact", "single partition")],
)
def test_an_unsuitable_config_topic_is_refused(
    settings: StoreSettings, admin: KafkaAdmin, partitions: int, policy: str, message: str
) -> None:
    """A topic that would lose configurations or their order; the error says why."""
    admin.ensure_topic(settings.config_topic.name, partitions, {"cleanup.policy": policy})
    with pytest.raises(ConfigError, match=message) as caught:
        ConfigStore(settings, admin, SystemClock()).start()
    assert settings.config_topic.name in str(caught.value)


def test_statuses_are_visible_at_once_and_written_on_close(
    settings: StoreSettings, admin: KafkaAdmin
) -> None:
    """Statuses are visible before they are written, and written when the store closes."""
    store = StatusStore(settings, admin, SystemClock())
    store.start()
    failed = Status("FAILED", "line one\nline two", settings.worker_id, 1, "0.1.0")
    store.put_connector("c", Status("RUNNING", None, settings.worker_id, 1, "0.1.0"))
    store.put_tasks("c", {0: failed, 1: failed})
    store.forget_tasks("c", above=1)
    store.put_topic("c", "t", task=0, now_ms=1)
    assert store.tasks("c") == {0: failed}
    store.close()
    again = StatusStore(settings, admin, SystemClock())
    again.start()
    assert again.tasks("c") == {0: failed}
    assert again.topics("c") == {"t"}
    again.forget_topics("c")
    assert again.topics("c") == frozenset()
    again.close()


def test_nodes_read_each_others_statuses(settings: StoreSettings, admin: KafkaAdmin) -> None:
    """Every node forgets the statuses of a removed node."""
    first = StatusStore(settings, admin, SystemClock())
    second = StatusStore(replace(settings, worker_id="b:1"), admin, SystemClock())
    for store in (first, second):
        store.start()
    status = NodeStatus("b:1", "http://b:1", ("worker",), is_ready=True)
    second.put_node(status)
    second.put_running("b:1", "c", Running(3, frozenset({0, 2}), coordinator=True))
    second.put_tasks("c", {0: Status("RUNNING", None, "b:1", 3)})
    # statuses are in different partitions: their order is not defined
    assert first.wait_for(
        lambda: len(first.tasks("c")) == 1 and bool(first.running("c") and first.nodes()), 60
    )
    assert first.nodes() == {"b:1": status}
    assert first.running("c") == {"b:1": Running(3, frozenset({0, 2}), coordinator=True)}
    first.put_tasks("c", {0: Status("FAILED", "why", "a:1", 4)})
    assert second.wait_for(lambda: second.tasks("c")[0].state == "FAILED", 60)
    first.forget_node("b:1")
    assert second.wait_for(lambda: not second.nodes() and not second.running("c"), 60)
    for store in (first, second):
        store.close()


@pytest.mark.faults
def test_a_broker_restart_delays_writes_and_loses_none(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A write while the broker is down returns after it is acknowledged and read back."""
    with Broker(tmp_path_factory.mktemp("own-broker")) as broker:
        properties = {"bootstrap.servers": broker.bootstrap_servers}
        own = StoreSettings(
            "g",
            "w:1",
            StorageTopic("config", "config.storage.topic", is_ordered=True),
            StorageTopic("status", "status.storage.topic"),
            properties,
            properties,
        )
        admin = KafkaAdmin(properties)
        store = opened(own, admin)
        store.put_connector("c", CONFIG)
        broker.stop()
        writer = threading.Thread(target=store.put_connector, args=("d", CONFIG))
        writer.start()
        broker.start()
        writer.join(60)
        assert not writer.is_alive()
        assert store.names() == ["c", "d"]
        store.close()
        admin.close()

"""Writes of a leader's jobs about a connector that was deleted or changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition, spread
from connect.protocol.source_end import SourceEnd
from connect.protocol.source_floor import SourceFloor
from connect.state.compacted_topic import StorageTopic
from connect.state.config_store import ConfigStore, StoreSettings
from connect.state.connector_state import StoredConnector
from connect.state.placement import Places
from tests.support.memory_topics import CONFIG, MemoryConfigTopic

PLACE = TopicPartition("t", 0)
LAYOUT = spread("c", 1, [PLACE], tasks=1)
LATE_WRITES: dict[str, Callable[[ConfigStore], None]] = {
    "layout": lambda store: store.put_layout(LAYOUT, CONFIG),
    "ready": lambda store: store.put_ready(LAYOUT, Places("a", ("a",))),
    "source floor": lambda store: store.put_source_floor("c", SourceFloor({PLACE: 3})),
    "offsets": lambda store: store.put_offsets("c", {PLACE: 3}),
    "end": lambda store: store.put_end("c", SourceEnd({}, {PLACE: 3})),
}


@pytest.fixture
def store() -> Iterator[ConfigStore]:
    """The store of a leader, with one connector that runs."""
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    topics = (StorageTopic("config", "x"), StorageTopic("status", "y"))
    settings = StoreSettings("g", "a", *topics, nowhere, nowhere)
    admin = KafkaAdmin(nowhere)
    store = ConfigStore(settings, admin, SystemClock())
    store._topic = MemoryConfigTopic(store._apply)  # type: ignore[assignment]  # below what is tested
    store.lead("a", "http://a")
    store.put_connector("c", CONFIG)
    store.put_layout(LAYOUT, CONFIG)
    store.put_ready(LAYOUT)
    yield store
    admin.close()


def content(state: StoredConnector) -> StoredConnector:
    """The state without the number of its records."""
    return replace(state, revision=0)


@pytest.mark.parametrize("what", LATE_WRITES)
def test_a_late_write_about_a_deleted_connector_is_refused(store: ConfigStore, what: str) -> None:
    """A connector that is created later under the same name inherits nothing from it."""
    store.delete_connector("c")
    before = store.get("c")
    with pytest.raises(RetriableError) as refused:
        LATE_WRITES[what](store)
    assert (refused.value.code, store.get("c")) == ("connector_changed", before)


def test_a_late_placement_leaves_deleted_connectors_out(store: ConfigStore) -> None:
    """The others are placed."""
    store.put_connector("other", CONFIG)
    store.delete_connector("c")
    store.put_places({"c": Places("a", ("a",)), "other": Places("a", ())})
    assert (store.get("c").places, store.get("other").places) == (None, Places("a", ()))


def test_a_layout_of_another_configuration_is_refused(store: ConfigStore) -> None:
    """The connector was deleted and created again while the layout was planned."""
    store.delete_connector("c")
    store.put_connector("c", {**CONFIG, "topics": "u"})
    before = content(store.get("c"))
    for late in (lambda: store.put_layout(LAYOUT, CONFIG), lambda: store.put_ready(LAYOUT)):
        with pytest.raises(RetriableError, match="changed or deleted"):
            late()
    assert content(store.get("c")) == before
    assert before.layout is None

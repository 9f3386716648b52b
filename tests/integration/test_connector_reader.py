"""The state of a connector in the config topic, read by the tasks of a process together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connect.clock import SystemClock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.state.connector_reader import KEPT_MS, ConnectorReader
from connect.state.topic_records import CONNECTOR, encode
from tests.support.stack import Topics
from tests.support.topic_deletion import delete_topic

pytestmark = pytest.mark.kafka
COMPACT = {"cleanup.policy": "compact"}


class SteppedClock(SystemClock):
    """A clock that the test can move."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        """Return the time."""
        return super().monotonic_ms() + self.ahead_ms


class ConfigTopic:
    """A config topic, written as a node writes it, and a reader of it."""

    def __init__(self, kafka: dict[str, str], name: str) -> None:
        self.kafka, self.name = kafka, name
        self.clock = SteppedClock()
        self.reader = ConnectorReader(name, SharedAdmins(), self.clock)
        self._admin = KafkaAdmin(kafka)
        self._producer = TransactionalProducer(kafka, f"writer-{name}")
        self._producer.init()

    def put(self, connector: str, value: str | None) -> None:
        """Write the configuration of a connector; None deletes it."""
        record = None if value is None else encode({"properties": {"value": value}})
        message = ProducerMessage(self.name, f"{CONNECTOR}{connector}".encode(), record)
        self._producer.transact([message])

    def value(self, connector: str) -> str | None:
        """Return what the reader reads."""
        config = self.reader.read(connector, self.kafka).config
        return None if config is None else config["value"]

    def create_again(self) -> None:
        """Delete the topic and create it again, without records."""
        delete_topic(self._admin, self.name)
        while not self._admin.ensure_topic(self.name, 1, COMPACT, replication_factor=1):
            pass

    def close(self) -> None:
        """Close the clients."""
        self._producer.close()
        self._admin.close()


@pytest.fixture
def config(kafka_properties: dict[str, str], topics: Topics) -> Iterator[ConfigTopic]:
    """An empty topic."""
    topic = ConfigTopic(kafka_properties, topics.create("config", **COMPACT))
    yield topic
    topic.close()


def test_each_record_is_read_once_for_all_tasks(config: ConfigTopic) -> None:
    """A later call reads only what was written since; it sees changes and deletions."""
    for number in range(20):
        config.put(f"c{number}", "first")
    assert [config.value(f"c{number}") for number in range(20)] == ["first"] * 20
    assert config.reader.records == 20
    config.put("c3", "second")
    config.put("c4", None)
    assert (config.value("c3"), config.value("c4"), config.value("c5")) == ("second", None, "first")
    assert config.reader.records == 22


def test_an_old_state_is_read_again(config: ConfigTopic) -> None:
    """Brokers remove deletions after a while: a reader that was not called may have missed one."""
    config.put("c", "first")
    assert config.value("c") == "first"
    config.clock.ahead_ms = KEPT_MS
    assert config.value("c") == "first"
    assert config.reader.records == 2


def test_a_topic_that_was_created_again_is_read_from_its_beginning(config: ConfigTopic) -> None:
    """Its records have the same offsets as others before."""
    config.put("c", "first")
    config.put("d", "first")
    assert config.value("c") == "first"
    config.create_again()
    config.put("d", "second")
    config.put("d", "third")
    assert (config.value("c"), config.value("d")) == (None, "third")

"""Source offsets that are sent before the messages of their transaction, against a broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from connect.errors import Fenced, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, ProducerMessage, TransactionalProducer
from connect.model.layout import TopicPartition
from tests.support.stack import Topics
from tests.support.task_harness import wait_until

pytestmark = pytest.mark.kafka
PENDING_S = 1.0  # how long a reader of pending offsets waits


@dataclass
class Group:
    """A producer, and the group whose offsets it stores."""

    kafka: dict[str, str]
    topic: str
    producer: TransactionalProducer

    def __post_init__(self) -> None:
        self.admin = KafkaAdmin(self.kafka, timeout_s=PENDING_S)

    def begin(self, *offsets: int) -> None:
        """Begin a transaction with the offset of each partition; wait until they are sent."""
        self.producer.begin_early(self.topic, self.offsets(*offsets))
        wait_until(self.is_pending)

    def transact(self, message: bytes, *offsets: int) -> None:
        """Send a transaction with one message."""
        self.producer.transact(
            [ProducerMessage(self.topic, b"", message, partition=0)],
            group_id=self.topic,
            offsets=self.offsets(*offsets),
        )

    def offsets(self, *offsets: int) -> dict[TopicPartition, int]:
        """Return the offsets of the first partitions."""
        return {TopicPartition(self.topic, number): at for number, at in enumerate(offsets)}

    def is_pending(self) -> bool:
        """Return whether an open transaction has offsets of the group."""
        try:
            self.admin.committed(self.topic, list(self.offsets(0, 0)))
        except RetriableError as error:
            if error.code != "offsets_pending":
                raise
            return True
        return False

    def stored(self) -> list[int | None]:
        """Return the committed offset of each partition."""
        return list(self.admin.committed(self.topic, list(self.offsets(0, 0))).values())

    def messages(self) -> list[bytes | None]:
        """Return the visible messages."""
        reader, end = LogReader(self.kafka), self.admin.ends([TopicPartition(self.topic, 0)])
        place = TopicPartition(self.topic, 0)
        reader.assign({place: 0})
        found: list[bytes | None] = []
        while reader.positions()[place] < end[place]:
            found += [record.value for record in reader.poll(100)]
        reader.close()
        return found


@pytest.fixture
def group(kafka_properties: dict[str, str], topics: Topics) -> Iterator[Group]:
    """A group without offsets."""
    topic = topics.create("early", partitions=2)
    producer = TransactionalProducer(kafka_properties, topic)
    producer.init(topic=topic)
    group = Group(kafka_properties, topic, producer)
    yield group
    group.producer.close()
    group.admin.close()


def test_the_transaction_continues_with_its_messages(group: Group) -> None:
    """Offsets and messages are visible together."""
    group.begin(3, 4)
    group.transact(b"first", 3, 4)
    assert (group.stored(), group.messages()) == ([3, 4], [b"first"])


@pytest.mark.parametrize("offsets", [(3, 5), (3,)])
def test_other_offsets_are_another_transaction(group: Group, offsets: tuple[int, ...]) -> None:
    """Of the first one nothing is stored, also of partitions that the second does not have."""
    group.begin(3, 4)
    group.transact(b"other", *offsets)
    assert group.stored() == [*offsets, None][:2]
    assert group.messages() == [b"other"]


def test_offsets_that_are_dropped_are_not_stored(group: Group) -> None:
    """The next transaction may have the same offsets."""
    group.begin(3, 4)
    group.producer.drop_early()
    wait_until(lambda: not group.is_pending())
    assert group.stored() == [None, None]
    group.transact(b"after", 3, 4)
    assert (group.stored(), group.messages()) == ([3, 4], [b"after"])


def test_a_second_beginning_ends_the_first(group: Group) -> None:
    """As after a batch that was read again."""
    group.begin(3, 4)
    group.begin(5, 6)
    group.transact(b"second", 5, 6)
    assert (group.stored(), group.messages()) == ([5, 6], [b"second"])


def test_messages_that_take_too_long_find_no_transaction(
    kafka_properties: dict[str, str], group: Group
) -> None:
    """It was aborted before the broker fences the producer."""
    group.producer.close()
    group.producer = TransactionalProducer(
        kafka_properties, group.topic, transaction_timeout_ms=30_000
    )
    group.producer.init(topic=group.topic)
    group.begin(3, 4)
    wait_until(lambda: not group.is_pending())
    group.transact(b"late", 3, 4)
    assert (group.stored(), group.messages()) == ([3, 4], [b"late"])


def test_a_closed_producer_leaves_no_offsets_pending(group: Group) -> None:
    """Who reads the offsets does not wait for the broker's timeout."""
    group.begin(3, 4)
    group.producer.close()
    assert group.stored() == [None, None]


def test_a_fenced_producer_stores_nothing(kafka_properties: dict[str, str], group: Group) -> None:
    """A successor takes the id over between the offsets and the messages."""
    group.begin(3, 4)
    with pytest.raises(Fenced):  # noqa: PT012 - the successor is a part of it
        successor = TransactionalProducer(kafka_properties, group.topic)
        successor.init(topic=group.topic)
        successor.close()
        group.transact(b"zombie", 3, 4)
    assert (group.stored(), group.messages()) == ([None, None], [])


def test_threads_end(group: Group) -> None:
    """None stays after a transaction."""
    for number in range(3):
        group.producer.begin_early(group.topic, group.offsets(number, 0))
        group.transact(b"", number, 0)
    wait_until(lambda: not any(t.name == "send-offsets" for t in threading.enumerate()))

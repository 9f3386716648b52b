"""The end of a bounded run: fixed once on a real broker, and not read past."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from connect.errors import ConfigError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.leader_node import NAME, LeaderNode
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics, unique_name
from worker.spark.batch_sizing import ReadSizes
from worker.task.read_ledger import OffsetRanges

if TYPE_CHECKING:  # only tests with Spark import it
    from pyspark.sql import DataFrame

    from worker.task.source.source_reader import SourceReader

pytestmark = pytest.mark.kafka

BEGIN_MS = 1_700_000_000_000  # topics without retention, which would delete records this old


def spark(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that runs Spark in this process."""
    for mark in SPARK_MARKS:
        test = mark(test)
    return test


def produce(kafka: dict[str, str], topic: str, *timestamps: int, partition: int = 0) -> None:
    producer = Producer({**kafka, "log_level": 0})
    for at in timestamps:
        producer.produce(topic, b"v", partition=partition, timestamp=BEGIN_MS + at)
    assert producer.flush(60) == 0


@pytest.fixture
def leader(kafka_properties: dict[str, str], topics: Topics) -> Iterator[LeaderNode]:
    """A leader whose connector reads one topic of two partitions."""
    storage = topics.create("config", cleanup_policy="compact")
    topic = topics.create("bounded", partitions=2, retention_ms="-1")
    made = LeaderNode(kafka_properties, storage, topic, unique_name("control"))
    yield made
    made.close()


def start(leader: LeaderNode, **config: str) -> dict[int, int]:
    """Store the connector with these keys, and converge; the end offset by partition."""
    changed = {k.replace("__", "."): v for k, v in config.items()}
    leader.store.put_connector(NAME, {**leader.config, **changed})
    leader.converge()
    return ends(leader)


def ends(leader: LeaderNode) -> dict[int, int]:
    """Return the end offset of each partition of the leader's own topic."""
    end = leader.store.get(NAME).end
    assert end is not None
    return {tp.partition: at for tp, at in end.offsets.items() if tp.topic == leader.topic}


def test_the_end_is_fixed_at_the_first_start(
    leader: LeaderNode, kafka_properties: dict[str, str]
) -> None:
    """Another leader, more records, a stop and a new key do not change it."""
    produce(kafka_properties, leader.topic, 1, 2, 3)
    assert start(leader, icefloe__end="latest") == {0: 3, 1: 0}
    produce(kafka_properties, leader.topic, 4, partition=1)
    successor = LeaderNode(kafka_properties, leader.storage, leader.topic, leader.control)
    successor.converge()
    assert ends(successor) == {0: 3, 1: 0}
    successor.request_state("STOPPED")
    successor.request_state("STARTED")
    assert start(successor, icefloe__end="latest", tasks__max="1") == {0: 3, 1: 0}
    assert start(successor, icefloe__end=str(BEGIN_MS + 3)) == {0: 2, 1: 0}
    successor.close()


def test_a_completed_run_starts_again_only_with_a_new_configuration(
    leader: LeaderNode, kafka_properties: dict[str, str]
) -> None:
    """The new run has its own end."""
    produce(kafka_properties, leader.topic, 1)
    start(leader, icefloe__end="latest")
    state = leader.store.get(NAME)
    assert state.end is not None
    leader.store.put_end(NAME, state.end.completed_with(state.config or {}))
    produce(kafka_properties, leader.topic, 2)
    leader.converge()
    assert leader.store.get(NAME).is_completed
    assert leader.deployer.outdated() == ([], False)
    assert start(leader, icefloe__end="latest", tasks__max="1") == {0: 2, 1: 0}
    assert leader.store.get(NAME).is_to_run


def test_an_added_topic_gets_an_end_and_other_topics_keep_theirs(
    leader: LeaderNode, kafka_properties: dict[str, str], topics: Topics
) -> None:
    """A missing topic is an error before any end is fixed."""
    produce(kafka_properties, leader.topic, 1)
    start(leader, icefloe__end="latest")
    more = topics.create("more", retention_ms="-1")
    produce(kafka_properties, leader.topic, 2)
    produce(kafka_properties, more, 1, 2)
    assert start(leader, icefloe__end="latest", topics=f"{leader.topic},{more}") == {0: 1, 1: 0}
    end = leader.store.get(NAME).end
    assert end is not None
    assert end.offsets[TopicPartition(more, 0)] == 2
    with pytest.raises(ConfigError, match="topic not-there does not exist"):
        start(leader, icefloe__end="latest", topics=f"{leader.topic},not-there")


@spark
def test_a_bounded_read_ends_at_its_exact_offset(
    reader: SourceReader, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """In bounded batches, although the log continues."""
    from tests.support.source_reads import with_source

    topic = topics.create("inside", retention_ms="-1")
    produce(kafka_properties, topic, *range(900))
    tp, seen = TopicPartition(topic, 0), list[OffsetRanges]()
    sized = with_source(reader, sizes=ReadSizes(100, batch_records=300))
    bounded = dataclasses.replace(sized, is_bounded=True, commit_interval_ms=60_000)
    counts = list[int]()

    def take(rows: DataFrame, ranges: OffsetRanges) -> None:
        seen.append(ranges)
        from worker.task.source.source_reader import as_arrow

        blocks = as_arrow(rows.select("count"))
        counts.append(sum(blocks["count"].to_pylist()))

    bounded.read(OffsetRanges({tp: 0}, {tp: 700}), take, is_stopping=lambda: False)
    assert admin.ends([tp])[tp] == 900
    assert seen[-1].ends == {tp: 700}
    assert sum(counts) == 700
    assert max(counts) <= 300

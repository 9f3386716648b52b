"""An idle task closes its producer, and opens it again for an answer only if it has its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer

from connect.errors import Fenced
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.model.layout import TopicPartition
from connect.protocol.source_floor import SourceFloor
from control_schemas.events import StartCommit
from tests.support.reading import committed_records
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import TaskHarness, paths, wait_until
from worker.spark.session import Session
from worker.task.task_fencing import LayoutSuperseded

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
IDLE_MS = 300
STATES = ["RUNNING", "FAILED", "RUNNING"]  # another sink is always reported


@pytest.fixture
def harness(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics
) -> Iterator[TaskHarness]:
    """One partition, a long commit interval, and a producer that is closed soon."""
    source, control = topics.create("source"), topics.create("control")
    harness = TaskHarness(spark_session, kafka_properties, source, control, 1)
    harness.sizes = {"producer_idle_ms": IDLE_MS}
    harness.floor = SourceFloor()
    yield harness
    harness.close()


def client_count() -> int:
    """Return how many clients of Kafka this process has."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            count += (task / "comm").read_text().startswith("rdk:main")
        except OSError:
            continue  # the thread has just ended
    return count


def wait_until_closed(clients: int) -> None:
    """Wait until the task has closed its producer.

    Args:
        clients: of this process, while the producer of the task is open.
    """
    wait_until(lambda: client_count() < clients)


def test_a_closed_producer_is_opened_for_the_next_answer(harness: TaskHarness) -> None:
    """Rounds with and without records before and after; each record is announced once."""
    harness.produce(3)
    with harness.running():
        assert paths(harness.round()[1]) == ["0:0-2"]
        clients = client_count()
        for first in (3, 5):
            wait_until_closed(clients)
            harness.produce(2)
            assert paths(harness.round()[1]) == [f"0:{first}-{first + 1}"]
        wait_until_closed(clients)
        assert paths(harness.round()[1]) == []
        assert harness.committed() == {0: 7}
        wait_until_closed(clients)
    assert harness.ended == [None]
    assert harness.states == [("RUNNING", None)]


def test_records_read_between_rounds_are_announced_at_the_end(harness: TaskHarness) -> None:
    """A backlog that a task with a closed producer has read opens it when the task stops."""
    harness.overrides["icefloe.drain.records"] = "2"
    with harness.running() as task:
        harness.round()
        wait_until_closed(client_count())
        harness.produce(3)
        wait_until(lambda: task.metrics.batch.records_read == 3)
        assert harness.committed() == {0: 0}
    assert paths(harness.answer(None)) == ["0:0-2"]
    assert harness.committed() == {0: 3}
    assert harness.ended == [None]


def test_a_task_that_had_a_successor_starts_again_where_it_ended(harness: TaskHarness) -> None:
    """Another task with the id announced records that this one reads later: none is doubled."""
    with harness.running() as task:
        harness.round()
        wait_until_closed(client_count())
        harness.produce(4)
        successor = TransactionalProducer(harness.kafka, task.transactional_id)
        successor.init()
        place = TopicPartition(harness.topic, 0)
        successor.transact([], group_id=harness.group, offsets={place: 3})
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: harness.states == [("RUNNING", None)] * 2)
        assert paths(harness.round()[1]) == ["0:3-3"]
        with pytest.raises(Fenced):
            successor.transact([], group_id=harness.group, offsets={place: 0})
        successor.close()
        assert [batch.starts[place] for batch in harness.runner.batches] == [0, 3]
    assert harness.committed() == {0: 4}


def test_a_task_of_an_older_layout_announces_nothing(harness: TaskHarness) -> None:
    """A leader wrote a newer layout and fenced the ids while the producer was closed."""
    events = TopicPartition(harness.control, 0)
    harness.produce(2)
    with harness.running() as task:
        assert paths(harness.round()[1]) == ["0:0-1"]
        wait_until_closed(client_count())
        harness.newest_layout = 4
        leader = TransactionalProducer(harness.kafka, task.transactional_id)
        leader.init()
        leader.close()
        harness.produce(1)
        before = len(committed_records(harness.kafka, events))
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: bool(harness.ended))
    assert isinstance(harness.ended[0], LayoutSuperseded)
    assert len(committed_records(harness.kafka, events)) == before + 1
    assert harness.committed() == {0: 2}


def test_a_task_waits_for_another_sink_that_has_joined_meanwhile(harness: TaskHarness) -> None:
    """A member of the connect group is another sink: the task announces once it has left."""
    with harness.running() as task:
        harness.round()
        wait_until_closed(client_count())
        other = Consumer({**harness.kafka, "group.id": harness.group, "log_level": 0})
        other.subscribe([harness.topic])
        wait_until(lambda: bool(other.poll(0.1) or harness.admin.members(harness.group)))
        harness.produce(1)
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: task.metrics.retries == 1)
        other.close()
        wait_until(lambda: [state for state, _ in harness.states] == STATES)
        assert paths(harness.round()[1]) == ["0:0-0"]

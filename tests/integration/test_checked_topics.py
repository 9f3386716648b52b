"""What an announcement needs is requested while few records become files, against a broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from uuid import uuid4

import pytest

from connect.errors import DataLost, RecordError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.shared_admins import SharedAdmins
from control_schemas.events import StartCommit
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import FakeBatchRunner, TaskHarness, paths, wait_until
from tests.support.topic_deletion import delete_topic
from worker.batch.few_records import BatchRows, FewRecords
from worker.spark.session import Session

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]


@pytest.fixture
def runner() -> FakeBatchRunner:
    """The runner of the task."""
    return FakeBatchRunner(takes_few_records=True)


@pytest.fixture
def harness(
    spark_session: Session,
    kafka_properties: dict[str, str],
    topics: Topics,
    runner: FakeBatchRunner,
) -> Iterator[TaskHarness]:
    """Small reads are batch reads; the topic has an id."""
    harness = TaskHarness(
        spark_session,
        kafka_properties,
        topics.create("source"),
        topics.create("control"),
        1,
        runner,
    ).every(1_000)
    harness.topic_ids = harness.admin.topic_ids([harness.topic])
    yield harness
    harness.close()


@pytest.fixture
def steps(harness: TaskHarness, runner: FakeBatchRunner) -> list[str]:
    """The requests of topic ids, and the batches, in their order."""
    steps: list[str] = []

    class NotedAdmin(KafkaAdmin):
        """Notes its requests of topic ids."""

        def request_topic_ids(self, names: Collection[str]) -> Callable[[], dict[str, str]]:
            """Note and send the request."""
            steps.append("check")
            return super().request_topic_ids(names)

    harness.admins = SharedAdmins(NotedAdmin)
    runner.before = lambda _: steps.append("write")
    return steps


def read_in_a_round(harness: TaskHarness, steps: list[str]) -> list[str]:
    """Return the steps of a round with two records, after another round."""
    harness.produce(1)
    with harness.running():
        harness.round()
        harness.produce(2)
        steps.clear()
        assert paths(harness.round()[1]) == ["0:1-2"]
        return list(steps)


def test_topics_are_checked_while_few_records_become_files(
    harness: TaskHarness, steps: list[str]
) -> None:
    """One request, sent when the records are in memory."""
    assert read_in_a_round(harness, steps) == ["check", "write"]


def test_a_batch_that_fails_stores_no_offsets(
    harness: TaskHarness, runner: FakeBatchRunner
) -> None:
    """Its records are read again."""
    harness.produce(1)
    with harness.running():
        harness.round()
        harness.produce(2)
        runner.error = RecordError("not possible", code="bad")
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: bool(harness.ended))
    assert harness.committed() == {0: 1}


def test_topics_are_checked_after_a_spark_job(
    harness: TaskHarness, runner: FakeBatchRunner, steps: list[str]
) -> None:
    """The job reads the records while it writes them."""
    runner.takes_few_records = False
    assert read_in_a_round(harness, steps) == ["write", "check"]


def test_topics_are_checked_again_if_spark_reads_again(
    harness: TaskHarness, runner: FakeBatchRunner, steps: list[str]
) -> None:
    """The first answer says nothing about the topic that Spark read."""

    def read_again(rows: BatchRows) -> None:
        assert isinstance(rows, FewRecords)
        steps.append("write")
        rows.as_rows()

    runner.before = read_again
    assert read_in_a_round(harness, steps) == ["check", "write", "check"]


def test_records_that_spark_read_from_a_recreated_topic_are_not_announced(
    harness: TaskHarness, runner: FakeBatchRunner
) -> None:
    """The topic is recreated between the first read and the second one."""
    harness.produce(1)
    with harness.running():
        harness.round()
        harness.produce(2)

        def recreate(rows: BatchRows) -> None:
            assert isinstance(rows, FewRecords)
            delete_topic(harness.admin, harness.topic)
            wait_until(lambda: harness.topic not in harness.admin.topics())
            harness.admin.ensure_topic(harness.topic, 1, replication_factor=1)
            rows.as_rows()

        runner.before = recreate
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: bool(harness.ended))
    error = harness.ended[0]
    assert isinstance(error, DataLost)
    assert error.code == "source_topic_recreated"

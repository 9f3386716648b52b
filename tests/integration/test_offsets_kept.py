"""Source offsets of partitions without records, against a broker that forgets soon."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from connect.embedded.broker import Broker
from connect.model.layout import TopicPartition
from control_schemas.events import CommitComplete
from tests.support.spark_marks import SPARK_MARKS
from tests.support.task_harness import TaskHarness, wait_until
from worker.spark.session import Session

pytestmark = [pytest.mark.kafka, *SPARK_MARKS, pytest.mark.faults, pytest.mark.timeout(900)]

FORGETFUL = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}


def test_an_idle_partition_keeps_its_offset(spark_session: Session, tmp_path: Path) -> None:
    """The broker forgets what was stored once at the same time; ours is stored with each answer."""
    with Broker(tmp_path / "broker", settings=FORGETFUL) as broker:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        client = AdminClient({**kafka, "log_level": 0})
        new = [NewTopic("source", 2, 1), NewTopic("control", 1, 1)]
        for created in client.create_topics(new).values():
            created.result(120)
        harness = TaskHarness(spark_session, kafka, "source", "control", partitions=2)
        harness.produce(3, partition=0)
        harness.produce(3, partition=1)
        idle = TopicPartition("source", 1)
        with harness.running():
            harness.round()
            harness.admin.alter_offsets("witness", {idle: 3})

            def is_forgotten() -> bool:
                harness.produce(1, partition=0)
                commit_id, _ = harness.round()
                harness.send(CommitComplete(commit_id, None))
                return harness.admin.committed("witness", [idle]) == {idle: None}

            wait_until(is_forgotten)
            assert harness.committed()[1] == 3

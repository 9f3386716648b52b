"""``icefloe ingest`` does not start while kafka-delta-ingest runs for the same topic."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from deltalake import CommitProperties, Transaction, write_deltalake

from connect.errors import ConfigError
from connect.node.ingest_run import DaemonOffsets
from connect.operations.connector_clients import opened_cluster
from connect.operations.ingest.ingest_options import IngestJob, SourceOptions, TableOptions
from connect.operations.ingest.translation import translate
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka


class DaemonJob:
    """A topic that kafka-delta-ingest reads into a table, and the job that takes it over."""

    def __init__(self, folder: Path, kafka: dict[str, str], topics: Topics) -> None:
        self.kafka = kafka
        self.location = folder / "table"
        self.topic, self.group = topics.create("daemon", partitions=2), unique_name("daemon")

    def store(self, offset: int) -> None:
        """Write a row, with the last offset of partition 1, as kafka-delta-ingest does."""
        write_deltalake(
            str(self.location),
            pa.table({"id": [offset]}),
            mode="append",
            commit_properties=CommitProperties(
                app_transactions=[Transaction(app_id="own-1", version=offset)]
            ),
        )

    def consumer(self, topic: str) -> Consumer:
        """A member of its group that reads a topic."""
        consumer = Consumer({**self.kafka, "group.id": self.group})
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        return consumer

    def offsets(self, group: str | None) -> DaemonOffsets:
        """What a start of the job does first."""
        job: IngestJob = translate(
            SourceOptions(
                self.topic,
                app_id="own",
                brokers=self.kafka["bootstrap.servers"],
                daemon_group=group,
            ),
            TableOptions(str(self.location)),
            {},
        )
        with opened_cluster(job.connector, job.node, {}) as cluster:
            return DaemonOffsets(job, cluster)


@pytest.fixture
def daemon(tmp_path: Path, kafka_properties: dict[str, str], topics: Topics) -> DaemonJob:
    """A table with rows up to offset 4."""
    made = DaemonJob(tmp_path, kafka_properties, topics)
    made.store(4)
    return made


def test_a_start_is_refused_while_the_group_reads_the_topic(
    daemon: DaemonJob, topics: Topics
) -> None:
    """Members that read other topics do not matter, and the check can be left out."""
    other = daemon.consumer(topics.create("other"))
    assert "icefloe.start.offsets" in daemon.offsets(daemon.group).connector()
    other.close()
    consumer = daemon.consumer(daemon.topic)
    with pytest.raises(ConfigError, match=f"members of the consumer group '{daemon.group}'") as e:
        daemon.offsets(daemon.group)
    assert e.value.code == "daemon_running"
    assert daemon.offsets(None).connector()
    consumer.close()
    assert daemon.offsets(daemon.group).connector()


def test_a_start_is_refused_when_the_offsets_of_the_table_move(daemon: DaemonJob) -> None:
    """A process with another group writes: the group alone does not show it."""
    offsets = daemon.offsets(daemon.group)
    daemon.store(9)
    with pytest.raises(ConfigError, match=r"offsets in the table moved .*\(partitions 1\)"):
        offsets.connector()
    ignoring = daemon.offsets(None)
    daemon.store(12)
    started = ignoring.connector()["icefloe.start.offsets"]
    assert started == f'{{"{daemon.topic}": {{"1": 13}}}}'

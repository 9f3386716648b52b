"""What a task is given: its part of a layout, the process around it, and who writes its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.gateways.kafka.kafka_clients import ProducerMessage
from connect.model.layout import TopicPartition
from worker.spark.batch_sizing import BATCH_RECORDS, SMALL_RECORDS
from worker.spark.session import Session
from worker.task.read_ledger import Slice, WrittenBatch


class BatchRunner(Protocol):
    """Turns micro-batches into complete files."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of Spark's Kafka source that are needed."""
        ...

    @property
    def is_primed(self) -> bool:
        """False while a first batch may have to be run twice: keep that one small."""
        ...

    @property
    def may_enlarge(self) -> bool:
        """Whether Spark may hold rows whose size it is not asked for; as of the last refresh."""
        ...

    def run(
        self, rows: DataFrame, part: Slice, valid_through_ms: int | None = None
    ) -> WrittenBatch:
        """Write the files of one micro-batch.

        Args:
            rows: its records.
            part: their ranges.
            valid_through_ms: the last VTTS that the task has seen; records up to it are late.

        Raises:
            RecordError: a record cannot be handled and nothing tolerates it.
            CommitRefused: a table is missing or may not be written.
            RetriableError: Spark, the store or the catalog failed.
        """
        ...

    def dead_letter(self, letter: Any) -> ProducerMessage | None:
        """The message for the dead letter topic; None when dead letters are only counted."""
        ...

    def refresh(self) -> None:
        """Called before each read in the task's own thread: look at tables when that is due."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """What the leader gave to a task; ``topic_ids`` as in the layout."""

    task: int
    layout: int
    partitions: tuple[TopicPartition, ...]
    topic_ids: tuple[tuple[str, str], ...] = ()

    @property
    def own_topic_ids(self) -> dict[str, str]:
        """Of the topics that this task reads: name -> identity."""
        own = {tp.topic for tp in self.partitions}
        return {name: topic_id for name, topic_id in self.topic_ids if name in own}


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a task needs of the process around it.

    Attributes:
        node: the node's properties, placeholders resolved.
        node_group_id: ``group.id`` of the node cluster, first part of the transactional id.
        config_topic: topic of layouts; None leaves the layout check out (tests).
        session: the worker's Spark session.
        clock: time and identities.
        runner: makes the task's batch runner; called anew after each retriable error.
        report: told of each state: RUNNING, or FAILED with a retriable error that goes on.
        topic_missing: told when a topic that a regex brought in is gone.
        small_records: up to so many waiting records are one read, see
        ``worker.spark.batch_sizing``. batch_records: bound of a micro-batch in a backlog.
    """

    node: Mapping[str, str]
    node_group_id: str
    config_topic: str | None
    session: Session
    clock: Clock
    runner: Callable[[ConnectorConfig, TaskAssignment], BatchRunner]
    report: Callable[[str, Exception | None], None]
    topic_missing: Callable[[], None] = lambda: None
    small_records: int = SMALL_RECORDS
    batch_records: int = BATCH_RECORDS

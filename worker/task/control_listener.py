"""Reads the control topic for one task: rounds that start and rounds that are complete.

Rules of this file:
- Reading starts at the end of the topic: the task does not answer rounds that started earlier.
- An event that cannot be decoded is counted and skipped: it cannot belong to this connector.
- DataWritten and DataComplete events of Icefloe have a header and are skipped without decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from connect.clock import Clock
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.records import KafkaRecord
from control_schemas.codec import decode
from control_schemas.errors import MalformedEvent
from control_schemas.events import CommitComplete, StartCommit
from control_schemas.headers import decode_headers
from worker.task.task_rounds import TaskRounds

_WORKERS_HEADER = "icefloe.layout"

log = structlog.get_logger("worker.task")


@dataclass(slots=True)
class ControlListener:
    """Passes the coordinator's events on to the rounds of one task. Not thread-safe.

    Args:
        reader: without an assignment; the caller closes it.
        rounds: receive the events.
        clock: for the times of events.
        topic: the control topic.
        group_id: connect group id; events of other groups are skipped.
        task: number of the task.
    """

    reader: LogReader
    rounds: TaskRounds
    clock: Clock
    topic: str
    group_id: str
    task: int
    malformed: int = field(default=0, init=False)

    def start_at_end(self, admin: KafkaAdmin) -> None:
        """Assign all partitions of the control topic, at their ends.

        Raises:
            RetriableError: ``topic_missing`` when the control topic does not exist.
        """
        partitions = admin.partitions(self.topic)
        if not partitions:
            raise RetriableError(
                f"control topic {self.topic} does not exist", code="topic_missing", topic=self.topic
            )
        self.reader.assign(admin.ends(partitions))

    def poll(self, timeout_ms: int) -> None:
        """Pass on the events that arrived; wait up to ``timeout_ms`` for the first.

        Raises:
            RetriableError: the broker does not answer.
        """
        for record in self.reader.poll(timeout_ms):
            self._receive(record)

    def _receive(self, record: KafkaRecord) -> None:
        if any(name == _WORKERS_HEADER for name, _ in record.headers):
            return
        try:
            event = decode(record.value or b"")
            headers = decode_headers(record.headers)
        except MalformedEvent as error:
            self._skip(record, error)
            return
        if event.group_id != self.group_id:
            return
        if isinstance(event.payload, StartCommit):
            self.rounds.started(event.payload.commit_id, self.clock.monotonic_ms())
        elif isinstance(event.payload, CommitComplete):
            # rounds that are over while no table contains the data of the listed tasks
            waiting = [commit_id for commit_id, tasks in headers.waiting if self.task in tasks]
            self.rounds.completed(event.payload.commit_id, waiting, event.payload.valid_through_us)

    def _skip(self, record: KafkaRecord, error: MalformedEvent) -> None:
        self.malformed += 1
        if self.malformed == 1:  # other clients may write many of them
            log.warning(
                "control event cannot be decoded, it is skipped",
                error=str(error),
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                task=self.task,
            )

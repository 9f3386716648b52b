"""Passes control events to one task: rounds that start and rounds that are complete.

Rules of this file:
- It begins at the end of the topic: the task does not answer rounds that started earlier.
- A StartCommit without headers is of another sink, or of an older coordinator. A sink is a member
  of the connector's groups: then the task does not answer, because both read the same records.
- An event that cannot be decoded is counted and skipped: it cannot belong to this connector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from connect.clock import Clock
from connect.model.records import KafkaRecord
from connect.protocol.control_feed import ControlSubscription
from control_schemas.codec import decode
from control_schemas.errors import MalformedEvent
from control_schemas.events import CommitComplete, StartCommit
from control_schemas.headers import decode_headers
from worker.task.rounds.task_rounds import TaskRounds

log = structlog.get_logger("worker.task")


@dataclass(slots=True)
class ControlListener:
    """Passes the coordinator's events on to the rounds of one task. Not thread-safe.

    Args:
        events: of the control topic since the start of the task; the caller closes it.
        rounds: receive the events.
        clock: for the times of events.
        group_id: connect group id; events of other groups are skipped.
        task: number of the task.
        refuse_other_sinks: raises ``group_in_use`` while another sink is running.

    Attributes:
        decoded: events that were decoded.
        malformed: those of them that could not be.
    """

    events: ControlSubscription
    rounds: TaskRounds
    clock: Clock
    group_id: str
    task: int
    refuse_other_sinks: Callable[[], None]
    decoded: int = field(default=0, init=False)
    malformed: int = field(default=0, init=False)

    def poll(self, timeout_ms: int) -> None:
        """Pass on the events that arrived; wait up to ``timeout_ms`` for the first.

        Raises:
            RetriableError: the broker does not answer; ``group_in_use``.
        """
        for record in self.events.poll(timeout_ms):
            self._receive(record)

    def _receive(self, record: KafkaRecord) -> None:
        self.decoded += 1
        try:
            event = decode(record.value or b"")
            headers = decode_headers(record.headers)
        except MalformedEvent as error:
            self._skip(record, error)
            return
        if event.group_id != self.group_id:
            return
        if isinstance(event.payload, StartCommit):
            if not headers.are_of_icefloe:
                self.refuse_other_sinks()
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

"""What a task hears on the control topic: rounds that start and rounds that are over.

Rules of this file:
- Listening begins at the topic's end: a round that began before is not ours to answer.
- A frame that cannot be read is counted and passed over; it cannot be ours.
- Our own DataWritten and DataComplete events are told by their header and never decoded.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from uuid import UUID

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.codec import decode
from control_schemas.errors import MalformedEvent
from control_schemas.events import CommitComplete, StartCommit
from control_schemas.headers import decode_headers

_WORKERS_HEADER = "icefloe.layout"


@dataclass(frozen=True, slots=True)
class ControlUpdate:
    """One event that concerns the task; ``valid_through_us`` is what a complete round claims."""

    class Kind(enum.Enum):
        """What happened to the round."""

        START = "start"
        COMPLETE = "complete"

    kind: Kind
    commit_id: UUID
    valid_through_us: int | None = None
    waiting: tuple[tuple[UUID, tuple[int, ...]], ...] = ()

    def waiting_of(self, task: int) -> list[UUID]:
        """Rounds that are over and of which no table holds anything of this task."""
        return [commit_id for commit_id, tasks in self.waiting if task in tasks]


@dataclass(slots=True)
class ControlListener:
    """The control topic as one task hears it. Not thread-safe.

    Args:
        reader: assigned to nothing yet; not closed here.
        admin: for the topic's partitions and ends.
        topic: the control topic.
        group_id: connect group id; other connectors' events are passed over.
    """

    reader: LogReader
    admin: KafkaAdmin
    topic: str
    group_id: str
    malformed: int = field(default=0, init=False)

    def start_at_end(self) -> None:
        """Begin to listen.

        Raises:
            RetriableError: ``topic_missing`` when there is no control topic.
        """
        count = self.admin.topics().get(self.topic)
        if not count:
            raise RetriableError(
                f"control topic {self.topic} does not exist", code="topic_missing", topic=self.topic
            )
        self.reader.assign(self.admin.ends([TopicPartition(self.topic, p) for p in range(count)]))

    def poll(self, timeout_ms: int) -> list[ControlUpdate]:
        """Events in their order, waiting up to ``timeout_ms`` for the first record.

        Raises:
            RetriableError: the broker is away.
        """
        found = (self._received(record) for record in self.reader.poll(timeout_ms))
        return [received for received in found if received is not None]

    def _received(self, record: KafkaRecord) -> ControlUpdate | None:
        if any(name == _WORKERS_HEADER for name, _ in record.headers):
            return None
        try:
            event = decode(record.value or b"")
            headers = decode_headers(record.headers)
        except MalformedEvent:
            self.malformed += 1
            return None
        if event.group_id != self.group_id:
            return None
        if isinstance(event.payload, StartCommit):
            return ControlUpdate(ControlUpdate.Kind.START, event.payload.commit_id)
        if isinstance(event.payload, CommitComplete):
            payload = event.payload
            return ControlUpdate(
                ControlUpdate.Kind.COMPLETE,
                payload.commit_id,
                payload.valid_through_us,
                headers.waiting,
            )
        return None

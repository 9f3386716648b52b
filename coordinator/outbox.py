"""What the coordinator writes to the control topic: StartCommit and the completion transaction."""

from __future__ import annotations

from collections.abc import Mapping

from connect import failpoints
from connect.clock import Clock
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.model.layout import TopicPartition
from connect.protocol.control_topic import OWN_PARTITION
from control_schemas.codec import encode
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    Event,
    EventHeaders,
    Payload,
    StartCommit,
)
from control_schemas.headers import encode_headers
from coordinator.kernel.effects import SendCompletion, SendStartCommit


class Outbox:
    """Sends events under the coordinator's transactional id, so that a zombie can send none.

    Args:
        producer: initialised.
        clock: gives event ids and times.
        topic: control topic.
        group_id: connect group id; also the record key.
        control_group_id: group of the control offsets.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        clock: Clock,
        *,
        topic: str,
        group_id: str,
        control_group_id: str,
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._topic = topic
        self._group_id = group_id
        self._control_group_id = control_group_id

    def start_commit(self, effect: SendStartCommit, layout: int) -> None:
        """Ask the tasks to announce.

        Args:
            effect: what to send.
            layout: number of the layout, which tells tasks that this is no other sink's event.

        Raises:
            Fenced: another coordinator runs.
            RetriableError: it may or may not have been sent.
        """
        failpoints.hit("C3")
        headers = EventHeaders(coordinator_layout=layout)
        self._producer.transact([self._message(StartCommit(effect.commit_id), headers)])
        failpoints.hit("C4")

    def completion(self, effect: SendCompletion) -> None:
        """One transaction: what was committed, that the round is over, the control offsets.

        Raises:
            Fenced: another coordinator runs; offsets and events of this round are not stored.
            RetriableError: unknown; a new coordinator reads the offsets and continues there.
        """
        failpoints.hit("C14")
        events: list[Payload] = [
            CommitToTable(effect.commit_id, table, snapshot_id, effect.valid_through_us)
            for table, snapshot_id in effect.committed
        ]
        complete = CommitComplete(effect.commit_id, effect.valid_through_us)
        waiting = EventHeaders(waiting=tuple(effect.waiting.items()))
        self._producer.transact(
            [*map(self._message, events), self._message(complete, waiting)],
            group_id=self._control_group_id,
            offsets={
                TopicPartition(self._topic, partition): offset
                for partition, offset in effect.control_offsets.items()
            },
        )
        failpoints.hit("C15")

    def store_offsets(self, control_offsets: Mapping[int, int]) -> None:
        """Store control offsets alone; errors as ``completion``."""
        self._producer.transact(
            [],
            group_id=self._control_group_id,
            offsets={TopicPartition(self._topic, p): at for p, at in control_offsets.items()},
        )

    def _message(self, payload: Payload, headers: EventHeaders = EventHeaders()) -> ProducerMessage:  # noqa: B008 - immutable
        event = Event(
            id=self._clock.new_uuid(),
            timestamp_us=self._clock.now_ms() * 1000,
            group_id=self._group_id,
            payload=payload,
        )
        key = self._group_id.encode()
        own = encode_headers(headers)
        return ProducerMessage(self._topic, key, encode(event), own, partition=OWN_PARTITION)

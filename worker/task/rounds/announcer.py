"""Sends one Kafka transaction per answer: control events, rows, dead letters and source offsets.

Rules of this file:
- All or nothing: a ``read_committed`` consumer sees every event, row for an output, dead letter and
  offset of an answer, or none of them.
- No event is larger than 90 % of ``max.request.size``. The files of a table are split over as many
  DataWritten events as that requires. Each partition spec has separate events. DataComplete is
  last.
- After any error the announcer must not be used again. The task discards the producer and restarts
  from the committed source offsets. Files that were not announced become orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from uuid import UUID

from connect import failpoints
from connect.clock import Clock
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_clients import ProducerMessage, Stage
from connect.gateways.kafka.kafka_errors import TOO_LARGE
from connect.model.layout import TopicPartition
from connect.protocol.control_topic import OWN_PARTITION
from control_schemas.codec import encode
from control_schemas.events import (
    ContentFile,
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    FileContent,
    Payload,
    TableReference,
)
from control_schemas.headers import encode_headers
from worker.batch.messages import MessageChunk
from worker.task.read_ledger import TaskAnnouncement
from worker.task.rounds.task_producer import TaskProducer

EVENT_SHARE = 0.9
MESSAGE_OVERHEAD_BYTES = 512  # upper bound for a record and its record batch
_FAILPOINTS: Mapping[Stage, str] = {
    "begin": "W5",
    "begun": "W6",
    "producing": "W7",
    "produced": "W8",
    "committing": "W9",
    "committed": "W10",
}


@dataclass(frozen=True, slots=True)
class Announcer:
    """Announces a task's answers.

    Args:
        producer: open, and used by this announcer only.
        control_topic: topic of the events.
        connect_group_id: group of the source offsets, and key of every event.
        layout: number of the task's layout.
        task: number of the task in its layout.
        clock: for event times and ids.
        dead_letter: turns a dead letter of the pipeline into a message; returns None where dead
            letters are only counted.
        topics: of the connector's outputs, in their order; None for those without a topic.
    """

    producer: TaskProducer
    control_topic: str
    connect_group_id: str
    layout: int
    task: int
    clock: Clock
    dead_letter: Callable[[Any], ProducerMessage | None]
    topics: tuple[str | None, ...] = ()

    def announce(
        self, commit_id: UUID, answer: TaskAnnouncement, more: Sequence[ProducerMessage] = ()
    ) -> int:
        """Send ``answer`` in one transaction; return the number of dead letters in it.

        Args:
            commit_id: of the round.
            answer: what the task has read.
            more: further dead letters.

        Raises:
            ConfigError: the metrics of a single file, or the partitions of the task, do not fit
                into an event; a dead letter or a row does not fit into a request
                (``dead_letter_too_large``, ``output_too_large``).
            Fenced, RetriableError: as ``TaskProducer.transact``.
        """
        events = list(self.events(commit_id, answer))
        dead_letters = list(self._dead_letters(answer))
        chunks = [chunk for batch in answer.batches for chunk in batch.messages]
        self._refuse_large_rows(chunks)
        rows = chain.from_iterable(chunk.messages(self.topics) for chunk in chunks)
        try:
            self.producer.transact(
                chain((message for _, message in dead_letters), more, rows, events),
                group_id=self.connect_group_id,
                offsets=answer.offsets,
                on_stage=hit_stage,
            )
        except ConfigError as e:
            largest = max(chunks, key=lambda chunk: chunk.largest, default=None)
            dead_letter_size = max((_size(message) for _, message in dead_letters), default=0)
            if e.code == TOO_LARGE and largest is not None and largest.largest > dead_letter_size:
                topic, _, record = self._largest_row(largest)
                e.at(output_topic=topic, **record)
            elif e.code == TOO_LARGE and dead_letters:  # at least the largest one is too large
                record = max(dead_letters, key=lambda dead_letter: _size(dead_letter[1]))[0].record
                e.at(topic=record.topic, partition=record.partition, offset=record.offset)
            raise
        failpoints.hit("W11")
        return len(dead_letters) + len(more)

    def store_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store source offsets without events; errors as ``announce``."""
        self.producer.transact([], group_id=self.connect_group_id, offsets=offsets)

    def events(self, commit_id: UUID, answer: TaskAnnouncement) -> Iterator[ProducerMessage]:
        """Return the control events of an answer in their order on the topic.

        Steps are numbered from the sum of the source offsets at which the answer starts. A
        successor that answers the same round starts where its predecessor ended. Each step has at
        least one record, so the numbers of the successor are higher.
        """
        ends = sum(a.offset or 0 for a in answer.assignments)
        first = ends - sum(r.end_offset - r.start_offset for r in answer.ranges)
        steps = ((batch, files) for batch in answer.batches for files in batch.steps)
        for sequence, (batch, step) in enumerate(steps, first):
            headers = EventHeaders(
                layout=self.layout,
                task=self.task,
                batch=sequence,
                lost=answer.lost_to_report,
                time_ms=batch.timestamp_max_ms,
            )
            for table, files in step:
                for group in _by_spec(files):
                    yield from self._written(commit_id, table, group, headers)
        yield self._message(
            DataComplete(commit_id, answer.assignments),
            EventHeaders(
                layout=self.layout,
                task=self.task,
                ranges=answer.ranges,
                rows=answer.rows,
                lost=answer.lost,
            ),
        )

    def _dead_letters(self, answer: TaskAnnouncement) -> Iterator[tuple[Any, ProducerMessage]]:
        for batch in answer.batches:
            for dead_letter in batch.dead_letters:
                message = self.dead_letter(dead_letter)
                if message is not None:
                    self._refuse_too_large(dead_letter, message)
                    yield dead_letter, message

    def _refuse_large_rows(self, chunks: list[MessageChunk]) -> None:
        """Refuse a row that exceeds a request: no row may be left out."""
        bytes_max = self.producer.request_bytes_max - MESSAGE_OVERHEAD_BYTES
        for chunk in chunks:
            if chunk.largest <= bytes_max:
                continue
            topic, size, record = self._largest_row(chunk)
            if size > bytes_max:
                needed = size + MESSAGE_OVERHEAD_BYTES
                raise ConfigError(
                    f"a row for topic {topic} has {size} bytes, and max.request.size is "
                    f"{self.producer.request_bytes_max}: send fewer columns "
                    "(icefloe.output.<name>.columns), or raise "
                    "producer.override.max.request.size, and max.message.bytes of the topic, to "
                    f"at least {needed}",
                    code="output_too_large",
                    **record,
                )

    def _largest_row(self, chunk: MessageChunk) -> tuple[str, int, dict[str, Any]]:
        """Return the topic, the size and the source record of the largest row for a topic."""
        numbers = [number for number, topic in enumerate(self.topics) if topic is not None]
        row, size = chunk.largest_row(numbers)
        record = {name: row.get(name) for name in ("topic", "partition", "offset")}
        return self.topics[row["output"]] or "" if row else "", size, record

    def _refuse_too_large(self, dead_letter: Any, message: ProducerMessage) -> None:
        """Refuse a dead letter that exceeds a request: no byte of its record may be dropped."""
        size = _size(message) + MESSAGE_OVERHEAD_BYTES
        if size > self.producer.request_bytes_max:
            record = dead_letter.record
            raise ConfigError(
                f"a dead letter of {size} bytes is larger than max.request.size "
                f"({self.producer.request_bytes_max}): raise producer.override.max.request.size, "
                f"and max.message.bytes of topic {message.topic}, to at least {size}",
                code="dead_letter_too_large",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )

    def _written(
        self,
        commit_id: UUID,
        table: TableReference,
        files: tuple[ContentFile, ...],
        headers: EventHeaders,
    ) -> Iterator[ProducerMessage]:
        """Return one event, or as many as the size limit requires."""
        if not files:
            return
        payload = DataWritten(
            commit_id,
            table,
            tuple(f for f in files if f.content is FileContent.DATA),
            tuple(f for f in files if f.content is not FileContent.DATA),
        )
        message = self._message(payload, headers, is_bounded=False)
        if _size(message) <= self._bytes_max:
            yield message
        elif len(files) > 1:
            half = len(files) // 2
            yield from self._written(commit_id, table, files[:half], headers)
            yield from self._written(commit_id, table, files[half:], headers)
        elif files[0].lower_bounds or files[0].upper_bounds:
            # bounds only serve pruning: a file without them is valid, a file not announced is lost
            bare = replace(files[0], lower_bounds=None, upper_bounds=None)
            yield from self._written(commit_id, table, (bare,), headers)
        else:
            self._refuse(message, f"the metrics of one file of table {table} need")

    def _message(
        self, payload: Payload, headers: EventHeaders, *, is_bounded: bool = True
    ) -> ProducerMessage:
        event = Event(
            self.clock.new_uuid(), self.clock.now_ms() * 1000, self.connect_group_id, payload
        )
        message = ProducerMessage(
            self.control_topic,
            self.connect_group_id.encode(),
            encode(event),
            encode_headers(headers),
            partition=OWN_PARTITION,
        )
        if is_bounded and _size(message) > self._bytes_max:
            self._refuse(message, "the partitions of one task need")
        return message

    @property
    def _bytes_max(self) -> int:
        return int(self.producer.request_bytes_max * EVENT_SHARE)

    def _refuse(self, message: ProducerMessage, subject: str) -> None:
        raise ConfigError(
            f"{subject} an event of {_size(message)} bytes, more than 90 % of max.request.size: "
            "raise max.request.size of the producer and max.message.bytes of the control topic",
            code="event_too_large",
        )


def _by_spec(files: tuple[ContentFile, ...]) -> Iterator[tuple[ContentFile, ...]]:
    """Group files by partition spec: an event has one partition type."""
    for spec_id in dict.fromkeys(file.spec_id for file in files):
        yield tuple(file for file in files if file.spec_id == spec_id)


def _size(message: ProducerMessage) -> int:
    headers = sum(len(k) + len(v or b"") for k, v in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers


def hit_stage(stage: Stage) -> None:
    """Act at the failpoint of a stage of a transaction."""
    hit = failpoints.hit_in_flight if stage == "committing" else failpoints.hit
    hit(_FAILPOINTS[stage])

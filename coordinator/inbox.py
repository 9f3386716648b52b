"""Reads one connector's control events, in order, from where its group left off.

Rules of this file:
- Reading starts at the group's own control offsets; without one, at the earliest retained event;
  never at the latest. Floors in the tables filter what is already committed.
- Frames of other groups are skipped without decoding them: many connectors share a control topic.
- Only committed transactions are read. A frame of another writer that cannot be read is counted
  and named. One of the own group stops the coordinator: it may announce files, and the control
  offsets must not pass them.
- An announcement in the format of the sink's ancestor stops the coordinator: no process would
  read its records again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from connect.errors import DataLost, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.codec import decode
from control_schemas.errors import MalformedEvent
from control_schemas.frame import is_of_another_group
from control_schemas.headers import LAYOUT, decode_headers
from control_schemas.legacy import legacy_event
from coordinator.control_reader import ControlReader
from coordinator.kernel.effects import Envelope, InboxAdvanced
from coordinator.uncommitted_report import records_in


def start_offsets(
    admin: KafkaAdmin, topic: str, group: str
) -> tuple[dict[TopicPartition, int], bool]:
    """Control offsets from which a coordinator of ``group`` must read.

    Returns:
        Next control offset per partition, and whether the group had stored any.

    Raises:
        DataLost: ``control_log_lost`` when retention passed the group's offset,
            ``control_log_reset`` when the offset is beyond the log (a re-created topic).
        RetriableError: ``topic_missing`` when the control topic is not there.
    """
    partitions = admin.partitions(topic)
    if not partitions:
        raise RetriableError(
            f"control topic {topic} does not exist", code="topic_missing", topic=topic
        )
    committed = admin.committed(group, partitions)
    out: dict[TopicPartition, int] = {}
    for tp, (start, end) in admin.watermarks(partitions).items():
        offset = committed[tp]
        if offset is None:
            out[tp] = start
        elif offset < start:
            raise DataLost(
                f"control events {offset}..{start - 1} of group {group} are gone by retention; "
                "announced files may be among them",
                code="control_log_lost",
                topic=topic,
                partition=tp.partition,
            )
        elif offset > end:
            raise DataLost(
                f"group {group} has read up to {offset}, but the control topic ends at {end}: "
                "it was re-created or truncated",
                code="control_log_reset",
                topic=topic,
                partition=tp.partition,
            )
        else:
            out[tp] = offset
    return out, any(offset is not None for offset in committed.values())


class Inbox:
    """The control topic as one connector's coordinator sees it. Not thread-safe.

    Args:
        reader: assigned to nothing yet; the inbox closes it.
        positions: where to start, see ``start_offsets``.
        group_id: connect group id of the connector; other groups' events are passed over.
        on_malformed: called with each frame that cannot be read, with the reason.

    Attributes:
        decoded: frames that were decoded.
    """

    def __init__(
        self,
        reader: ControlReader,
        positions: Mapping[TopicPartition, int],
        group_id: str,
        on_malformed: Callable[[KafkaRecord, str], None],
    ) -> None:
        self._reader = reader
        self._group_id = group_id
        self._group_bytes = group_id.encode()
        self._on_malformed = on_malformed
        self.decoded = 0
        reader.assign(positions)

    @property
    def partitions(self) -> frozenset[int]:
        """Control partitions that are read."""
        return frozenset(tp.partition for tp in self._reader.positions())

    @property
    def positions(self) -> dict[int, int]:
        """Control partition -> next control offset to be read."""
        return {tp.partition: at for tp, at in self._reader.positions().items()}

    def poll(self, timeout_ms: int) -> list[Envelope | InboxAdvanced]:
        """Events of this connector in order, then how far the log was read.

        Raises:
            DataLost: ``legacy_announcement``: the sink's ancestor has not finished;
                ``control_event_damaged``: an event of this connector cannot be read.
            RetriableError: the broker is away.
        """
        out: list[Envelope | InboxAdvanced] = []
        for record in self._reader.poll(timeout_ms):
            envelope = self._envelope(record)
            if envelope is not None:
                out.append(envelope)
        out.append(InboxAdvanced(self.positions))
        return out

    def _envelope(self, record: KafkaRecord) -> Envelope | None:
        frame = record.value or b""
        if is_of_another_group(frame, self._group_bytes) and not self._is_announced(record):
            return None
        old = legacy_event(record.value or b"")
        if old is not None:
            if old.is_announcement and old.is_of(self._group_id):
                raise DataLost(
                    "files were announced by the io.tabular sink in its old event format and are "
                    "perhaps in no table: let that sink run until it has committed them, then "
                    "start again",
                    code="legacy_announcement",
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                )
            return None
        self.decoded += 1
        group_id = None
        try:
            event = decode(record.value or b"")
            group_id = event.group_id
            headers = decode_headers(record.headers)
        except MalformedEvent as e:
            group_id = group_id or e.group_id
            if group_id == self._group_id or (group_id is None and self._is_announced(record)):
                raise _damaged(record, e) from e
            if group_id is None:  # others' odd events are others' concern
                self._on_malformed(record, str(e))
            return None
        if event.group_id != self._group_id:
            return None
        envelope = Envelope(
            event, headers, record.partition, record.offset, size_bytes=len(record.value or b"")
        )
        return replace(envelope, records=records_in([envelope]))

    def _is_announced(self, record: KafkaRecord) -> bool:
        """Whether a task of this connector wrote a record, by its key and headers."""
        return record.key == self._group_bytes and any(name == LAYOUT for name, _ in record.headers)

    @property
    def may_wait(self) -> bool:
        """Whether ``wake`` ends a ``poll``, so that it may wait for long."""
        return self._reader.is_shared

    def wake(self) -> None:
        """End a long wait of ``poll``; any thread may call it."""
        self._reader.wake()

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()


def _damaged(record: KafkaRecord, error: MalformedEvent) -> DataLost:
    return DataLost(
        f"an event of this connector cannot be read, and it may announce files: {error}. "
        "icefloe control decode shows the topic; icefloe control rebase gives up what it announces",
        code="control_event_damaged",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )

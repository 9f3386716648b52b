"""The five control events, as values.

Rules of this file:
- A value says exactly what is on the wire: None is null on the wire, an empty tuple is empty.
- Times are integers, microseconds since 1970 UTC, so that nothing is rounded on the way through.
- This module does not know Avro; ``codec`` turns values into bytes and back.

Source:
    Iceberg Kafka Connect 1.12.0, ``org.apache.iceberg.connect.events``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

PartitionValue: TypeAlias = bool | int | float | str | bytes | None


class EventType(enum.IntEnum):
    """The type id in the event envelope."""

    START_COMMIT = 0
    DATA_WRITTEN = 1
    DATA_COMPLETE = 2
    COMMIT_TO_TABLE = 3
    COMMIT_COMPLETE = 4


class FileContent(enum.IntEnum):
    """What a file holds."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table by name and identity.

    ``table_uuid`` is None in events of Java sinks before 1.11.
    """

    catalog: str
    namespace: tuple[str, ...]
    name: str
    table_uuid: UUID | None = None

    @property
    def identifier(self) -> tuple[str, ...]:
        """Namespace levels and name, as catalogs take them."""
        return (*self.namespace, self.name)

    def __str__(self) -> str:
        return ".".join(self.identifier)


@dataclass(frozen=True, slots=True)
class TopicPartitionOffset:
    """Where a task stands in one source partition.

    Attributes:
        topic: source topic.
        partition: source partition.
        offset: next source offset, the first not yet read; None when nothing was ever read.
        timestamp_us: up to when the partition is read, microseconds UTC; None when unknown.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_us: int | None


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a file's partition tuple.

    Attributes:
        field_id: partition field id (1000 and above); readers match by it.
        name: the field's Avro name on the wire (illegal characters rewritten) when read,
            the spec's own name when written.
        type: Iceberg result type as text, ``int``, ``date``, ``decimal(9, 2)``, ``fixed[16]`` ...
        value: in Iceberg's internal form: date = days, time and timestamp = microseconds,
            uuid and binary and fixed = bytes, decimal = unscaled integer; None for null.
    """

    field_id: int
    name: str
    type: str
    value: PartitionValue


@dataclass(frozen=True, slots=True)
class ContentFile:
    """A data or delete file with its metrics, as the writer measured them.

    Maps are keyed by column field id. ``equality_ids`` only for equality deletes.
    """

    content: FileContent
    file_path: str
    file_format: str
    spec_id: int | None
    partition: tuple[PartitionField, ...]
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = 0
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StartCommit:
    """The coordinator asks every task to announce what it has."""

    commit_id: UUID

    TYPE = EventType.START_COMMIT


@dataclass(frozen=True, slots=True)
class DataWritten:
    """Files of one table, ready to be committed."""

    commit_id: UUID
    table: TableReference
    data_files: tuple[ContentFile, ...] | None
    delete_files: tuple[ContentFile, ...] | None

    TYPE = EventType.DATA_WRITTEN


@dataclass(frozen=True, slots=True)
class DataComplete:
    """A task has announced everything it read for this commit id."""

    commit_id: UUID
    assignments: tuple[TopicPartitionOffset, ...] | None

    TYPE = EventType.DATA_COMPLETE


@dataclass(frozen=True, slots=True)
class CommitToTable:
    """A table got a snapshot."""

    commit_id: UUID
    table: TableReference
    snapshot_id: int | None
    valid_through_us: int | None

    TYPE = EventType.COMMIT_TO_TABLE


@dataclass(frozen=True, slots=True)
class CommitComplete:
    """The round is over."""

    commit_id: UUID
    valid_through_us: int | None

    TYPE = EventType.COMMIT_COMPLETE


Payload: TypeAlias = StartCommit | DataWritten | DataComplete | CommitToTable | CommitComplete


@dataclass(frozen=True, slots=True)
class Event:
    """One control event.

    Attributes:
        id: random identity of the event.
        timestamp_us: when it was made, microseconds UTC.
        group_id: the connect group id it belongs to, ``connect-<connector>``.
        payload: what it says; its class is the event's type.
    """

    id: UUID
    timestamp_us: int
    group_id: str
    payload: Payload

    @property
    def type(self) -> EventType:
        """The type id of the payload."""
        return self.payload.TYPE


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What one announcement says of one source partition (record header ``icefloe.ranges``).

    ``read = written + dropped + dead_lettered`` counts records, not rows: a record that goes to
    two tables is written once. Offsets that hold no record (transaction markers, compaction)
    are in the range and in no count.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    records_read: int
    records_dropped: int
    records_dead_lettered: int
    records_written: int
    timestamp_max_ms: int | None


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What became of the rows of one announcement's records (record header ``icefloe.rows``).

    A record makes a row for each table that it goes to, and transformations may make several of
    it. The announced data files hold ``kept`` rows; those of dead letters are not counted.

    Attributes:
        made: rows that records made, deletes included.
        superseded: rows that left nothing, because a newer one of their key came in the same step.
        deleted: rows that only delete: no data file holds them.
    """

    made: int = 0
    superseded: int = 0
    deleted: int = 0

    @property
    def kept(self) -> int:
        """Rows in data files."""
        return self.made - self.superseded - self.deleted

    def plus(self, other: RowCounts) -> RowCounts:
        """Both together."""
        return RowCounts(
            self.made + other.made,
            self.superseded + other.superseded,
            self.deleted + other.deleted,
        )


@dataclass(frozen=True, slots=True)
class EventHeaders:
    """Icefloe's own additions, carried as Kafka record headers; all None on Java's events.

    Attributes:
        layout: layout number of the announcing task's configuration (DataComplete, DataWritten).
        batch: place among the announcing task's steps, rising over its restarts (DataWritten).
        ranges: source ranges announced in this transaction (DataComplete).
        moved: topic and number of source partitions that continue at another offset, because
            their offsets were set or their topic is another one; none listed means all
            (CommitComplete of the node).
        task: number of the announcing task in its layout (DataComplete, DataWritten).
        is_reset: what the connector claimed of its VTTS before is taken back (CommitComplete of the
            node).
        rows: what became of the rows of the records in ``ranges``; None where that is unknown
            (DataComplete).
        waiting: rounds with the numbers of the tasks of whose answer no table holds anything when
            the round is over (CommitComplete).
    """

    layout: int | None = None
    batch: int | None = None
    ranges: tuple[SourceRange, ...] | None = None
    moved: tuple[tuple[str, int], ...] | None = None
    task: int | None = None
    rows: RowCounts | None = None
    is_reset: bool = False
    waiting: tuple[tuple[UUID, tuple[int, ...]], ...] = ()

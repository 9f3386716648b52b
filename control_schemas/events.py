"""The five control events as dataclasses.

Rules of this file:
- Values correspond exactly to the wire: None is null, an empty tuple is an empty list.
- Times are integers, microseconds since 1970 UTC, so that no conversion rounds them.
- This module is independent of Avro; ``codec`` encodes and decodes events.

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
    """Type ids of the event envelope."""

    START_COMMIT = 0
    DATA_WRITTEN = 1
    DATA_COMPLETE = 2
    COMMIT_TO_TABLE = 3
    COMMIT_COMPLETE = 4


class FileContent(enum.IntEnum):
    """Content types of files."""

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
        """Return the catalog identifier: namespace levels and name."""
        return (*self.namespace, self.name)

    def __str__(self) -> str:
        return ".".join(self.identifier)


@dataclass(frozen=True, slots=True)
class TopicPartitionOffset:
    """A task's progress in one source partition.

    Attributes:
        topic: source topic.
        partition: source partition.
        offset: next source offset, the first not yet read; None if no record was ever read.
        timestamp_us: time up to which all records are read, microseconds UTC; None if unknown.
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
        name: in decoded events the Avro name, with illegal characters replaced; in events to
            encode the name in the partition spec.
        type: Iceberg result type as text, ``int``, ``date``, ``decimal(9, 2)``, ``fixed[16]`` ...
        value: in Iceberg's internal form: date = days, time and timestamp = microseconds, uuid,
            binary and fixed = bytes, decimal = unscaled integer; None for null.
    """

    field_id: int
    name: str
    type: str
    value: PartitionValue


@dataclass(frozen=True, slots=True)
class ContentFile:
    """A data or delete file with its metrics.

    Keys of maps are column field ids. Only equality deletes have ``equality_ids``.
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
    """The coordinator requests that every task announces its files."""

    commit_id: UUID

    TYPE = EventType.START_COMMIT


@dataclass(frozen=True, slots=True)
class DataWritten:
    """A task announces files of one table to be committed."""

    commit_id: UUID
    table: TableReference
    data_files: tuple[ContentFile, ...] | None
    delete_files: tuple[ContentFile, ...] | None

    TYPE = EventType.DATA_WRITTEN


@dataclass(frozen=True, slots=True)
class DataComplete:
    """A task has announced all its files for this commit id."""

    commit_id: UUID
    assignments: tuple[TopicPartitionOffset, ...] | None

    TYPE = EventType.DATA_COMPLETE


@dataclass(frozen=True, slots=True)
class CommitToTable:
    """The coordinator has committed a snapshot of a table."""

    commit_id: UUID
    table: TableReference
    snapshot_id: int | None
    valid_through_us: int | None

    TYPE = EventType.COMMIT_TO_TABLE


@dataclass(frozen=True, slots=True)
class CommitComplete:
    """The coordinator has ended the round."""

    commit_id: UUID
    valid_through_us: int | None

    TYPE = EventType.COMMIT_COMPLETE


Payload: TypeAlias = StartCommit | DataWritten | DataComplete | CommitToTable | CommitComplete


@dataclass(frozen=True, slots=True)
class Event:
    """One control event.

    Attributes:
        id: random UUID.
        timestamp_us: creation time, microseconds UTC.
        group_id: connect group id of its connector, ``connect-<connector>``.
        payload: content; its class determines the event type.
    """

    id: UUID
    timestamp_us: int
    group_id: str
    payload: Payload

    @property
    def type(self) -> EventType:
        """Return the type id of the payload."""
        return self.payload.TYPE


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Source offsets of one partition that an announcement covers (header ``icefloe.ranges``).

    ``read = written + dropped + dead_lettered`` counts records, not rows: a record that is written
    to two tables counts once. Offsets without a record (transaction markers, compaction) are in
    the range, but not counted.
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
class LostRange:
    """Source records that were deleted before they were read (record header ``icefloe.lost``).

    The offsets from ``start_offset`` up to ``end_offset``, which is not included, are part of an
    announced ``SourceRange`` and of none of its counts.

    ``end_offset`` is None for records of a topic that was deleted and created again: from
    ``start_offset`` up to the unknown end of the former topic (header ``icefloe.recreated``).
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int | None

    @property
    def offsets(self) -> int:
        """Number of offsets: an upper bound of the number of records; 0 if it is not known."""
        return 0 if self.end_offset is None else self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Counts of the rows of one announcement's records (header ``icefloe.rows``).

    A record becomes one row in each of its tables; transformations may make several rows of it.
    The announced data files contain ``kept`` rows. Rows of dead letter tables are not counted.

    Attributes:
        made: all rows, deletes included.
        superseded: rows not written because the same step had a newer row with the same key.
        deleted: rows that only delete; they are in no data file.
    """

    made: int = 0
    superseded: int = 0
    deleted: int = 0

    @property
    def kept(self) -> int:
        """Return the number of rows in data files."""
        return self.made - self.superseded - self.deleted

    def plus(self, other: RowCounts) -> RowCounts:
        """Return the sum of both counts."""
        return RowCounts(
            self.made + other.made,
            self.superseded + other.superseded,
            self.deleted + other.deleted,
        )


@dataclass(frozen=True, slots=True)
class EventHeaders:
    """Icefloe's Kafka record headers of an event; events of the Java sink have none of them.

    Attributes:
        layout: layout number of the announcing task's configuration (DataComplete, DataWritten).
        batch: sequence number of the task's step; increases across restarts (DataWritten).
        ranges: source ranges announced in this transaction (DataComplete).
        moved: topic and number of source partitions that continue at another offset, because
            their offsets were altered or their topic was created again; an empty tuple means all
            (CommitComplete from a node).
        task: number of the announcing task in its layout (DataComplete, DataWritten).
        is_reset: whether the connector's earlier VTTS are invalid (CommitComplete from a node).
        rows: counts of the rows of the records in ``ranges``; None if unknown (DataComplete).
        waiting: commit ids with task numbers: tasks whose answers to that round were in no table
            yet at the end of this round (CommitComplete).
        lost: source records that were deleted before they were read: inside ``ranges``
            (DataComplete), or for the summary of the next snapshot (DataWritten).
        time_ms: highest record timestamp of the step's batch (DataWritten).
        coordinator_layout: layout number of the coordinator's configuration (StartCommit).
    """

    layout: int | None = None
    batch: int | None = None
    ranges: tuple[SourceRange, ...] | None = None
    moved: tuple[tuple[str, int], ...] | None = None
    task: int | None = None
    rows: RowCounts | None = None
    is_reset: bool = False
    waiting: tuple[tuple[UUID, tuple[int, ...]], ...] = ()
    lost: tuple[LostRange, ...] = ()
    time_ms: int | None = None
    coordinator_layout: int | None = None

    @property
    def are_of_icefloe(self) -> bool:
        """Whether a StartCommit, DataWritten or DataComplete is not of another sink."""
        return self.layout is not None or self.coordinator_layout is not None

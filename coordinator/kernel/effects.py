"""Inputs and effects of the kernel: plain values without behaviour.

Rules of this file:
- Everything is immutable and compares by value, so that simulations can record and replay it.
- Times handed to the kernel are milliseconds of a monotonic clock, except where ``_us`` says
  microseconds since 1970 UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from uuid import UUID

from connect.model.layout import Layout, TopicPartition
from control_schemas.events import Event, EventHeaders, SourceRange, TableReference


@dataclass(frozen=True, slots=True)
class Envelope:
    """A control event and where it was read.

    Attributes:
        event: the event.
        headers: Icefloe's additions; empty for Java's events.
        partition: control partition.
        offset: its control offset.
        records: in the data files that it announces.
        size_bytes: of the event as it is in the control topic.
    """

    event: Event
    headers: EventHeaders
    partition: int
    offset: int
    records: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's share of a round.

    Attributes:
        table: the table by name and, when the writer knew it, identity.
        commit_id: the round.
        announcements: DataWritten envelopes of this table, in control order per partition.
        control_offsets: control partition -> next control offset at which the round was closed.
        valid_through_us: VTTS, or None on a partial commit.
        task_id: ``kafka.connect.task-id`` of the snapshot.
    """

    table: TableReference
    commit_id: UUID
    announcements: tuple[Envelope, ...]
    control_offsets: Mapping[int, int]
    valid_through_us: int | None
    task_id: str


@dataclass(frozen=True, slots=True)
class TableCommitted:
    """The table holds everything announced for it.

    ``snapshot_id`` is None when the floor or emptiness left nothing to commit.
    """

    table: TableReference
    commit_id: UUID
    snapshot_id: int | None
    files: int = 0
    records: int = 0
    duration_ms: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableFailed:
    """The table could not be committed; its announcements must be kept.

    Attributes:
        table: the table.
        commit_id: the round.
        code: bounded code, e.g. ``table_missing``, ``floor_lost``, ``catalog_unavailable``.
        message: what the catalog said.
        is_retriable: the next round may try again; else the operator decides.
        present_uuid: identity of the table that is there, where it is another than announced.
    """

    table: TableReference
    commit_id: UUID
    code: str
    message: str
    is_retriable: bool
    present_uuid: UUID | None = None


@dataclass(frozen=True, slots=True)
class CoordinatorFenced:
    """Another coordinator committed to the table: this one must stop."""

    table: TableReference
    commit_id: UUID
    message: str


CommitOutcome: TypeAlias = TableCommitted | TableFailed | CoordinatorFenced


# ------------------------------------------------------------------ inputs of the kernel


@dataclass(frozen=True, slots=True)
class InboxAdvanced:
    """The inbox read up to these next control offsets (foreign events and markers included)."""

    positions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class InitialLogEnds:
    """How far the control log went when this kernel began.

    What lies below may be announced by predecessors, in any control partition (Java's keys are
    random): until it is read, a round commits what is known and claims no VTTS.

    Attributes:
        ends: control partition -> next control offset to be written.
    """

    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class CurrentLogEnds:
    """How far the control log goes now.

    Every event read before this request belongs to a transaction that ends below.

    Attributes:
        ends: control partition -> next control offset to be written.
    """

    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed.

    Attributes:
        commit_id: identity for a round, should one start now.
        now_us: wall clock, microseconds UTC; for events only, never for intervals.
    """

    commit_id: UUID
    now_us: int


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """This layout is ready: its partitions are what a round must cover."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class Finish:
    """The coordinator stops: commit what is announced and read, and claim no VTTS.

    Attributes:
        commit_id: identity of a last round, should none be open.
    """

    commit_id: UUID


@dataclass(frozen=True, slots=True)
class CompletionSent:
    """The completion transaction of the round is committed."""

    commit_id: UUID


@dataclass(frozen=True, slots=True)
class TableDecision:
    """The operator's decision on a failed table: ``retry`` it or ``skip`` what is announced.

    ``request`` comes back with what became of it.
    """

    table: TableReference
    action: Literal["retry", "skip"]
    request: str = ""


Input: TypeAlias = (
    Envelope
    | InboxAdvanced
    | InitialLogEnds
    | CurrentLogEnds
    | Tick
    | LayoutChanged
    | Finish
    | CommitOutcome
    | CompletionSent
    | TableDecision
)


# ------------------------------------------------------------------ effects


@dataclass(frozen=True, slots=True)
class SendStartCommit:
    """Ask the tasks to announce."""

    commit_id: UUID


@dataclass(frozen=True, slots=True)
class CommitTables:
    """Commit these tables, in parallel; report each with its outcome."""

    commits: tuple[TableCommit, ...]


@dataclass(frozen=True, slots=True)
class SendCompletion:
    """One transaction: CommitToTable for each, CommitComplete, control offsets of the group.

    Attributes:
        commit_id: the round.
        committed: table and snapshot id of each table that got a snapshot.
        valid_through_us: VTTS of the round.
        control_offsets: control partition -> next control offset for the ``-coord`` group.
        waiting: rounds with the tasks of whose answer no table holds anything yet.
    """

    commit_id: UUID
    committed: tuple[tuple[TableReference, int], ...]
    valid_through_us: int | None
    control_offsets: Mapping[int, int]
    waiting: Mapping[UUID, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """This kernel must end: a table shows that another process commits under our name.

    Whether that is a successor, or a late commit of a predecessor, only the transactional id can
    tell: who still holds it starts over, who lost it is done.
    """

    commit_id: UUID
    message: str
    coordinates: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round is over, for metrics and the status page.

    Attributes:
        positions: source partition -> next source offset that a task answered; empty for a partial
            round.
    """

    commit_id: UUID
    started_ms: int
    ended_ms: int
    is_partial: bool
    valid_through_us: int | None
    outcomes: tuple[TableCommitted | TableFailed, ...]
    ranges: tuple[SourceRange, ...]
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableDecided:
    """The result of an operator's decision on a table.

    Attributes:
        decision: of the operator.
        state: ``done``; ``busy`` while the table is being tried, the outcome decides first;
            ``not_failed`` when nothing waits for a decision.
        skipped: announcements that are given up: their files are named, never deleted.
        kept: announcements that wait on, for the table that is there now.
    """

    decision: TableDecision
    state: Literal["done", "busy", "not_failed"]
    skipped: tuple[Envelope, ...] = ()
    kept: tuple[Envelope, ...] = ()


Effect: TypeAlias = (
    SendStartCommit | CommitTables | SendCompletion | Stop | RoundEnded | TableDecided
)

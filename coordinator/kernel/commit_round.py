"""One round of commits: its settings, its schedule, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from connect.model.layout import TopicPartition
from control_schemas.events import DataComplete, DataWritten, SourceRange, TableReference
from coordinator.kernel.announcements import Identifier
from coordinator.kernel.effects import (
    CommitOutcome,
    Envelope,
    RoundEnded,
    TableCommit,
    TableCommitted,
    TableFailed,
)


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """Configuration of a kernel; all times in milliseconds.

    Attributes:
        task_id: ``kafka.connect.task-id`` of the snapshots.
        commit_interval_ms: between the starts of two rounds.
        commit_timeout_ms: after that time a round commits what is announced.
        repeat_start_ms: a round repeats its StartCommit this often, for tasks that started to poll
            late. A task that has answered ignores the repetition.
        repeat_quickly_ms: the same while a layout is new and all of its tasks start.
        new_layout_ms: how long a layout counts as new.
        ranges_from: control partition -> control offset. Announced source ranges below it are not
            checked against the ranges before them.
        future_max_ms: how far a task's timestamp may be ahead of the coordinator's clock; None
            accepts every timestamp.
        kept_bytes_max: above this size of kept announcements the tasks get no StartCommit.
    """

    task_id: str
    commit_interval_ms: int
    commit_timeout_ms: int
    repeat_start_ms: int = 1_000
    repeat_quickly_ms: int = 200
    new_layout_ms: int = 5_000
    ranges_from: Mapping[int, int] = field(default_factory=dict)
    future_max_ms: int | None = None
    kept_bytes_max: int | None = None


@dataclass(slots=True)
class TaskAnswers:
    """What the tasks answered to one StartCommit.

    Attributes:
        completions: DataComplete events of the round, in control order.
        covered: the source partitions of these completions.
        ranges: the source ranges that their headers announce.
        positions: source partition -> next source offset, by the completions.
    """

    completions: list[DataComplete] = field(default_factory=list)
    covered: set[TopicPartition] = field(default_factory=set)
    ranges: list[SourceRange] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, completion: DataComplete) -> None:
        """Take the answer of one task."""
        self.completions.append(completion)
        self.positions.update(
            (TopicPartition(a.topic, a.partition), a.offset)
            for a in completion.assignments or ()
            if a.offset is not None
        )
        self.covered.update(
            TopicPartition(a.topic, a.partition) for a in completion.assignments or ()
        )


@dataclass(slots=True)
class Round:
    """One round from its StartCommit to its completion; times of a monotonic clock.

    Attributes:
        commit_id: of the round.
        started_ms: when the round started.
        repeated_ms: when StartCommit was last sent.
        answers: of the tasks.
        closed_at: control partition -> next control offset at which the round was closed.
        is_partial: the round timed out before the answers covered the layout.
        leaves_tables_out: a table with announcements is not part of the round.
        valid_through_us: VTTS that the round claims.
        expected: the source partitions that the VTTS covers.
        in_flight: tables that are being committed.
        outcomes: of the tables that are done.
    """

    commit_id: UUID
    started_ms: int
    repeated_ms: int
    answers: TaskAnswers = field(default_factory=TaskAnswers)
    closed_at: Mapping[int, int] = field(default_factory=dict)
    is_partial: bool = False
    leaves_tables_out: bool = False
    valid_through_us: int | None = None
    expected: frozenset[TopicPartition] = frozenset()
    in_flight: dict[Identifier, TableCommit] = field(default_factory=dict)
    outcomes: list[TableCommitted | TableFailed] = field(default_factory=list)

    def add(self, identifier: Identifier, envelopes: tuple[Envelope, ...], task_id: str) -> None:
        """Commit these announcements of a table in this round."""
        payload = envelopes[-1].event.payload
        assert isinstance(payload, DataWritten)
        *namespace, name = identifier
        self.in_flight[identifier] = TableCommit(
            table=replace(payload.table, namespace=tuple(namespace), name=name),
            commit_id=self.commit_id,
            announcements=envelopes,
            control_offsets=self.closed_at,
            valid_through_us=self.valid_through_us,
            task_id=task_id,
        )

    def is_in_flight(self, outcome: CommitOutcome) -> bool:
        """Whether the outcome is of a commit that this round waits for."""
        return outcome.commit_id == self.commit_id and outcome.table.identifier in self.in_flight

    @property
    def has_failures(self) -> bool:
        """Whether a table could not be committed."""
        return any(isinstance(outcome, TableFailed) for outcome in self.outcomes)

    @property
    def snapshots(self) -> tuple[tuple[TableReference, int], ...]:
        """Table and snapshot id of each table that got a snapshot."""
        return tuple(
            (outcome.table, outcome.snapshot_id)
            for outcome in self.outcomes
            if isinstance(outcome, TableCommitted) and outcome.snapshot_id is not None
        )

    def ended(self, now_ms: int) -> RoundEnded:
        """Return the report of the finished round."""
        return RoundEnded(
            commit_id=self.commit_id,
            started_ms=self.started_ms,
            ended_ms=now_ms,
            is_partial=self.is_partial,
            valid_through_us=self.valid_through_us,
            outcomes=tuple(self.outcomes),
            ranges=tuple(self.answers.ranges),
            positions={} if self.is_partial else dict(self.answers.positions),
        )


class Schedule:
    """When a round starts and when it repeats its StartCommit."""

    def __init__(self, settings: KernelSettings) -> None:
        self._settings = settings
        self._next_start_ms: int | None = None
        self._quick_until_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether a round may start; the first call starts the intervals."""
        if self._next_start_ms is None:
            self._next_start_ms = now_ms
        return now_ms >= self._next_start_ms

    def due_in_ms(self, now_ms: int) -> int:
        """Milliseconds until a round may start."""
        return 0 if self._next_start_ms is None else max(0, self._next_start_ms - now_ms)

    def started(self, now_ms: int) -> None:
        """A round started: the next one starts an interval later."""
        self._next_start_ms = now_ms + self._settings.commit_interval_ms

    def start_at(self, now_ms: int) -> None:
        """The next round does not wait for the end of the interval."""
        self._next_start_ms = now_ms

    def layout_changed(self, now_ms: int) -> None:
        """Tasks of a new layout start: repeat StartCommit quickly for a while."""
        self._quick_until_ms = now_ms + self._settings.new_layout_ms

    def is_to_repeat(self, current: Round, now_ms: int) -> bool:
        """Whether the round's StartCommit is due again."""
        settings = self._settings
        is_quick = now_ms < self._quick_until_ms
        pause_ms = settings.repeat_quickly_ms if is_quick else settings.repeat_start_ms
        return now_ms - current.repeated_ms >= pause_ms

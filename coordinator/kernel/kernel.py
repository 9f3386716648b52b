"""The commit protocol of one connector, as a pure state machine.

Rules of this file:
- No client, no clock, no randomness, no threads: ``receive(input, now_ms)`` returns effects. The
  same inputs give the same effects. Each tick brings the commit id for a round that it may start.
- One round at a time. A round is ready when completions of its commit id cover the partitions of
  the current layout, never when a count is reached.
- A round commits everything announced below the control offset it is closed at, for any commit id.
  That offset crosses no answer of a task, so an answer is committed whole or not at all. A covered
  round waits for an answer that is read in part. The next round commits the rest.
- Above ``kept_bytes_max`` a round commits what is kept and sends no StartCommit. The tasks then
  stop reading; nothing is dropped.
- The kernel keeps an announcement until its table holds it or the operator skips it. The group's
  control offsets never pass a kept announcement.
- Events of another sink, written after the start, stop the coordinator: both sinks read the same
  records. Earlier ones are of a sink that has ended.
- An input that contradicts the protocol stops the coordinator; the kernel repairs nothing.

::

    IDLE --tick--> COLLECTING --covered|timeout--> COMMITTING --outcomes--> COMPLETING --> IDLE
      ^                |                                |
      '--new layout----'                                '--fenced--> STOPPED
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from uuid import UUID

from connect.errors import InvariantViolation
from connect.model.layout import Layout, TopicPartition
from control_schemas.events import CommitComplete, DataComplete, DataWritten, TableReference
from coordinator.kernel.announcements import Announcements, Identifier
from coordinator.kernel.commit_round import KernelSettings, Round, Schedule
from coordinator.kernel.effects import (
    CommitOutcome,
    CommitTables,
    CompletionSent,
    CoordinatorFenced,
    CurrentLogEnds,
    Effect,
    Envelope,
    Finish,
    InboxAdvanced,
    InitialLogEnds,
    Input,
    LayoutChanged,
    SendCompletion,
    SendStartCommit,
    Stop,
    TableCommitted,
    TableDecided,
    TableDecision,
    TableFailed,
    Tick,
)
from coordinator.kernel.failed_tables import FailedTables
from coordinator.kernel.offsets import ControlPositions, RangeLedger, group_offsets
from coordinator.kernel.valid_through import ValidThroughClaims


class Phase(enum.Enum):
    """Where the current round is."""

    IDLE = "idle"
    COLLECTING = "collecting"
    COMMITTING = "committing"
    COMPLETING = "completing"
    STOPPED = "stopped"


# a lookup of a member on the class of an enum is slow, and the kernel runs for every event
_IDLE, _COLLECTING, _COMMITTING, _COMPLETING, _STOPPED = Phase


class Kernel:
    """The state of one connector's commits; see the rules above.

    Attributes:
        phase: where the current round is. schedule: when the next one starts.
        announcements: what is in no table yet; read only for others.
        failures: of tables that are not committed; read only for others.
    """

    def __init__(self, settings: KernelSettings) -> None:
        self.phase = _IDLE
        self.announcements = Announcements()
        self.failures = FailedTables()
        self._settings = settings
        self.schedule = Schedule(settings)
        self._claims = ValidThroughClaims(settings.future_max_ms)
        self._positions = ControlPositions()
        self._ledger = RangeLedger(settings.ranges_from)
        self._layout: Layout | None = None
        self._expected: frozenset[TopicPartition] = frozenset()
        self._newest_layout_seen = 0
        self._round: Round | None = None

    @property
    def resumes_at(self) -> dict[int, int]:
        """Control offsets from which a successor has to read."""
        closed_at = self.announcements.close_at(self._positions.next_offsets)
        return group_offsets(closed_at, self.announcements.kept())

    @property
    def is_full(self) -> bool:
        """Whether so much is kept that the tasks get no StartCommit."""
        bound = self._settings.kept_bytes_max
        return bound is not None and self.announcements.size_bytes > bound

    def is_in_flight(self, identifier: Identifier) -> bool:
        """Whether a table is being committed."""
        return self._round is not None and identifier in self._round.in_flight

    def receive(self, kernel_input: Input, now_ms: int) -> list[Effect]:  # noqa: C901 - flat
        """Take one input and return the effects, in order.

        Args:
            kernel_input: what happened.
            now_ms: a monotonic clock, milliseconds.

        Raises:
            InvariantViolation: the input contradicts the protocol; the coordinator must stop.
        """
        if self.phase is _STOPPED:
            return []
        match kernel_input:  # the most frequent first
            case Tick():
                return self._on_tick(kernel_input, now_ms)
            case Envelope():
                return self._on_envelope(kernel_input)
            case InboxAdvanced():
                return self._on_advanced(kernel_input.positions)
            case CurrentLogEnds() | InitialLogEnds():
                return self._on_log_end(kernel_input)
            case TableCommitted() | TableFailed() | CoordinatorFenced():
                return self._on_outcome(kernel_input)
            case LayoutChanged(layout):
                return self._on_layout(layout, now_ms)
            case Finish(commit_id):
                return self._on_finish(commit_id, now_ms)
            case CompletionSent(commit_id):
                return self._on_completion_sent(commit_id, now_ms)
            case TableDecision():
                return self._on_decision(kernel_input, now_ms)

    def _on_log_end(self, ends: InitialLogEnds | CurrentLogEnds) -> list[Effect]:
        if isinstance(ends, InitialLogEnds):
            self._positions.set_initial_ends(ends.ends)
        else:
            self.announcements.see_ends(ends.ends, self._positions.next_offsets)
        return []

    def _on_advanced(self, positions: Mapping[int, int]) -> list[Effect]:
        self._positions.advance(positions)
        if self.announcements.open:
            self.announcements.advance(self._positions.next_offsets)
        return []

    def _on_envelope(self, envelope: Envelope) -> list[Effect]:
        self._positions.read(envelope)
        if self.announcements.open:
            self.announcements.advance(self._positions.next_offsets)
        if envelope.headers.moved is not None:
            self._ledger.offsets_changed(TopicPartition(*at) for at in envelope.headers.moved)
        if envelope.headers.is_reset:
            self._claims.reset()
        match envelope.event.payload:
            case DataWritten() as written:
                self.announcements.add(envelope, _name_of(written.table, self))
            case DataComplete() as completion:
                return self._on_data_complete(completion, envelope)
            case CommitComplete(valid_through_us=int(given_us)):
                self._claims.read(given_us)  # of a round before the restart
            case _:
                pass
        return []

    def _on_data_complete(self, completion: DataComplete, envelope: Envelope) -> list[Effect]:
        self.announcements.complete(envelope)
        self._ledger.read(completion, envelope)
        layout, ranges = envelope.headers.layout, envelope.headers.ranges
        if layout is not None:
            self._newest_layout_seen = max(self._newest_layout_seen, layout)
        current = self._round
        if current is None or completion.commit_id != current.commit_id:
            return []
        current.answers.ranges.extend(ranges or ())
        if layout is None or self._is_current(layout):
            current.answers.add(completion)
        if self.phase is _COLLECTING and self._is_covered(current):
            return self._close(current, is_partial=False)
        return []

    def _is_current(self, number: int) -> bool:
        return self._layout is not None and number == self._layout.number

    def _is_covered(self, current: Round) -> bool:
        layout = self._layout
        if layout is None or self._newest_layout_seen > layout.number:
            return False  # the tasks run a layout that the coordinator has not received yet
        if self.announcements.open:
            return False  # a restarted task answers again, and its answer is not read yet
        return self._expected <= current.answers.covered

    def _on_layout(self, layout: Layout, now_ms: int) -> list[Effect]:
        if self._layout is not None and layout.number <= self._layout.number:
            return []
        self._layout, self._expected = layout, layout.partitions
        self.schedule.layout_changed(now_ms)
        if self.phase is _COLLECTING:
            self._round = None
            self.phase = _IDLE
            self.schedule.start_at(now_ms)
        return []

    def _on_tick(self, tick: Tick, now_ms: int) -> list[Effect]:
        self._claims.now_us = tick.now_us
        current = self._round
        if self.phase is _COLLECTING and current is not None:
            if now_ms - current.started_ms >= self._settings.commit_timeout_ms:
                return self._close(current, is_partial=True)
            if self._is_covered(current):  # an empty layout needs no answer
                return self._close(current, is_partial=False)
            if self.schedule.is_to_repeat(current, now_ms):
                current.repeated_ms = now_ms
                return [SendStartCommit(current.commit_id)]
        elif self.phase is _IDLE and self.schedule.is_due(now_ms) and self.has_work():
            self._round = Round(tick.commit_id, now_ms, now_ms)
            self.schedule.started(now_ms)
            if self.is_full:  # commit what is kept; ask no task for more
                return self._close(self._round, is_partial=True)
            self.phase = _COLLECTING
            return [SendStartCommit(tick.commit_id)]
        return []

    def _on_finish(self, commit_id: UUID, now_ms: int) -> list[Effect]:
        current = self._round
        is_closed = self.phase in {_COMMITTING, _COMPLETING}
        if is_closed or not self.failures.may_try_any(self.announcements.by_table):
            return []
        effects: list[Effect] = []
        if current is None:
            current = self._round = Round(commit_id, now_ms, now_ms)
            effects = [SendStartCommit(commit_id)]
        return [*effects, *self._close(current, is_partial=True)]

    def has_work(self) -> bool:
        """Whether a round is due in each interval: partitions are read, or announcements wait."""
        if self._layout is None:
            return False
        return bool(self._expected) or self.failures.may_try_any(self.announcements.by_table)

    def _close(self, current: Round, *, is_partial: bool) -> list[Effect]:
        current.closed_at = self.announcements.close_at(self._positions.next_offsets)
        current.is_partial = is_partial
        if not is_partial and self._layout is not None and self._positions.is_past_initial_ends:
            completions = current.answers.completions
            current.valid_through_us = self._claims.next_us(completions, self._expected)
            current.expected = self._expected
        for identifier, envelopes in self.announcements.below(current.closed_at).items():
            if self.failures.may_try(identifier):
                current.add(identifier, envelopes, self._settings.task_id)
            else:  # a later decision of the operator does not change this round
                current.leaves_tables_out = True
        self.phase = _COMMITTING
        if not current.in_flight:
            return self._complete(current)
        return [CommitTables(tuple(current.in_flight.values()))]

    def _on_outcome(self, outcome: CommitOutcome) -> list[Effect]:
        current = self._round
        identifier = outcome.table.identifier
        is_waited_for = current is not None and current.is_in_flight(outcome)
        if current is None or self.phase is not _COMMITTING or not is_waited_for:
            raise _unexpected_outcome(outcome)
        if isinstance(outcome, CoordinatorFenced):
            self.phase = _STOPPED
            return [Stop(current.commit_id, outcome.message, {"table": str(outcome.table)})]
        done = current.in_flight.pop(identifier)
        current.outcomes.append(outcome)
        self.failures.note(identifier, outcome)
        if isinstance(outcome, TableCommitted):
            self.announcements.forget(identifier, done.announcements, has_landed=True)
        return [] if current.in_flight else self._complete(current)

    def _complete(self, current: Round) -> list[Effect]:
        if current.has_failures or current.leaves_tables_out or self.failures.by_table:
            current.valid_through_us = None  # what is kept is in no table: claim nothing
        self.phase = _COMPLETING
        return [
            SendCompletion(
                current.commit_id,
                current.snapshots,
                current.valid_through_us,
                group_offsets(current.closed_at, self.announcements.kept()),
                self.announcements.waiting(self.failures.without_outages()),
            )
        ]

    def _on_completion_sent(self, commit_id: UUID, now_ms: int) -> list[Effect]:
        current = self._round
        if current is None or self.phase is not _COMPLETING or commit_id != current.commit_id:
            raise _unexpected_completion(commit_id)
        if current.valid_through_us is not None:
            self._claims.claimed(current.valid_through_us, current.expected)
        self._round = None
        self.phase = _IDLE
        return [current.ended(now_ms)]

    def _on_decision(self, decision: TableDecision, now_ms: int) -> list[Effect]:
        identifier = decision.table.identifier
        if self.is_in_flight(identifier):
            return [TableDecided(decision, "busy")]  # its outcome decides first
        failure = self.failures.by_table.pop(identifier, None)
        if failure is None:
            return [TableDecided(decision, "not_failed")]
        self.schedule.start_at(now_ms)  # the operator sees the result without an interval's wait
        skipped: tuple[Envelope, ...] = ()
        if decision.action == "skip":
            skipped = self.announcements.skip(identifier, failure.present_uuid)
        kept = tuple(self.announcements.by_table.get(identifier, ()))
        return [TableDecided(decision, "done", skipped, kept)]


def quiet_ms(kernel: Kernel, now_ms: int) -> int | None:
    """Return for how long no tick has an effect, unless another input arrives.

    Args:
        kernel: of a connector.
        now_ms: a monotonic clock, milliseconds.

    Returns:
        Milliseconds; 0 while a round is in flight or an announcement is read in part. None without
        a limit: only another input brings work.
    """
    if kernel.phase is not _IDLE or kernel.announcements.open:
        return 0
    return kernel.schedule.due_in_ms(now_ms) if kernel.has_work() else None


def _name_of(table: TableReference, kernel: Kernel) -> Identifier:
    """Return the name under which a table is kept: the newest one, if the former one is gone."""
    name = kernel.announcements.name_of(table)
    if (
        name == table.identifier
        or kernel.is_in_flight(name)
        or not kernel.failures.is_missing(name)
    ):
        return name
    kernel.announcements.rename(table)
    kernel.failures.forget(name, kernel.announcements.by_table)
    return table.identifier


def _unexpected_outcome(outcome: CommitOutcome) -> InvariantViolation:
    return InvariantViolation(
        "the outcome does not belong to the round in flight",
        code="outcome_unexpected",
        commit_id=str(outcome.commit_id),
        table=str(outcome.table),
    )


def _unexpected_completion(commit_id: UUID) -> InvariantViolation:
    return InvariantViolation(
        "the completion does not belong to the round in flight",
        code="completion_unexpected",
        commit_id=str(commit_id),
    )

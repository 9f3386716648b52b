"""The commit protocol of one connector, as a pure state machine.

Rules of this file:
- No client, no clock, no randomness, no threads: ``receive(input, now_ms)`` returns effects, and
  the same inputs give the same effects. Identities come in with the tick that may need them.
- One round at a time. A round is ready when completions of its own commit id cover the partitions
  of the current layout, never when a count is reached.
- A round commits everything announced below the control offset it is closed at, whatever commit
  id it carries. That offset crosses no answer of a task, so an answer is committed whole or not at
  all; a covered round waits for an answer that is read in part. The rest is the next round's.
- Above ``kept_bytes_max`` a round commits what is kept and asks the tasks for nothing. They stop
  reading by themselves; nothing is dropped.
- An announcement leaves this kernel's memory only when its table holds it, or when the operator
  says so. The group's control offsets never pass one that is kept.
- Anything that cannot be true stops the coordinator; nothing is repaired by guessing.

::

    IDLE --tick--> COLLECTING --covered|timeout--> COMMITTING --outcomes--> COMPLETING --> IDLE
      ^                |                                |
      '--new layout----'                                '--fenced--> STOPPED
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from uuid import UUID

from connect.errors import InvariantViolation
from connect.model.layout import Layout, TopicPartition
from control_schemas.events import CommitComplete, DataComplete, DataWritten
from coordinator.kernel import valid_through
from coordinator.kernel.announcements import Announcements
from coordinator.kernel.commit_round import Identifier, KernelSettings, Round
from coordinator.kernel.effects import (
    OUTAGES,
    Advanced,
    CommitTables,
    CompletionSent,
    CoordinatorFenced,
    Effect,
    Envelope,
    EnvelopeRead,
    Finish,
    Input,
    LayoutChanged,
    LogEndSeen,
    LogFound,
    OutcomeKnown,
    RoundEnded,
    SendCompletion,
    SendStartCommit,
    Stop,
    TableCommit,
    TableCommitted,
    TableDecided,
    TableDecision,
    TableFailed,
    Tick,
)
from coordinator.kernel.offsets import RangeLedger, group_offsets, is_for_table, is_read_to


class Phase(enum.Enum):
    """Where the current round is."""

    IDLE = "idle"
    COLLECTING = "collecting"
    COMMITTING = "committing"
    COMPLETING = "completing"
    STOPPED = "stopped"


class Kernel:
    """The state of one connector's commits; see the rules above."""

    def __init__(self, settings: KernelSettings) -> None:
        self.phase = Phase.IDLE
        self._settings = settings
        self._layout: Layout | None = None
        self._expected: frozenset[TopicPartition] = frozenset()
        self._newest_layout_seen = 0
        self._quick_until_ms = 0
        self._round: Round | None = None
        self._next_start_ms: int | None = None
        self._positions: dict[int, int] = {}
        self._found_ends: Mapping[int, int] = {}
        self._announcements = Announcements()
        self._failed: dict[Identifier, TableFailed] = {}
        self._ledger = RangeLedger()
        self._last_valid_through_us: int | None = None
        self._last_expected: frozenset[TopicPartition] = frozenset()
        self._now_us = 0

    @property
    def failed_tables(self) -> Mapping[Identifier, TableFailed]:
        """Tables that wait for the next round or for the operator."""
        return self._failed

    @property
    def kept(self) -> Mapping[Identifier, Sequence[Envelope]]:
        """Announcements that are in no table yet."""
        return self._announcements.by_table

    @property
    def resumes_at(self) -> dict[int, int]:
        """Control offsets from which a successor has to read."""
        kept = (e for envelopes in self.kept.values() for e in envelopes)
        return group_offsets(self._announcements.close_at(self._positions), kept)

    @property
    def records_kept(self) -> int:
        """Records in the files that these announce."""
        return self._announcements.records

    @property
    def bytes_kept(self) -> int:
        """Their bytes in the control topic."""
        return self._announcements.size_bytes

    @property
    def is_full(self) -> bool:
        """Whether so much is kept that tasks are asked for no more."""
        bound = self._settings.kept_bytes_max
        return bound is not None and self._announcements.size_bytes > bound

    @property
    def announcements_kept(self) -> int:
        """Their number."""
        return sum(map(len, self.kept.values()))

    def receive(self, given: Input, now_ms: int) -> list[Effect]:
        """Take one input and return what is to be done, in order.

        Args:
            given: what happened.
            now_ms: a monotonic clock, milliseconds.

        Raises:
            InvariantViolation: the input contradicts the protocol; the coordinator must stop.
        """
        if self.phase is Phase.STOPPED:
            return []
        match given:  # the most frequent first
            case Tick():
                return self._on_tick(given, now_ms)
            case EnvelopeRead(envelope):
                return self._on_envelope(envelope)
            case Advanced() | LogFound() | LogEndSeen():
                self._on_log(given)
                return []
            case LayoutChanged(layout):
                return self._on_layout(layout, now_ms)
            case Finish(commit_id):
                return self._on_finish(commit_id, now_ms)
            case OutcomeKnown(outcome):
                return self._on_outcome(outcome)
            case CompletionSent(commit_id):
                return self._on_completion_sent(commit_id, now_ms)
            case TableDecision():
                return self._on_decision(given, now_ms)

    # ------------------------------------------------------------------ reading

    def _on_log(self, given: Advanced | LogFound | LogEndSeen) -> None:
        match given:
            case Advanced(positions):
                self._advance(positions)
            case LogFound(ends):
                self._found_ends = ends
            case LogEndSeen(ends):
                self._announcements.see_ends(ends)
                self._announcements.advance(self._positions)

    def _advance(self, positions: Mapping[int, int]) -> None:
        known = self._positions
        for partition, next_offset in positions.items():
            if next_offset > known.get(partition, -1):
                known[partition] = next_offset
        if self._announcements.is_open:
            self._announcements.advance(known)

    def _on_envelope(self, envelope: Envelope) -> list[Effect]:
        if envelope.offset < self._positions.get(envelope.partition, 0):
            raise InvariantViolation(
                "a control event was read twice",
                code="control_order",
                control_partition=envelope.partition,
                control_offset=envelope.offset,
            )
        self._positions[envelope.partition] = envelope.offset + 1
        if self._announcements.is_open:
            self._announcements.advance(self._positions)
        if envelope.headers.moved is not None:
            self._ledger.moved(TopicPartition(*at) for at in envelope.headers.moved)
        if envelope.headers.is_reset:
            self._last_valid_through_us, self._last_expected = None, frozenset()
        match envelope.event.payload:
            case DataWritten(table=table):
                self._announcements.add(envelope, table.identifier)
            case DataComplete() as completion:
                return self._on_data_complete(completion, envelope)
            case CommitComplete(valid_through_us=int(given_us)):
                # our own last rounds, read again after a restart: never claim less than they did
                self._last_valid_through_us = max(self._last_valid_through_us or 0, given_us)
            case _:
                pass
        return []

    def _on_data_complete(self, completion: DataComplete, envelope: Envelope) -> list[Effect]:
        self._announcements.complete(envelope)
        headers = envelope.headers
        checked_from = self._settings.ranges_from.get(envelope.partition, 0)
        if headers.ranges is None or envelope.offset < checked_from:
            self._ledger.forget(
                TopicPartition(a.topic, a.partition) for a in completion.assignments or ()
            )
        else:
            self._ledger.add(headers.ranges)
        if headers.layout is not None:
            self._newest_layout_seen = max(self._newest_layout_seen, headers.layout)
        current = self._round
        if current is None or completion.commit_id != current.commit_id:
            return []
        current.ranges.extend(headers.ranges or ())
        if headers.layout is None or self._is_current(headers.layout):
            current.add(completion)
        if self.phase is Phase.COLLECTING and self._is_covered(current):
            return self._close(current, is_partial=False)
        return []

    def _is_current(self, number: int) -> bool:
        return self._layout is not None and number == self._layout.number

    def _is_covered(self, current: Round) -> bool:
        layout = self._layout
        if layout is None or self._newest_layout_seen > layout.number:
            return False  # tasks already run a layout that we have not been told of
        if self._announcements.is_open:
            return False  # a task that started over answers again: its answer is not read yet
        return self._expected <= current.answered

    # ------------------------------------------------------------------ rounds

    def _on_layout(self, layout: Layout, now_ms: int) -> list[Effect]:
        if self._layout is not None and layout.number <= self._layout.number:
            return []
        self._layout, self._expected = layout, layout.partitions
        self._quick_until_ms = now_ms + self._settings.new_layout_ms
        if self.phase is Phase.COLLECTING:
            self._round = None
            self.phase = Phase.IDLE
            self._next_start_ms = now_ms
        return []

    def _on_tick(self, tick: Tick, now_ms: int) -> list[Effect]:
        if self._next_start_ms is None:
            self._next_start_ms = now_ms
        self._now_us = tick.now_us
        current = self._round
        if self.phase is Phase.IDLE and now_ms >= self._next_start_ms and self.has_work():
            self._round = Round(tick.commit_id, now_ms, now_ms)
            self._next_start_ms = now_ms + self._settings.commit_interval_ms
            if self.is_full:  # what is kept is tried again; nobody is asked for more
                return self._close(self._round, is_partial=True)
            self.phase = Phase.COLLECTING
            return [SendStartCommit(tick.commit_id)]
        if self.phase is Phase.COLLECTING and current is not None:
            if now_ms - current.started_ms >= self._settings.commit_timeout_ms:
                return self._close(current, is_partial=True)
            if self._is_covered(current):  # an empty layout needs no answer
                return self._close(current, is_partial=False)
            if self._is_to_repeat(current, now_ms):
                current.repeated_ms = now_ms
                return [SendStartCommit(current.commit_id)]
        return []

    def _on_finish(self, commit_id: UUID, now_ms: int) -> list[Effect]:
        current = self._round
        is_closed = self.phase in {Phase.COMMITTING, Phase.COMPLETING}
        if is_closed or not any(self._may_try(identifier) for identifier in self.kept):
            return []
        effects: list[Effect] = []
        if current is None:
            current = self._round = Round(commit_id, now_ms, now_ms)
            effects = [SendStartCommit(commit_id)]
        return [*effects, *self._close(current, is_partial=True)]

    def _is_to_repeat(self, current: Round, now_ms: int) -> bool:
        settings = self._settings
        is_quick = now_ms < self._quick_until_ms
        pause_ms = settings.repeat_quickly_ms if is_quick else settings.repeat_start_ms
        return now_ms - current.repeated_ms >= pause_ms

    def has_work(self) -> bool:
        """Whether a round is due in each interval: partitions are read, or announcements wait."""
        if self._layout is None:
            return False
        return bool(self._expected) or any(self._may_try(identifier) for identifier in self.kept)

    def _may_try(self, identifier: Identifier) -> bool:
        failure = self._failed.get(identifier)
        return failure is None or failure.is_retriable

    def _close(self, current: Round, *, is_partial: bool) -> list[Effect]:
        current.closed_at = self._announcements.close_at(self._positions)
        current.is_partial = is_partial
        is_recovered = is_read_to(self._positions, self._found_ends)
        if not is_partial and self._layout is not None and is_recovered:
            current.valid_through_us = valid_through.valid_through(
                valid_through.timestamps(current.completions, until_us=self._believed_until_us()),
                self._expected,
                last_us=self._last_valid_through_us,
                last_expected=self._last_expected,
            )
            current.expected = self._expected
        for identifier, envelopes in self._announcements.below(current.closed_at).items():
            if self._may_try(identifier):
                payload = envelopes[-1].event.payload
                assert isinstance(payload, DataWritten)
                current.in_flight[identifier] = TableCommit(
                    table=payload.table,
                    commit_id=current.commit_id,
                    announcements=envelopes,
                    control_offsets=current.closed_at,
                    valid_through_us=current.valid_through_us,
                    task_id=self._settings.task_id,
                )
            else:  # whatever the operator says until the round is complete
                current.leaves_tables_out = True
        self.phase = Phase.COMMITTING
        if not current.in_flight:
            return self._complete(current)
        return [CommitTables(tuple(current.in_flight.values()))]

    def _believed_until_us(self) -> int | None:
        future_max_ms = self._settings.future_max_ms
        return None if future_max_ms is None else self._now_us + future_max_ms * 1000

    # ------------------------------------------------------------------ outcomes

    def _on_outcome(
        self, outcome: TableCommitted | TableFailed | CoordinatorFenced
    ) -> list[Effect]:
        current = self._round
        identifier = outcome.table.identifier
        if (
            current is None
            or self.phase is not Phase.COMMITTING
            or outcome.commit_id != current.commit_id
            or identifier not in current.in_flight
        ):
            raise InvariantViolation(
                "an outcome came for a commit that is not in flight",
                code="outcome_unexpected",
                table=str(outcome.table),
                commit_id=str(outcome.commit_id),
            )
        if isinstance(outcome, CoordinatorFenced):
            self.phase = Phase.STOPPED
            return [Stop(current.commit_id, outcome.message, {"table": str(outcome.table)})]
        done = current.in_flight.pop(identifier)
        current.outcomes.append(outcome)
        if isinstance(outcome, TableFailed):
            self._failed[identifier] = outcome
        else:
            self._failed.pop(identifier, None)
            self._announcements.forget(identifier, done.announcements, has_landed=True)
        return [] if current.in_flight else self._complete(current)

    def _complete(self, current: Round) -> list[Effect]:
        has_failures = any(isinstance(o, TableFailed) for o in current.outcomes)
        if has_failures or current.leaves_tables_out or self._failed:
            current.valid_through_us = None  # what is kept is in no table: claim nothing
        self.phase = Phase.COMPLETING
        committed = tuple(
            (o.table, o.snapshot_id)
            for o in current.outcomes
            if isinstance(o, TableCommitted) and o.snapshot_id is not None
        )
        kept = [e for envelopes in self.kept.values() for e in envelopes]
        return [
            SendCompletion(
                current.commit_id,
                committed,
                current.valid_through_us,
                group_offsets(current.closed_at, kept),
                self._announcements.waiting(
                    [name for name, failure in self._failed.items() if failure.code not in OUTAGES]
                ),
            )
        ]

    def _on_completion_sent(self, commit_id: UUID, now_ms: int) -> list[Effect]:
        current = self._round
        if current is None or self.phase is not Phase.COMPLETING or commit_id != current.commit_id:
            raise InvariantViolation(
                "a completion was sent for another round",
                code="completion_unexpected",
                commit_id=str(commit_id),
            )
        if current.valid_through_us is not None:
            self._last_valid_through_us = current.valid_through_us
            self._last_expected = current.expected
        self._round = None
        self.phase = Phase.IDLE
        return [
            RoundEnded(
                commit_id=current.commit_id,
                started_ms=current.started_ms,
                ended_ms=now_ms,
                is_partial=current.is_partial,
                valid_through_us=current.valid_through_us,
                outcomes=tuple(current.outcomes),
                ranges=tuple(current.ranges),
            )
        ]

    def _on_decision(self, decision: TableDecision, now_ms: int) -> list[Effect]:
        identifier = decision.table.identifier
        if self._round is not None and identifier in self._round.in_flight:
            return [TableDecided(decision, "busy")]  # its outcome decides first
        failure = self._failed.pop(identifier, None)
        if failure is None:
            return [TableDecided(decision, "not_failed")]
        self._next_start_ms = now_ms  # nobody should wait for an interval to see what it did
        kept = tuple(self.kept.get(identifier, ()))
        if decision.action == "retry":
            return [TableDecided(decision, "done", kept=kept)]
        whole = self._announcements.whole(identifier)
        skipped = tuple(e for e in whole if not is_for_table(failure.present_uuid, e))
        self._announcements.forget(identifier, skipped, has_landed=False)
        kept = tuple(self.kept.get(identifier, ()))
        return [TableDecided(decision, "done", skipped, kept)]

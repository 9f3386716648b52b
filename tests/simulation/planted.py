"""The known defects of such sinks, each behind a switch that only tests know.

Some are kernels with one rule broken, the others are switches that the simulated actors ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from control_schemas.events import CommitComplete, DataComplete
from coordinator.effects import Effect, Envelope
from coordinator.kernel import Kernel
from coordinator.offsets import RangeLedger
from coordinator.valid_through import timestamps
from tests.simulation.script import Script, script_of
from tests.simulation.world import ViolationError, World


class ReadyByCount(Kernel):
    """Ready when as many answers came as there are tasks; VTTS over what they happen to cover."""

    def _is_covered(self, current: Any) -> bool:
        return self._layout is not None and len(current.completions) >= len(self._layout.tasks)

    def _is_current(self, number: int) -> bool:  # noqa: ARG002 - the bug is to ignore it
        return True

    def _close(self, current: Any, *, is_partial: bool) -> list[Effect]:
        right = self._expected
        self._expected = frozenset(timestamps(current.completions))
        try:
            return super()._close(current, is_partial=is_partial)
        finally:
            self._expected = right


class OtherRoundsCompletions(Kernel):
    """Answers of any round give this one its VTTS, but only its own announcements are committed."""

    def _on_data_complete(self, completion: DataComplete, envelope: Envelope) -> list[Effect]:
        out = super()._on_data_complete(completion, envelope)
        current = self._round
        if current is not None and completion.commit_id != current.commit_id:
            current.completions.append(completion)
        return out

    def _close(self, current: Any, *, is_partial: bool) -> list[Effect]:
        everything = self._pending
        own = {
            table: [e for e in kept if e.event.payload.commit_id == current.commit_id]  # type: ignore[union-attr] # DataWritten
            for table, kept in everything.items()
        }
        self._pending = {table: kept for table, kept in own.items() if kept}
        out = super()._close(current, is_partial=is_partial)
        self._pending = everything
        return out


class BufferClearedInFlight(Kernel):
    """Forgets what was read while the commit ran."""

    def _forget(
        self,
        identifier: tuple[str, ...],
        announcements: Iterable[Envelope],  # noqa: ARG002 - the bug is to ignore them
    ) -> None:
        self._pending.pop(identifier, None)


class ExpectedFixedAtStart(Kernel):
    """Goes on with the layout it was started with."""

    def _on_layout(self, layout: Any, now_ms: int) -> list[Effect]:
        return super()._on_layout(layout, now_ms) if self._layout is None else []

    def _is_covered(self, current: Any) -> bool:
        self._newest_layout_seen = 0
        return super()._is_covered(current)

    def _is_current(self, number: int) -> bool:  # noqa: ARG002 - the bug is to ignore it
        return True


class OffsetsPassFailedTables(Kernel):
    """Stores the close position for the group even when a table still waits."""

    def _complete(self, current: Any) -> list[Effect]:
        kept, self._pending = self._pending, {}
        try:
            return super()._complete(current)
        finally:
            self._pending = kept


class RetryHidesFailure(Kernel):
    """An operator's retry in the middle of a round makes the round forget whom it left out."""

    def _complete(self, current: Any) -> list[Effect]:
        current.leaves_tables_out = False
        return super()._complete(current)


class AlwaysRepeatsClaim(Kernel):
    """Gives the last VTTS again, whatever partitions came since."""

    def _close(self, current: Any, *, is_partial: bool) -> list[Effect]:
        self._last_expected = self._expected
        return super()._close(current, is_partial=is_partial)


class NoLedger(Kernel):
    """Does not look whether announced source ranges follow each other."""

    def _on_data_complete(self, completion: DataComplete, envelope: Envelope) -> list[Effect]:
        self._ledger = RangeLedger()
        return super()._on_data_complete(completion, envelope)


class ForgetsClaims(Kernel):
    """Does not read what the rounds before its start have claimed."""

    def _on_envelope(self, envelope: Envelope) -> list[Effect]:
        if isinstance(envelope.event.payload, CommitComplete):
            self._advance({envelope.partition: envelope.offset + 1})
            return []
        return super()._on_envelope(envelope)


KERNELS: dict[str, type[Kernel]] = {
    "readiness by count": ReadyByCount,
    "VTTS over other rounds' completions": OtherRoundsCompletions,
    "buffer cleared for events read in flight": BufferClearedInFlight,
    "expected partitions fixed at start": ExpectedFixedAtStart,
    "group offsets pass failed tables": OffsetsPassFailedTables,
    "retry hides a failed table": RetryHidesFailure,
    "VTTS repeated for new partitions": AlwaysRepeatsClaim,
    "no source ledger": NoLedger,
    "claims of before the restart forgotten": ForgetsClaims,
}

# Names of the reliability page first, then those that the simulation itself found or needs.
PLANTED: dict[str, tuple[str, ...]] = {
    name: (name,)
    for name in (
        "control offsets by put",
        "group offset before the table",
        "start at latest",
        "readiness by count",
        "VTTS over other rounds' completions",
        "stale and current rounds in one step",
        "commit failure swallowed",
        "control topic re-created unnoticed",
        "missing table treated as success",
        "automatic rebase of a lost commit",
        "blind retry on unknown",
        "files deleted on unknown",
        "buffer cleared for events read in flight",
        "expected partitions fixed at start",
        "two coordinators",
        "layout change fences no task",
        "layout change fences only the last layout",
        "group offsets pass failed tables",
        "retry hides a failed table",
        "old announcements need not be read",
        "VTTS repeated for new partitions",
        "lost control events are passed over",
        "replaced table taken for the old one",
        "batches numbered from nought",
        "no floor",
    )
} | {"VTTS goes back": ("VTTS below the table's last", "claims of before the restart forgotten")}

# What holds a promise together with something else, see the table in docs/guarantees.md.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("no precondition on the branch",),
    ("moved floor unnoticed",),
    ("no mirror of the floor",),
    ("no tag", "no mirror of the floor"),
    ("no floor in snapshots", "no mirror of the floor"),
    ("task does not look at the layout",),
    ("layout change fences no task", "no source ledger"),
)


def planted_world(moves: Script, off: Iterable[str], *, has_trace: bool = False) -> World:
    """A run with bugs planted, or protections switched off; at most one in the kernel."""
    names = frozenset(off)
    kernels = [KERNELS[name] for name in names if name in KERNELS]
    kernel = type("Planted", tuple(kernels), {}) if len(kernels) > 1 else [*kernels, Kernel][0]
    return World(moves, bugs=names, kernel_class=kernel, has_trace=has_trace)


def caught_at(off: Iterable[str], seeds: int) -> int | None:
    """The first seed whose run breaks a promise."""
    for seed in range(seeds):
        try:
            planted_world(script_of(seed), off).run()
        except ViolationError:
            return seed
    return None

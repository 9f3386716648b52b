"""Known defects of such sinks, each behind a switch that only tests use.

Some are kernels with one rule broken, others are switches that the simulated actors read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from control_schemas.events import CommitComplete, DataComplete
from coordinator.kernel.announcements import Announcements
from coordinator.kernel.commit_round import KernelSettings
from coordinator.kernel.effects import Effect, Envelope
from coordinator.kernel.kernel import Kernel
from coordinator.kernel.offsets import RangeLedger
from coordinator.kernel.valid_through import timestamps
from tests.simulation import script
from tests.simulation.script import Script, script_of
from tests.simulation.world import ViolationError, World


class ReadyByCount(Kernel):
    """Covered when there are as many answers as tasks; VTTS over the partitions that they cover."""

    def _is_covered(self, current: Any) -> bool:
        return self._layout is not None and len(current.answers.completions) >= len(
            self._layout.tasks
        )

    def _is_current(self, number: int) -> bool:  # noqa: ARG002 - the bug is to ignore it
        return True

    def _close(self, current: Any, *, is_partial: bool) -> list[Effect]:
        right = self._expected
        self._expected = frozenset(timestamps(current.answers.completions))
        try:
            return super()._close(current, is_partial=is_partial)
        finally:
            self._expected = right


class VttsFromOtherRounds(Kernel):
    """Answers of any round give this one its VTTS, but only its own announcements are committed."""

    def _on_data_complete(self, completion: DataComplete, envelope: Envelope) -> list[Effect]:
        out = super()._on_data_complete(completion, envelope)
        current = self._round
        if current is not None and completion.commit_id != current.commit_id:
            current.answers.add(completion)
        return out

    def _close(self, current: Any, *, is_partial: bool) -> list[Effect]:
        everything, self.announcements = self.announcements, Announcements()
        for identifier, kept in everything.by_table.items():
            for envelope in kept:
                if envelope.event.payload.commit_id == current.commit_id:  # type: ignore[union-attr] # DataWritten
                    self.announcements.add(envelope, identifier)
        out = super()._close(current, is_partial=is_partial)
        self.announcements = everything
        return out


class _ForgetsInFlight(Announcements):
    def forget(
        self,
        identifier: tuple[str, ...],
        envelopes: Iterable[Envelope],  # noqa: ARG002 - the bug is to ignore them
        *,
        has_landed: bool,
    ) -> None:
        super().forget(identifier, self.by_table.get(identifier, ()), has_landed=has_landed)


class ForgetsEventsReadInFlight(Kernel):
    """Forgets announcements that were read during the commit."""

    def __init__(self, settings: KernelSettings) -> None:
        super().__init__(settings)
        self.announcements = _ForgetsInFlight()


class _NoAnswerBoundaries(Announcements):
    def add(self, envelope: Envelope, identifier: tuple[str, ...]) -> None:
        super().add(envelope, identifier)
        self.open.clear()

    def close_at(self, positions: Mapping[int, int]) -> dict[int, int]:
        return dict(positions)


class SplitsAnswers(Kernel):
    """Commits the part of an answer that was read."""

    def __init__(self, settings: KernelSettings) -> None:
        super().__init__(settings)
        self.announcements = _NoAnswerBoundaries()


class _PassesOpenAnswers(Announcements):
    def close_at(self, positions: Mapping[int, int]) -> dict[int, int]:
        return dict(positions)

    def below(self, closed_at: Mapping[int, int]) -> dict[tuple[str, ...], tuple[Envelope, ...]]:
        found = {table: self.whole(table) for table in super().below(closed_at)}
        return {table: kept for table, kept in found.items() if kept}


class OffsetsPassOpenAnswers(Kernel):
    """Leaves a partly read answer to the next round, but stores offsets after it."""

    def __init__(self, settings: KernelSettings) -> None:
        super().__init__(settings)
        self.announcements = _PassesOpenAnswers()


class _LeavesOutOnlyOpenAnswers(Announcements):
    def below(self, closed_at: Mapping[int, int]) -> dict[tuple[str, ...], tuple[Envelope, ...]]:  # noqa: ARG002 - the bug is to ignore them
        found = {table: self.whole(table) for table in self.by_table}
        return {table: kept for table, kept in found.items() if kept}


class CommitsPastItsOffsets(Kernel):
    """Leaves out only the open answer: commits others above the offsets that it stores."""

    def __init__(self, settings: KernelSettings) -> None:
        super().__init__(settings)
        self.announcements = _LeavesOutOnlyOpenAnswers()


class FixedExpectedPartitions(Kernel):
    """Continues with the layout it was started with."""

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
        kept, self.announcements = self.announcements, Announcements()
        try:
            return super()._complete(current)
        finally:
            self.announcements = kept


class RetryHidesFailure(Kernel):
    """A retry of an operator makes the open round forget the table that it left out."""

    def _complete(self, current: Any) -> list[Effect]:
        current.leaves_tables_out = False
        return super()._complete(current)


class AlwaysRepeatsClaim(Kernel):
    """Repeats the last VTTS, even for partitions that were added since."""

    def _close(self, current: Any, *, is_partial: bool) -> list[Effect]:
        self._claims.last_partitions = self._expected
        return super()._close(current, is_partial=is_partial)


class NoRangeLedger(Kernel):
    """Does not check whether announced source ranges follow each other."""

    def _on_data_complete(self, completion: DataComplete, envelope: Envelope) -> list[Effect]:
        self._ledger = RangeLedger()
        return super()._on_data_complete(completion, envelope)


class ForgetsEarlierClaims(Kernel):
    """Does not read the claims of rounds before its start."""

    def _on_envelope(self, envelope: Envelope) -> list[Effect]:
        if isinstance(envelope.event.payload, CommitComplete):
            return self._on_advanced({envelope.partition: envelope.offset + 1})
        return super()._on_envelope(envelope)


class LastOffsetsPassKept(Kernel):
    """At its end stores the read position, past announcements that wait for their table."""

    @property
    def resumes_at(self) -> dict[int, int]:
        return dict(self._positions.next_offsets)


class CountsNewerLayouts(Kernel):
    """Covers a round with answers of tasks whose layout, and configuration, it does not know."""

    def _is_covered(self, current: Any) -> bool:
        self._newest_layout_seen = 0
        return super()._is_covered(current)

    def _is_current(self, number: int) -> bool:  # noqa: ARG002 - the bug is to ignore it
        return True


KERNELS: dict[str, type[Kernel]] = {
    "answers of newer layouts count": CountsNewerLayouts,
    "last offsets pass kept announcements": LastOffsetsPassKept,
    "readiness by count": ReadyByCount,
    "VTTS over other rounds' completions": VttsFromOtherRounds,
    "buffer cleared for events read in flight": ForgetsEventsReadInFlight,
    "answers are split": SplitsAnswers,
    "offsets pass open answers": OffsetsPassOpenAnswers,
    "round commits past its offsets": CommitsPastItsOffsets,
    "expected partitions fixed at start": FixedExpectedPartitions,
    "group offsets pass failed tables": OffsetsPassFailedTables,
    "retry hides a failed table": RetryHidesFailure,
    "VTTS repeated for new partitions": AlwaysRepeatsClaim,
    "no source ledger": NoRangeLedger,
    "earlier claims are not read after a restart": ForgetsEarlierClaims,
}

# Names of the reliability page first, then those that the simulation found.
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
        "stable offset taken for the log's end",
        "stable offset taken for an answer's end",
        "answers are split",
        "every completion counts as a commit",
        "offsets pass open answers",
        "round commits past its offsets",
        "VTTS repeated for new partitions",
        "lost control events are skipped",
        "replaced table taken for the old one",
        "batches numbered from zero",
        "no floor",
        "last offsets pass kept announcements",
        "layout numbers from the config topic only",
        "lost source offsets start from the policy",
        "lost source records are announced by no task",
        "announcements are ignored once there is a floor",
        "offset keeper ignores the layout",
        "kept offsets are read before the fence",
        "an opened producer ignores the layout",
        "an opened producer ignores the offsets",
        "timestamps ahead of the clock are accepted",
        "reset sends no event",
        "reset leaves the claims of snapshots",
        "reset leaves the claim of the property",
        "reset fences no coordinator",
        "reset keeps an old floor",
        "reset unnoticed by a commit",
        "old rounds claim after a reset",
        "a table without a claim is not reset",
        "a table of unknown floor is not reset",
        "answers of newer layouts count",
    )
} | {
    "VTTS goes back": (
        "VTTS below the table's last",
        "earlier claims are not read after a restart",
    ),
    "VTTS of the future": (
        "timestamps of the future move the claim",
        "timestamps ahead of the clock are accepted",
    ),
}

# A coordinator that is frozen during a reset, clocks that are ahead, and little else.
RESET_ALONE = (
    script.FUTURE | script.RESET | script.FREEZE | script.UNKNOWN | script.FOREIGN | script.HEAL,
    script.RARE
    | 3 << script.CLOCKS_SHIFT
    | script.RESTLESS
    | script.TWO_PARTITIONS
    | script.OPERATOR
    | script.RETENTION
    | script.JAVA
    | script.FOREIGN_GROUP
    | script.DELAY
    | script.FINISH
    | script.SOURCE_OFFSETS
    | script.KEEPER
    | script.MISSING
    | script.TRANSACTIONS
    | script.LAYOUT
    | script.CONFIG_LOST
    | script.OFFSETS_EXPIRE
    | script.EXPIRY
    | script.CRASH
    | script.BRANCH
    | script.UPSERT,
)

# Kinds of faults that a rare bug needs, and those that hide it: on and off in each of its seeds.
KINDS: dict[str, tuple[int, int]] = {
    "last offsets pass kept announcements": (script.FINISH | script.MISSING, 0),
    "layout numbers from the config topic only": (
        script.CONFIG_LOST | script.UPSERT | script.LAYOUT | script.DELAY | script.FOREIGN_GROUP,
        script.JAVA,
    ),
    "lost source offsets start from the policy": (script.SOURCE_OFFSETS, 0),
    "lost source records are announced by no task": (
        script.DATA_LOSS | 1 << script.CONTINUE_SHIFT,
        script.CRASH | script.MISSING,
    ),
    "announcements are ignored once there is a floor": (script.SOURCE_OFFSETS | script.JAVA, 0),
    "offset keeper ignores the layout": (
        script.KEEPER | script.LAYOUT | script.FREEZE | script.HEAL,
        script.MISSING | script.CRASH | script.CONFIG_LOST,
    ),
    "kept offsets are read before the fence": (script.KEEPER | script.FREEZE, 0),
    "no mirror of the floor": (
        script.EXPIRY | script.FOREIGN | script.CRASH,
        script.MISSING | script.APART,
    ),
    "VTTS below the table's last": (script.CONFIG_LOST, script.MISSING | script.UNKNOWN),
    "timestamps ahead of the clock are accepted": (script.FUTURE, script.RESET),
    "reset sends no event": (script.FUTURE | script.RESET | script.HEAL, 0),
    "reset leaves the claims of snapshots": (script.FUTURE | script.RESET, 0),
    "reset leaves the claim of the property": (script.FUTURE | script.RESET, 0),
    "reset fences no coordinator": RESET_ALONE,
    "reset keeps an old floor": RESET_ALONE,
    "reset unnoticed by a commit": RESET_ALONE,
    "old rounds claim after a reset": RESET_ALONE,
    "a table without a claim is not reset": RESET_ALONE,
    "a table of unknown floor is not reset": (
        RESET_ALONE[0] | script.EXPIRY | 1 << script.OTHERS_SHIFT,
        RESET_ALONE[1] & ~script.EXPIRY,
    ),
    "answers of newer layouts count": RESET_ALONE,
    "timestamps of the future move the claim": (script.FUTURE, script.RESET),
    "every completion counts as a commit": (
        script.MISSING,
        script.CRASH | script.FREEZE | script.RESTLESS | script.TRANSACTIONS | script.LAYOUT,
    ),
    "layout change fences only the last layout": (script.LAYOUT | script.FREEZE, 0),
    "lost control events are skipped": (script.DATA_LOSS, 0),
    "retry hides a failed table": (script.OPERATOR | script.MISSING, 0),
    "round commits past its offsets": (script.DELAY | script.FREEZE | script.CRASH, 0),
    "stable offset taken for an answer's end": (script.DELAY | script.FOREIGN_GROUP, 0),
    "task ignores the layout": (
        script.LAYOUT | script.FREEZE,
        script.MISSING | script.UNKNOWN | script.TRANSACTIONS | script.RARE | script.APART,
    ),
    "an opened producer ignores the layout": (
        script.LAYOUT | script.FREEZE | 1 << script.IDLE_SHIFT,
        script.MISSING | script.UNKNOWN | script.TRANSACTIONS | script.RARE | script.APART,
    ),
    "an opened producer ignores the offsets": (1 << script.IDLE_SHIFT, 0),
    "VTTS repeated for new partitions": (
        script.LAYOUT | script.HEAL,
        script.MISSING
        | script.UNKNOWN
        | script.TRANSACTIONS
        | script.FREEZE
        | script.RARE
        | script.APART,
    ),
}

# A seed that finds a rare bug today. It is tried first: all seeds before it take seconds.
FIRST_SEEDS: dict[str, int] = {
    "VTTS repeated for new partitions": 781,
    "an opened producer ignores the layout": 277,
    "automatic rebase of a lost commit": 833,
    "every completion counts as a commit": 476,
    "layout change fences only the last layout": 554,
    "moved floor unnoticed": 833,
    "no precondition on the branch": 905,
    "readiness by count": 204,
    "retry hides a failed table": 804,
    "round commits past its offsets": 483,
    "task ignores the layout": 364,
}

# Layers that protect a guarantee together: see docs/evidence/simulation.md.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("no precondition on the branch",),
    ("moved floor unnoticed",),
    ("no mirror of the floor",),
    ("no tag", "no mirror of the floor"),
    ("no floor in snapshots", "no mirror of the floor"),
    ("task ignores the layout",),
    ("layout change fences no task", "no source ledger"),
)


def planted_world(moves: Script, off: Iterable[str], *, has_trace: bool = False) -> World:
    """Return a run with planted bugs or without protections; at most one bug in the kernel."""
    names = frozenset(off)
    kernels = [KERNELS[name] for name in names if name in KERNELS]
    kernel = type("Planted", tuple(kernels), {}) if len(kernels) > 1 else [*kernels, Kernel][0]
    return World(moves, bugs=names, kernel_class=kernel, has_trace=has_trace)


def caught_at(off: Iterable[str], seeds: int) -> int | None:
    """Return a seed whose run violates a guarantee, with the needed kinds of faults."""
    kinds = hiding = 0
    for name in off:
        needed, unwanted = KINDS.get(name, (0, 0))
        kinds |= needed
        hiding |= unwanted
    known = FIRST_SEEDS.get(" + ".join(off))
    for seed in [*([] if known is None else [known]), *range(seeds)]:
        try:
            planted_world(script_of(seed, kinds, hiding), off).run()
        except ViolationError:
            return seed
    return None

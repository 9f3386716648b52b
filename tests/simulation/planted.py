"""The known defects of such sinks, each behind a switch that only tests know.

Some are kernels with one rule broken, the others are switches that the simulated actors ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from connect.layout import Layout
from control_schemas.events import DataComplete
from coordinator.effects import Effect, Envelope
from coordinator.kernel import Kernel
from coordinator.valid_through import timestamps


class ReadyByCount(Kernel):
    """Ready when as many answers came as there are tasks; VTTS over what they happen to cover."""

    def _is_covered(self, current: Any) -> bool:
        return self._layout is not None and len(current.completions) >= len(self._layout.tasks)

    def _is_current(self, number: int) -> bool:  # noqa: ARG002 - the bug is to ignore it
        return True

    def _close(self, current: Any, *, is_partial: bool) -> list[Effect]:
        right = self._layout
        claimed = tuple(timestamps(current.completions))
        self._layout = Layout("c", right.number, (claimed,)) if right else None
        try:
            return super()._close(current, is_partial=is_partial)
        finally:
            self._layout = right


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


KERNELS: dict[str, type[Kernel]] = {
    "readiness by count": ReadyByCount,
    "VTTS over other rounds' completions": OtherRoundsCompletions,
    "buffer cleared for events read in flight": BufferClearedInFlight,
    "expected partitions fixed at start": ExpectedFixedAtStart,
    "group offsets pass failed tables": OffsetsPassFailedTables,
}

SWITCHES = (
    "offsets by put",
    "group offset before the table",
    "start at latest",
    "commit failure swallowed",
    "missing table treated as success",
    "automatic rebase",
    "blind retry on unknown",
    "files deleted on unknown",
    "no floor",
    "two coordinators",
    "task not fenced on layout change",
    "fences only the last layout",
)

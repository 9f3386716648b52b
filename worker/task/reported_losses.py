"""Lost records and values that a task has continued after, for the status of the task.

The status shows them until the task is started again by the node: a restart by an operator
acknowledges them. Log, control events and snapshots keep them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from connect.errors import DataLost
from connect.model.layout import TopicPartition
from connect.records.unavailable_values import CURE, UNAVAILABLE
from control_schemas.events import LostRange
from worker.batch.error_rows import TYPE_CONFLICT

SHOWN_MAX: Final = 50
KEPT_MAX: Final = 10_000
_CODE_BY_LOSS: Final = ("source_data_lost", "offsets_lost", "unavailable_value", TYPE_CONFLICT)


@dataclass(slots=True)
class ReportedLosses:
    """The lost ranges of one task. A range that is found again after a restart counts once.

    Attributes:
        recovered: partitions whose committed offset was gone -> where the task continued.
    """

    recovered: dict[TopicPartition, int] = field(default_factory=dict)
    _unavailable: set[tuple[str, str]] = field(default_factory=set)
    _conflicts: set[tuple[str, str, str]] = field(default_factory=set)
    _ends: dict[tuple[str, int, int], int | None] = field(default_factory=dict)

    def add(self, lost: Iterable[LostRange]) -> None:
        """Add ranges; beyond ``KEPT_MAX`` the oldest are removed."""
        for lost_range in lost:
            position = (lost_range.topic, lost_range.partition, lost_range.start_offset)
            before = self._ends.get(position)
            ends = [end for end in (before, lost_range.end_offset) if end is not None]
            self._ends[position] = max(ends, default=None)
        while len(self._ends) > KEPT_MAX:
            del self._ends[next(iter(self._ends))]

    def add_unavailable(self, columns: Iterable[tuple[str, str]]) -> bool:
        """Add columns of tables with values that their source did not send; whether one is new."""
        before = len(self._unavailable)
        self._unavailable.update(columns)
        return len(self._unavailable) > before

    def add_conflicts(self, columns: Iterable[tuple[str, str, str]]) -> bool:
        """Add columns of tables whose values went to another column; whether one is new."""
        before = len(self._conflicts)
        self._conflicts.update(columns)
        return len(self._conflicts) > before

    def error(self) -> DataLost | None:
        """Return the losses as an error for the status; None without any."""
        text = []
        if self._ends:
            shown = [
                f"{topic}-{partition} "
                + (f"from {start} on (the topic was created again)" if end is None else "")
                + ("" if end is None else f"[{start}, {end})")
                for (topic, partition, start), end in sorted(
                    self._ends.items(), key=lambda item: (item[0], item[1] or 0)
                )
            ]
            text.append(
                "the task continued after source records that were deleted before they were read: "
                + _listed(shown, "ranges")
            )
        if self.recovered:
            shown = [f"{tp.topic}-{tp.partition} {at}" for tp, at in sorted(self.recovered.items())]
            text.append(
                "committed source offsets were gone, and the task continued after its last "
                "announcement: " + _listed(shown, "partitions")
            )
        if self._unavailable:
            shown = [".".join(column) for column in sorted(self._unavailable)]
            text.append(
                f"updates without a large value have written {UNAVAILABLE} over it: "
                f"{_listed(shown, 'columns')}; {CURE}, or iceberg.tables.unavailable-value=error"
            )
        if self._conflicts:
            shown = [f"{t}.{column} to {target}" for t, column, target in sorted(self._conflicts)]
            text.append(
                "the source has changed types, and values went to other columns "
                f"(iceberg.tables.type-conflict): {_listed(shown, 'columns')}"
            )
        if not text:
            return None
        losses = (self._ends, self.recovered, self._unavailable, self._conflicts)
        return DataLost(
            f"{'. '.join(text)}. A restart of the task removes this message",
            code=next(code for code, lost in zip(_CODE_BY_LOSS, losses, strict=True) if lost),
        )


def _listed(items: list[str], losses: str) -> str:
    left = len(items) - SHOWN_MAX
    return ", ".join(items[:SHOWN_MAX]) + (f" and {left} more {losses}" if left > 0 else "")

"""Lost source records that a task has continued after, for the status of the task.

The status shows them until the task is started again by the node: a restart by an operator
acknowledges them. Log, control events and snapshots keep them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from connect.errors import DataLost
from control_schemas.events import LostRange

SHOWN_MAX: Final = 50
KEPT_MAX: Final = 10_000


@dataclass(slots=True)
class ReportedLosses:
    """The lost ranges of one task. A range that is found again after a restart counts once."""

    _ends: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def add(self, lost: Iterable[LostRange]) -> None:
        """Add ranges; beyond ``KEPT_MAX`` the oldest are removed."""
        for one in lost:
            place = (one.topic, one.partition, one.start_offset)
            self._ends[place] = max(one.end_offset, self._ends.get(place, 0))
        while len(self._ends) > KEPT_MAX:
            del self._ends[next(iter(self._ends))]

    def error(self) -> DataLost | None:
        """Return the losses as an error for the status; None without any."""
        if not self._ends:
            return None
        shown = ", ".join(
            f"{topic}-{partition} [{start}, {end})"
            for (topic, partition, start), end in sorted(self._ends.items())[:SHOWN_MAX]
        )
        left = len(self._ends) - SHOWN_MAX
        more = f" and {left} more ranges" if left > 0 else ""
        return DataLost(
            f"the task continued after source records that were deleted before they were read: "
            f"{shown}{more}. A restart of the task removes this message",
            code="source_data_lost",
        )

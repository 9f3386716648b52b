"""The end of a bounded run (``icefloe.end``), by what the coordinator knows."""

from __future__ import annotations

from collections.abc import Mapping

from connect.model.layout import TopicPartition
from coordinator.kernel.effects import RoundEnded


def is_run_complete(
    ends: Mapping[TopicPartition, int] | None, ended: RoundEnded, *, has_kept: bool
) -> bool:
    """Return whether a bounded run is complete after a round.

    Every task has answered that it has read its partitions to their ends, and no announcement
    waits for its table. What a task has read it announced before its answer, or in it.

    Args:
        ends: end offsets of the run; None when it is not bounded.
        ended: the round; a round that timed out has no positions.
        has_kept: whether anything is announced that no table holds.
    """
    if ends is None or not ended.positions or has_kept:
        return False
    return all(position >= ends.get(tp, 0) for tp, position in ended.positions.items())

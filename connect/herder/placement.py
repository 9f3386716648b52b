"""Which node runs which task and which coordinator: a pure function of what is there.

Safety never rests on a placement: transactional ids and catalog preconditions fence whoever is
out of date. A placement only spreads work and keeps it where it is when it can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Unit: TypeAlias = tuple[str, int | None]
"""Connector and task; None is the connector's coordinator."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Node id of every unit."""

    nodes: Mapping[Unit, str] = field(default_factory=dict)

    def of(self, node: str) -> frozenset[Unit]:
        """What a node runs."""
        return frozenset(unit for unit, placed in self.nodes.items() if placed == node)


def place(
    tasks: Mapping[str, int], nodes: Sequence[str], current: Placement | None = None
) -> Placement:
    """Spread tasks and coordinators evenly, moving as little as possible.

    Args:
        tasks: number of tasks per connector.
        nodes: node ids that are alive; none gives an empty placement.
        current: the placement so far.

    Returns:
        Tasks per node differ by one at most, and so do coordinators. What sits on a node that is
        alive stays there unless the node has more than its share.
    """
    alive = sorted(set(nodes))
    if not alive:
        return Placement()
    placed: dict[Unit, str] = {}
    before = current.nodes if current else {}
    coordinators: list[Unit] = [(connector, None) for connector in sorted(tasks)]
    workers: list[Unit] = [(c, task) for c in sorted(tasks) for task in range(tasks[c])]
    for units in (coordinators, workers):
        share, extra = divmod(len(units), len(alive))
        load: Counter[str] = Counter()
        homeless = []
        for unit in units:
            home = before.get(unit)
            # as many nodes as there is remainder may hold one more than the share
            roomy = sum(1 for node in alive if load[node] > share) < extra
            if home in alive and (load[home] < share or (load[home] == share and roomy)):
                placed[unit] = home
                load[home] += 1
            else:
                homeless.append(unit)
        for unit in homeless:
            target = min(alive, key=lambda node: (load[node], node))
            placed[unit] = target
            load[target] += 1
    return Placement(placed)

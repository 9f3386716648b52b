"""Which node runs which task and which coordinator: pure functions of what is there.

Safety never rests on a placement: transactional ids and catalog preconditions fence whoever is
out of date. A placement only spreads work and keeps it where it is when it can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Unit: TypeAlias = tuple[str, int | None]
"""Connector and task; None is the connector's coordinator."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where one connector runs.

    Attributes:
        coordinator: node of its coordinator.
        tasks: node of each task.
        after: nodes that are alive and ran some of this before: it starts when they have ended it.
    """

    coordinator: str
    tasks: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def tasks_of(self, node: str) -> frozenset[int]:
        """Tasks that run on a node."""
        return frozenset(task for task, placed in enumerate(self.tasks) if placed == node)

    def units(self, connector: str) -> Iterator[tuple[Unit, str]]:
        """Every unit and its node."""
        yield (connector, None), self.coordinator
        for task, node in enumerate(self.tasks):
            yield (connector, task), node


def place(
    tasks: Mapping[str, int],
    nodes: Sequence[str],
    current: Mapping[str, Places] | None = None,
    *,
    is_even: bool = True,
    leaving: Collection[str] = (),
) -> dict[str, Places]:
    """Spread tasks and coordinators over nodes, moving as little as possible.

    Args:
        tasks: number of tasks per connector.
        nodes: node ids that take work; none gives no placement.
        current: the placement so far, which may hold more connectors.
        is_even: False leaves everything where it is that is on one of the nodes, so that what
            comes or goes of one connector moves nothing of another.
        leaving: nodes that are alive and are to have nothing any more.

    Returns:
        Per connector. When ``is_even``, tasks per node differ by one at most, and so do
        coordinators.
    """
    alive = sorted(set(nodes))
    if not alive:
        return {}
    before = {
        unit: node for name, places in (current or {}).items() for unit, node in places.units(name)
    }
    coordinators: list[Unit] = [(connector, None) for connector in sorted(tasks)]
    workers: list[Unit] = [(c, task) for c in sorted(tasks) for task in range(tasks[c])]
    placed = {
        **_spread(coordinators, alive, before, is_even=is_even),
        **_spread(workers, alive, before, is_even=is_even),
    }
    return {
        name: Places(
            coordinator=placed[name, None],
            tasks=tuple(placed[name, task] for task in range(tasks[name])),
            after=_moved_from(name, tasks[name], placed, before, {*alive, *leaving}),
        )
        for name in tasks
    }


def _spread(
    units: Sequence[Unit], alive: Sequence[str], before: Mapping[Unit, str], *, is_even: bool
) -> dict[Unit, str]:
    share, extra = divmod(len(units), len(alive))
    placed: dict[Unit, str] = {}
    load: Counter[str] = Counter()
    full = 0  # nodes that hold one more than the share: as many as there is remainder may
    homeless = []
    for unit in units:
        home = before.get(unit)
        if home not in alive or home is None:
            homeless.append(unit)
            continue
        has_room = load[home] < share or (load[home] == share and full < extra)
        if is_even and not has_room:
            homeless.append(unit)
            continue
        full += load[home] == share
        placed[unit] = home
        load[home] += 1
    for unit in homeless:
        target = min(alive, key=lambda node: (load[node], node))
        placed[unit] = target
        load[target] += 1
    return placed


def _moved_from(
    name: str,
    count: int,
    placed: Mapping[Unit, str],
    before: Mapping[Unit, str],
    alive: set[str],
) -> tuple[str, ...]:
    units: list[Unit] = [(name, None), *((name, task) for task in range(count))]
    moved = {before[u] for u in units if u in before and before[u] != placed[u]}
    return tuple(sorted(moved & alive))

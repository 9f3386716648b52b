"""Placement: which node runs which task and which coordinator. Pure functions.

Correctness does not depend on the placement: transactional ids and catalog preconditions fence
outdated tasks and coordinators. A placement spreads work, and moves as little as possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

UnitId: TypeAlias = tuple[str, int | None]
"""Connector and task; None is the connector's coordinator."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where one connector runs.

    Attributes:
        coordinator: node of its coordinator.
        tasks: node of each task.
        after: live nodes that ran some of it before; it starts when they have stopped it.
    """

    coordinator: str
    tasks: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def tasks_of(self, node: str) -> frozenset[int]:
        """Return the tasks that run on a node."""
        return frozenset(task for task, placed in enumerate(self.tasks) if placed == node)

    def units(self, connector: str) -> Iterator[tuple[UnitId, str]]:
        """Yield every unit and its node."""
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
    """Spread tasks and coordinators over nodes, and move as few of them as possible.

    Args:
        tasks: number of tasks per connector.
        nodes: node ids that take work; without any, the result is empty.
        current: the present placement, which may contain more connectors.
        is_even: False moves nothing off a node of ``nodes``, so a change of one connector moves
            no task of another.
        leaving: live nodes that take no more work.

    Returns:
        A placement per connector. When ``is_even``, the numbers of tasks per node differ by one
        at most, and so do the numbers of coordinators.
    """
    alive = sorted(set(nodes))
    if not alive:
        return {}
    before = {
        unit: node for name, places in (current or {}).items() for unit, node in places.units(name)
    }
    coordinators: list[UnitId] = [(connector, None) for connector in sorted(tasks)]
    workers: list[UnitId] = [(c, task) for c in sorted(tasks) for task in range(tasks[c])]
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
    units: Sequence[UnitId], alive: Sequence[str], before: Mapping[UnitId, str], *, is_even: bool
) -> dict[UnitId, str]:
    share, extra = divmod(len(units), len(alive))
    placed: dict[UnitId, str] = {}
    load: Counter[str] = Counter()
    full = 0  # nodes that hold one more than the share; at most ``extra`` nodes may
    unplaced = []
    for unit in units:
        node = before.get(unit)
        if node not in alive or node is None:
            unplaced.append(unit)
            continue
        has_room = load[node] < share or (load[node] == share and full < extra)
        if is_even and not has_room:
            unplaced.append(unit)
            continue
        full += load[node] == share
        placed[unit] = node
        load[node] += 1
    for unit in unplaced:
        target = min(alive, key=lambda node: (load[node], node))
        placed[unit] = target
        load[target] += 1
    return placed


def _moved_from(
    name: str,
    count: int,
    placed: Mapping[UnitId, str],
    before: Mapping[UnitId, str],
    alive: set[str],
) -> tuple[str, ...]:
    units: list[UnitId] = [(name, None), *((name, task) for task in range(count))]
    moved = {before[u] for u in units if u in before and before[u] != placed[u]}
    return tuple(sorted(moved & alive))

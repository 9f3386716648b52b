"""Spreads the coordinators of a node over its coordinator processes.

Rules of this file:
- A connector keeps its process until the node ends. So a stopped coordinator and its successor are
  in one process, where the successor waits for it, and no process reports old gauges of a connector
  that another one runs.
- A connector that is placed for the first time goes to the process with the fewest coordinators.
- The placement is not stored: after a restart of the node any other one is as good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from connect.node.herder.units.units import ConnectorRun
from connect.processes.coordinator_names import is_coordinator


class CoordinatorProcesses:
    """Chooses the process of each coordinator; used by the herder's thread.

    Args:
        children: names of all child processes.
        runs: by connector.
    """

    def __init__(self, children: Iterable[str], runs: Mapping[str, ConnectorRun]) -> None:
        self._names = tuple(name for name in children if is_coordinator(name))
        self._runs = runs
        self._placed: dict[str, str] = {}

    def place(self, run: ConnectorRun) -> None:
        """Set the process of a coordinator that is about to be placed on this node."""
        if run.name not in self._placed:
            load = Counter(
                other.coordinator.child for other in self._runs.values() if other.has_coordinator
            )
            self._placed[run.name] = min(self._names, key=lambda name: load[name])
        run.coordinator.child = self._placed[run.name]

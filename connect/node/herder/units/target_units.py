"""The target state of one node: which units of a connector it has to run.

It is computed from the config topic alone, on every node in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connect.model.layout import Layout, TopicPartition
from connect.state.connector_state import StoredConnector
from connect.state.topic_records import task_base_config


@dataclass(frozen=True, slots=True)
class TargetUnits:
    """The units of a connector that one node has to run.

    Attributes:
        layout: None when no node has to run anything of the connector.
        config: the configuration from which the layout was made.
        tasks: task ids of the layout that are placed on the node.
        has_coordinator: whether the coordinator is placed on the node.
        ends: end offsets of a bounded run; None when it is not bounded.
    """

    layout: Layout | None = None
    config: Mapping[str, str] | None = None
    tasks: frozenset[int] = frozenset()
    has_coordinator: bool = False
    ends: Mapping[TopicPartition, int] | None = None

    @classmethod
    def of(cls, state: StoredConnector, node: str) -> TargetUnits | None:
        """Return the units for a node; None while a layout is being made ready."""
        if not state.is_to_run or state.layout is None:
            return cls()
        if not state.is_ready or state.places is None or not state.task_configs:
            return None
        placed = state.places.tasks_of(node)
        return cls(
            state.layout,
            task_base_config(state.task_configs[0]),
            frozenset(task for task in placed if task < len(state.layout.tasks)),
            has_coordinator=state.places.coordinator == node,
            ends=None if state.end is None else state.end.offsets,
        )


def signature(state: StoredConnector) -> object:
    """Return every stored value that a convergence job depends on, for comparison."""
    layout = state.layout
    config = None if state.config is None else tuple(sorted(state.config.items()))
    number = layout.number if layout else None
    target = state.target, state.is_stopped
    return config, target, number, state.ready, state.places, state.restart, state.is_completed

"""The tasks of a connector as clients of Kafka Connect's API see them. Pure.

Rules of this file:
- A connector has ``tasks.max`` tasks, as the Iceberg sink has in Kafka Connect. The number depends
  neither on the nodes nor on the partitions.
- A layout has fewer tasks, because one task of a layout uses all cores of its worker process. Task
  ``n`` of the API is run by task ``n`` modulo the number of tasks of the layout. The first tasks of
  the API therefore have the ids of the layout's tasks.
- The API's tasks share the partitions of the layout's task that runs them. If each of these runs
  the same number of tasks, the result is a layout with ``tasks.max`` tasks.
"""

from __future__ import annotations

from typing import Final

from connect.model.layout import Layout, TopicPartition
from connect.state.connector_state import StoredConnector
from connect.state.topic_records import PARTITIONS_KEY, TASK_ID_KEY, number_of, partition_pairs

VISIBLE_TASKS_MAX: Final = 1_000
"""Each task has an entry in every status and a record in the status topic."""


def visible_task_count(state: StoredConnector) -> int:
    """Return the number of tasks; 0 without a layout, and while the connector is stopped."""
    layout = state.layout
    if layout is None or not layout.tasks or state.is_stopped:
        return 0
    tasks_max = layout.tasks_max
    if not tasks_max and state.task_configs:  # the layout was written by an older version
        tasks_max = number_of(state.task_configs[0].get("tasks.max")) or 1
    return max(len(layout.tasks), min(tasks_max, VISIBLE_TASKS_MAX))


def layout_task_of(task: int, layout: Layout) -> int:
    """Return the task of the layout that runs a task of the API."""
    return task % len(layout.tasks)


def visible_task_partitions(task: int, count: int, layout: Layout) -> tuple[TopicPartition, ...]:
    """Return the partitions of a task of the API; none if there are fewer partitions than tasks.

    Args:
        task: its id.
        count: the number of tasks.
        layout: the layout.
    """
    number = len(layout.tasks)
    sharing = len(range(task % number, count, number))
    return layout.tasks[task % number][task // number :: sharing]


def visible_task_configs(state: StoredConnector) -> dict[int, dict[str, str]]:
    """Return the configuration of each task by its id."""
    layout, count = state.layout, visible_task_count(state)
    if layout is None:
        return {}
    return {
        task: {
            **state.task_configs[layout_task_of(task, layout)],
            TASK_ID_KEY: str(task),
            PARTITIONS_KEY: partition_pairs(visible_task_partitions(task, count, layout)),
        }
        for task in range(count)
    }

"""Assigns partitions to the tasks of a connector. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from connect.config.connector import ConnectorConfig
from connect.model.layout import Layout, TopicPartition, spread
from connect.state.connector_state import StoredConnector
from connect.state.topic_records import task_base_config


def task_count(config: ConnectorConfig, *, nodes: int, partitions: int) -> int:
    """Return the number of tasks of a layout: by default one per worker process.

    At most ``tasks.max``, which clients see (``connect.state.visible_tasks``). Aggregates have one:
    the records of a group are in any partition.
    """
    if config.aggregation is not None:
        return 1
    return max(1, min(config.tasks_max, config.tasks_per_worker * nodes, partitions))


def layout_for(
    config: ConnectorConfig,
    partitions: list[TopicPartition],
    *,
    number: int,
    nodes: int,
    tasks_min: int = 0,
) -> Layout:
    """Return the layout of these partitions; without any, one task that reads nothing.

    A layout keeps ``tasks_min`` tasks after nodes have left, if ``tasks.max`` and the number of
    partitions allow it.
    """
    count = task_count(config, nodes=nodes, partitions=len(partitions))
    if config.aggregation is None:
        count = max(count, min(tasks_min, config.tasks_max, len(partitions)))
    layout = spread(config.name, number, partitions, tasks=count)
    return layout if layout.tasks else Layout(config.name, number, ((),))


def with_deleted_topics(
    config: ConnectorConfig, state: StoredConnector, partitions: list[TopicPartition]
) -> list[TopicPartition]:
    """Add the partitions of topics that the configuration names but the cluster no longer has.

    Their tasks stop and report the loss. Deleted topics that a regex matched are not added.
    """
    if state.layout is None or config.topics_regex is not None:
        return partitions
    existing = {tp.topic for tp in partitions}
    gone = {tp for tp in state.layout.partitions if tp.topic not in existing}
    return sorted({*partitions, *(tp for tp in gone if tp.topic in config.topics)})


def next_layout(
    state: StoredConnector,
    config: ConnectorConfig,
    partitions: list[TopicPartition],
    *,
    nodes: int,
    may_shrink: bool = True,
    above: int = 0,
    topic_ids: Mapping[str, str] = MappingProxyType({}),
) -> Layout | None:
    """Return the layout to write, or None when the latest one is still right.

    A changed configuration needs a new layout: tasks start from their stored configuration. A new
    layout is also needed if the present number is not above ``above``, the newest announced layout
    that the config topic does not know.
    """
    stored = [task_base_config(task) for task in state.task_configs]
    is_configured_so = all(task == dict(config.raw) for task in stored)
    has_kept = state.layout is not None and is_configured_so and not may_shrink
    planned = layout_for(
        config,
        partitions,
        number=max(state.number_max, above) + 1,
        nodes=nodes,
        tasks_min=len(state.layout.tasks) if has_kept and state.layout else 0,
    )
    layout = replace(
        state.layout or planned,
        number=planned.number,
        tasks=planned.tasks,
        topic_ids=tuple(sorted(topic_ids.items())),
        tasks_max=config.tasks_max,
    )
    if (
        state.layout is not None
        and state.layout.number > above
        and state.layout.tasks == layout.tasks
        and state.layout.topic_ids == layout.topic_ids
        and state.layout.tasks_max in {0, layout.tasks_max}  # 0: of an older version
        and is_configured_so
    ):
        return None
    return layout

"""What a task reads of the config topic before it begins.

A task of an older layout must not begin, and partitions that were read before are known.
"""

from __future__ import annotations

from connect.config.connector import ConnectorConfig
from connect.errors import Fenced
from connect.gateways.kafka.kafka_clients import client_properties
from connect.protocol.source_floor import SourceFloor
from connect.state.connector_reader import read_connector
from worker.task.task_context import TaskAssignment, TaskContext


class LayoutSuperseded(Fenced):
    """A newer layout is in the config topic: this task must not begin."""

    default_code = "layout_superseded"


def check_layout(
    wiring: TaskContext, config: ConnectorConfig, assignment: TaskAssignment
) -> SourceFloor:
    """Compare a task's layout with the config topic's, where the wiring names one.

    Returns:
        The source partitions that the connector has read before.

    Raises:
        LayoutSuperseded: there is a newer one, or none at all.
        RetriableError: the broker is away.
    """
    if wiring.config_topic is None:
        return SourceFloor()
    found = read_connector(client_properties(wiring.node), wiring.config_topic, config.name)
    newest = found.layout
    if newest is None or newest.number > assignment.layout:
        raise LayoutSuperseded(
            f"the task was given layout {assignment.layout}, the config topic holds "
            f"{'none' if newest is None else newest.number}",
            connector=config.name,
            task=assignment.task,
        )
    return found.source_floor

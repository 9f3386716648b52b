"""Hosts the tasks of many connectors: a thread each, started and stopped by commands.

Rules of this file:
- One connector's failure never touches another: every thread ends at its own boundary.
- No command waits for a task: a task that takes the place of another waits in its own thread.
- Placeholders are resolved here, in the process that needs them, and go no further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from connect.clock import Clock
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError
from connect.model.layout import Layout
from connect.processes.child_main import Child
from connect.processes.hosted_units import HostedUnit, HostedUnits
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve
from worker.task.task import ConnectorTask
from worker.task.task_context import TaskAssignment, TaskContext
from worker.task.task_metrics import publish

PREDECESSOR_WAIT_MS = 60_000

log = structlog.get_logger("worker")


class TaskHost:
    """Every task of this process; commands come from one thread.

    Args:
        child: the pipe to the node.
        node: the node's configuration.
        providers: resolves placeholders.
        wiring: what every task is given; ``report`` is filled in for each.
    """

    def __init__(
        self, child: Child, node: NodeConfig, providers: Providers, wiring: TaskContext
    ) -> None:
        self._child = child
        self._node = node
        self._providers = providers
        self._wiring = wiring
        self.units = HostedUnits(child, wiring.clock, predecessor_wait_ms=PREDECESSOR_WAIT_MS)

    @property
    def _clock(self) -> Clock:
        return self._wiring.clock

    def handle(self, command: Mapping[str, Any]) -> None:
        """One command of the node."""
        match command["op"]:
            case "start":
                self.units.start(command, lambda unit: self._task(unit, command))
            case "stop":
                self.units.stop(command)
            case _:
                log.warning(
                    "command ignored", op=command["op"], connector=command.get("connector", "")
                )

    def measure(self) -> None:
        """Put every task's figures into the metrics of this process."""
        for unit in self.units.living():
            if isinstance(unit.work, ConnectorTask):
                connector, task = unit.key
                publish(connector, task or 0, unit.work.measurements, self._clock.monotonic_ms())

    def shutdown(self, grace_ms: int) -> bool:
        """Stop every task; True when all ended within the grace.

        What a task did not announce by then stays unannounced: it is read again, its files are
        orphans.
        """
        return self.units.shutdown(grace_ms)

    def _task(self, unit: HostedUnit, command: Mapping[str, Any]) -> ConnectorTask:
        connector, task = unit.key
        layout, number = Layout.from_json(command["layout"]), task or 0
        if number >= len(layout.tasks):
            raise ConfigError(
                f"layout {layout.number} has no task {number}", code="layout", connector=connector
            )
        assignment = TaskAssignment(number, layout.number, layout.tasks[number], layout.topic_ids)
        config = resolve(parse(command["config"]), self._providers, node=self._node.properties)
        wiring = replace(
            self._wiring,
            report=lambda state, error: self.units.report(unit, state, error),
            topic_missing=lambda: self._child.topic_missing(connector),
        )
        return ConnectorTask(config, assignment, wiring)

"""Hosts the tasks of many connectors: one thread per task, started and stopped by commands.

Rules of this file:
- A failure of one connector never affects another: each thread catches its own errors.
- No command waits for a task: a task that replaces another one waits in its own thread.
- Placeholders are resolved in this process, which needs their values, and are not passed on.
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
from connect.protocol.source_end import end_offsets
from connect.validation.providers import Providers
from connect.validation.secret_renewal import SecretRenewal
from worker.task.task import ConnectorTask
from worker.task.task_context import TaskAssignment, TaskContext
from worker.task.task_metrics import publish

log = structlog.get_logger("worker")


class TaskHost:
    """All tasks of this process; commands come from one thread.

    Args:
        child: the connection to the node.
        node: the node's configuration.
        providers: resolves placeholders.
        context: the context of every task; ``report`` and ``topic_missing`` are set for each task.
    """

    def __init__(
        self, child: Child, node: NodeConfig, providers: Providers, context: TaskContext
    ) -> None:
        self._child = child
        self._node = node
        self._providers = providers
        self._context = context
        self.units = HostedUnits(child, context.clock)

    @property
    def _clock(self) -> Clock:
        return self._context.clock

    def handle(self, command: Mapping[str, Any]) -> None:
        """Execute a command of the node."""
        match command["op"]:
            case "start":
                self.units.start(command, lambda unit: self._task(unit, command))
            case "stop":
                self.units.stop(command)
            case _:
                log.warning(
                    "command ignored", op=command["op"], connector=command.get("connector", "")
                )

    def publish_metrics(self) -> None:
        """Copy the values of every task into the metrics of this process."""
        for unit in self.units.living():
            if isinstance(unit.work, ConnectorTask):
                connector, task = unit.key
                publish(connector, task or 0, unit.work.metrics, self._clock.monotonic_ms())

    def shutdown(self, grace_ms: int) -> bool:
        """Stop every task; return whether all ended within the grace period.

        A task that did not announce its pending batches by then reads them again after its next
        start. Their files are orphans.
        """
        return self.units.shutdown(grace_ms)

    def _task(self, unit: HostedUnit, command: Mapping[str, Any]) -> ConnectorTask:
        connector, task = unit.key
        layout, number = Layout.from_json(command["layout"]), task or 0
        if number >= len(layout.tasks):
            raise ConfigError(
                f"layout {layout.number} has no task {number}", code="layout", connector=connector
            )
        assignment = TaskAssignment(
            number,
            layout.number,
            layout.tasks[number],
            layout.topic_ids,
            end_offsets(command["ends"]) if "ends" in command else None,
        )
        renewal = SecretRenewal.of(command["config"], self._node, self._providers, self._clock)
        resolved = renewal.latest()
        context = replace(
            self._context,
            node=resolved.node,
            secrets=renewal,
            report=lambda state, error: self.units.report(unit, state, error),
            waits_for=lambda reason: self.units.waits_for(unit, reason),
            topic_missing=lambda: self._child.topic_missing(connector),
        )
        unit.progress = work = ConnectorTask(resolved.config, assignment, context)
        return work

"""Hosts the tasks of many connectors: a thread each, started and stopped by commands.

Rules of this file:
- One connector's failure never touches another: every thread ends at its own boundary.
- No command waits for a task: a task that takes the place of another waits in its own thread.
- Placeholders are resolved here, in the process that needs them, and go no further.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from connect.child import Child
from connect.clock import Clock
from connect.config.node import NodeConfig
from connect.config.parse import parse
from connect.config.providers import Providers, resolve
from connect.errors import ConfigError, IcefloeError
from connect.layout import Layout
from worker.figures import publish
from worker.task import ConnectorTask
from worker.wiring import TaskAssignment, Wiring

PREDECESSOR_WAIT_MS = 60_000

log = structlog.get_logger("worker")


class Host:
    """Every task of this process; commands come from one thread.

    Args:
        child: the pipe to the node.
        node: the node's configuration.
        providers: resolves placeholders.
        wiring: what every task is given; ``report`` is filled in for each.
    """

    def __init__(
        self, child: Child, node: NodeConfig, providers: Providers, wiring: Wiring
    ) -> None:
        self._child = child
        self._node = node
        self._providers = providers
        self._wiring = wiring
        self._hosted: dict[tuple[str, int], _Hosted] = {}

    @property
    def _clock(self) -> Clock:
        return self._wiring.clock

    def handle(self, command: Mapping[str, Any]) -> None:
        """One command of the node."""
        connector, task = command.get("connector", ""), command.get("task")
        match command["op"]:
            case "start":
                try:
                    self._start(connector, command["config"], command["layout"], int(task or 0))
                except IcefloeError as e:
                    self._child.state(connector, "FAILED", task=task, error=e)
            case "stop":
                for (name, number), hosted in self._hosted.items():
                    if name == connector and task in {None, number}:
                        hosted.task.stop()
            case _:
                log.warning("command ignored", op=command["op"], connector=connector)

    def measure(self) -> None:
        """Put every task's figures into the metrics of this process."""
        for (connector, task), hosted in list(self._hosted.items()):
            publish(connector, task, hosted.task.figures, self._clock.monotonic_ms())

    def shutdown(self, grace_ms: int) -> bool:
        """Stop every task; True when all ended within the grace.

        What a task did not announce by then stays unannounced: it is read again, its files are
        orphans.
        """
        for hosted in self._hosted.values():
            hosted.task.stop()
        deadline_ms = self._clock.monotonic_ms() + grace_ms
        ended = [
            hosted.join(max(0, deadline_ms - self._clock.monotonic_ms()))
            for hosted in self._hosted.values()
        ]
        return all(ended)

    def _start(
        self, connector: str, raw: Mapping[str, str], layout_json: Mapping[str, Any], number: int
    ) -> None:
        layout = Layout.from_json(layout_json)
        self._child.state(connector, "STARTING", task=number, layout=layout.number)
        if number >= len(layout.tasks):
            raise ConfigError(
                f"layout {layout.number} has no task {number}", code="layout", connector=connector
            )
        assignment = TaskAssignment(number, layout.number, layout.tasks[number], layout.topic_ids)
        before = self._hosted.get((connector, number))
        if before is not None:
            before.task.stop()

        def report(state: str, error: Exception | None) -> None:
            self._child.state(connector, state, task=number, layout=layout.number, error=error)

        config = resolve(parse(raw), self._providers, node=self._node.properties)
        wiring = replace(
            self._wiring,
            report=report,
            topic_missing=lambda: self._child.topic_missing(connector),
        )
        task = ConnectorTask(config, assignment, wiring)
        self._hosted[connector, number] = _Hosted(task, report, after=before)


class _Hosted:
    """One task and its thread.

    Args:
        task: not yet running.
        report: told how it ended.
        after: the task whose place it takes: ended first, as both share a transactional id.
    """

    def __init__(
        self,
        task: ConnectorTask,
        report: Callable[[str, Exception | None], None],
        *,
        after: _Hosted | None,
    ) -> None:
        self.task = task
        self._report = report
        self._after = after
        name = f"task-{task.config.name}-{task.assignment.task}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        structlog.contextvars.bind_contextvars(
            connector=self.task.config.name, task=self.task.assignment.task
        )
        if self._after is not None:
            self._after.join(PREDECESSOR_WAIT_MS)  # if it hangs, it will be fenced
            self._after = None
        try:
            self.task.run()
        except Exception as e:  # the boundary of the thread: one failure must not end the others
            code = e.code if isinstance(e, IcefloeError) else "unexpected"
            log.exception("task failed", code=code)
            self._report("FAILED", e)
        else:
            self._report("STOPPED", None)

    def join(self, timeout_ms: int) -> bool:
        """Wait for the thread; True when it ended."""
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

"""Second workers and coordinators that use the ids of the node's own processes."""

from __future__ import annotations

import itertools
import os
import queue
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connect.backoff import BackoffPolicy
from connect.clock import SystemClock
from connect.model.layout import Layout
from connect.node.node_start import COMMANDS
from connect.processes.supervisor import ChildSpec, SupervisedChild
from tests.faults.payments_stack import NAME, PaymentsStack

GRACE_MS = 20_000
WAIT_S = 120.0


class DuplicateProcess:
    """A worker or coordinator process with the ids of the node's own.

    Args:
        run: the stack; its node does not know this process.
        name: ``worker`` or ``coordinator``.
        folder: for its log and its state.
    """

    def __init__(self, run: PaymentsStack, name: str, folder: Path) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._run = run
        self._generations = itertools.count(1)
        properties = {**run.stack._properties(), "icefloe.state.dir": str(folder / "state")}
        spec = ChildSpec(
            name=name,
            command=COMMANDS[name],
            log_file=folder / f"duplicate_process-{name}.log",
            properties=properties,
            environ=_environ(run),
        )
        self._child = SupervisedChild(
            spec, lambda _, event: self.events.put(event), SystemClock(), BackoffPolicy()
        )
        self._child.start()

    def wait_until(self, event: str, **has: Any) -> dict[str, Any]:
        """Wait for an event of this kind with these values; drop earlier events."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                received = self.events.get(timeout=max(0.1, left_s))
            except queue.Empty:
                received = {}
            if received.get("event") == event and has.items() <= received.items():
                return received
            reported = f"no {event} with {has} in {WAIT_S:.0f} s\n{self._run.diagnostics()}"
            assert time.monotonic() < deadline_s, reported

    def wait_until_fenced(self, tasks: Iterable[int]) -> None:
        """Wait until each of these tasks has failed as fenced, in any order."""
        left = set(tasks)
        while left:
            left.discard(self.wait_until("state", state="FAILED", code="fenced")["task"])

    def start_unit(
        self, config: Mapping[str, str], task: int | None = None, layout: Layout | None = None
    ) -> None:
        """Send the command to run the coordinator or a task, as the node does.

        Args:
            config: the connector's.
            task: None for the coordinator.
            layout: None for the one that the node runs now.
        """
        message = {
            "op": "start",
            "connector": NAME,
            "config": {"name": NAME, **config},
            "layout": (layout or self.layout()).to_json(),
            "generation": next(self._generations),
        }
        assert self._child.send(message if task is None else {**message, "task": task})

    def layout(self) -> Layout:
        """Wait for the layout that the node runs; return it."""
        return self._run.wait_until(self._run.ready_layout, "a layout that is ready")

    def stop(self) -> None:
        """Let it drain and end."""
        self._child.shutdown(GRACE_MS)


@contextmanager
def duplicate_process(run: PaymentsStack, name: str, folder: Path) -> Iterator[DuplicateProcess]:
    """Start a duplicate process that accepts commands; stop it after the block."""
    duplicate = DuplicateProcess(run, name, folder)
    try:
        duplicate.wait_until("ready")
        yield duplicate
    finally:
        duplicate.stop()


def _environ(run: PaymentsStack) -> dict[str, str]:
    """As the stack gives it to its node, without the failpoints."""
    catalog = run.stack.catalog_properties
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("CONNECT_", "ICEFLOE_"))
    }
    return {
        **environment,
        "ICEFLOE_CATALOG_URI": catalog["uri"],
        "ICEFLOE_CATALOG_WAREHOUSE": catalog["warehouse"],
    }

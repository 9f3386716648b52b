"""Further nodes of a stack's cluster."""

from __future__ import annotations

import sys
from typing import Any

import httpx

from connect.config.properties_file import parse_properties
from connect.processes.child_process import ChildProcess, free_port
from tests.faults.payments_stack import NAME, PaymentsStack


class ExtraNodes:
    """Further nodes of a stack's cluster.

    Args:
        run: the stack; its own node is the cluster's first.
    """

    def __init__(self, run: PaymentsStack) -> None:
        self.run = run
        self.urls: dict[str, str] = {}
        self.processes: dict[str, ChildProcess] = {}

    def start(self, name: str) -> None:
        """Start a node, or start it again at the same address, without waiting."""
        folder = self.run.stack.state_dir
        url = self.urls.setdefault(name, f"http://127.0.0.1:{free_port()}")
        properties = {
            **parse_properties((folder / "node.properties").read_text()),
            "listeners": url,
            "icefloe.state.dir": str(folder / name),
        }
        file = folder / f"{name}.properties"
        file.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        self.processes[name] = ChildProcess(
            f"node {name}",
            [sys.executable, "-m", "connect.node", "--properties", file],
            log_file=folder / f"{name}.log",
            environ=self.run.stack.node_environ,
        )

    def view(self, name: str | None = None) -> dict[str, Any]:
        """Return the view of the cluster that a node has; the node of the stack without a name."""
        base = self.run.stack.rest_url if name is None else self.urls[name]
        url = f"{base}/icefloe/v1/cluster"
        answer: dict[str, Any] = httpx.get(url, timeout=60).json()
        return answer

    def unit_count(self, name: str, *, seen_by: str | None = None) -> int:
        """Return the number of units that are placed on a node, in the view of a node."""
        address = self.urls[name].removeprefix("http://")
        places = self.view(seen_by)["placements"][NAME]
        return [places["coordinator"], *places["tasks"]].count(address)

    def stop(self) -> None:
        """Stop all of them."""
        for process in self.processes.values():
            process.stop(timeout_ms=30_000)


def is_running(run: PaymentsStack) -> bool:
    """Return whether the connector and all its tasks are RUNNING."""
    status = run.status()
    return all(part["state"] == "RUNNING" for part in (status["connector"], *status["tasks"]))


def wait_for_progress(run: PaymentsStack, what: str) -> None:
    """Wait until the tables contain more records."""
    began = run.committed()
    run.wait_until(lambda: run.committed() > began, f"progress {what}")

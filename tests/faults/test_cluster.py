"""Three whole nodes: one after the other is killed or restarted while records are produced."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from connect.config.properties_file import parse_properties
from connect.processes.child_process import ChildProcess, free_port
from tests.faults.payments_stack import NAME, PaymentsStack, connector, payments_stack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

RECORDS_PER_S = 4_000
RECORDS = 10_000_000  # more than the test needs


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
        first = self.run.stack._node
        assert first is not None
        self.processes[name] = ChildProcess(
            f"node {name}",
            [sys.executable, "-m", "connect.node", "--properties", file],
            log_file=folder / f"{name}.log",
            environ=self.run.stack.node_environ,
        )

    def view(self) -> dict[str, Any]:
        """Return the view of the cluster that the node of the stack has."""
        url = f"{self.run.stack.rest_url}/icefloe/v1/cluster"
        found: dict[str, Any] = httpx.get(url, timeout=60).json()
        return found

    def unit_count(self, name: str) -> int:
        """Return the number of units that are placed on a node."""
        address = self.urls[name].removeprefix("http://")
        places = self.view()["placements"][NAME]
        return [places["coordinator"], *places["tasks"]].count(address)

    def stop(self) -> None:
        """Stop all of them."""
        for process in self.processes.values():
            process.stop(timeout_ms=30_000)


@pytest.mark.timeout(900)
def test_joining_killed_and_restarted_nodes_lose_and_duplicate_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other nodes take over all work; the times of the take-overs are printed.

    The default session timeout of 10 s is most of the time of a take-over.
    """
    reported = []
    with payments_stack(tmp_path / "state", connector(**{"tasks.max": "4"})) as run:
        producer = run.producer(RECORDS_PER_S)
        extra_nodes = ExtraNodes(run)
        try:
            producer.start(RECORDS, RECORDS)
            run.wait_until(run.committed, "the first commit")
            for name in ("second", "third"):
                extra_nodes.start(name)
                run.wait_until(lambda n=name: extra_nodes.unit_count(n), f"work on the {name} node")
                wait_for_progress(run, f"after the {name} node came")
            killed_s = time.monotonic()
            extra_nodes.processes["second"].kill()
            run.wait_until(
                lambda: not extra_nodes.unit_count("second"), "take-over of the killed node's work"
            )
            placed_s = time.monotonic() - killed_s
            run.wait_until(lambda: is_running(run), "all tasks running again")
            reported.append(
                f"placed again {placed_s:.1f} s, all runs {time.monotonic() - killed_s:.1f} s"
            )
            wait_for_progress(run, "after a node was killed")
            extra_nodes.start("second")
            run.wait_until(
                lambda: extra_nodes.unit_count("second"), "work on the node that came back"
            )
            wait_for_progress(run, "after it came back")
            for name in ("second", "third"):
                began_s = time.monotonic()
                extra_nodes.processes[name].stop(timeout_ms=60_000)
                reported.append(f"{name} rolled in {time.monotonic() - began_s:.1f} s")
                assert not extra_nodes.unit_count(name)
                extra_nodes.start(name)
                run.wait_until(
                    lambda n=name: extra_nodes.unit_count(n),
                    f"work on the {name} node after its restart",
                )
                wait_for_progress(run, f"after the {name} node was rolled")
        finally:
            producer.request_stop()
        run.wait_until_committed(producer.rows)
        result = run.check_result()
        extra_nodes.stop()
    assert not result.findings
    with capsys.disabled():
        print(f"\ncluster of three: {'; '.join(reported)}; {result}")


def is_running(run: PaymentsStack) -> bool:
    """Return whether the connector and all its tasks are RUNNING."""
    status = run.status()
    return all(part["state"] == "RUNNING" for part in (status["connector"], *status["tasks"]))


def wait_for_progress(run: PaymentsStack, what: str) -> None:
    """Wait until the tables contain more records."""
    began = run.committed()
    run.wait_until(lambda: run.committed() > began, f"progress {what}")

"""Three whole nodes: killed and restarted in turn while records move."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from connect.config.properties_file import parse_properties
from connect.processes.child_process import ChildProcess, free_port
from tests.faults.chaos import NAME, Field, connector, field

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

RECORDS_PER_S = 4_000
RECORDS = 10_000_000  # more than it lasts


class More:
    """Further nodes of a stack's cluster.

    Args:
        run: the stack; its own node is the cluster's first.
    """

    def __init__(self, run: Field) -> None:
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
        """The cluster, as the stack's own node sees it."""
        url = f"{self.run.stack.rest_url}/icefloe/v1/cluster"
        found: dict[str, Any] = httpx.get(url, timeout=60).json()
        return found

    def runs(self, name: str) -> int:
        """Units that are placed on a node."""
        me = self.urls[name].removeprefix("http://")
        places = self.view()["placements"][NAME]
        return [places["coordinator"], *places["tasks"]].count(me)

    def stop(self) -> None:
        """End all that run."""
        for process in self.processes.values():
            process.stop(timeout_ms=30_000)


@pytest.mark.timeout(900)
def test_nodes_come_and_go_and_every_record_is_there_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Joined, killed, rolled: 0 lost, 0 twice, all work taken over; the figures are printed.

    With the default session of 10 s, in which most of a take-over goes by.
    """
    reported = []
    with field(tmp_path / "state", connector(**{"tasks.max": "4"})) as run:
        production = run.production(RECORDS_PER_S)
        more = More(run)
        try:
            production.start(RECORDS, RECORDS)
            run.wait_until(run.committed, "the first commit")
            for name in ("second", "third"):
                more.start(name)
                run.wait_until(lambda n=name: more.runs(n), f"work on the {name} node")
                progress(run, f"after the {name} node came")
            killed_s = time.monotonic()
            more.processes["second"].kill()
            run.wait_until(lambda: not more.runs("second"), "take-over of the killed node's work")
            placed_s = time.monotonic() - killed_s
            run.wait_until(lambda: running(run), "all tasks running again")
            reported.append(
                f"placed again {placed_s:.1f} s, all runs {time.monotonic() - killed_s:.1f} s"
            )
            progress(run, "after a node was killed")
            more.start("second")
            run.wait_until(lambda: more.runs("second"), "work on the node that came back")
            progress(run, "after it came back")
            for name in ("second", "third"):
                began_s = time.monotonic()
                more.processes[name].stop(timeout_ms=60_000)
                reported.append(f"{name} rolled in {time.monotonic() - began_s:.1f} s")
                assert not more.runs(name)
                more.start(name)
                run.wait_until(
                    lambda n=name: more.runs(n), f"work on the {name} node after its restart"
                )
                progress(run, f"after the {name} node was rolled")
        finally:
            production.stop()
        run.wait_until_committed(production.rows)
        verdict = run.verdict()
        more.stop()
    assert not verdict.wrong
    with capsys.disabled():
        print(f"\ncluster of three: {'; '.join(reported)}; {verdict}")


def running(run: Field) -> bool:
    """Whether everything of the connector says that it runs."""
    status = run.status()
    return all(part["state"] == "RUNNING" for part in (status["connector"], *status["tasks"]))


def progress(run: Field, what: str) -> None:
    """More gets into the tables than was there."""
    began = run.committed()
    run.wait_until(lambda: run.committed() > began, f"progress {what}")

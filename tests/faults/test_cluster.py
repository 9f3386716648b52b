"""Three whole nodes: one after the other is killed or restarted while records are produced."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults.extra_nodes import ExtraNodes, is_running, wait_for_progress
from tests.faults.payments_stack import connector, payments_stack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

RECORDS_PER_S = 4_000
RECORDS = 10_000_000  # more than the test needs


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
                run.wait_until(lambda n=name: not extra_nodes.unit_count(n), f"{name} without work")
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

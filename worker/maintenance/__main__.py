"""``python -m worker.maintenance``: maintains the tables of one connector, then has no work.

Started by a node over a private pipe when work is due; see ``connect.processes.ipc``. The node ends
the process when it has reported the end of its work.

Rules of this file:
- Its Spark session has a heap of its own, so that no table can take memory from running tasks.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping
from typing import Any

import structlog

from connect.clock import SystemClock
from connect.errors import IcefloeError
from connect.metrics import process_metrics
from connect.processes.child_main import Serving, begin
from connect.processes.ipc import Channel
from connect.validation.parse import parse
from connect.validation.providers import resolve
from worker.maintenance.maintenance_run import MaintenanceRun, TableJob

END_TIMEOUT_S = 20.0

log = structlog.get_logger("maintenance")


def main() -> int:
    """Serve the node until its stop command, its end, or SIGTERM."""
    serving = begin("maintenance", Channel.from_node())
    if serving is None:
        return 0
    process_metrics.start_reporting(serving.child.channel)
    serving.child.ready()
    run: MaintenanceRun | None = None
    work: threading.Thread | None = None
    for command in serving.commands:
        if command["op"] == "maintain" and work is None:
            run = _run_of(serving, command)
            work = threading.Thread(target=_work, args=(serving, command, run), daemon=True)
            work.start()
        else:
            log.warning("command ignored", op=command["op"])
    if run is not None and work is not None:
        run.stop()
        work.join(END_TIMEOUT_S)
    return 0


def _run_of(serving: Serving, command: Mapping[str, Any]) -> MaintenanceRun | None:
    name = command["connector"]

    def report(progress: Mapping[str, Any]) -> None:
        serving.child.channel.send({"event": "maintenance", "connector": name, **progress})

    try:
        config = resolve(parse(command["config"]), serving.providers, node=serving.node.properties)
    except IcefloeError as error:
        log.warning("configuration cannot be used", connector=name, error=str(error))
        failed = {"state": "FAILED", "code": error.code, "message": str(error), "duration_ms": 0}
        for job in command["jobs"]:
            for work in job["work"]:
                report({"table": job["table"], "work": work, **failed})
        return None
    return MaintenanceRun(
        config,
        [TableJob.of(job) for job in command["jobs"]],
        tables_at_once=command["tables_at_once"],
        heap_mb=serving.node.values["icefloe.maintenance.heap.mb"],
        folder=serving.node.state_dir,
        clock=SystemClock(),
        report=report,
    )


def _work(serving: Serving, command: Mapping[str, Any], run: MaintenanceRun | None) -> None:
    with contextlib.ExitStack() as ending:
        # also after a bug, so that the node does not wait
        ending.callback(
            serving.child.channel.send,
            {"event": "maintenance_ended", "connector": command["connector"]},
        )
        if run is not None:
            run.run()


if __name__ == "__main__":
    sys.exit(main())

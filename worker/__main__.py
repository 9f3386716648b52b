"""``python -m worker``: one Spark session and the tasks of many connectors.

Started by a node over a private pipe; see ``connect.ipc`` for the messages.
"""

from __future__ import annotations

import os
import sys
import threading

import structlog

from connect import metrics
from connect.child import begin
from connect.clock import SystemClock
from worker.hosting import Host
from worker.runner import make_runner
from worker.session import Session, open_session
from worker.wiring import Wiring

METRICS_INTERVAL_S = 1
EXIT_SPARK_DIED = 70

log = structlog.get_logger("worker")


def main() -> int:
    """Serve the node until it says so, goes away, or SIGTERM comes."""
    serving = begin("worker")
    if serving is None:
        return 0
    child, node, providers = serving.child, serving.node, serving.providers
    node.state_dir.mkdir(parents=True, exist_ok=True)
    session = open_session(providers.resolve_all(node.spark_properties), folder=node.state_dir)
    wiring = Wiring(
        node=providers.resolve_all(node.properties),
        node_group_id=node.group_id,
        config_topic=node.config_topic,
        session=session,
        clock=SystemClock(),
        runner=make_runner,
        report=lambda _state, _error: None,
    )
    host = Host(child, node, providers, wiring)
    threading.Thread(target=_watch, args=(session, serving.stopping), daemon=True).start()
    metrics.start_reporting(child.channel)
    threading.Thread(target=_measure, args=(host, serving.stopping), daemon=True).start()
    child.ready()
    host.units.start_inventory()
    for command in serving.commands:
        host.handle(command)
    if not host.shutdown(node.drain_grace_ms):
        log.warning("tasks did not end within the grace", grace_ms=node.drain_grace_ms)
    session.close()
    return 0


def _watch(session: Session, stopping: threading.Event) -> None:
    """End the process when Spark's JVM is gone: no task can work, and the node starts us anew."""
    session.wait_for_jvm()
    if not stopping.is_set():
        log.error("the JVM of Spark ended")
        os._exit(EXIT_SPARK_DIED)


def _measure(host: Host, stopping: threading.Event) -> None:
    while not stopping.wait(METRICS_INTERVAL_S):
        host.measure()


if __name__ == "__main__":
    sys.exit(main())

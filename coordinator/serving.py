"""The main function of a coordinator process: the coordinators of many connectors."""

from __future__ import annotations

import structlog

from connect.clock import SystemClock
from connect.metrics import process_metrics
from connect.processes.child_main import begin
from connect.processes.ipc import Channel
from coordinator.host import CoordinatorHost

log = structlog.get_logger("coordinator")


def serve(channel: Channel | None) -> int:
    """Serve the node until its stop command, its end, or SIGTERM; return the exit status.

    Args:
        channel: the connection to the node; None if no node started the process.

    Raises:
        ConfigError: no node started the process.
    """
    serving = begin("coordinator", channel)
    if serving is None:
        return 0
    host = CoordinatorHost(serving.child, serving.node, serving.providers, SystemClock())
    process_metrics.start_reporting(serving.child.channel)
    serving.child.ready()
    log.info("coordinator process is ready")
    host.units.start_inventory()
    for command in serving.commands:
        host.handle(command)
    host.shutdown(serving.node.drain_grace_ms)
    return 0

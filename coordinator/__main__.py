"""``python -m coordinator``: the coordinators of many connectors in one process.

Started by a node over a private pipe; see ``connect.processes.ipc`` for the messages.
"""

from __future__ import annotations

import sys

import structlog

from connect.clock import SystemClock
from connect.metrics import process_metrics
from connect.processes.child_main import begin
from connect.processes.ipc import Channel
from coordinator.host import CoordinatorHost

log = structlog.get_logger("coordinator")


def main() -> int:
    """Serve the node until it says so, goes away, or SIGTERM comes."""
    serving = begin("coordinator", Channel.from_node())
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


if __name__ == "__main__":
    sys.exit(main())

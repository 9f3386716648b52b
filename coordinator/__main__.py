"""``python -m coordinator``: the coordinators of many connectors in one process.

Started by a node over a private pipe; see ``connect.ipc`` for the messages.
"""

from __future__ import annotations

import sys

from connect import metrics
from connect.child import begin
from connect.clock import SystemClock
from connect.ipc import Channel
from coordinator.hosting import Host


def main() -> int:
    """Serve the node until it says so, goes away, or SIGTERM comes."""
    serving = begin("coordinator", Channel.from_node())
    if serving is None:
        return 0
    host = Host(serving.child, serving.node, serving.providers, SystemClock())
    metrics.start_reporting(serving.child.channel)
    serving.child.ready()
    host.units.start_inventory()
    for command in serving.commands:
        host.handle(command)
    host.shutdown(serving.node.drain_grace_ms)
    return 0


if __name__ == "__main__":
    sys.exit(main())

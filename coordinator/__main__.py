"""``python -m coordinator``: the coordinators of many connectors in one process.

A node starts it with a private socket; see ``connect.processes.ipc`` for the messages.
"""

from __future__ import annotations

import sys

from connect.processes.ipc import Channel
from connect.processes.start_modules import NOT_NEEDED, start_module


def main() -> int:
    """Serve the node until its stop command, its end, or SIGTERM."""
    channel = Channel.from_node()
    status: int = start_module("coordinator.serving", without=NOT_NEEDED).serve(channel)
    return status


if __name__ == "__main__":
    sys.exit(main())

"""``python -m coordinator.commit_processes``: commits tables for the coordinator of a connector.

A coordinator process starts it with a private socket; see ``connect.processes.ipc``.
"""

from __future__ import annotations

import sys

from connect.processes.ipc import Channel
from connect.processes.start_modules import NOT_NEEDED, start_module


def main() -> int:
    """Commit until the coordinator asks to finish, or ends."""
    channel = Channel.from_node()
    module = start_module("coordinator.commit_processes.serving", without=NOT_NEEDED)
    status: int = module.serve(channel)
    return status


if __name__ == "__main__":
    sys.exit(main())

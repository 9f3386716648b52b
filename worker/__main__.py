"""``python -m worker``: one Spark session and the tasks of many connectors.

A node starts it with a private socket; see ``connect.processes.ipc`` for the messages.

Rules of this file:
- Spark starts first. Its JVM and the imports of Python take seconds each, on different cores, so
  most modules are imported while the JVM starts. ``tests/unit/worker/test_start.py`` checks that
  little is imported before.
"""

from __future__ import annotations

import sys

from connect.processes.ipc import Channel
from connect.processes.start_modules import start_module
from worker.spark.session_opening import SessionOpening


def main() -> int:
    """Serve the node until its stop command, its end, or SIGTERM."""
    channel = Channel.from_node()
    opening = None if channel is None else SessionOpening.of(channel.first())
    serving = start_module("worker.serving")
    status: int = serving.serve(channel, opening)
    return status


if __name__ == "__main__":
    sys.exit(main())

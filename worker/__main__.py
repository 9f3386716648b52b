"""``python -m worker``: one Spark session and the tasks of many connectors.

Started by a node over a private pipe; see ``connect.processes.ipc`` for the messages.

Rules of this file:
- Spark starts first, and most modules are imported while its JVM does: each takes seconds, of
  another core. So little is imported before it, see ``tests/unit/worker/test_start.py``.
"""

from __future__ import annotations

import importlib
import sys

from connect.processes.ipc import Channel
from worker.spark.opening import Opening


def main() -> int:
    """Serve the node until it says so, goes away, or SIGTERM comes."""
    channel = Channel.from_node()
    opening = None if channel is None else Opening.of(channel.first())
    serving = importlib.import_module("worker.serving")
    status: int = serving.serve(channel, opening)
    return status


if __name__ == "__main__":
    sys.exit(main())

"""``python -m coordinator``: the coordinators of many connectors in one process.

Started by a node over a private pipe; see ``connect.ipc`` for the messages.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from connect import logs, metrics
from connect.child import Child
from connect.clock import SystemClock
from connect.config.node import NodeConfig
from connect.config.providers import Providers
from connect.errors import ConfigError
from coordinator.hosting import Host


def main() -> int:
    """Serve the node until it says so, goes away, or SIGTERM comes."""
    logs.configure("coordinator")
    child = Child.from_environment()
    stopping = threading.Event()

    def on_signal(*_: object) -> None:
        stopping.set()
        child.channel.stop_receiving()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the node decides
    commands = child.commands(stopping)
    configure: Mapping[str, Any] = next(commands, {})
    if stopping.is_set():
        return 0
    if configure.get("op") != "configure":
        raise ConfigError("the first command must be configure", code="ipc")
    node = NodeConfig.from_properties(configure["properties"])
    providers = Providers(node.properties, os.environ)
    host = Host(child, node, providers, SystemClock())
    metrics.start_reporting(child.channel)
    child.ready()
    for command in commands:
        host.handle(command)
    host.shutdown(node.drain_grace_ms)
    return 0


if __name__ == "__main__":
    sys.exit(main())

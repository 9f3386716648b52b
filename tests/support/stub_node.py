"""A real node with stub children: ``stub_node.py PROPERTIES [put|layout|fence|offsets|replay]``.

The second argument names where the node dies by SIGKILL: after a connector is stored, after its
layout is, after its tasks are fenced, or after the offsets of its group are deleted; each before
the next step. ``replay``: inside the first transaction of a replay of dead letters.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connect import failpoints, logs
from connect.config.node.node_config import NodeConfig
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.node import node_parts
from connect.node.herder.deployment import deployer
from connect.node.node import Node
from connect.node.node_start import NodeStart
from connect.processes.signals import on_signals
from connect.state.config_store import ConfigStore

STUB = str(Path(__file__).with_name("stub_child.py"))
COMMANDS = {name: (sys.executable, STUB, name) for name in ("worker", "coordinator")}


def dying_after(act: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs this one and then kills the process."""

    def acted(*arguments: Any, **named: Any) -> None:
        act(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    return acted


def main() -> None:
    """Run it until SIGTERM, or until it kills itself."""
    match sys.argv[2:]:
        case ["put"]:
            ConfigStore.put_connector = dying_after(ConfigStore.put_connector)  # type: ignore[method-assign]
        case ["layout"]:
            ConfigStore.put_layout = dying_after(ConfigStore.put_layout)  # type: ignore[method-assign]
        case ["fence"]:
            deployer.take_over = dying_after(deployer.take_over)
        case ["offsets"]:
            KafkaAdmin.delete_group = dying_after(KafkaAdmin.delete_group)  # type: ignore[method-assign]
        case ["replay"]:
            failpoints.configure("R1=crash@1")
    node_parts.MAINTENANCE_COMMAND = (sys.executable, STUB, "maintenance")  # type: ignore[misc]
    logs.configure("node")
    config = NodeConfig.load(Path(sys.argv[1]), os.environ)
    started = NodeStart.of(config, dict(os.environ), commands=COMMANDS)
    while "STUB_EVENT_FIRST" in os.environ and not started.child_events._waiting:
        time.sleep(0.01)  # the test's timeout bounds it
    node = Node(started)
    on_signals({signal.SIGTERM}, node.stop)
    (Path(os.environ["STUB_DIR"]) / "port").write_text(str(node.port))
    os._exit(node.run())


if __name__ == "__main__":
    main()

"""A real node that knows the plugins of the recorded worker: ``recorded_node.py PROPERTIES``.

Its worker is ``recorded_worker.py``, whose file sink reads and commits; its coordinator is the
stub. Layouts of connectors that Icefloe does not have are made as if they were sinks of ours. One
without a topic that exists reads a partition that does not, so that its task starts.
"""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from connect import logs
from connect.config.connector import ConnectorConfig
from connect.config.keys.connector_keys import CONNECTOR_CLASS
from connect.config.node.node_config import NodeConfig
from connect.model.layout import TopicPartition
from connect.node import node, node_parts
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.deployment.layout_planner import LayoutPlanner
from connect.node.node_start import NodeStart
from connect.processes.signals import on_signals
from connect.state.connector_state import StoredConnector
from connect.validation.plugins import BUILT_IN
from tests.golden.connect_rest_plugins import recorded_plugins
from tests.support.stub_node import STUB

MADE_UP = 1000
WORKER = str(Path(__file__).with_name("recorded_worker.py"))
SINK = {"connector.class": CONNECTOR_CLASS, "iceberg.tables": "db.t", "iceberg.catalog.type": "sql"}


class RecordedConfigs(ConnectorConfigs):
    """Parses the configuration of any connector."""

    def parsed(self, state: StoredConnector) -> ConnectorConfig:
        """What is not ours is read as a sink with the same topics."""
        raw = dict(state.config or {})
        if BUILT_IN.connector(raw.get("connector.class", "")) is None:
            raw = {**raw, **SINK}
            raw.setdefault("topics", "none")
        return replace(super().parsed(StoredConnector(state.name, config=raw)), raw=state.config)


class RecordedPlanner(LayoutPlanner):
    """Lays out any connector."""

    def _partitions(
        self,
        config: ConnectorConfig,
        state: StoredConnector,
        topics: Mapping[str, int],
        reserved: frozenset[str],
    ) -> list[TopicPartition]:
        partitions = super()._partitions(config, state, topics, reserved)
        name = config.topics[0] if config.topics else "none"
        return partitions or [TopicPartition(name, MADE_UP)]

    def _topic_ids(
        self, config: ConnectorConfig, state: StoredConnector, partitions: list[TopicPartition]
    ) -> dict[str, str]:
        return super()._topic_ids(
            config, state, [tp for tp in partitions if tp.partition < MADE_UP]
        )


def main() -> None:
    """Run it until SIGTERM."""
    folder = Path(os.environ["STUB_DIR"])
    node_parts.ConnectorConfigs = RecordedConfigs  # type: ignore[attr-defined, misc]
    node_parts.LayoutPlanner = RecordedPlanner  # type: ignore[attr-defined, misc]
    plugins = recorded_plugins(Path(__file__).parents[1] / "golden" / "connect_rest")
    node.create_app = partial(node.create_app, plugins=plugins)  # type: ignore[attr-defined]
    logs.configure("node")
    commands = {
        "worker": (sys.executable, WORKER, "worker"),
        "coordinator": (sys.executable, STUB, "coordinator"),
    }
    config = NodeConfig.load(Path(sys.argv[1]), os.environ)
    started = node.Node(NodeStart.of(config, dict(os.environ), commands=commands))
    on_signals({signal.SIGTERM}, started.stop)
    (folder / "port").write_text(str(started.port))
    os._exit(started.run())


if __name__ == "__main__":
    main()

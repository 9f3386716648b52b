"""Reads the state of one connector, once, from the config topic or the state file.

A task reads its layout this way. It needs no store, which follows the topic and writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from connect.clock import SystemClock
from connect.config.node.node_config import NodeConfig
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, client_properties
from connect.state.compacted_topic import read_all
from connect.state.connector_state import ConfigState, StoredConnector
from connect.state.file_log import CONFIG_FILE, read_state
from connect.state.topic_records import decode

ReadConnector: TypeAlias = Callable[[str, Mapping[str, str]], StoredConnector]
"""Returns the present state of a connector, by its name and the node's resolved properties."""


def connector_reader(node: NodeConfig) -> ReadConnector:
    """Return the function that reads a connector of a node, where the node keeps its state.

    It gets the node's properties at each call, because secrets are replaced while a worker runs.
    """
    if node.is_state_in_files:
        file = node.state_dir / CONFIG_FILE
        return lambda connector, _: read_connector_file(file, connector)
    topic = node.config_topic
    return lambda name, properties: read_connector(client_properties(properties), topic, name)


def read_connector(properties: Mapping[str, str], topic: str, connector: str) -> StoredConnector:
    """Read the config topic to its end; return the whole state of one connector.

    Args:
        properties: Java-named client properties.
        topic: ``config.storage.topic``.
        connector: connector name.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    state = ConfigState()
    admin = KafkaAdmin(properties)
    reader = LogReader({**properties, "fetch.max.wait.ms": "10"})
    try:
        read_all(admin, reader, topic, partial(_apply, state), clock=SystemClock())
    finally:
        reader.close()
        admin.close()
    return state.get(connector)


def read_connector_file(file: Path, connector: str) -> StoredConnector:
    """Read the state file of a node; return the whole state of one connector.

    Raises:
        ConfigError: ``state_file``: it cannot be read.
    """
    return read_state(file).get(connector)


def _apply(state: ConfigState, key: str, value: bytes | None) -> None:
    try:
        state.apply(key, decode(value))
    except ValueError:
        return

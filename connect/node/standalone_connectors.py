"""Connectors and node properties as the command line of ``icefloe standalone`` names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from connect.config.node.node_config import NodeConfig
from connect.config.properties_file import parse_properties
from connect.errors import ConfigError
from connect.state.file_log import CONFIG_FILE, read_state
from connect.state.topic_records import TargetState

TARGETS: Mapping[str, TargetState] = {
    "RUNNING": "STARTED",
    "PAUSED": "PAUSED",
    "STOPPED": "STOPPED",
}


@dataclass(frozen=True, slots=True)
class StandaloneConnector:
    """A connector of the command line.

    Attributes:
        config: its configuration, ``name`` included.
        target: target state with which it starts.
    """

    name: str
    config: Mapping[str, str]
    target: TargetState = "STARTED"


def load_standalone(file: Path, environ: Mapping[str, str]) -> NodeConfig:
    """Read the properties of a standalone node: those of ``connect-standalone``, or of a node.

    Raises:
        ConfigError: as ``NodeConfig.load``.
    """
    return NodeConfig.load(file, environ, {"icefloe.state.storage": "file"})


def read_properties_connector(file: Path) -> StandaloneConnector:
    """Read a connector from a Java properties file, as ``connect-standalone`` takes it.

    Raises:
        ConfigError: it cannot be read, or has no name.
    """
    try:
        config = parse_properties(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{file} cannot be read: {e}") from e
    except ConfigError as e:
        raise ConfigError(f"{file}: {e.message}") from e
    name = config.get("name", "").strip()
    if not name:
        raise ConfigError(f"{file}: the key name is missing; set it to the name of the connector")
    return StandaloneConnector(name, config)


def are_completed(config: NodeConfig, connectors: Iterable[StandaloneConnector]) -> bool:
    """Return whether every connector is stored with this configuration and has completed its run.

    Raises:
        ConfigError: ``state_file``: the state cannot be read.
    """
    stored = read_state(config.state_dir / CONFIG_FILE)
    states = [(stored.get(connector.name), connector) for connector in connectors]
    return all(
        state.is_completed and state.config == connector.config for state, connector in states
    )

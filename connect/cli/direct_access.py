"""Options of commands that can ask broker and catalog directly, where no node runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect.cli.gitops.connector_files import read_one
from connect.clock import SystemClock
from connect.errors import ConfigError

if TYPE_CHECKING:
    from connect.operations.connector_operations import ConnectorOperations

Connector = Annotated[str, typer.Argument(help="Name of the connector.")]
DirectFile = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", help="The connector's JSON or YAML: asks broker and catalog, not a node."
    ),
]
Direct = Annotated[bool, typer.Option("--direct", help="Ask broker and catalog, not a node.")]
Broker = Annotated[
    str | None,
    typer.Option("--bootstrap-server", help="host:port of a broker, without a node."),
]
Properties = Annotated[
    Path | None,
    typer.Option("--properties", "-p", help="Node properties file, without a node."),
]


@dataclass(frozen=True, slots=True)
class DirectAccess:
    """A connector's configuration from a file, and operations that need no node."""

    config: Mapping[str, str]
    operations: ConnectorOperations


def access_by_file(
    connector: str, file: Path | None, properties: Path | None, broker: str | None
) -> DirectAccess | None:
    """Return direct access to a connector's broker and catalog; None to ask a node.

    Raises:
        ConfigError: a file cannot be used, or an option needs ``--file``.
    """
    if file is None:
        if broker or properties:
            raise ConfigError("--bootstrap-server and --properties need --file", code="usage")
        return None
    return direct_access(
        read_one(file, connector, unnamed=connector).config, properties, broker, has_broker=True
    )


def access_by_flag(
    config: Mapping[str, str],
    properties: Path | None,
    broker: str | None,
    *,
    is_direct: bool,
    has_broker: bool,
) -> DirectAccess | None:
    """Return direct access for a configuration; None to ask a node.

    Args:
        config: of the connector.
        properties: file of node properties.
        broker: host:port of a broker.
        is_direct: whether ``--direct`` was given.
        has_broker: whether the operation needs a broker.

    Raises:
        ConfigError: the properties cannot be used, or an option needs ``--direct``.
    """
    if is_direct:
        return direct_access(config, properties, broker, has_broker=has_broker)
    if broker or properties:
        raise ConfigError("--bootstrap-server and --properties need --direct", code="usage")
    return None


def direct_access(
    config: Mapping[str, str], properties: Path | None, broker: str | None, *, has_broker: bool
) -> DirectAccess:
    """Return operations with the properties that a node would have.

    Raises:
        ConfigError: the properties cannot be read, or name no broker.
    """
    # with Kafka and Iceberg clients: the commands that ask a node need none of them
    from connect.operations.connector_clients import read_properties  # noqa: PLC0415 - on use
    from connect.operations.connector_operations import (  # noqa: PLC0415 - on use
        ConnectorOperations,
    )

    node = read_properties(properties, broker, has_broker=has_broker)
    return DirectAccess(config, ConnectorOperations(node, os.environ, SystemClock()))

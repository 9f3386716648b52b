"""``icefloe standalone``: connectors from files in one process tree, without storage topics."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from connect.cli.gitops.connector_files import read_one
from connect.cli.terminal import run_and_exit
from connect.errors import ConfigError


def standalone(
    properties: Annotated[
        Path, typer.Argument(help="Node properties file; ICEFLOE_... replaces keys.")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="CONNECTOR...", help="Connectors: JSON, YAML or .properties files."),
    ],
    new_run: Annotated[
        bool, typer.Option("--new-run", help="Start completed bounded runs again.")
    ] = False,
) -> None:
    """Run connectors without a cluster: status 0 all are COMPLETED, 1 one has FAILED.

    The state is in files of icefloe.state.dir; there is no REST API unless listeners is set.
    """
    from connect.node.node_start import run_standalone  # noqa: PLC0415 - on use
    from connect.node.standalone_connectors import (  # noqa: PLC0415 - on use
        TARGETS,
        StandaloneConnector,
        load_standalone,
        read_properties_connector,
    )

    connectors: dict[str, StandaloneConnector] = {}
    for file in files:
        if file.suffix == ".properties":
            connector = read_properties_connector(file)
        else:
            read = read_one(file)
            target = TARGETS[read.initial_state or "RUNNING"]
            connector = StandaloneConnector(read.name, read.config, target)
        if connector.name in connectors:
            raise ConfigError(
                f"the connector {connector.name!r} of {file} is in another file as well",
                code="file",
            )
        connectors[connector.name] = connector
    config = load_standalone(properties, os.environ)
    connector_list = tuple(connectors.values())
    run_and_exit(lambda: run_standalone(config, connector_list, is_new_run=new_run))

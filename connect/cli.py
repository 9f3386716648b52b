"""The command line: ``icefloe``.

Commands import what they need when they run, so that ``icefloe --help`` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

from connect.errors import IcefloeError
from connect.terminal import echo, error

app = typer.Typer(
    name="icefloe",
    help="Kafka topics into Apache Iceberg tables, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_GROUPS = {
    "catalog": ("connect.catalog_tool", "Ask a catalog what it does."),
    "control": ("connect.control_tool", "Look into the control topic."),
    "dlq": ("connect.dlq_tool", "Dead letters: count them, look at one, put them back."),
    "migrate": ("connect.migrate_tool", "Take a connector over from another sink."),
    "tables": ("connect.tables_tool", "Tables whose files wait for a commit."),
    "user": ("connect.rest.user_tool", "Entries of a node's users file."),
    "offsets": ("connect.gitops.connectors", "Source offsets of a connector."),
}
_COMMANDS = {
    "audit": ("connect.audit_tool", "Prove that every record is accounted for."),
    "diff": ("connect.gitops.commands", "Show what apply would change."),
    "apply": ("connect.gitops.commands", "Make a node run what files say."),
    "validate": ("connect.gitops.commands", "Check connectors in files."),
    "get": ("connect.gitops.connectors", "Show connectors and their configuration."),
    "status": ("connect.gitops.connectors", "Show how connectors and their tasks are."),
    "lag": ("connect.gitops.connectors", "Show what is not in tables yet."),
    "pause": ("connect.gitops.connectors", "Let connectors rest."),
    "resume": ("connect.gitops.connectors", "Let paused or stopped connectors go on."),
    "stop": ("connect.gitops.connectors", "End the tasks of connectors."),
    "restart": ("connect.gitops.connectors", "Start connectors again, or their tasks."),
}
BrokerPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Kafka's port; 0 takes a free one.")
]
RestPort = Annotated[int, typer.Option(min=0, max=65535, help="REST port; 0 takes a free one.")]
StateDir = Annotated[Path, typer.Option("--state-dir", help="Folder of everything that lasts.")]


@app.command()
def node(
    properties: Annotated[
        Path, typer.Option("--properties", "-p", help="Node properties file.", exists=False)
    ],
) -> None:
    """Run one node: REST API, worker and coordinator."""
    from connect.node import run_node  # noqa: PLC0415 - on use

    _exit_now(run_node(properties))


@app.command()
def up(
    state_dir: StateDir = Path("icefloe-state"),
    broker_port: BrokerPort = 9092,
    rest_port: RestPort = 8083,
) -> None:
    """Run a broker, a catalog and a node on this machine until Ctrl-C."""
    from connect.embedded.stack import run_up  # noqa: PLC0415 - on use

    raise typer.Exit(run_up(state_dir, broker_port=broker_port, rest_port=rest_port))


@app.command()
def demo(
    records: Annotated[int, typer.Option(min=1, help="Payments to produce.")] = 1_000_000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running after.")] = False,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Folder to use; a temporary one if none.")
    ] = None,
    broker_port: BrokerPort = 0,
    rest_port: RestPort = 0,
) -> None:
    """Produce payments, land them in Iceberg tables and check them record by record."""
    from connect.embedded.demo import run_demo  # noqa: PLC0415 - on use

    status = run_demo(
        records=records,
        keep=keep,
        state_dir=state_dir,
        broker_port=broker_port,
        rest_port=rest_port,
    )
    raise typer.Exit(status)


@app.command()
def version() -> None:
    """Print the version."""
    echo(installed_version("icefloe"))


def _add_commands(arguments: Sequence[str]) -> None:
    """What lives in modules of its own; one is loaded only when it is asked for."""
    is_completing = "_ICEFLOE_COMPLETE" in os.environ
    for name, (module, text) in _COMMANDS.items():
        if is_completing or arguments[:1] == [name]:
            app.command(name)(getattr(importlib.import_module(module), name))
        else:
            app.command(name, help=text)(lambda: None)
    for name, (module, text) in _GROUPS.items():
        if is_completing or arguments[:1] == [name]:
            group: typer.Typer = getattr(importlib.import_module(module), f"{name}_app")
        else:
            group = typer.Typer(help=text)
        app.add_typer(group, name=name)


def _exit_now(status: int) -> None:
    """End although a thread may still wait for a broker that is away."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    """Entry point: one clear line for what we know to go wrong, status 1."""
    _add_commands(sys.argv[1:])
    try:
        app()
    except IcefloeError as e:
        error(str(e))
        sys.exit(1)


if __name__ == "__main__":
    main()

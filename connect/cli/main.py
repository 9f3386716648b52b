"""The command line: ``icefloe``.

Rules of this file:
- Commands import what they need when they run, so that ``icefloe --help`` answers at once.
- Every command ends with a status of ``ExitStatus``, after a bug too; a signal ends it with 128
  plus its number.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer

from connect.cli.terminal import echo, error
from connect.errors import ExitStatus, IcefloeError

app = typer.Typer(
    name="icefloe",
    help="Kafka topics into Apache Iceberg tables, exactly once.\n\n"
    "Every command ends with status 0 (done), 1 (the answer is no), 2 (wrong usage) or 3 (no "
    "answer).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_GROUPS = {
    "catalog": ("connect.cli.catalog_command", "Test what a catalog guarantees."),
    "control": ("connect.cli.control_command", "Decode control events; repair control offsets."),
    "dlq": ("connect.cli.dlq_command", "Dead letters: count, show and replay them."),
    "maintenance": ("connect.cli.maintenance_command", "Maintenance of a connector's tables."),
    "migrate": ("connect.cli.migrate_command", "Check whether another sink's connectors can move."),
    "tables": ("connect.cli.tables_command", "Tables of a connector and their last commits."),
    "user": ("connect.cli.user_command", "Entries of a node's users file."),
    "offsets": ("connect.cli.gitops.offsets_commands", "Source offsets of a connector."),
}
_COMMANDS = {
    "get": ("connect.cli.gitops.connectors", "List connectors, or print their configuration."),
    "list": ("connect.cli.gitops.connectors", "List connectors; the same as get."),
    "describe": ("connect.cli.gitops.describe", "Show all about one connector."),
    "status": (
        "connect.cli.gitops.status_command",
        "Show states of connectors, tasks and maintenance.",
    ),
    "lag": ("connect.cli.gitops.connectors", "Show records that are not in tables yet."),
    "patch": ("connect.cli.gitops.connectors", "Change keys of a connector's configuration."),
    "delete": ("connect.cli.gitops.connectors", "Delete connectors."),
    "pause": ("connect.cli.gitops.connectors", "Pause connectors."),
    "resume": ("connect.cli.gitops.connectors", "Resume paused or stopped connectors."),
    "stop": ("connect.cli.gitops.connectors", "Stop connectors and end their tasks."),
    "restart": ("connect.cli.gitops.connectors", "Restart connectors or their tasks."),
    "audit": ("connect.cli.audit_command", "Prove that every record is accounted for."),
    "datagen": ("connect.cli.datagen_command", "Produce generated records to a topic."),
    "standalone": (
        "connect.cli.standalone_command",
        "Run connectors from files without a cluster of nodes.",
    ),
    "ingest": (
        "connect.cli.ingest_command",
        "Ingest a topic into a table, with the options of kafka-delta-ingest.",
    ),
    "preview": ("connect.cli.preview_command", "Show what a connector makes of a few records."),
    "report": ("connect.cli.report_command", "Run a SQL query over topics."),
    "rewind": ("connect.cli.rewind_command", "Take tables and offsets back to a commit."),
    "validate": ("connect.cli.gitops.commands", "Check connectors in files."),
    "diff": ("connect.cli.gitops.commands", "Show what apply would change."),
    "apply": ("connect.cli.gitops.commands", "Create, change and prune connectors from files."),
    "cluster": ("connect.cli.gitops.node_commands", "Show nodes, leader, versions and placement."),
    "plugins": ("connect.cli.gitops.node_commands", "List plugins, or the keys of one."),
    "loggers": ("connect.cli.gitops.node_commands", "Show or set log levels of a node."),
    "logs": ("connect.cli.gitops.node_commands", "Print log files of a node on this machine."),
}
_FUNCTIONS = {"list": "get"}
"""Commands whose function has another name."""
_RUN = "Run"
_PANELS = {
    _RUN: ("standalone", "ingest"),
    "Connectors": (
        *("get", "list", "describe", "status", "lag", "patch", "delete"),
        *("pause", "resume", "stop", "restart", "offsets"),
    ),
    "Connectors in files": ("validate", "preview", "diff", "apply", "migrate", "catalog"),
    "Tables and records": ("audit", "rewind", "control", "dlq", "maintenance", "tables"),
    "Nodes": ("cluster", "plugins", "loggers", "logs", "user"),
    "Tools": ("datagen", "report"),
}
"""Headings of the help text, in their order, and commands below them."""
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
BrokerPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Kafka's port; 0 takes a free one.")
]
RestPort = Annotated[int, typer.Option(min=0, max=65535, help="REST port; 0 takes a free one.")]
StateDir = Annotated[Path, typer.Option("--state-dir", help="Folder of data, state and logs.")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        echo(installed_version("icefloe"))
        raise typer.Exit


@app.callback()
def icefloe(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of the program itself; its help text is that of ``app``."""
    del version


@app.command(rich_help_panel=_RUN)
def node(
    properties: Annotated[
        Path | None,
        typer.Option("--properties", "-p", help="Node properties file; ICEFLOE_... replaces keys."),
    ] = None,
) -> None:
    """Run one node: REST API, worker and coordinator."""
    from connect.config.node.node_environment import from_environment  # noqa: PLC0415 - on use

    if properties is None and not from_environment(os.environ):
        raise typer.BadParameter(
            "name a file, or set environment variables such as ICEFLOE_GROUP_ID",
            param_hint="'--properties'",
        )
    from connect.node.node_start import run_node  # noqa: PLC0415 - on use

    _exit_now(ExitStatus.NOT_ASKED if run_node(properties) else ExitStatus.DONE)


@app.command(rich_help_panel=_RUN)
def up(
    state_dir: StateDir = Path("icefloe-state"),
    broker_port: BrokerPort = 9092,
    rest_port: RestPort = 8083,
) -> None:
    """Run a broker, a catalog and a node on this machine until Ctrl-C."""
    from connect.embedded.stack import run_up  # noqa: PLC0415 - on use

    raise typer.Exit(run_up(state_dir, broker_port=broker_port, rest_port=rest_port))


@app.command(rich_help_panel=_RUN)
def demo(
    records: Annotated[int, typer.Option(min=1, help="Payments to produce.")] = 1_000_000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running after.")] = False,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Folder to use; a temporary one if none.")
    ] = None,
    broker_port: BrokerPort = 0,
    rest_port: RestPort = 0,
) -> None:
    """Produce payments, write them to Iceberg tables and check them record by record."""
    from connect.embedded.demo import run_demo  # noqa: PLC0415 - on use

    status = run_demo(
        records=records,
        keep=keep,
        state_dir=state_dir,
        broker_port=broker_port,
        rest_port=rest_port,
    )
    raise typer.Exit(status)


@app.command(rich_help_panel=_RUN)
def version() -> None:
    """Print the version."""
    echo(installed_version("icefloe"))


def add_commands(arguments: Sequence[str], *, is_every: bool = False) -> None:
    """Add the commands of other modules; load only the one that is called.

    Args:
        arguments: of the command line.
        is_every: load all of them.
    """
    is_every = is_every or "_ICEFLOE_COMPLETE" in os.environ
    app.registered_groups.clear()
    app.registered_commands[:] = [c for c in app.registered_commands if c.name not in _COMMANDS]
    for name in sorted(_COMMANDS, key=_place):
        module, text = _COMMANDS[name]
        panel = _PANEL_OF[name]
        if is_every or arguments[:1] == [name]:
            function = getattr(importlib.import_module(module), _FUNCTIONS.get(name, name))
            app.command(name, rich_help_panel=panel)(function)
        else:
            app.command(name, help=text, rich_help_panel=panel)(lambda: None)
    for name, (module, text) in _GROUPS.items():
        if is_every or arguments[:1] == [name]:
            group: typer.Typer = getattr(importlib.import_module(module), f"{name}_app")
        else:
            group = typer.Typer(help=text)
        app.add_typer(group, name=name, rich_help_panel=_PANEL_OF[name])


def _place(command: str) -> int:
    """Return the place of a command in the help text."""
    return list(_PANEL_OF).index(command)


def _exit_now(status: ExitStatus) -> None:
    """End although a thread may still wait for a broker that does not answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A bug: print the stack; Python's own status 1 would say that the answer is no."""
    sys.__excepthook__(kind, error, trace)
    _exit_now(ExitStatus.NOT_ASKED)


def main() -> None:
    """Entry point: one line and a status for every known error."""
    try:
        add_commands(sys.argv[1:])
        app()
    except IcefloeError as e:
        error(str(e))
        sys.exit(e.exit_status)
    except ModuleNotFoundError as e:
        package = (e.name or "").partition(".")[0]
        if package in {"", "connect", "control_schemas", "coordinator", "worker"}:
            raise
        # a client may be installed without the packages of a node
        error(
            f"the package {package}, which this command needs, is not installed: run pip install "
            "icefloe with its dependencies, or let a node do the work (--server)"
        )
        sys.exit(ExitStatus.USAGE)
    finally:
        sys.excepthook = _crashed  # typer has set its own, which ends with status 1


if __name__ == "__main__":
    main()

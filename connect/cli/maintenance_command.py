"""``icefloe maintenance``: compaction and other work on a connector's tables."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from connect.cli.gitops.output import Output, emit, result_text
from connect.cli.rest_client import DEFAULT_URL, Url, ask
from connect.cli.terminal import echo
from connect.java_compat.iso_time import instant_text

maintenance_app = typer.Typer(
    name="maintenance", help="Maintenance of a connector's tables.", no_args_is_help=True
)

Connector = Annotated[str, typer.Argument(help="Name of the connector.")]


@maintenance_app.command()
def status(connector: Connector, url: Url = DEFAULT_URL, output: Output = "table") -> None:
    """Show which work is due, runs, and was done last for each table."""
    _show(connector, ask(url, "GET", connector, "maintenance"), output)


@maintenance_app.command()
def run(connector: Connector, url: Url = DEFAULT_URL, output: Output = "table") -> None:
    """Begin all enabled work on all tables now, also outside of the window."""
    answer = ask(url, "POST", connector, "maintenance", "run")
    emit(output, answer, names=[connector], as_table=lambda: echo(f"{connector}: begins now"))


@maintenance_app.command()
def stop(connector: Connector, url: Url = DEFAULT_URL, output: Output = "table") -> None:
    """Stop the work that runs, and begin none until the next `run` or start of the node."""
    answer = ask(url, "POST", connector, "maintenance", "stop")
    emit(output, answer, names=[connector], as_table=lambda: echo(f"{connector}: stopped"))


def _show(connector: str, view: dict[str, Any], output: Output) -> None:
    def as_table() -> None:
        echo(f"{connector}  {view['state']}")
        for due in view["due"]:
            echo(f"{due['table']}  {due['work']}  due: {due['files']} files")
        for work in view["results"]:
            ended = (
                ""
                if work["state"] == "RUNNING"
                else f"  {instant_text(work['time_ms'] * 1_000_000)}"
            )
            echo(f"{work['table']}  {work['work']}  {work['state']}{ended}  {result_text(work)}")

    emit(output, view, names=[connector], as_table=as_table)

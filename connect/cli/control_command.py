"""The ``icefloe control`` commands: decode control events, rebase offsets, reset the VTTS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.cli.event_json import event_to_json
from connect.cli.gitops.output import Output, Yes, confirm, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask
from connect.cli.terminal import echo
from connect.errors import ExitStatus
from control_schemas.codec import decode
from control_schemas.errors import MalformedEvent

control_app = typer.Typer(
    name="control", help="Decode control events; repair control offsets.", no_args_is_help=True
)

vtts_app = typer.Typer(name="vtts", help="The valid-through time.", no_args_is_help=True)
control_app.add_typer(vtts_app)


def decode_file(path: Path) -> dict[str, Any]:
    """Read one record value of a control topic from a file.

    Returns:
        The event in the JSON form of the recordings.

    Raises:
        MalformedEvent: the file does not hold a control event.
        OSError: the file cannot be read.
    """
    return event_to_json(decode(path.read_bytes()))


@control_app.callback()
def control() -> None:
    """Decode control events; repair control offsets."""


@control_app.command("decode")
def decode_command(
    files: Annotated[list[Path], typer.Argument(help="Record values, one event each.")],
    output: Output = "table",
) -> None:
    """Print control events as JSON, one line each: {"file", "event"} or {"file", "error"}.

    -o json prints one list. Status 1 when a file holds no control event.
    """
    decoded: list[dict[str, Any]] = []
    for path in files:
        line: dict[str, Any] = {"file": path.name}
        try:
            line["event"] = decode_file(path)
        except (MalformedEvent, OSError) as error:
            line["error"] = str(error)
        decoded.append(line)

    def as_table() -> None:
        for line in decoded:
            echo(json.dumps(line, ensure_ascii=False))

    emit(output, decoded, names=[line["file"] for line in decoded], as_table=as_table)
    if any("error" in line for line in decoded):
        raise typer.Exit(ExitStatus.NO)


@control_app.command("rebase")
def rebase_command(
    connector: Annotated[str, typer.Argument(help="Name of the connector; it must be stopped.")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="A table that the configuration does not name."),
    ] = None,
    *,
    url: Url = DEFAULT_URL,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Repair a stopped connector's control offsets after loss of control events or snapshots."""

    def rebase(*, is_applied: bool) -> None:
        body = {"apply": is_applied, "tables": tables or []}
        answer = ask(url, "POST", connector, "control", "rebase", json=body)
        emit(output, answer, names=[connector], as_table=lambda: _print_rebase(answer))

    if not yes:
        rebase(is_applied=False)
        confirm(f"rebase {connector}?", yes=yes)
    rebase(is_applied=True)
    echo(f"done; resume {connector} when you are ready", err=True)


def _print_rebase(answer: Mapping[str, Any]) -> None:
    for sentence in answer["says"]:
        echo(f"- {sentence}")
    for topic, partition, offset in answer["control_offsets"]:
        echo(f"- control offset of {topic}-{partition}: {offset}")
    for table in answer["tables"]:
        if table["code"] is not None:
            repaired = ": its floor is now the group's control offsets" if table["mended"] else ""
            echo(f"- table {table['table']}: {table['code']}: {table['message']}{repaired}")
    echo(answer["then"])


@vtts_app.callback()
def vtts() -> None:
    """The valid-through time."""  # keeps ``reset`` a subcommand while it is the only one


@vtts_app.command("reset")
def reset_command(
    connector: Annotated[str, typer.Argument(help="Name of the connector; it must be stopped.")],
    reason: Annotated[str, typer.Option("--reason", help="Kept in the snapshot of each table.")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="A table that the configuration does not name."),
    ] = None,
    *,
    url: Url = DEFAULT_URL,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Remove a wrong valid-through time, for example after a record dated 2100."""

    def reset(*, is_applied: bool) -> bool:
        body = {"apply": is_applied, "reason": reason, "tables": tables or []}
        answer = ask(url, "POST", connector, "control", "vtts", "reset", json=body)
        emit(output, answer, names=[connector], as_table=lambda: _print_reset(answer))
        return bool(answer["applied"])

    if not yes:
        reset(is_applied=False)
        confirm(f"remove the valid-through times of {connector}?", yes=yes)
    if not reset(is_applied=True):
        echo("not done: fix the errors above, then run the command again", err=True)
        raise typer.Exit(ExitStatus.NO)
    echo(f"done; resume {connector} when you are ready", err=True)


def _print_reset(answer: Mapping[str, Any]) -> None:
    for table in answer["tables"]:
        claims = ", ".join(table["claims"]) or "nothing"
        line = f"- table {table['table']} claims {claims}"
        if table["code"] is not None:
            line = f"- table {table['table']}: {table['code']}: {table['message']}"
        elif table["snapshot_id"] is not None:
            line += f": removed by snapshot {table['snapshot_id']}"
        echo(line)
    if answer["error"] is not None:
        echo(f"- the tables could not be read: {answer['error']}")

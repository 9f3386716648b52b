"""``icefloe get|status|lag|pause|resume|stop|restart`` and ``icefloe offsets``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml

from connect.errors import ConfigError
from connect.gitops.apply import cause
from connect.gitops.commands import node
from connect.gitops.plan import shown
from connect.iso_time import instant_text
from connect.rest_client import DEFAULT_URL, Url
from connect.terminal import echo, table

Name = Annotated[str, typer.Argument(help="Name of the connector.")]
Names = Annotated[list[str], typer.Argument(help="Names of connectors.")]
Maybe = Annotated[list[str] | None, typer.Argument(help="Names of connectors; all without one.")]
Output = Annotated[
    Literal["text", "json", "yaml"],
    typer.Option("--output", "-o", help="For people or for scripts."),
]
_COLORS = {"RUNNING": "green", "FAILED": "red", "PAUSED": "yellow", "STOPPED": "yellow"}

offsets_app = typer.Typer(
    name="offsets", help="Source offsets of a connector.", no_args_is_help=True
)


def get(
    names: Maybe = None,
    server: Url = DEFAULT_URL,
    output: Output = "text",
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show values that may be secrets, too.")
    ] = False,
) -> None:
    """Show connectors and their configuration; json and yaml can be applied, secrets put back."""
    with node(server) as client:
        listed = client.ask("GET", "connectors", expand="info")
    chosen = {name: listed[name]["info"]["config"] for name in _chosen(listed, names)}
    made = [
        {
            "name": name,
            "config": {
                k: v if reveal else shown(k, v) for k, v in sorted(c.items()) if k != "name"
            },
        }
        for name, c in chosen.items()
    ]
    if output == "text":
        table(
            ("connector", "class", "topics", "tables"),
            [
                (
                    name,
                    c.get("connector.class", "").rpartition(".")[2],
                    c.get("topics") or c.get("topics.regex", ""),
                    c.get("iceberg.tables", ""),
                )
                for name, c in chosen.items()
            ],
        )
        return
    _dump(made[0] if names and len(names) == 1 else made, output)


def status(names: Maybe = None, server: Url = DEFAULT_URL, output: Output = "text") -> None:
    """Show how connectors and their tasks are; status 1 when one has failed."""
    with node(server) as client:
        listed = client.ask("GET", "connectors", expand="status")
    chosen = {name: listed[name]["status"] for name in _chosen(listed, names)}
    failed = False
    rows: list[tuple[str, ...]] = []
    for name, told in chosen.items():
        parts = [("", told["connector"]), *((str(t["id"]), t) for t in told["tasks"])]
        for number, part in parts:
            failed = failed or part["state"] == "FAILED"
            why = cause(part) if part.get("trace") else ""
            rows.append((name, number, part["state"], part["worker_id"], why))
    if output == "text":
        table(("connector", "task", "state", "node", "cause"), rows, _COLORS)
    else:
        _dump(list(chosen.values()), output)
    raise typer.Exit(1 if failed else 0)


def lag(
    names: Maybe = None,
    server: Url = DEFAULT_URL,
    output: Output = "text",
    partitions: Annotated[
        bool, typer.Option("--partitions", help="A line for each source partition.")
    ] = False,
) -> None:
    """Show records not yet in files, those in files but in no table, and how far tables are."""
    with node(server) as client:
        chosen = _chosen(dict.fromkeys(client.ask("GET", "connectors")), names)
        told = [client.ask("GET", "icefloe", "v1", "connectors", n, "lag") for n in chosen]
    if output != "text":
        _dump(told, output)
        return
    if partitions:
        fields = ("topic", "partition", "committed_offset", "end_offset", "lag")
        listed = [(t["connector"], p) for t in told for p in t["partitions"]]
        rows = [(name, *(_cell(p[field]) for field in fields)) for name, p in listed]
        table(("connector", "topic", "partition", "next offset", "end", "lag"), rows)
        return
    rows = [
        (
            found["connector"],
            _cell(found["not_in_files"]),
            _cell(found["in_files_not_committed"]),
            _instant(found["valid_through_ms"]),
        )
        for found in told
    ]
    table(("connector", "not in files", "in files, not committed", "valid through"), rows)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _instant(at_ms: int | None) -> str:
    return "-" if at_ms is None else instant_text(at_ms * 1_000_000)


def pause(names: Names, server: Url = DEFAULT_URL) -> None:
    """Let connectors rest; their tasks keep what they hold."""
    _each(server, names, "PUT", "pause", "paused")


def resume(names: Names, server: Url = DEFAULT_URL) -> None:
    """Let paused or stopped connectors go on."""
    _each(server, names, "PUT", "resume", "resumed")


def stop(names: Names, server: Url = DEFAULT_URL) -> None:
    """End the tasks of connectors; their configuration and offsets stay."""
    _each(server, names, "PUT", "stop", "stopped")


def restart(
    names: Names,
    server: Url = DEFAULT_URL,
    tasks: Annotated[bool, typer.Option("--include-tasks", help="Their tasks, too.")] = False,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Only what has failed.")
    ] = False,
    task: Annotated[
        int | None, typer.Option(min=0, help="This task only; one connector then.")
    ] = None,
) -> None:
    """Start connectors again, or their tasks."""
    if task is not None:
        if len(names) != 1 or tasks or only_failed:
            raise ConfigError("--task goes with one connector and no other option", code="usage")
        with node(server) as client:
            client.ask("POST", "connectors", names[0], "tasks", str(task), "restart")
        echo(f"{names[0]} task {task} restarts")
        return
    flags = {"includeTasks": str(tasks).lower(), "onlyFailed": str(only_failed).lower()}
    _each(server, names, "POST", "restart", "restarts", **flags)


@offsets_app.command("show")
def show_offsets(name: Name, server: Url = DEFAULT_URL, output: Output = "text") -> None:
    """Show the next source offset of each partition."""
    with node(server) as client:
        told = client.ask("GET", "connectors", name, "offsets")
    if output != "text":
        _dump(told, output)
        return
    rows: list[tuple[str, ...]] = []
    for entry in told["offsets"]:
        at, offset = entry["partition"], entry["offset"] or {}
        rows.append(
            (at["kafka_topic"], str(at["kafka_partition"]), str(offset.get("kafka_offset", "-")))
        )
    table(("topic", "partition", "next offset"), sorted(rows))


@offsets_app.command("alter")
def alter_offsets(
    name: Name,
    file: Annotated[
        Path,
        typer.Option("--file", "-f", help="JSON in the form of `offsets show -o json`."),
    ],
    server: Url = DEFAULT_URL,
) -> None:
    """Set source offsets of a stopped connector."""
    try:
        wanted = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise ConfigError(f"{file} cannot be used: {e}", code="file") from e
    with node(server) as client:
        echo(_message(client.ask("PATCH", "connectors", name, "offsets", json=wanted)))


@offsets_app.command("reset")
def reset_offsets(name: Name, server: Url = DEFAULT_URL) -> None:
    """Forget the source offsets of a stopped connector: it begins as a new one does."""
    with node(server) as client:
        echo(_message(client.ask("DELETE", "connectors", name, "offsets")))


def _each(
    server: str, names: list[str], method: str, what: str, done: str, **parameters: str
) -> None:
    with node(server) as client:
        for name in names:
            client.ask(method, "connectors", name, what, **parameters)
            echo(f"{name} {done}")


def _chosen(listed: Mapping[str, Any], names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in listed:
            known = ", ".join(sorted(listed)) or "none"
            raise ConfigError(
                f"there is no connector {name!r}; there are: {known}", code="connector_unknown"
            )
    return list(names or sorted(listed))


def _message(answer: Any) -> str:
    return str(answer["message"]) if isinstance(answer, dict) and "message" in answer else "done"


def _dump(value: Any, output: str) -> None:
    if output == "json":
        echo(json.dumps(value, indent=2))
    elif isinstance(value, list):
        echo(yaml.safe_dump_all(value, sort_keys=False), nl=False)
    else:
        echo(yaml.safe_dump(value, sort_keys=False), nl=False)

"""Commands for the connectors of a node, such as ``get``, ``lag`` and ``pause``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from connect.cli.gitops.commands import change_lines, node
from connect.cli.gitops.connector_files import read_keys
from connect.cli.gitops.output import Output, confirm, emit
from connect.cli.gitops.plan import KeyChange, displayed
from connect.cli.rest_client import DEFAULT_URL, NodeClient, RefusedError, Url
from connect.cli.terminal import echo, lines, table
from connect.errors import ConfigError, ExitStatus
from connect.java_compat.iso_time import instant_text

Names = Annotated[list[str], typer.Argument(help="Names of connectors.")]
AnyNames = Annotated[list[str] | None, typer.Argument(help="Names of connectors; default: all.")]
COLORS: Final = {
    "RUNNING": "green",
    "COMPLETED": "green",
    "FAILED": "red",
    "PAUSED": "yellow",
    "STOPPED": "yellow",
}
_NOT_FOUND: Final = 404
_KINDS: Final = frozenset({"connector", "connectors"})


def get(
    names: AnyNames = None,
    server: Url = DEFAULT_URL,
    output: Output = "table",
    reveal: Annotated[bool, typer.Option("--reveal", help="Do not mask possible secrets.")] = False,
) -> None:
    """List connectors, or print their configuration; apply accepts the json and yaml forms.

    The names may follow the kind, as in `icefloe get connectors`.
    """
    with node(server) as client:
        listed = client.ask("GET", "connectors", expand="info")
    chosen = {name: listed[name]["info"]["config"] for name in chosen_names(listed, names)}
    connectors = [
        {
            "name": name,
            "config": {
                k: v if reveal else displayed(k, v) for k, v in sorted(c.items()) if k != "name"
            },
        }
        for name, c in chosen.items()
    ]

    def as_table() -> None:
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

    is_one = names == list(chosen) and len(connectors) == 1
    emit(output, connectors[0] if is_one else connectors, names=chosen, as_table=as_table)


def lag(
    names: AnyNames = None,
    server: Url = DEFAULT_URL,
    output: Output = "table",
    partitions: Annotated[
        bool, typer.Option("--partitions", help="A line for each source partition.")
    ] = False,
) -> None:
    """Show records not yet in files, records in uncommitted files, and the valid-through time."""
    with node(server) as client:
        chosen = chosen_names(dict.fromkeys(client.ask("GET", "connectors")), names)
        lags = [client.ask("GET", "icefloe", "v1", "connectors", n, "lag") for n in chosen]

    def as_table() -> None:
        if partitions:
            lag_partitions([(entry["connector"], p) for entry in lags for p in entry["partitions"]])
            return
        rows = [
            (
                entry["connector"],
                cell(entry["not_in_files"]),
                cell(entry["in_files_not_committed"]),
                instant(entry["valid_through_ms"]),
            )
            for entry in lags
        ]
        table(("connector", "not in files", "in files, not committed", "valid through"), rows)

    emit(output, lags, names=chosen, as_table=as_table)


def lag_partitions(listed: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Print the lag of source partitions with their connectors."""
    fields = ("topic", "partition", "committed_offset", "end_offset", "lag")
    rows = [(name, *(cell(p[field]) for field in fields)) for name, p in listed]
    table(("connector", "topic", "partition", "next offset", "end", "lag"), rows)


def cell(value: object) -> str:
    """Format a table cell; None becomes a dash."""
    return "-" if value is None else str(value)


def instant(at_ms: int | None) -> str:
    """Format an instant for a table cell; None becomes a dash."""
    return "-" if at_ms is None else instant_text(at_ms * 1_000_000)


def patch(
    name: Annotated[str, typer.Argument(help="Name of the connector.")],
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys to set.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="JSON or YAML object of keys; null removes a key."),
    ] = None,
    removed: Annotated[
        list[str] | None, typer.Option("--remove", help="Key to remove; may be repeated.")
    ] = None,
    *,
    server: Url = DEFAULT_URL,
    output: Output = "table",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change; status 1 if it would.")
    ] = False,
) -> None:
    """Change keys of a connector's configuration; the other keys stay.

    Pass secrets as references or in a file: other users can read the arguments of a command.
    """
    patched_keys = _wanted(pairs or (), file, removed or ())
    with node(server) as client:
        before = client.ask("GET", "connectors", name, "config")
        changes = [
            KeyChange(key, before.get(key), value)
            for key, value in sorted(patched_keys.items())
            if before.get(key) != value
        ]
        if changes and not dry_run:
            client.ask("PATCH", "connectors", name, "config", json=patched_keys)

    def as_table() -> None:
        lines(change_lines(changes))
        verb = "would change" if dry_run else "changed"
        echo(f"{name}: {len(changes)} key(s) {verb}")

    data = {"connector": name, "changes": [change.to_json() for change in changes]}
    emit(output, data, names=[name], as_table=as_table)
    if dry_run and changes:
        raise typer.Exit(ExitStatus.NO)


def _wanted(
    pairs: Sequence[str], file: Path | None, removed: Sequence[str]
) -> dict[str, str | None]:
    """Return the keys with their new values; None stands for a removed key.

    Raises:
        ConfigError: there is no key, a key is duplicate, or an argument is not KEY=VALUE or may
            contain a secret.
    """
    pairs_listed: list[tuple[str, str | None]] = (
        [] if file is None else list(read_keys(file).items())
    )
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"{pair!r} is not KEY=VALUE; use --remove to remove a key", code="usage"
            )
        if displayed(key, value) != value:
            raise ConfigError(
                f"the value of {key} may be a secret, and other users can read arguments: put a "
                f"reference such as ${{file:/etc/icefloe/secrets.properties:{key}}}, or use -f",
                code="usage",
            )
        pairs_listed.append((key, value))
    pairs_listed += [(key, None) for key in removed]
    patched_keys = dict(pairs_listed)
    if len(patched_keys) != len(pairs_listed):
        raise ConfigError("a key is given twice; give each key once", code="usage")
    if not patched_keys:
        raise ConfigError("nothing to change: give KEY=VALUE, -f or --remove", code="usage")
    return patched_keys


def delete(
    names: Names,
    server: Url = DEFAULT_URL,
    output: Output = "table",
    ignore_missing: Annotated[
        bool,
        typer.Option("--ignore-not-found", help="Skip connectors that do not exist."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without a question.")] = False,
) -> None:
    """Delete connectors; offsets in their consumer groups, tables and topics are kept.

    It asks on a terminal. Without a terminal it needs --yes.
    """
    if not yes:
        echo(f"would delete {', '.join(names)}; offsets, tables and topics are kept", err=True)
    confirm(f"delete {len(names)} connector(s)?", yes=yes)

    def request(client: NodeClient, name: str) -> str:
        try:
            client.ask("DELETE", "connectors", name)
        except RefusedError as e:
            if not ignore_missing or e.status != _NOT_FOUND:
                raise
            return "did not exist"
        return "deleted"

    _each(server, names, output, request)


def pause(names: Names, server: Url = DEFAULT_URL, output: Output = "table") -> None:
    """Pause connectors; their tasks stay allocated but do not read."""
    _each(server, names, output, _request("PUT", "pause", "paused"))


def resume(names: Names, server: Url = DEFAULT_URL, output: Output = "table") -> None:
    """Resume paused or stopped connectors."""
    _each(server, names, output, _request("PUT", "resume", "resumed"))


def stop(names: Names, server: Url = DEFAULT_URL, output: Output = "table") -> None:
    """Stop connectors and their tasks; configuration and offsets are kept."""
    _each(server, names, output, _request("PUT", "stop", "stopped"))


def restart(
    names: Names,
    server: Url = DEFAULT_URL,
    *,
    output: Output = "table",
    tasks: Annotated[bool, typer.Option("--include-tasks", help="Also restart the tasks.")] = False,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Restart only failed connectors and tasks.")
    ] = False,
    task: Annotated[
        int | None, typer.Option(min=0, help="Restart only this task; needs exactly one name.")
    ] = None,
) -> None:
    """Restart connectors or their tasks."""
    if task is not None and (len(names) != 1 or tasks or only_failed):
        raise ConfigError(
            "--task needs exactly one connector and no other restart option", code="usage"
        )
    if task is not None:
        outcome = f"task {task} restarts"
        _each(server, names, output, _request("POST", ("tasks", str(task), "restart"), outcome))
        return
    flags = {"includeTasks": str(tasks).lower(), "onlyFailed": str(only_failed).lower()}
    _each(server, names, output, _request("POST", "restart", "restarts", **flags))


def _request(
    method: str, action: str | tuple[str, ...], done: str, **parameters: str
) -> Callable[[NodeClient, str], str]:
    path = (action,) if isinstance(action, str) else action

    def request(client: NodeClient, name: str) -> str:
        client.ask(method, "connectors", name, *path, **parameters)
        return done

    return request


def _each(
    server: str, names: list[str], output: str, request: Callable[[NodeClient, str], str]
) -> None:
    """Send a request for each connector; print the completed ones even after an error."""
    done: dict[str, str] = {}

    def as_table() -> None:
        for name, result in done.items():
            echo(f"{name} {result}")

    try:
        with node(server) as client:
            for name in names:
                done[name] = request(client, name)
    finally:
        emit(
            output,
            [{"connector": name, "result": result} for name, result in done.items()],
            names=done,
            as_table=as_table,
        )


def chosen_names(listed: Mapping[str, Any], names: list[str] | None) -> list[str]:
    """Return the connectors with these names; without names, all connectors.

    Raises:
        RefusedError: there is no connector with one of the names.
    """
    if names and names[0] in _KINDS and names[0] not in listed:
        names = names[1:]
    for name in names or ():
        if name not in listed:
            existing = ", ".join(sorted(listed)) or "none"
            raise RefusedError(
                f"there is no connector {name!r}; existing connectors: {existing}",
                status=_NOT_FOUND,
            )
    return list(names or sorted(listed))

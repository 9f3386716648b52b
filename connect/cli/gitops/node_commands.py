"""Commands for a node and its cluster: ``cluster``, ``plugins``, ``loggers``, ``logs``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import typer

from connect.cli.gitops.commands import node
from connect.cli.gitops.connectors import cell, instant
from connect.cli.gitops.output import Output, emit
from connect.cli.rest_client import DEFAULT_URL, Url
from connect.cli.terminal import echo, table
from connect.clock import SystemClock
from connect.errors import ConfigError

_LOG_NAMES: Final = ("node", "worker", "coordinator", "maintenance")
_POLL_MS: Final = 500
_LINE_BYTES: Final = 1024
"""Bytes that are first read from the end of a log file, for each requested line."""


def cluster(
    server: Url = DEFAULT_URL,
    output: Output = "table",
    placements: Annotated[
        bool, typer.Option("--placements", help="List connectors instead of nodes.")
    ] = False,
) -> None:
    """Show the nodes, the leader, versions and the placement of connectors."""
    with node(server) as client:
        about = client.ask("GET")
        status = client.ask("GET", "icefloe", "v1", "cluster")
    data = {
        **status,
        "kafka_version": about["version"],
        "kafka_cluster_id": about["kafka_cluster_id"],
    }
    placed: Mapping[str, Any] = status["placements"]

    def as_table() -> None:
        if placements:
            table(
                ("connector", "coordinator", "tasks"),
                [(c, cell(p["coordinator"]), " ".join(p["tasks"])) for c, p in placed.items()],
            )
            return
        coordinators = Counter(placement["coordinator"] for placement in placed.values())
        tasks = Counter(owner for placement in placed.values() for owner in placement["tasks"])
        rows = [
            (
                worker["worker_id"],
                "leader" if worker["worker_id"] == status["leader"] else "",
                "draining" if worker["draining"] else " ".join(worker["ready"]) or "starting",
                worker["version"],
                str(coordinators[worker["worker_id"]]),
                str(tasks[worker["worker_id"]]),
                worker["url"],
            )
            for worker in status["nodes"]
        ]
        table(("node", "role", "ready", "version", "coordinators", "tasks", "url"), rows)

    names = placed if placements else [worker["worker_id"] for worker in status["nodes"]]
    emit(output, data, names=names, as_table=as_table)


def plugins(
    name: Annotated[
        str | None, typer.Argument(metavar="[CLASS]", help="Show the keys of this plugin.")
    ] = None,
    server: Url = DEFAULT_URL,
    output: Output = "table",
) -> None:
    """List the plugins (connectors, converters, transformations, predicates) or one's keys."""
    with node(server) as client:
        if name is None:
            entries = client.ask("GET", "connector-plugins", connectorsOnly="false")
            columns: tuple[str, ...] = ("class", "type", "version")
        else:
            entries = client.ask("GET", "connector-plugins", name, "config")
            columns = ("name", "type", "default_value", "importance", "documentation")

    def as_table() -> None:
        table(columns, [[cell(entry.get(column)) for column in columns] for entry in entries])

    emit(output, entries, names=[entry[columns[0]] for entry in entries], as_table=as_table)


def loggers(
    name: Annotated[str | None, typer.Argument(help="Name of a logger; default: all.")] = None,
    level: Annotated[
        str | None, typer.Argument(help="New level of this logger and its children, e.g. DEBUG.")
    ] = None,
    server: Url = DEFAULT_URL,
    output: Output = "table",
    scope: Annotated[
        Literal["worker", "cluster"],
        typer.Option(help="Set the level on this node (worker), or on every node (cluster)."),
    ] = "worker",
) -> None:
    """Show or set log levels of a node; scope cluster includes its child processes."""
    entries: dict[str, dict[str, Any]]
    with node(server) as client:
        if name is None:
            entries = client.ask("GET", "admin", "loggers")
        elif level is None:
            entries = {name: client.ask("GET", "admin", "loggers", name)}
        else:
            body = {"level": level}
            changed = client.ask("PUT", "admin", "loggers", name, json=body, scope=scope)
            # scope cluster is applied through the config topic: the answer names no logger
            entry = {"level": level.upper(), "last_modified": None}
            entries = dict.fromkeys(changed or (), entry)

    def as_table() -> None:
        if level is not None and scope == "cluster":
            echo(f"{name} becomes {level.upper()} on every node")
            return
        rows = [(n, str(e["level"]), instant(e["last_modified"])) for n, e in entries.items()]
        table(("logger", "level", "set at"), rows)

    emit(output, entries, names=entries, as_table=as_table)


def logs(
    process: Annotated[
        Literal["node", "worker", "coordinator", "maintenance"] | None,
        typer.Argument(help="Process; default: all that have a log file."),
    ] = None,
    state_dir: Annotated[
        Path, typer.Option("--state-dir", help="The node's icefloe.state.dir, or that of `up`.")
    ] = Path("icefloe-state"),
    count: Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines of each.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Print log files of a node on this machine: JSON lines, secrets masked.

    A node writes its own log to standard error: in a container, use `docker logs` or `kubectl
    logs`. Its worker, coordinator and maintenance processes write to files in the state folder, or
    with icefloe.log.output=stdout to the standard output of the node.
    """
    log_names = _LOG_NAMES if process is None else (process,)
    files = [file for name in log_names for file in sorted(state_dir.rglob(f"{name}.log"))]
    if not files:
        raise ConfigError(
            f"no {' or '.join(f'{name}.log' for name in log_names)} in {state_dir}: run the "
            "command on the node's machine and set --state-dir to the node's icefloe.state.dir",
            code="logs_missing",
        )
    read: dict[Path, int] = {}
    for file in files:
        text, read[file] = _last_lines(file, count)
        echo(text, nl=False)
    clock = SystemClock()
    while follow:
        for file in files:
            for text in _new_lines(file, read):
                echo(text, nl=False)
        clock.sleep_ms(_POLL_MS)


def _last_lines(file: Path, count: int) -> tuple[str, int]:
    """Return the last lines of a file, and the position after them."""
    with _opened(file) as content:
        end = content.seek(0, 2)
        size = min(end, max(1, count) * _LINE_BYTES)
        while True:
            content.seek(end - size)
            lines = content.read(size).splitlines(keepends=True)
            if len(lines) > count or size == end:
                break
            size = min(end, 2 * size)
    return b"".join(lines[-count:] if count else ()).decode("utf-8", "replace"), end


def _new_lines(file: Path, read: dict[Path, int]) -> Iterator[str]:
    """Yield complete lines after the position; a truncated file is read from its start."""
    with _opened(file) as content:
        if content.seek(0, 2) < read[file]:
            read[file] = 0
        content.seek(read[file])
        whole, end, _ = content.read().rpartition(b"\n")
    if end:
        read[file] += len(whole) + 1
        yield (whole + end).decode("utf-8", "replace")


def _opened(file: Path) -> IO[bytes]:
    try:
        return file.open("rb")
    except OSError as e:
        raise ConfigError(f"{file} cannot be read: {e.strerror}", code="logs_unreadable") from e

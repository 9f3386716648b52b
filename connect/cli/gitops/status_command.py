"""``icefloe status``: states of connectors and tasks, and maintenance of their tables.

Rules of this file:
- Maintenance is requested only for connectors whose configuration enables it, from the node of the
  connector's coordinator. If that node does not answer, the reason is shown.
- Failed maintenance is not a failed connector: it does not change the exit status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from connect.cli.gitops.apply import cause
from connect.cli.gitops.commands import node
from connect.cli.gitops.connectors import COLORS, AnyNames, chosen_names, instant
from connect.cli.gitops.output import Output, emit, result_text
from connect.cli.rest_client import DEFAULT_URL, NodeClient, RefusedError, Url
from connect.cli.terminal import clear, echo, error, table
from connect.clock import SystemClock
from connect.errors import ExitStatus, IcefloeError

_STATES: Final = ("connector", "task", "state", "node", "cause")
_MAINTENANCE: Final = ("connector", "table", "maintenance", "state", "due files", "ended", "result")
_ENABLING: Final = tuple(
    f"iceberg.maintenance.{work}.enabled"
    for work in ("rewrite-data-files", "rewrite-manifests", "remove-orphan-files")
)

Row = tuple[str, ...]


def status(
    names: AnyNames = None,
    server: Url = DEFAULT_URL,
    output: Output = "table",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Print every change until Ctrl-C.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between requests of --watch.")
    ] = 2.0,
) -> None:
    """Show the states of connectors, tasks and maintenance. Exit status 1 if one has failed.

    Failed maintenance does not count: the connector continues.
    """
    with node(server) as client:

        def read() -> dict[str, Any]:
            return _read(client, names)

        if watch:
            _watch(read, output, interval_s)
        chosen = read()
    _show(chosen, output)
    has_failed = any(row[2] == "FAILED" for row in _state_rows(chosen))
    raise typer.Exit(ExitStatus.NO if has_failed else ExitStatus.DONE)


def _read(client: NodeClient, names: list[str] | None) -> dict[str, Any]:
    listed = client.ask("GET", "connectors", expand=["status", "info"])
    statuses: dict[str, Any] = {}
    for name in chosen_names(listed, names):
        statuses[name] = dict(listed[name]["status"])
        config = listed[name]["info"]["config"]
        if any(config.get(key, "").strip().lower() == "true" for key in _ENABLING):
            statuses[name]["maintenance"] = _maintenance(client, name)
    return statuses


def _maintenance(client: NodeClient, name: str) -> dict[str, Any]:
    try:
        view = client.ask("GET", "icefloe", "v1", "connectors", name, "maintenance")
    except RefusedError as e:
        return {"state": None, "due": [], "results": [], "message": e.message}
    return {key: view[key] for key in ("state", "due", "results")}


def _watch(read: Callable[[], dict[str, Any]], output: str, interval_s: float) -> None:
    """Print states repeatedly: all of them on a terminal, else only the changed ones."""
    clock = SystemClock()
    before: dict[str, Any] | None = None
    problem = ""
    while True:
        try:
            now = read()
        except IcefloeError as e:
            if before is None or e.exit_status != ExitStatus.NOT_ASKED:
                raise
            if str(e) != problem:
                problem = str(e)
                error(problem)
        else:
            if now != before and (output != "table" or clear()):
                _show(now, output)
            elif now != before:
                _print(now, before or {})
            before, problem = now, ""
        clock.sleep_ms(int(interval_s * 1000))


def _show(chosen: Mapping[str, Any], output: str) -> None:
    emit(output, list(chosen.values()), names=chosen, as_table=lambda: _print(chosen, {}))


def _print(chosen: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Print the rows that were not there before."""
    printed = {*_state_rows(before), *_maintenance_rows(before)}
    states = [row for row in _state_rows(chosen) if row not in printed]
    maintained = [row for row in _maintenance_rows(chosen) if row not in printed]
    if states or not maintained:
        table(_STATES, states, COLORS)
    if maintained:
        if states:
            echo("")
        table(_MAINTENANCE, maintained, COLORS)


def _state_rows(chosen: Mapping[str, Any]) -> Iterator[Row]:
    for name, connector_status in chosen.items():
        for number, part in (
            ("", connector_status["connector"]),
            *((str(task["id"]), task) for task in connector_status["tasks"]),
        ):
            why = cause(part) if part.get("trace") else ""
            yield name, number, part["state"], part["worker_id"], why


def _maintenance_rows(chosen: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the state of a connector's maintenance, then each work of each table."""
    for name, connector_status in chosen.items():
        view = connector_status.get("maintenance")
        if view is None:
            continue
        yield name, "", "", view["state"] or "-", "", "", view.get("message", "")
        due = {(item["table"], item["work"]): item["files"] for item in view["due"]}
        results = {(result["table"], result["work"]): result for result in view["results"]}
        for key in sorted({*due, *results}):
            files, last = due.get(key), results.get(key)
            yield (
                name,
                *key,
                "DUE" if last is None else last["state"],
                "" if files is None else str(files),
                "" if last is None or last["state"] == "RUNNING" else instant(last["time_ms"]),
                "" if last is None else result_text(last),
            )

"""``icefloe describe``: all information of a node about one connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from connect.cli.gitops.apply import cause
from connect.cli.gitops.commands import node
from connect.cli.gitops.connectors import COLORS, cell, instant, lag_partitions
from connect.cli.gitops.output import Output, emit
from connect.cli.gitops.plan import displayed
from connect.cli.rest_client import DEFAULT_URL, NodeClient, RefusedError, Url
from connect.cli.terminal import echo, table
from connect.config.debezium_preset import preset_values
from connect.java_compat.iso_time import instant_text

_NS_PER_US = 1000


def describe(
    name: Annotated[str, typer.Argument(help="Name of the connector.")],
    server: Url = DEFAULT_URL,
    output: Output = "table",
) -> None:
    """Show states, tasks, tables, last commit, lag and configuration of one connector.

    Possible secrets are masked. A value that the node cannot provide is null; the reason is in
    "missing".
    """
    with node(server) as client:
        description = _described(client, name)
    emit(output, description, names=[name], as_table=lambda: _print(description))


def _described(client: NodeClient, name: str) -> dict[str, Any]:
    connector = client.ask("GET", "connectors", name)
    state = client.ask("GET", "connectors", name, "status")
    missing: dict[str, str] = {}

    def view(part: str) -> Any:
        try:
            return client.ask("GET", "icefloe", "v1", "connectors", name, part)
        except RefusedError as e:
            missing[part] = e.message
            return None

    def summary() -> Mapping[str, Any]:
        try:
            overview = client.ask("GET", "icefloe", "v1", "overview")
        except RefusedError as e:
            missing["overview"] = e.message
            return {}
        own: Iterator[Mapping[str, Any]] = (c for c in overview["connectors"] if c["name"] == name)
        return next(own, {})

    rounds, tables, lag = view("rounds"), view("tables"), view("lag")
    own = summary()
    last = rounds["rounds"][-1] if rounds and rounds["rounds"] else None
    return {
        "name": name,
        "type": connector["type"],
        "connector": state["connector"],
        "coordinator_process": own.get("coordinator_process"),
        "records_read": own.get("records_read"),
        "record_path": own.get("record_path"),
        "tasks": state["tasks"],
        "last_commit": last,
        "valid_through_ms": lag["valid_through_ms"] if lag else None,
        "lag": lag and {k: v for k, v in lag.items() if k not in {"connector", "valid_through_ms"}},
        "tables": tables and tables["tables"],
        "config": {
            key: displayed(key, value) for key, value in sorted(connector["config"].items())
        },
        "preset": dict(preset_values(connector["config"])),
        "missing": missing,
    }


def _print(description: Mapping[str, Any]) -> None:
    state = description["connector"]
    lag = description["lag"] or {}
    echo(f"name: {description['name']}")
    echo(f"state: {state['state']} on {state['worker_id']}")
    echo(f"coordinator process: {cell(description['coordinator_process'])}")
    if state.get("trace"):
        echo(f"cause: {cause(state)}")
    echo(f"valid through: {instant(description['valid_through_ms'])}")
    echo(f"records not in files: {cell(lag.get('not_in_files'))}")
    echo(f"records in files, not committed: {cell(lag.get('in_files_not_committed'))}")
    echo(f"records read: {cell(description['records_read'])}")
    echo(f"processed one by one: {_share(description['record_path'], description['records_read'])}")
    echo(f"last commit: {_commit(description['last_commit'])}")
    for part, reason in description["missing"].items():
        echo(f"missing: {part}: {reason}")
    echo("\ntasks:")
    table(
        ("task", "state", "node", "cause"),
        [
            (str(t["id"]), t["state"], t["worker_id"], cause(t) if t.get("trace") else "")
            for t in description["tasks"]
        ],
        COLORS,
    )
    echo("\ntables:")
    table(
        ("table", "state", "snapshot", "cause"),
        [_table_row(t) for t in description["tables"] or ()],
    )
    echo("\nsource partitions:")
    lag_partitions([(description["name"], p) for p in lag.get("partitions", ())])
    echo("\nconfiguration:")
    for key, value in description["config"].items():
        echo(f"{key}={value}")
    for key, value in description["preset"].items():
        echo(f"{key}={value} (preset)")


def _share(part: int | None, whole: int | None) -> str:
    """Format a number of records and its percentage."""
    return f"{part} ({part / whole:.2%})" if part is not None and whole else cell(part)


def _table_row(status: Mapping[str, Any]) -> tuple[str, str, str, str]:
    has_failed = status["state"] == "FAILED"
    why = f"{status['code']}: {status['message']}" if has_failed else ""
    return status["table"], status["state"], cell(status.get("snapshot_id")), why


def _commit(last: Mapping[str, Any] | None) -> str:
    """Format the last commit round as one line."""
    if last is None:
        return "none since the node started"
    claimed_us = last.get("valid_through_us")
    claim = "unknown" if claimed_us is None else instant_text(claimed_us * _NS_PER_US)
    kind = "partial commit" if last["partial"] else "commit"
    return (
        f"{kind} {last['commit_id']}: {last['records']} records in {len(last['tables'])} table(s), "
        f"{last['duration_ms']} ms, valid through {claim}"
    )

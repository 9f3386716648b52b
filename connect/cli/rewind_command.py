"""``icefloe rewind CONNECTOR``: tables and source offsets back to an earlier commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from connect.cli.gitops.commands import node
from connect.cli.gitops.output import Output, Yes, confirm, emit
from connect.cli.rest_client import DEFAULT_URL, NodeClient, Url
from connect.cli.terminal import echo
from connect.errors import ConfigError, ExitStatus, IcefloeError

_REPEAT = "a rewind that was begun is finished by: icefloe rewind {name} --yes"


def rewind(
    connector: Annotated[str, typer.Argument(help="Name of the connector.")],
    *,
    to_timestamp: Annotated[
        str | None,
        typer.Option(help="Last commit at or before: ISO instant, or milliseconds since 1970."),
    ] = None,
    to_snapshot: Annotated[
        int | None, typer.Option(min=0, help="Commit that made this snapshot, of any table.")
    ] = None,
    to_offsets: Annotated[
        list[str] | None,
        typer.Option(help="TOPIC:PARTITION:OFFSET: last commit that is not above; repeatable."),
    ] = None,
    is_to_beginning: Annotated[
        bool,
        typer.Option("--to-beginning", "--reload", help="Empty the tables and load all again."),
    ] = False,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="A table that the configuration does not name."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this table, if its topics feed no other one; repeatable."),
    ] = None,
    accept: Annotated[
        list[str] | None, typer.Option(help="Code of a problem to accept; repeatable.")
    ] = None,
    is_cancelled: Annotated[
        bool,
        typer.Option("--cancel", help="Cancel a rewind that was begun; no table was taken back."),
    ] = False,
    is_replaced: Annotated[
        bool,
        typer.Option("--replace", help="Begin this rewind in place of one that was begun."),
    ] = False,
    url: Url = DEFAULT_URL,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Take a connector back to one of its commits, without doubled or lost rows.

    Stops the connector, takes tables and source offsets back, and resumes it. Without a place to go
    back to, it finishes a rewind that was begun.
    """
    body = {
        "timestamp_ms": None if to_timestamp is None else _milliseconds(to_timestamp),
        "snapshot_id": to_snapshot,
        "offsets": [_position(text) for text in to_offsets or ()],
        "beginning": is_to_beginning,
        "tables": tables or [],
        "only": only or [],
        "accept": accept or [],
        "cancel": is_cancelled,
        "replace": is_replaced,
    }
    with node(url) as client:
        _run(client, connector, body, output, yes=yes)


def _run(
    client: NodeClient, connector: str, body: Mapping[str, Any], output: Output, *, yes: bool
) -> None:
    """Show the plan; once it is confirmed, stop the connector and apply it."""

    def ask(*, is_applied: bool) -> Mapping[str, Any]:
        path = ("icefloe", "v1", "connectors", connector, "rewind")
        request = {**body, "apply": is_applied}
        answer: Mapping[str, Any] = client.ask("POST", *path, json=request)
        return answer

    def show(answer: Mapping[str, Any]) -> None:
        emit(output, answer, names=[connector], as_table=lambda: _print(answer))

    plan = ask(is_applied=False)
    if not yes or _open(plan):
        show(plan)
        _refuse_open(plan)
        action = "cancel the rewind of" if body["cancel"] else "rewind"
        confirm(f"{action} {connector}?", yes=yes)
    before = _state(client, connector)
    client.ask("PUT", "connectors", connector, "stop")
    try:
        answer = ask(is_applied=True)
    except IcefloeError:
        echo(f"{connector} is stopped; {_REPEAT.format(name=connector)}", err=True)
        raise
    show(answer)
    if answer["cancelled"]:
        echo(f"the rewind of {connector} is cancelled; resume it when you are ready", err=True)
        return
    _end(client, connector, before, answer)


def _end(client: NodeClient, connector: str, before: str, answer: Mapping[str, Any]) -> None:
    """Let the connector continue as it did before, or say what is left to do."""
    is_resumed = before != "STOPPED" and not answer["begun"]
    if is_resumed:
        target = "pause" if before == "PAUSED" else "resume"
        client.ask("PUT", "connectors", connector, target)
    if answer["applied"]:
        then = "it continues" if is_resumed else "resume it when you are ready"
        echo(f"{connector} is rewound; {then}", err=True)
        return
    _refuse_open(answer)
    echo(
        f"not finished: {connector} stays stopped. Repair what is named above, then "
        f"{_REPEAT.format(name=connector)}; or add --cancel, or --replace with another place",
        err=True,
    )
    raise typer.Exit(ExitStatus.NO)


def _state(client: NodeClient, connector: str) -> str:
    status = client.ask("GET", "connectors", connector, "status")
    return str(status["connector"]["state"])


def _open(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the problems that are not accepted."""
    return [problem for problem in answer["problems"] if not problem["accepted"]]


def _refuse_open(answer: Mapping[str, Any]) -> None:
    """End when a problem forbids the rewind; the plan has been printed before."""
    problems = _open(answer)
    if not problems:
        return
    how = ""
    if all(problem["acceptable"] for problem in problems):
        codes = sorted({problem["code"] for problem in problems})
        how = "; to rewind all the same, add " + " ".join(f"--accept {code}" for code in codes)
    echo(f"nothing was changed{how}", err=True)
    raise typer.Exit(ExitStatus.NO)


def _print(answer: Mapping[str, Any]) -> None:
    for line in lines(answer):
        echo(line)


def lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Return a plan as text: the commit, tables, source offsets, problems and results."""
    commit = answer["commit"]
    if commit is None:
        yield "back to the beginning: rows of the connector are removed and loaded again"
    else:
        yield (
            f"back to the commit of {commit['committed_at']} (snapshot {commit['snapshot_id']} of "
            f"{commit['table']})"
        )
    for table in answer["tables"]:
        target = table["target_snapshot_id"]
        where = "no rows" if target is None else f"the rows of snapshot {target}"
        counts = ""
        if "rows" in table:
            counts = (
                f": {table['snapshots_removed']} snapshots leave the branch, "
                f"{_number(table['rows'])} rows become {_number(table['rows_after'])}"
            )
        yield f"- table {table['table']} keeps {where}{counts}"
    for topic, partition, now, to in answer["source_offsets"]:
        yield f"- source offset of {topic}-{partition}: {_number(now)} -> {to}"
    for sentence in answer["says"]:
        yield f"- {sentence}"
    for problem in answer["problems"]:
        where = f" of table {problem['table']}" if problem["table"] else ""
        accepted = " (accepted)" if problem["accepted"] else ""
        yield f"- problem{where}: {problem['code']}{accepted}: {problem['message']}"
    for result in answer["results"]:
        if result["code"] is not None:
            yield f"- table {result['table']}: {result['code']}: {result['message']}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _milliseconds(text: str) -> int:
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--to-timestamp is an ISO instant such as 2026-01-02T03:04:05Z, or milliseconds since "
            f"1970, not {text!r}",
            code="usage",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _position(text: str) -> dict[str, Any]:
    topic, _, rest = text.partition(":")
    partition, _, offset = rest.partition(":")
    if not (topic and partition.isdecimal() and offset.isdecimal()):
        raise ConfigError(f"--to-offsets is TOPIC:PARTITION:OFFSET, not {text!r}", code="usage")
    return {"topic": topic, "partition": int(partition), "offset": int(offset)}

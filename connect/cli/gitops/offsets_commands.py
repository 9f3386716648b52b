"""``icefloe offsets``: source offsets of a connector."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from connect.cli.gitops.commands import node
from connect.cli.gitops.output import Output, Yes, confirm, emit
from connect.cli.rest_client import DEFAULT_URL, NodeClient, Url
from connect.cli.terminal import echo, table
from connect.errors import ConfigError

offsets_app = typer.Typer(
    name="offsets", help="Source offsets of a connector.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of the connector.")]
_Offsets: TypeAlias = dict[tuple[str, int], int | None]


@offsets_app.command("show")
def show(name: Name, server: Url = DEFAULT_URL, output: Output = "table") -> None:
    """Show the next source offset of each partition."""
    with node(server) as client:
        answer = client.ask("GET", "connectors", name, "offsets")
    offsets = _offsets(answer)
    emit(
        output,
        answer,
        names=[f"{topic}-{partition}" for topic, partition in offsets],
        as_table=lambda: table(
            ("topic", "partition", "next offset"),
            sorted((t, str(p), "-" if at is None else str(at)) for (t, p), at in offsets.items()),
        ),
    )


@offsets_app.command("alter")
def alter(
    name: Name,
    file: Annotated[
        Path, typer.Option("--file", "-f", help="JSON in the form of `offsets show -o json`.")
    ],
    server: Url = DEFAULT_URL,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Set source offsets of a stopped connector."""
    try:
        body = json.loads(file.read_text("utf-8"))
        after = _offsets(body)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as e:
        raise ConfigError(
            f"{file} does not hold offsets in the form of `offsets show -o json`: {e!r}",
            code="file",
        ) from e
    with node(server) as client:

        def request() -> Any:
            return client.ask("PATCH", "connectors", name, "offsets", json=body)

        _change(client, name, after, request, output=output, yes=yes)


@offsets_app.command("set")
def set_offsets(
    name: Name,
    to_timestamp: Annotated[
        str | None,
        typer.Option(help="ISO-8601 instant with a zone, or milliseconds since 1970."),
    ] = None,
    to_offset: Annotated[int | None, typer.Option(min=0, help="An offset.")] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="Duration before now, such as PT1H.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Number of offsets to move by; negative moves back.")
    ] = None,
    *,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Start of the log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="End of the log.")] = False,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Only this partition of --topic.")
    ] = None,
    server: Url = DEFAULT_URL,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Move source offsets of a stopped connector to a time, an offset or an end of the log."""
    options: dict[str, str | int | None] = {
        "timestamp": to_timestamp,
        "offset": to_offset,
        "duration": by_duration,
        "shift": shift_by,
    }
    chosen: list[tuple[str, str | None]] = [
        (kind, str(value)) for kind, value in options.items() if value is not None
    ]
    ends = {"earliest": to_earliest, "latest": to_latest}
    chosen += [(end, None) for end, is_set in ends.items() if is_set]
    if len(chosen) != 1:
        raise typer.BadParameter(
            "give exactly one of --to-timestamp, --to-offset, --by-duration, --shift-by, "
            "--to-earliest and --to-latest"
        )
    ((kind, value),) = chosen
    target = {"to": kind, "value": value, "topic": topic, "partition": partition}
    with node(server) as client:
        path = ("icefloe", "v1", "connectors", name, "offsets", "plan")
        plan = client.ask("POST", *path, json=target)
        _apply_plan(client, name, plan, output=output, yes=yes)


def _apply_plan(
    client: NodeClient, name: str, plan: Mapping[str, Any], *, output: str, yes: bool
) -> None:
    """Show a plan, have it confirmed, and change exactly the offsets that it shows."""
    moves = plan["offsets"]
    emit(
        output,
        {**plan, "changed": yes},
        names=[f"{move['topic']}-{move['partition']}" for move in moves],
        as_table=lambda: table(
            ("topic", "partition", "from", "to", "read again", "skipped", ""),
            [
                [
                    move["topic"],
                    str(move["partition"]),
                    "-" if move["from_offset"] is None else str(move["from_offset"]),
                    str(move["to_offset"]),
                    str(move["reread"]),
                    str(move["skipped"]),
                    f"{move['bounded_at']} of the log" if move["bounded_at"] else "",
                ]
                for move in moves
            ],
        ),
    )
    for warning in plan["warnings"]:
        echo(f"warning: {warning}", err=True)
    changed = [move for move in moves if move["from_offset"] != move["to_offset"]]
    if not changed:
        echo(f"the source offsets of {name} are there already", err=True)
        return
    confirm(f"move {len(changed)} source offset(s) of {name}?", yes=yes)
    body = {
        "offsets": [
            {
                "partition": {"kafka_topic": move["topic"], "kafka_partition": move["partition"]},
                "offset": {"kafka_offset": move["to_offset"]},
            }
            for move in changed
        ]
    }
    answer = client.ask("PATCH", "connectors", name, "offsets", json=body)
    message = answer.get("message") if isinstance(answer, Mapping) else None
    echo(str(message or f"offsets of {name} changed"), err=True)


@offsets_app.command("reset")
def reset(
    name: Name, server: Url = DEFAULT_URL, output: Output = "table", yes: Yes = False
) -> None:
    """Delete the source offsets of a stopped connector; it then starts like a new connector."""
    with node(server) as client:

        def request() -> Any:
            return client.ask("DELETE", "connectors", name, "offsets")

        _change(client, name, None, request, output=output, yes=yes)


def _change(
    client: NodeClient,
    name: str,
    after: _Offsets | None,
    request: Callable[[], Any],
    *,
    output: str,
    yes: bool,
) -> None:
    """Show which offsets change, ask for confirmation, and send the request.

    ``after`` is None if all offsets are deleted.
    """
    before = _offsets(client.ask("GET", "connectors", name, "offsets"))
    if after is None:
        after = dict.fromkeys(before)
    changes = [
        {
            "topic": topic,
            "partition": partition,
            "from_offset": before.get((topic, partition)),
            "to_offset": to,
        }
        for (topic, partition), to in sorted(after.items())
    ]
    emit(
        output,
        {"connector": name, "changed": yes, "offsets": changes},
        names=[f"{change['topic']}-{change['partition']}" for change in changes],
        as_table=lambda: _table(changes),
    )
    confirm(f"change {len(changes)} source offset(s) of {name}?", yes=yes)
    answer = request()
    message = answer.get("message") if isinstance(answer, Mapping) else None
    echo(str(message or f"offsets of {name} changed"), err=True)


def _table(changes: Iterable[Mapping[str, Any]]) -> None:
    table(
        ("topic", "partition", "next offset", "becomes"),
        [["-" if value is None else str(value) for value in c.values()] for c in changes],
    )


def _offsets(body: Mapping[str, Any]) -> _Offsets:
    """Parse Kafka Connect's offsets body: next source offset by partition, None if unset."""
    offsets: _Offsets = {}
    for entry in body["offsets"]:
        at, offset = entry["partition"], entry["offset"]
        to = None if offset is None else int(offset["kafka_offset"])
        offsets[str(at["kafka_topic"]), int(at["kafka_partition"])] = to
    return offsets

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
        found = client.ask("GET", "connectors", name, "offsets")
    offsets = _offsets(found)
    emit(
        output,
        found,
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
        wanted = json.loads(file.read_text("utf-8"))
        after = _offsets(wanted)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as e:
        raise ConfigError(
            f"{file} does not hold offsets in the form of `offsets show -o json`: {e!r}",
            code="file",
        ) from e
    with node(server) as client:

        def request() -> Any:
            return client.ask("PATCH", "connectors", name, "offsets", json=wanted)

        _change(client, name, after, request, output=output, yes=yes)


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
    found: _Offsets = {}
    for entry in body["offsets"]:
        at, offset = entry["partition"], entry["offset"]
        to = None if offset is None else int(offset["kafka_offset"])
        found[str(at["kafka_topic"]), int(at["kafka_partition"])] = to
    return found

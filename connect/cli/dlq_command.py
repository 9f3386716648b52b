"""``icefloe dlq``: count the dead letters of a connector, show one, replay them.

Rules of this file:
- The content of a record is printed only with ``--content``, and never raw: a terminal would obey
  control characters.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.cli.gitops.connector_files import read_one
from connect.cli.gitops.output import Output, Yes, confirm, emit
from connect.cli.terminal import echo, plain
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.operations.connector_clients import ConnectorCluster, opened_cluster, read_properties
from connect.operations.dead_letter_replay import Choice, DeadLetterTopic
from connect.operations.dead_letter_views import kinds, one, replay

dlq_app = typer.Typer(
    name="dlq", help="Dead letters: count, show and replay them.", no_args_is_help=True
)

File = Annotated[Path, typer.Option("--file", "-f", help="The connector's JSON or YAML.")]
Broker = Annotated[str | None, typer.Option("--bootstrap-server", help="The broker, as host:port.")]
Properties = Annotated[
    Path | None,
    typer.Option("--properties", "-p", help="Node properties: broker, security, providers."),
]


@dlq_app.command("list")
def list_letters(
    file: File,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    output: Output = "table",
) -> None:
    """Count dead letters by stage, exception, table and source topic; the topic may be shared."""
    with _opened(file, properties, bootstrap_server) as (_, letters):
        found = kinds(letters)

    def as_table() -> None:
        echo(f"topic {found['topic']}: {found['records']:,} dead letters")
        for kind in found["kinds"]:
            echo(_line(kind))

    emit(output, found, names=[found["topic"]], as_table=as_table)


@dlq_app.command("show")
def show_letter(
    place: Annotated[str, typer.Argument(help="PARTITION:OFFSET in the dead letter topic.")],
    file: File,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    *,
    output: Output = "table",
    content: Annotated[
        bool, typer.Option("--content", help="Print key, value and the record's own headers.")
    ] = False,
) -> None:
    """Show one dead letter: its error, its source and its size."""
    partition, offset = _coordinates(place)
    with _opened(file, properties, bootstrap_server) as (_, letters):
        found = one(letters, partition, offset, with_content=content)

    def as_table() -> None:
        for line in _lines(found):
            echo(line)

    emit(output, found, names=[place], as_table=as_table)


@dlq_app.command("replay")
def replay_letters(
    file: File,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    *,
    codes: Annotated[
        list[str] | None, typer.Option("--code", help="Only dead letters of this code.")
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="Only dead letters for this table.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="For dead letters without context headers.")
    ] = None,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Put dead letters back on the topics they came from, each once, however often it is run."""

    def run(*, is_applied: bool) -> None:
        with _opened(file, properties, bootstrap_server) as (cluster, letters):
            choice = Choice(
                cluster.config.name, frozenset(codes or ()), frozenset(tables or ()), topic
            )
            producer = TransactionalProducer(cluster.producer_properties, letters.group)
            try:
                found = replay(letters, producer, choice, is_applied=is_applied)
            finally:
                producer.close()
        emit(output, found, names=[found["topic"]], as_table=lambda: _print_replay(found))

    if not yes:
        run(is_applied=False)
        confirm("replay these dead letters?", yes=yes)
    run(is_applied=True)


def _print_replay(found: Mapping[str, Any]) -> None:
    topic = found["topic"]
    for gone in found["gone"]:
        echo(
            f"gone by retention: offsets {gone['from_offset']} to {gone['to_offset'] - 1} of "
            f"{topic}-{gone['partition']}"
        )
    for part in found["ranges"]:
        echo(f"{topic}-{part['partition']}: from offset {part['from_offset']} to "
             f"{part['to_offset']}")  # fmt: skip
    is_done = found["applied"]
    for target, count in found["targets"].items():
        echo(f"{count:,} {'were' if is_done else 'would be'} put back on topic {target}")
    for reason, count in found["skipped"].items():
        echo(f"{count:,} {'were' if is_done else 'would be'} skipped for good: {reason}")
    if not found["targets"] and not found["skipped"]:
        echo("no dead letter waits for a replay")


@contextmanager
def _opened(
    file: Path, properties: Path | None, bootstrap_server: str | None
) -> Iterator[tuple[ConnectorCluster, DeadLetterTopic]]:
    node = read_properties(properties, bootstrap_server)
    with opened_cluster(read_one(file).config, node, os.environ) as cluster:
        yield (
            cluster,
            DeadLetterTopic(cluster.config, cluster.admin, cluster.reader, cluster.excluded),
        )


def _coordinates(place: str) -> tuple[int, int]:
    partition, _, offset = place.partition(":")
    if not (_is_number(partition) and _is_number(offset)):
        raise ConfigError(f"{place!r} is no PARTITION:OFFSET, such as 0:42", code="usage")
    return int(partition), int(offset)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def _line(kind: Mapping[str, Any]) -> str:
    exception = (kind["exception"] or "").rpartition(".")[2] or "unknown exception"
    return (
        f"{kind['records']:,} x {kind['stage'] or 'unknown stage'} {plain(exception)}, "
        f"table {plain(kind['table'] or 'unknown')}, "
        f"source topic {plain(kind['source_topic'] or 'unknown')}: "
        f"first {_place(kind['first'])}, last {_place(kind['last'])}"
    )


def _place(place: Mapping[str, Any]) -> str:
    return f"{place['partition']}:{place['offset']} ({place['time'] or 'no time'})"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"topic {found['topic']}, partition {found['partition']}, offset {found['offset']}, "
        f"{found['time'] or 'no time'}"
    )
    for header in found["errors"]:
        yield f"{header['name']}: {_text(header['text'])}"
    for header in found["headers"]:
        displayed = _text(header["text"]) if "text" in header else _size(header)
        yield f"header {plain(header['name'])}: {displayed}"
    for what in ("key", "value"):
        part = found[what]
        yield f"{what}: {_size(part)}"
        if part.get("text") is not None:
            yield _text(part["text"])


def _size(part: Mapping[str, Any]) -> str:
    return "null" if part["bytes"] is None else f"{part['bytes']:,} bytes"


def _text(text: str | None) -> str:
    return "null" if text is None else plain(text)

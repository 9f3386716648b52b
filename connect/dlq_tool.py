"""``icefloe dlq``: the dead letters of a connector, counted, shown one by one, put back.

Rules of this file:
- What is in a record is printed only when ``--content`` asks for it, and never raw: control
  characters would be a terminal's commands.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from connect.dead_letter_topic import Choice, DeadLetters, LetterKind, Outcome, Sighting
from connect.deadletter import PREFIX, TABLE_HEADER
from connect.direct import Cluster, opened_cluster, read_properties
from connect.errors import ConfigError
from connect.gateways.kafka import TransactionalProducer
from connect.gitops.files import read_one
from connect.iso_time import instant_text
from connect.layout import TopicPartition
from connect.records import KafkaRecord
from connect.terminal import echo, plain

STATUS_NOT_DONE = 2

dlq_app = typer.Typer(
    name="dlq", help="Dead letters: count them, look at one, put them back.", no_args_is_help=True
)

File = Annotated[Path, typer.Option("--file", "-f", help="The connector's JSON or YAML.")]
Server = Annotated[str | None, typer.Option("--bootstrap-server", help="The broker, as host:port.")]
Properties = Annotated[
    Path | None,
    typer.Option("--properties", "-p", help="Node properties: broker, security, providers."),
]


@dlq_app.command("list")
def list_letters(
    file: File,
    bootstrap_server: Server = None,
    properties: Properties = None,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o")] = "text",
) -> None:
    """Count dead letters by stage, exception, table and source topic; the topic may be shared."""
    with _opened(file, properties, bootstrap_server) as (_, letters):
        found = sorted(letters.count().items(), key=lambda item: -item[1].count)
        topic = letters.topic
    if output == "json":
        echo(json.dumps(_as_json(topic, found), ensure_ascii=False, indent=1))
        return
    total = sum(seen.count for _, seen in found)
    echo(f"topic {topic}: {total:,} dead letters")
    for kind, seen in found:
        echo(_line(kind, seen))


@dlq_app.command()
def show(
    place: Annotated[str, typer.Argument(help="PARTITION:OFFSET in the dead letter topic.")],
    file: File,
    bootstrap_server: Server = None,
    properties: Properties = None,
    *,
    content: Annotated[
        bool, typer.Option("--content", help="Print key, value and the record's own headers.")
    ] = False,
) -> None:
    """Show one dead letter: why it is one, where it came from, how large it is."""
    partition, _, offset = place.partition(":")
    if not (_is_number(partition) and _is_number(offset)):
        raise ConfigError(f"{place!r} is no PARTITION:OFFSET, such as 0:42", code="usage")
    with _opened(file, properties, bootstrap_server) as (_, letters):
        record = letters.one(int(partition), int(offset))
    for line in _lines(record, with_content=content):
        echo(line)


@dlq_app.command()
def replay(
    file: File,
    bootstrap_server: Server = None,
    properties: Properties = None,
    codes: Annotated[
        list[str] | None, typer.Option("--code", help="Only dead letters of this code.")
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="Only dead letters for this table.")
    ] = None,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", help="For dead letters without context headers.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only said.")] = False,
) -> None:
    """Put dead letters back on the topics they came from, each once, however often it is run.

    Exit status: 0 done, 2 only said, 1 it could not.
    """
    with _opened(file, properties, bootstrap_server) as (cluster, letters):
        choice = Choice(cluster.config.name, frozenset(codes or ()), frozenset(tables or ()), topic)
        marks = letters.marks()
        producer = TransactionalProducer(cluster.producer_properties, letters.group)
        try:
            if yes:
                producer.init()  # a replay that still runs, or was killed, ends here
            starts, gone = letters.positions(marks)
            ends = {tp: end for tp, (_, end) in marks.items()}
            for tp, at in sorted(gone.items()):
                echo(f"gone by retention: offsets {at} to {starts[tp] - 1} of {_name(tp)}")
            for tp, at in sorted(starts.items()):
                echo(f"{_name(tp)}: from offset {at} to {ends[tp]}")
            outcome = letters.plan(choice, starts, ends)
            if yes:
                outcome = letters.replay(producer, choice, starts, ends)
        finally:
            producer.close()
    _tell(outcome, is_done=yes)
    if not yes:
        raise typer.Exit(STATUS_NOT_DONE)


def _tell(outcome: Outcome, *, is_done: bool) -> None:
    verb = "were put" if is_done else "would be put"
    for target, count in sorted(outcome.targets.items()):
        echo(f"{count:,} {verb} back on topic {target}")
    for reason, count in sorted(outcome.skipped.items()):
        echo(f"{count:,} {'were' if is_done else 'would be'} skipped for good: {reason}")
    if not outcome.targets and not outcome.skipped:
        echo("no dead letter waits for a replay")
    if not is_done:
        echo("nothing was changed; say --yes to do it")


@contextmanager
def _opened(
    file: Path, properties: Path | None, bootstrap_server: str | None
) -> Iterator[tuple[Cluster, DeadLetters]]:
    node = read_properties(properties, bootstrap_server)
    with opened_cluster(read_one(file).config, node, os.environ) as cluster:
        yield cluster, DeadLetters(cluster.config, cluster.admin, cluster.reader, cluster.excluded)


def _line(kind: LetterKind, seen: Sighting) -> str:
    exception = kind.exception.rpartition(".")[2] or "unknown exception"
    assert seen.first is not None, "a kind is counted with its first record"
    assert seen.last is not None, "as above"
    return (
        f"{seen.count:,} x {kind.stage or 'unknown stage'} {plain(exception)}, "
        f"table {plain(kind.table) or 'unknown'}, source topic {plain(kind.topic) or 'unknown'}: "
        f"first {_place(seen.first)}, last {_place(seen.last)}"
    )


def _place(place: tuple[int, int, int | None]) -> str:
    partition, offset, timestamp_ms = place
    return f"{partition}:{offset} ({_instant(timestamp_ms) or 'no time'})"


def _instant(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else instant_text(timestamp_ms * 1_000_000)


def _as_json(topic: str, found: list[tuple[LetterKind, Sighting]]) -> dict[str, Any]:
    def place(at: tuple[int, int, int | None] | None) -> Mapping[str, Any] | None:
        if at is None:
            return None
        return {"partition": at[0], "offset": at[1], "time": _instant(at[2])}

    return {
        "topic": topic,
        "records": sum(seen.count for _, seen in found),
        "kinds": [
            {
                "stage": kind.stage or None,
                "exception": kind.exception or None,
                "table": kind.table or None,
                "source_topic": kind.topic or None,
                "records": seen.count,
                "first": place(seen.first),
                "last": place(seen.last),
            }
            for kind, seen in found
        ],
    }


def _lines(record: KafkaRecord, *, with_content: bool) -> Iterator[str]:
    yield (
        f"topic {record.topic}, partition {record.partition}, offset {record.offset}, "
        f"{_instant(record.timestamp_ms) or 'no time'}"
    )
    for name, value in record.headers:
        if name.startswith(PREFIX) or name == TABLE_HEADER:
            yield f"{name}: {_text(value)}"
        elif with_content:
            yield f"header {plain(name)}: {_text(value)}"
        else:
            yield f"header {plain(name)}: {_size(value)}"
    for what, value in (("key", record.key), ("value", record.value)):
        yield f"{what}: {_size(value)}"
        if with_content and value is not None:
            yield _text(value)


def _size(value: bytes | None) -> str:
    return "null" if value is None else f"{len(value):,} bytes"


def _text(value: bytes | None) -> str:
    return "null" if value is None else plain(value.decode("utf-8", "backslashreplace"))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"

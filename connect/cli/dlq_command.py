"""``icefloe dlq``: count the dead letters of a connector, show one, replay them.

Rules of this file:
- The content of a record is printed only with ``--content``, and never raw: a terminal would obey
  control characters.
- A node replays a limited number of offsets per request. The command repeats the request up to
  the ends that the first answer had; later dead letters are not replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect.cli.direct_access import (
    Broker,
    Connector,
    DirectFile,
    Properties,
    access_by_file,
)
from connect.cli.gitops.output import Output, Yes, confirm, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask
from connect.cli.terminal import echo, plain
from connect.errors import ConfigError, IcefloeError

if TYPE_CHECKING:
    from connect.operations.dead_letter_replay import ReplayChoice

dlq_app = typer.Typer(
    name="dlq", help="Dead letters: count, show and replay them.", no_args_is_help=True
)


@dlq_app.command("list")
def list_dead_letters(
    connector: Connector,
    url: Url = DEFAULT_URL,
    *,
    file: DirectFile = None,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    output: Output = "table",
) -> None:
    """Count dead letters by stage, exception, table and source topic.

    The first and last are PARTITION:OFFSET in the dead letter topic, and that of the source record.
    A node counts the dead letters of this connector; with --file all of the topic are counted.
    """
    direct = access_by_file(connector, file, properties, bootstrap_server)
    if direct is None:
        categories = ask(url, "GET", connector, "dead-letters", "kinds")
    else:
        categories = direct.operations.dead_letter_kinds(direct.config)

    def as_table() -> None:
        echo(f"topic {categories['topic']}: {categories['records']:,} dead letters")
        for kind in categories["kinds"]:
            echo(_line(kind))
        if categories["offsets_not_read"]:
            echo(
                f"{categories['offsets_not_read']:,} older offsets were not read, they are above "
                "the limit of a node: --file reads the whole topic",
                err=True,
            )

    emit(output, categories, names=[categories["topic"]], as_table=as_table)


@dlq_app.command("show")
def show_dead_letter(
    connector: Connector,
    place: Annotated[str, typer.Argument(help="PARTITION:OFFSET in the dead letter topic.")],
    url: Url = DEFAULT_URL,
    *,
    file: DirectFile = None,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    output: Output = "table",
    content: Annotated[
        bool,
        typer.Option(
            "--content", help="Print key, value and the record's own headers; a node needs admin."
        ),
    ] = False,
) -> None:
    """Show one dead letter: its error, its source and its size."""
    partition, offset = _coordinates(place)
    direct = access_by_file(connector, file, properties, bootstrap_server)
    if direct is None:
        path = ["dead-letters", str(partition), str(offset), *(["content"] if content else [])]
        letter = ask(url, "GET", connector, *path)
    else:
        letter = direct.operations.dead_letter(
            direct.config, partition, offset, with_content=content
        )

    def as_table() -> None:
        for line in _lines(letter):
            echo(line)

    emit(output, letter, names=[place], as_table=as_table)


@dlq_app.command("replay")
def replay_dead_letters(
    connector: Connector,
    url: Url = DEFAULT_URL,
    *,
    file: DirectFile = None,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    codes: Annotated[
        list[str] | None, typer.Option("--code", help="Only dead letters of this code.")
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="Only dead letters for this table.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", help="Source topic of dead letters without headers about their error."
        ),
    ] = None,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Produce dead letters to the topics they came from, each once, however often it is run."""
    direct = access_by_file(connector, file, properties, bootstrap_server)

    def run(ends: list[dict[str, int]] | None, *, is_applied: bool) -> dict[str, Any]:
        if direct is None:
            body = {"apply": is_applied, "codes": codes or [], "tables": tables or []}
            more = {"topic": topic, "ends": ends or []}
            return ask(url, "POST", connector, "dead-letters", "replay", json={**body, **more})
        choice = _choice(codes, tables, topic, ends)
        return direct.operations.replay(direct.config, choice, is_applied=is_applied)

    def show(replay: dict[str, Any]) -> None:
        emit(output, replay, names=[replay["topic"]], as_table=lambda: _print_replay(replay))

    ends = None
    if not yes:
        plan = run(None, is_applied=False)
        show(plan)
        confirm("replay these dead letters?", yes=yes)
        ends = plan["ends"]
    show(_replayed(run, ends))


def _replayed(
    run: Callable[..., dict[str, Any]], ends: list[dict[str, int]] | None
) -> dict[str, Any]:
    """Replay up to the ends, request by request; return the sum of the answers."""
    replay = run(ends, is_applied=True)
    while replay["offsets_left"]:
        try:
            replay = _sum(replay, run(replay["ends"], is_applied=True))
        except IcefloeError:
            count = sum(replay["targets"].values())
            echo(f"{count:,} dead letters were replayed before the error", err=True)
            raise
    return replay


def _sum(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    starts = {each["partition"]: each["from_offset"] for each in first["ranges"]}
    return {
        **then,
        "ranges": [{**r, "from_offset": starts[r["partition"]]} for r in then["ranges"]],
        "gone": first["gone"],
        "targets": dict(Counter(first["targets"]) + Counter(then["targets"])),
        "skipped": dict(Counter(first["skipped"]) + Counter(then["skipped"])),
    }


def _choice(
    codes: list[str] | None,
    tables: list[str] | None,
    topic: str | None,
    ends: list[dict[str, int]] | None,
) -> ReplayChoice:
    from connect.operations.dead_letter_replay import ReplayChoice  # noqa: PLC0415 - on use

    planned = None if ends is None else {end["partition"]: end["offset"] for end in ends}
    return ReplayChoice(frozenset(codes or ()), frozenset(tables or ()), topic, planned)


def _print_replay(replay: Mapping[str, Any]) -> None:
    topic = replay["topic"]
    for gone in replay["gone"]:
        echo(
            f"deleted by retention: offsets {gone['from_offset']} to {gone['to_offset'] - 1} of "
            f"{topic}-{gone['partition']}"
        )
    for part in replay["ranges"]:
        echo(
            f"{topic}-{part['partition']}: from offset {part['from_offset']} to {part['to_offset']}"
        )
    is_done = replay["applied"]
    for target, count in replay["targets"].items():
        echo(f"{count:,} {'were' if is_done else 'would be'} put back on topic {target}")
    for reason, count in replay["skipped"].items():
        echo(f"{count:,} {'were' if is_done else 'would be'} skipped for good: {reason}")
    if replay["offsets_left"]:
        echo(f"{replay['offsets_left']:,} more offsets follow in later requests")
    elif not replay["targets"] and not replay["skipped"]:
        echo("no dead letter waits for a replay")


def _coordinates(place: str) -> tuple[int, int]:
    partition, _, offset = place.partition(":")
    if not (_is_number(partition) and _is_number(offset)):
        raise ConfigError(f"{place!r} is not PARTITION:OFFSET, for example 0:42", code="usage")
    return int(partition), int(offset)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def _line(kind: Mapping[str, Any]) -> str:
    exception = (kind["exception"] or "").rpartition(".")[2] or "unknown exception"
    return (
        f"{kind['records']:,} x {kind['stage'] or 'unknown stage'} {plain(exception)}, "
        f"table {plain(kind['table'] or 'unknown')}, "
        f"source topic {plain(kind['source_topic'] or 'unknown')}: "
        f"first {_place(kind['first'])}, last {_place(kind['last'])}{_replayed_text(kind)}"
    )


def _replayed_text(kind: Mapping[str, Any]) -> str:
    count = kind.get("replayed", 0)
    return f", {count:,} of them replayed or skipped by a replay" if count else ""


def _place(place: Mapping[str, Any]) -> str:
    source = place.get("source")
    of_source = f", source {source['partition']}:{source['offset']}" if source else ""
    return f"{place['partition']}:{place['offset']} ({place['time'] or 'no time'}{of_source})"


def _lines(letter: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"topic {letter['topic']}, partition {letter['partition']}, offset {letter['offset']}, "
        f"{letter['time'] or 'no time'}"
    )
    for header in letter["errors"]:
        yield f"{header['name']}: {_text(header['text'])}"
    for header in letter["headers"]:
        shown = _text(header["text"]) if "text" in header else _size(header)
        yield f"header {plain(header['name'])}: {shown}"
    for side in ("key", "value"):
        part = letter[side]
        yield f"{side}: {_size(part)}"
        if part.get("text") is not None:
            yield _text(part["text"])


def _size(part: Mapping[str, Any]) -> str:
    return "null" if part["bytes"] is None else f"{part['bytes']:,} bytes"


def _text(text: str | None) -> str:
    return "null" if text is None else plain(text)

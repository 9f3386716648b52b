"""``icefloe audit CONNECTOR``: rows in = tables + dead letters + dropped, or the first range."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.cli.gitops.connector_files import read_one
from connect.cli.gitops.output import Output, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask
from connect.cli.terminal import echo
from connect.clock import SystemClock
from connect.errors import ConfigError, ExitStatus
from connect.operations.audit import auditor
from connect.operations.connector_clients import opened, read_properties

_SOURCE = ("read", "written", "dropped", "dead_lettered", "unread")
_TABLE = ("announced", "committed", "waiting", "unproved", "others", "now")


def audit(
    connector: Annotated[str, typer.Argument(help="Name of the connector.")],
    url: Url = DEFAULT_URL,
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="The connector's JSON or YAML: no node, ask broker and catalog."
        ),
    ] = None,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="With --file: host:port of a broker.")
    ] = None,
    properties: Annotated[
        Path | None, typer.Option("--properties", "-p", help="With --file: node properties.")
    ] = None,
    output: Output = "table",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Rows that other writers added or removed are a mismatch."),
    ] = False,
) -> None:
    """Prove that rows in are tables, dead letters and dropped; name the first range where not.

    Status 0 when everything adds up, 1 when it does not.
    """
    if file is None:
        if bootstrap_server or properties:
            raise ConfigError("--bootstrap-server and --properties need --file", code="usage")
        found = ask(url, "GET", connector, "audit")
    else:
        raw = read_one(file, connector, unnamed=connector).config
        node = read_properties(properties, bootstrap_server)
        with opened(raw, node, os.environ) as direct:
            found = auditor.audit(direct, SystemClock()).as_json()

    def as_table() -> None:
        for line in lines(found):
            echo(line)

    emit(output, found, names=[connector], as_table=as_table)
    if not found["sound"] or (strict and found["changed_by_others"]):
        raise typer.Exit(ExitStatus.NO)


def lines(found: dict[str, Any]) -> Iterator[str]:
    """An audit as text: the first mismatch comes last but one."""
    yield from _columns(
        ["source", "offsets", *_SOURCE],
        [
            [
                f"{s['topic']}-{s['partition']}",
                f"[{s['from_offset']}, {s['to_offset']})",
                *(str(s[key]) for key in _SOURCE),
            ]
            for s in found["sources"]
        ],
    )
    yield ""
    yield from _columns(
        ["table", *_TABLE],
        [[t["name"], *(str(t[key]) for key in _TABLE)] for t in found["tables"]],
    )
    yield ""
    rows = found["rows"]
    yield (
        f"rows made by records: {rows['made']}, superseded within a step: {rows['superseded']}, "
        f"only deletes: {rows['deleted']}"
    )
    yield ""
    for note in found["notes"]:
        yield f"note: {note}"
    for mismatch in found["mismatches"]:
        where = ", ".join(f"{key}={value}" for key, value in mismatch["where"].items())
        yield f"MISMATCH {mismatch['code']}: {mismatch['text']} [{where}]"
    if found["sound"]:
        yield "everything that can be proved adds up"
    else:
        yield f"{len(found['mismatches'])} places do not add up; begin with the first"


def _columns(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        first, *others = zip(row, widths, strict=True)
        yield "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])

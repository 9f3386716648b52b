"""``icefloe audit CONNECTOR``: compares records read with rows in tables and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from connect.cli.direct_access import Broker, Connector, DirectFile, Properties, access_by_file
from connect.cli.gitops.output import Output, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask
from connect.cli.terminal import echo
from connect.errors import ExitStatus

_SOURCE = ("read", "written", "dropped", "dead_lettered", "lost", "unread")
_TABLE = ("announced", "committed", "waiting", "unproved", "others", "now")


def audit(
    connector: Connector,
    url: Url = DEFAULT_URL,
    *,
    file: DirectFile = None,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    output: Output = "table",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Rows that other writers added or removed are a mismatch."),
    ] = False,
) -> None:
    """Prove that every record is in a table, a dead letter or dropped; name the first mismatch.

    Status 0 when everything adds up, 1 when it does not.
    """
    direct = access_by_file(connector, file, properties, bootstrap_server)
    if direct is None:
        report = ask(url, "GET", connector, "audit")
    else:
        report = direct.operations.audit(direct.config)

    def as_table() -> None:
        for line in lines(report):
            echo(line)

    emit(output, report, names=[connector], as_table=as_table)
    if not report["sound"] or (strict and report["changed_by_others"]):
        raise typer.Exit(ExitStatus.NO)


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Return an audit as text, mismatches at the end."""
    yield from _columns(
        ["source", "offsets", *_SOURCE],
        [
            [
                f"{s['topic']}-{s['partition']}",
                f"[{s['from_offset']}, {s['to_offset']})",
                *(str(s[key]) for key in _SOURCE),
            ]
            for s in report["sources"]
        ],
    )
    yield ""
    yield from _columns(
        ["table", *_TABLE],
        [[t["name"], *(str(t[key]) for key in _TABLE)] for t in report["tables"]],
    )
    yield ""
    rows = report["rows"]
    yield (
        f"rows made by records: {rows['made']}, superseded within a step: {rows['superseded']}, "
        f"only deletes: {rows['deleted']}"
    )
    yield ""
    for note in report["notes"]:
        yield f"note: {note}"
    for mismatch in report["mismatches"]:
        where = ", ".join(f"{key}={value}" for key, value in mismatch["where"].items())
        yield f"MISMATCH {mismatch['code']}: {mismatch['text']} [{where}]"
    if report["sound"]:
        yield "everything that can be proved adds up"
    else:
        yield f"{len(report['mismatches'])} places do not add up; begin with the first"


def _columns(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        first, *others = zip(row, widths, strict=True)
        yield "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])

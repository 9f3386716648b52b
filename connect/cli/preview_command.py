"""``icefloe preview -f connector.json``: what a connector would make of a few records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.cli.gitops.connector_files import read_one
from connect.cli.gitops.output import Output, emit
from connect.cli.terminal import echo
from connect.clock import SystemClock
from connect.errors import ConfigError, ExitStatus
from connect.operations.connector_clients import opened, read_properties
from connect.operations.preview.preview_report import report
from connect.operations.preview.record_preview import preview as preview_records
from connect.operations.preview.source_sample import read_sample

RECORDS_MAX = 10_000


def preview(
    file: Annotated[Path, typer.Option("--file", "-f", help="The connector's JSON or YAML.")],
    connector: Annotated[
        str | None, typer.Argument(help="Name of the connector, in a file with several.")
    ] = None,
    *,
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, max=RECORDS_MAX, help="Records at most.")
    ] = 20,
    start: Annotated[
        str, typer.Option("--from", help="earliest: the oldest records; latest: the newest.")
    ] = "earliest",
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="The broker, as host:port.")
    ] = None,
    properties: Annotated[
        Path | None,
        typer.Option("--properties", "-p", help="Node properties: broker, security, providers."),
    ] = None,
    output: Output = "table",
) -> None:
    """Show what a connector would make of a few records, and write nothing.

    Status 0 when every record is written or dropped, 1 when one would be rejected.
    """
    if start not in ("earliest", "latest"):
        raise ConfigError(f"--from is earliest or latest, not {start!r}", code="usage")
    raw = read_one(file, connector).config
    with opened(raw, read_properties(properties, bootstrap_server), os.environ) as direct:
        if not direct.partitions:
            raise ConfigError(
                f"no topic of connector {direct.config.name} exists: create it, or correct "
                "topics and topics.regex",
                code="topics_missing",
            )
        sample = read_sample(
            direct.admin,
            direct.reader,
            direct.partitions,
            SystemClock(),
            count=records,
            start="earliest" if start == "earliest" else "latest",
        )
        found = preview_records(direct.config, sample.records, direct.catalog.find)
    answer = report(direct.config, found, is_complete=sample.is_complete)

    def as_table() -> None:
        for line in lines(answer):
            echo(line)

    emit(output, answer, names=[t["table"] for t in answer["tables"]], as_table=as_table)
    if answer["outcomes"].keys() - {"written", "dropped"}:
        raise typer.Exit(ExitStatus.NO)


def lines(answer: dict[str, Any]) -> Iterator[str]:
    """Return the preview as text: tables with columns and rows, then records not written."""
    for table in answer["tables"]:
        yield f"table {table['table']} ({'exists' if table['exists'] else 'would be created'})"
        for column in table["columns"]:
            required = " required" if column["required"] else ""
            change = f"  ({column['change']})" if column["change"] else ""
            yield f"  {column['name']}: {column['type']}{required}{change}"
        if table["partitioned_by"]:
            yield f"  partitioned by {', '.join(table['partitioned_by'])}"
        for row in table["rows"]:
            values = json.dumps(row["values"], ensure_ascii=False)
            yield f"  {_place(row)}  {row['operation']}  {values}"
        yield ""
    for record in answer["not_written"]:
        where = "".join(
            f", {name} {record[name]}" for name in ("transform", "column") if record[name]
        )
        stage = f"{record['stage']}{where}: " if record["stage"] else ""
        yield f"{_place(record)}  {record['outcome']}  {stage}{record['message']}"
    counts = ", ".join(f"{count} {outcome}" for outcome, count in answer["outcomes"].items())
    yield f"{sum(answer['outcomes'].values())} records: {counts or 'the topics are empty'}"
    if not answer["complete"]:
        yield "reading took too long or the records are too large: there may be more records"


def _place(record: dict[str, Any]) -> str:
    return f"{record['topic']}-{record['partition']}@{record['offset']}"

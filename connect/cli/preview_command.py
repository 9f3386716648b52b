"""``icefloe preview -f connector.json``: what a connector would make of a few records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.cli.direct_access import Broker, Direct, Properties, access_by_flag
from connect.cli.gitops.connector_files import read_one
from connect.cli.gitops.output import Output, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask_about_file
from connect.cli.terminal import echo
from connect.errors import ConfigError, ExitStatus

RECORDS_MAX = 1_000


def preview(
    file: Annotated[Path, typer.Option("--file", "-f", help="The connector's JSON or YAML.")],
    connector: Annotated[
        str | None, typer.Argument(help="Name of the connector, in a file with several.")
    ] = None,
    url: Url = DEFAULT_URL,
    *,
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, max=RECORDS_MAX, help="Records at most.")
    ] = 20,
    start: Annotated[
        str, typer.Option("--from", help="earliest: the oldest records; latest: the newest.")
    ] = "earliest",
    is_direct: Direct = False,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    output: Output = "table",
) -> None:
    """Show what a connector would make of a few records, and write nothing.

    Status 0 when every record is written or dropped, 1 when one would be rejected.
    """
    if start not in {"earliest", "latest"}:
        raise ConfigError(f"--from is earliest or latest, not {start!r}", code="usage")
    desired = read_one(file, connector)
    direct = access_by_flag(
        desired.config, properties, bootstrap_server, is_direct=is_direct, has_broker=True
    )
    if direct is None:
        body = {"config": dict(desired.config), "records": records, "start": start}
        report = ask_about_file(url, desired.name, "preview", json=body)
    else:
        report = direct.operations.preview(
            direct.config, count=records, start="earliest" if start == "earliest" else "latest"
        )

    def as_table() -> None:
        for line in lines(report):
            echo(line)

    emit(output, report, names=[t["table"] for t in report["tables"]], as_table=as_table)
    if report["outcomes"].keys() - {"written", "dropped"}:
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

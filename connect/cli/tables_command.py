"""``icefloe tables``: last commits of tables, and decisions on those that cannot be committed."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import typer

from connect.cli.gitops.output import Output, Yes, confirm, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask
from connect.cli.terminal import echo
from connect.errors import ExitStatus

tables_app = typer.Typer(
    name="tables", help="Tables of a connector and their last commits.", no_args_is_help=True
)

DAY_MS: Final = 86_400_000
Connector = Annotated[str, typer.Argument(help="Name of the connector.")]
Table = Annotated[str, typer.Argument(help="Name of the table, as in the list.")]


@tables_app.command("list")
def list_tables(connector: Connector, url: Url = DEFAULT_URL, output: Output = "table") -> None:
    """Show whether each table is committed, and what waits for a commit."""
    tables = ask(url, "GET", connector, "tables")["tables"]

    def as_table() -> None:
        for table in tables:
            echo(_line(table))
        if not tables:
            echo("no round has ended yet")

    emit(output, tables, names=[table["table"] for table in tables], as_table=as_table)


@tables_app.command()
def retry(
    connector: Connector, table: Table, url: Url = DEFAULT_URL, output: Output = "table"
) -> None:
    """Commit a failed table again now, e.g. after it was restored; the list shows the outcome."""
    answer = ask(url, "POST", connector, "tables", table, "retry")
    emit(
        output,
        answer,
        names=[table],
        as_table=lambda: echo(f"{table} is tried again now: {_amount(answer['waiting'])} wait"),
    )


@tables_app.command()
def skip(
    connector: Connector,
    table: Table,
    url: Url = DEFAULT_URL,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Give up the files that wait for a table: they stay in storage, but in no table."""
    if not yes:
        tables = {t["table"]: t for t in ask(url, "GET", connector, "tables")["tables"]}
        failed = tables.get(table)
        if failed is None or failed["state"] != "FAILED":
            echo(f"no files of {table} wait for a decision", err=True)
            raise typer.Exit(ExitStatus.NO)
        emit(output, failed, names=[table], as_table=lambda: _show_skip(failed))
        confirm(f"give up {_amount(failed)}?", yes=yes)
    answer = ask(url, "POST", connector, "tables", table, "skip")
    given_up = answer["skipped"]

    def as_table() -> None:
        for path in given_up["paths"]:
            echo(path)

    emit(output, answer, names=[table], as_table=as_table)
    left = given_up["files"] - len(given_up["paths"])
    if left:
        echo(f"and {left} more: the coordinator's log has all of them", err=True)
    echo(
        f"{_amount(given_up)} given up, {_amount(answer['waiting'])} wait for the present table",
        err=True,
    )


def _show_skip(failed: dict[str, Any]) -> None:
    echo(_line(failed))
    echo(
        f"{_amount(failed)} would be given up: in storage, but in no table, and not read again "
        "(after a replacement, files written for the present table stay)"
    )


@tables_app.command("orphan-age")
def orphan_age(
    connector: Connector,
    older_than_days: Annotated[
        float | None,
        typer.Option("--older-than-days", min=0, help="An age to check, for remove_orphan_files."),
    ] = None,
    url: Url = DEFAULT_URL,
    output: Output = "table",
) -> None:
    """Print the age in days from which remove_orphan_files is safe while the connector runs.

    Status 0 when an age is printed, or the given one is safe; 1 when it is not, or none is known.
    """
    age = ask(url, "GET", connector, "orphan-age")
    if output != "table":
        emit(output, age, names=[connector], as_table=lambda: None)
    if age["safe_age_ms"] is None:
        echo(
            "an announcement in the old event format waits and has no date: commit it before "
            "orphan files are removed",
            err=True,
        )
        raise typer.Exit(ExitStatus.NO)
    safe_days = math.ceil(age["safe_age_ms"] / DAY_MS)
    if older_than_days is None:
        if output == "table":
            echo(str(safe_days))
    elif older_than_days < safe_days:
        echo(
            f"{older_than_days:g} days is not safe: files that wait for a commit would be "
            f"deleted; use {safe_days} days or more",
            err=True,
        )
        raise typer.Exit(ExitStatus.NO)


def _line(table: dict[str, Any]) -> str:
    if table["state"] != "FAILED":
        return f"{table['table']}  COMMITTED  snapshot {table['snapshot_id']}"
    again = "tried again each round" if table.get("retriable") else "waits for retry or skip"
    waiting = f"{_amount(table)} wait, " if "files" in table else ""
    return f"{table['table']}  FAILED  {waiting}{again}: {table['code']}: {table['message']}"


def _amount(counted: dict[str, Any]) -> str:
    return f"{counted['files']} files with {counted['records']} records"

"""``icefloe tables``: tables of a connector that cannot be committed, and the operator's word."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import typer

from connect.rest_client import DEFAULT_URL, Url, ask
from connect.terminal import echo

tables_app = typer.Typer(
    name="tables", help="Tables whose files wait for a commit.", no_args_is_help=True
)

DAY_MS: Final = 86_400_000
Connector = Annotated[str, typer.Argument(help="Name of the connector.")]
Table = Annotated[str, typer.Argument(help="The table, as the list names it.")]


@tables_app.command("list")
def list_tables(connector: Connector, url: Url = DEFAULT_URL) -> None:
    """Say of each table whether it is committed, and what waits where it is not."""
    tables = ask(url, "GET", connector, "tables")["tables"]
    for table in tables:
        echo(_line(table))
    if not tables:
        echo("no round has ended yet")


@tables_app.command()
def retry(connector: Connector, table: Table, url: Url = DEFAULT_URL) -> None:
    """Try a table again now, e.g. after it was restored; the list shows what came of it."""
    answer = ask(url, "POST", connector, "tables", table, "retry")
    echo(f"{table} is tried again now: {_amount(answer['waiting'])} wait")


@tables_app.command()
def skip(
    connector: Connector,
    table: Table,
    url: Url = DEFAULT_URL,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only said.")] = False,
) -> None:
    """Give up the files that wait for a table: they stay in storage, but in no table."""
    if not yes:
        found = {t["table"]: t for t in ask(url, "GET", connector, "tables")["tables"]}
        failed = found.get(table)
        if failed is None or failed["state"] != "FAILED":
            echo(f"nothing of {table} waits for a decision", err=True)
            raise typer.Exit(1)
        echo(_line(failed))
        echo(
            f"{_amount(failed)} would be given up: in storage, but in no table, and not read "
            "again; say --yes to do it (after a replacement, files written for the table that is "
            "there now stay)"
        )
        raise typer.Exit(2)
    answer = ask(url, "POST", connector, "tables", table, "skip")
    given_up = answer["skipped"]
    for path in given_up["paths"]:
        echo(path)
    left = given_up["files"] - len(given_up["paths"])
    if left:
        echo(f"and {left} more: the coordinator's log has all of them", err=True)
    echo(
        f"{_amount(given_up)} given up, {_amount(answer['waiting'])} wait for the present table",
        err=True,
    )


@tables_app.command("orphan-age")
def orphan_age(
    connector: Connector,
    older_than_days: Annotated[
        float | None,
        typer.Option("--older-than-days", min=0, help="An age to check, for remove_orphan_files."),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the age in days from which remove_orphan_files is safe beside the connector.

    Exit status: 0 an age is printed, or the given one is safe; 1 it is not, or none is known.
    """
    found = ask(url, "GET", connector, "orphan-age")
    if found["safe_age_ms"] is None:
        echo(
            "an announcement in the old event format waits and has no date: commit it before "
            "orphan files are removed",
            err=True,
        )
        raise typer.Exit(1)
    safe_days = math.ceil(found["safe_age_ms"] / DAY_MS)
    if older_than_days is None:
        echo(str(safe_days))
    elif older_than_days < safe_days:
        echo(
            f"{older_than_days:g} days is not safe: files that wait for a commit would be "
            f"deleted; use {safe_days} days or more",
            err=True,
        )
        raise typer.Exit(1)


def _line(table: dict[str, Any]) -> str:
    if table["state"] != "FAILED":
        return f"{table['table']}  COMMITTED  snapshot {table['snapshot_id']}"
    again = "tried again each round" if table.get("retriable") else "waits for retry or skip"
    waiting = f"{_amount(table)} wait, " if "files" in table else ""
    return f"{table['table']}  FAILED  {waiting}{again}: {table['code']}: {table['message']}"


def _amount(counted: dict[str, Any]) -> str:
    return f"{counted['files']} files with {counted['records']} records"

"""``icefloe catalog``: what a connector's catalog guarantees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.cli.direct_access import Direct, Properties, access_by_flag
from connect.cli.gitops.connector_files import read_one
from connect.cli.gitops.output import Output, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask_about_file
from connect.cli.terminal import echo
from connect.errors import ExitStatus

catalog_app = typer.Typer(
    name="catalog", help="Test what a catalog guarantees.", no_args_is_help=True
)


@catalog_app.callback()
def catalog() -> None:
    """Test what a catalog guarantees."""  # keeps ``check`` a subcommand while it is the only one


@catalog_app.command()
def check(
    file: Annotated[Path, typer.Option("--file", "-f", help="The connector's JSON or YAML.")],
    url: Url = DEFAULT_URL,
    *,
    is_direct: Direct = False,
    properties: Properties = None,
    races: Annotated[
        int, typer.Option(min=1, max=10_000, help="Races of each kind; a node runs up to 100.")
    ] = 40,
    namespace: Annotated[
        str | None,
        typer.Option(help="Existing namespace for the scratch tables; else one is created."),
    ] = None,
    output: Output = "table",
) -> None:
    """Race commits on scratch tables: status 0 when they are atomic, 1 when not, 3 when unknown.

    The last line says whether iceberg.catalog.multi-table-commit may be set. The scratch tables
    are removed.
    """
    desired = read_one(file, unnamed=file.stem)
    direct = access_by_flag(desired.config, properties, None, is_direct=is_direct, has_broker=False)
    if direct is None:
        body = {"config": dict(desired.config), "races": races, "namespace": namespace}
        report = ask_about_file(url, desired.name, "catalog", "check", json=body)
    else:
        report = direct.operations.catalog_check(direct.config, races=races, namespace=namespace)

    def as_table() -> None:
        for line in _lines(report):
            echo(line)

    emit(output, report, names=[report["catalog"]], as_table=as_table)
    for left in report["not_removed"]:
        echo(f"not removed, remove it manually: {left}", err=True)
    if report["refusal"] is not None:
        echo(f"no commit succeeded, so the result is unknown: {report['refusal']}", err=True)
    raise typer.Exit(_status(report))


def _status(report: Mapping[str, Any]) -> ExitStatus:
    if report["one_table_atomic"] is None:
        return ExitStatus.NOT_ASKED
    if not report["one_table_atomic"] or not report["several_tables_offered"]:
        return ExitStatus.NO
    if report["several_tables_atomic"] is None:
        return ExitStatus.NOT_ASKED
    return ExitStatus.DONE if report["several_tables_atomic"] else ExitStatus.NO


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"catalog {report['catalog']} ({report['kind']}); scratch tables {report['scratch_table']} "
        "and more"
    )
    for each in report["checks"]:
        count = each["violations"]
        verdict = f"{count} commits not correct" if count else "all correct"
        yield (
            f"{each['check']}: {each['races']} races, {each['landed']} commits succeeded, {verdict}"
        )
        for example in each["examples"]:
            yield f"  {example}"
    if report["one_table_atomic"] is None:
        return
    if not report["one_table_atomic"]:
        yield (
            "NOT ATOMIC, not even for one table: do not write to this catalog with any sink, rows "
            "will be lost"
        )
    elif not report["several_tables_offered"]:
        yield (
            "one table: ATOMIC; several tables: the catalog does not offer it, leave "
            "iceberg.catalog.multi-table-commit unset"
        )
    elif report["several_tables_atomic"] is False:
        yield (
            "one table: ATOMIC; several tables: NOT ATOMIC, leave "
            "iceberg.catalog.multi-table-commit unset"
        )
    elif report["several_tables_atomic"]:
        yield (
            "one table: ATOMIC; several tables: ATOMIC in every race, "
            "iceberg.catalog.multi-table-commit may be set to true"
        )

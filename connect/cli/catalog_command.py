"""``icefloe catalog``: what a connector's catalog guarantees."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.cli.gitops.connector_files import read_one
from connect.cli.gitops.output import Output, emit
from connect.cli.terminal import echo
from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.config.properties_file import parse_properties
from connect.errors import ConfigError, ExitStatus
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.operations.catalog_check import TABLES, WRITERS, CatalogCheck, RaceFinding
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve

catalog_app = typer.Typer(
    name="catalog", help="Test what a catalog guarantees.", no_args_is_help=True
)


@catalog_app.callback()
def catalog() -> None:
    """Test what a catalog guarantees."""  # keeps ``check`` a subcommand while it is the only one


@catalog_app.command()
def check(
    file: Annotated[Path, typer.Option("--file", "-f", help="The connector's JSON or YAML.")],
    properties: Annotated[
        Path | None,
        typer.Option("--properties", "-p", help="Node properties, for ${...} placeholders."),
    ] = None,
    races: Annotated[int, typer.Option(min=1, max=10_000, help="Races of each kind.")] = 40,
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
    config = _connector(file, properties)
    report = _Report(config.name, config.catalog_name, is_text=output == "table")
    status = _check(config, races, namespace, report)
    emit(output, report.as_json(), names=[config.catalog_name], as_table=lambda: None)
    raise typer.Exit(status)


@dataclass(slots=True)
class _Report:
    """What was found; printed line by line while the races run, where text is wanted.

    Attributes:
        one_table: whether commits to one table are atomic; None: not known.
        several_tables: whether commits to several tables are; None: not known or not offered.
    """

    connector: str
    catalog: str
    is_text: bool
    one_table: bool | None = None
    several_tables: bool | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print a line of the text form."""
        if self.is_text:
            echo(text)

    def add(self, what: str, finding: RaceFinding) -> None:
        """Keep and print what one kind of race found."""
        count = len(finding.violations)
        self.checks.append(
            {
                "check": what,
                "races": finding.races,
                "landed": finding.landed,
                "violations": count,
                "examples": list(finding.examples),
            }
        )
        verdict = "all correct" if not count else f"{count} commits not correct"
        self.say(f"{what}: {finding.races} races, {finding.landed} commits landed, {verdict}")
        for example in finding.examples:
            self.say(f"  {example}")

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "connector": self.connector,
            "catalog": self.catalog,
            "one_table_atomic": self.one_table,
            "several_tables_atomic": self.several_tables,
            "checks": self.checks,
        }


def _check(
    config: ConnectorConfig, races: int, namespace: str | None, report: _Report
) -> ExitStatus:
    gateway = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
    try:
        place = None if namespace is None else tuple(namespace.split("."))
        if place is not None and not gateway.has_namespace(place):
            raise ConfigError(f"namespace {namespace} does not exist", code="namespace_missing")
        races_of = CatalogCheck(
            gateway,
            SystemClock(),
            namespace=place,
            on_left=lambda what: echo(f"not removed, remove it by hand: {what}", err=True),
        )
        with races_of.scratch() as scratch:
            report.say(
                f"catalog {config.catalog_name} ({gateway.config.kind}); scratch tables "
                f"{'.'.join(scratch.identifiers[0])} and {TABLES - 1} more"
            )
            single = races_of.single(scratch, races)
            report.add(f"one table, {WRITERS} writers from one snapshot", single)
            if single.violations:
                report.one_table = False
                report.say(
                    "NOT ATOMIC, not even for one table: do not write to this catalog with any "
                    "sink, rows will be lost"
                )
                return ExitStatus.NO
            if not single.landed:
                return _nothing_displayed(single)
            report.one_table = True
            return _several(gateway, races_of, scratch, races, report)
    finally:
        gateway.close()


def _several(
    gateway: CatalogGateway, races_of: CatalogCheck, scratch: Any, races: int, report: _Report
) -> ExitStatus:
    if not gateway.has_transactions:
        report.say(
            "one table: ATOMIC; several tables: the catalog does not offer it, leave "
            "iceberg.catalog.multi-table-commit unset"
        )
        return ExitStatus.NO
    found = {
        "several tables, one of them stale": races_of.stale(scratch),
        "several tables, two requests in opposite order": races_of.opposite(scratch, races),
        "several tables against a commit to the last": races_of.against_single(scratch, races),
    }
    for what, finding in found.items():
        report.add(what, finding)
    if any(finding.violations for finding in found.values()):
        report.several_tables = False
        report.say(
            "one table: ATOMIC; several tables: NOT ATOMIC, leave "
            "iceberg.catalog.multi-table-commit unset"
        )
        return ExitStatus.NO
    for what, finding in found.items():
        if not finding.landed and "stale" not in what:
            return _nothing_displayed(finding)
    report.several_tables = True
    report.say(
        "one table: ATOMIC; several tables: ATOMIC in every race, "
        "iceberg.catalog.multi-table-commit may be set to true"
    )
    return ExitStatus.DONE


def _nothing_displayed(finding: RaceFinding) -> ExitStatus:
    echo(f"no commit landed, so nothing was shown; last answer: {finding.refusal}", err=True)
    return ExitStatus.NOT_ASKED


def _connector(file: Path, properties: Path | None) -> ConnectorConfig:
    try:
        node = {} if properties is None else parse_properties(properties.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{properties} cannot be read: {error}", code="config_file") from error
    raw = read_one(file, unnamed=file.stem).config
    return resolve(parse(raw), Providers(node, os.environ), node=node)

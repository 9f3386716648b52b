"""``icefloe catalog``: what a connector's catalog can be relied on for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.catalog_check import TABLES, WRITERS, CatalogCheck, Finding
from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.config.parse import parse
from connect.config.properties_file import parse_properties
from connect.config.providers import Providers, resolve
from connect.errors import ConfigError, IcefloeError
from connect.gateways.catalog import CatalogGateway, open_catalog
from connect.gitops.files import read_one
from connect.terminal import echo

catalog_app = typer.Typer(name="catalog", help="Ask a catalog what it does.", no_args_is_help=True)

ATOMIC, NOT_ATOMIC, NOT_ASKED = 0, 1, 2


@catalog_app.callback()
def catalog() -> None:
    """Ask a catalog what it does."""  # keeps ``check`` a subcommand while it is the only one


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
        typer.Option(help="Existing namespace for the scratch tables; else one is made."),
    ] = None,
) -> None:
    """Race commits on scratch tables: exit 0 when they are atomic, 1 when not, 2 when unknown.

    Says whether iceberg.catalog.multi-table-commit may be set. The scratch tables are removed.
    """
    try:
        status = _check(_connector(file, properties), races, namespace)
    except IcefloeError as error:
        echo(f"the catalog could not be asked: {error}", err=True)
        status = NOT_ASKED
    raise typer.Exit(status)


def _check(config: ConnectorConfig, races: int, namespace: str | None) -> int:
    gateway = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
    try:
        place = None if namespace is None else tuple(namespace.split("."))
        if place is not None and not gateway.has_namespace(place):
            raise ConfigError(f"namespace {namespace} does not exist", code="namespace_missing")
        races_of = CatalogCheck(
            gateway,
            SystemClock(),
            namespace=place,
            on_left=lambda what: echo(f"left behind, remove it: {what}", err=True),
        )
        with races_of.scratch() as scratch:
            echo(
                f"catalog {config.catalog_name} ({gateway.config.kind}); scratch tables "
                f"{'.'.join(scratch.identifiers[0])} and {TABLES - 1} more"
            )
            single = races_of.single(scratch, races)
            _show(f"one table, {WRITERS} writers from one snapshot", single)
            if single.violations:
                echo(
                    "NOT ATOMIC, not even for one table: do not write to this catalog with any "
                    "sink, rows will be lost"
                )
                return NOT_ATOMIC
            if not single.landed:
                return _nothing_shown(single)
            return _several(gateway, races_of, scratch, races)
    finally:
        gateway.close()


def _several(gateway: CatalogGateway, races_of: CatalogCheck, scratch: Any, races: int) -> int:
    if not gateway.has_transactions:
        echo(
            "one table: ATOMIC; several tables: the catalog does not offer it, leave "
            "iceberg.catalog.multi-table-commit unset"
        )
        return NOT_ATOMIC
    found = {
        "several tables, one of them stale": races_of.stale(scratch),
        "several tables, two requests in opposite order": races_of.opposite(scratch, races),
        "several tables against a commit to the last": races_of.against_single(scratch, races),
    }
    for what, finding in found.items():
        _show(what, finding)
    if any(finding.violations for finding in found.values()):
        echo(
            "one table: ATOMIC; several tables: NOT ATOMIC, leave "
            "iceberg.catalog.multi-table-commit unset"
        )
        return NOT_ATOMIC
    for what, finding in found.items():
        if not finding.landed and "stale" not in what:
            return _nothing_shown(finding)
    echo(
        "one table: ATOMIC; several tables: ATOMIC in every race, "
        "iceberg.catalog.multi-table-commit may be set to true"
    )
    return ATOMIC


def _nothing_shown(finding: Finding) -> int:
    echo(f"no commit landed, so nothing was shown; last answer: {finding.refusal}", err=True)
    return NOT_ASKED


def _show(what: str, finding: Finding) -> None:
    count = len(finding.violations)
    verdict = "all as it should be" if not count else f"{count} commits not as they should be"
    echo(f"{what}: {finding.races} races, {finding.landed} commits landed, {verdict}")
    for example in finding.examples:
        echo(f"  {example}")


def _connector(file: Path, properties: Path | None) -> ConnectorConfig:
    try:
        node = {} if properties is None else parse_properties(properties.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{properties} cannot be read: {error}", code="config_file") from error
    raw = read_one(file, unnamed=file.stem).config
    return resolve(parse(raw), Providers(node, os.environ), node=node)

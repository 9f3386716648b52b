"""``icefloe migrate --check``: what another sink left of a connector."""

from __future__ import annotations

import dataclasses
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
from connect.operations.migration.inspector import Inspector
from connect.operations.migration.migration_report import Report
from connect.protocol.control_offsets import offsets_text

migrate_app = typer.Typer(name="migrate", help="Take a connector over from another sink.")


@migrate_app.callback(invoke_without_command=True, no_args_is_help=True)
def migrate(
    file: Annotated[Path, typer.Option("--file", "-f", help="The connector's JSON or YAML.")],
    check: Annotated[bool, typer.Option("--check", help="Report, and change nothing.")] = False,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="The broker, as host:port.")
    ] = None,
    properties: Annotated[
        Path | None,
        typer.Option("--properties", "-p", help="Node properties: broker, security, providers."),
    ] = None,
    output: Output = "table",
) -> None:
    """Show what another sink left of a connector, where Icefloe starts, and what is not safe.

    Status 0 when it is safe to start, 1 when it is not.
    """
    if not check:
        raise ConfigError(
            "add --check; there is no other command: the start of the connector takes it over",
            code="usage",
        )
    raw = read_one(file).config
    with opened(raw, read_properties(properties, bootstrap_server), os.environ) as direct:
        inspector = Inspector(
            direct.config, direct.admin, direct.reader, direct.catalog, SystemClock()
        )
        report = inspector.inspect(direct.partitions)

    def as_table() -> None:
        for line in lines(report):
            echo(line)

    emit(output, as_json(report), names=[report.connector], as_table=as_table)
    if not report.is_safe:
        raise typer.Exit(ExitStatus.NO)


def as_json(report: Report) -> dict[str, Any]:
    """The report as a JSON object."""
    return {
        "connector": report.connector,
        "group": report.group,
        "safe": report.is_safe,
        "groups": [
            {
                "name": group.name,
                "source_offsets": {
                    f"{tp.topic}-{tp.partition}": at for tp, at in group.source_offsets.items()
                },
                "control_offsets": dict(group.control_offsets),
                "members": list(group.members),
            }
            for group in report.groups
        ],
        "control_topic": {str(p): list(marks) for p, marks in report.control_topic.items()},
        "tables": [dataclasses.asdict(table) for table in report.tables],
        "starts": {
            f"{tp.topic}-{tp.partition}": {"offset": at, "from": why}
            for tp, (at, why) in report.starts.items()
        },
        "findings": [
            {"code": f.code, "unsafe": f.is_unsafe, "text": f.text} for f in report.findings
        ],
    }


def lines(report: Report) -> Iterator[str]:
    """The report as text."""
    yield f"connector {report.connector}, goes on with group {report.group}"
    for group in report.groups:
        control = offsets_text(group.control_offsets) if group.control_offsets else "none"
        yield (
            f"group {group.name}: {len(group.source_offsets)} source offsets, control offsets "
            f"{control}, {len(group.members)} members"
        )
    for partition, (first, end) in sorted(report.control_topic.items()):
        yield f"control partition {partition}: [{first}, {end})"
    for table in report.tables:
        if not table.exists:
            yield f"table {table.name}: not there"
            continue
        floors = ", ".join(f"{g} {offsets_text(f)}" for g, f in table.floors.items()) or "none"
        yield (
            f"table {table.name}: last sink {table.writer or 'none'}, floor {floors}, valid "
            f"through {table.valid_through or 'unknown'}, waiting {table.pending_files} files with "
            f"{table.pending_records} rows"
        )
    for tp, (offset, why) in report.starts.items():
        yield f"reads {tp.topic}-{tp.partition} from {offset} ({why})"
    for finding in report.findings:
        yield f"{'UNSAFE' if finding.is_unsafe else 'note'} {finding.code}: {finding.text}"
    yield "safe to start" if report.is_safe else "not safe to start"

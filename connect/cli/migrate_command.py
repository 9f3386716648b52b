"""``icefloe migrate --check``: the state that another sink left of a connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from connect.cli.direct_access import Broker, Direct, Properties, access_by_flag
from connect.cli.gitops.connector_files import read_one
from connect.cli.gitops.output import Output, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask_about_file
from connect.cli.terminal import echo
from connect.errors import ConfigError, ExitStatus
from connect.protocol.control_offsets import offsets_text

migrate_app = typer.Typer(name="migrate", help="Take a connector over from another sink.")


@migrate_app.callback(invoke_without_command=True, no_args_is_help=True)
def migrate(
    file: Annotated[Path, typer.Option("--file", "-f", help="The connector's JSON or YAML.")],
    check: Annotated[bool, typer.Option("--check", help="Report, and change nothing.")] = False,
    url: Url = DEFAULT_URL,
    *,
    is_direct: Direct = False,
    bootstrap_server: Broker = None,
    properties: Properties = None,
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
    desired = read_one(file)
    direct = access_by_flag(
        desired.config, properties, bootstrap_server, is_direct=is_direct, has_broker=True
    )
    if direct is None:
        report = ask_about_file(url, desired.name, "migration", "check", json=dict(desired.config))
    else:
        report = direct.operations.migration(direct.config)

    def as_table() -> None:
        for line in lines(report):
            echo(line)

    emit(output, report, names=[report["connector"]], as_table=as_table)
    if not report["safe"]:
        raise typer.Exit(ExitStatus.NO)


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Return a report as text."""
    yield f"connector {report['connector']}, continues with group {report['group']}"
    for group in report["groups"]:
        yield (
            f"group {group['name']}: {len(group['source_offsets'])} source offsets, control "
            f"offsets {_offsets(group['control_offsets'])}, {len(group['members'])} members"
        )
    for partition, (log_start, end) in sorted(report["control_topic"].items(), key=_by_partition):
        yield f"control partition {partition}: [{log_start}, {end})"
    for table in report["tables"]:
        if not table["exists"]:
            yield f"table {table['name']}: does not exist"
            continue
        floors = ", ".join(f"{g} {_offsets(f)}" for g, f in table["floors"].items()) or "none"
        yield (
            f"table {table['name']}: last sink {table['writer'] or 'none'}, floor {floors}, valid "
            f"through {table['valid_through'] or 'unknown'}, {table['pending_files']} files with "
            f"{table['pending_records']} rows wait for a commit"
        )
    for partition, start in report["starts"].items():
        yield f"reads {partition} from {start['offset']} ({start['from']})"
    for finding in report["findings"]:
        yield f"{'UNSAFE' if finding['unsafe'] else 'note'} {finding['code']}: {finding['text']}"
    yield "safe to start" if report["safe"] else "not safe to start"


def _by_partition(item: tuple[str, Any]) -> int:
    return int(item[0])


def _offsets(offsets: Mapping[str, int]) -> str:
    return offsets_text({int(p): at for p, at in offsets.items()}) if offsets else "none"

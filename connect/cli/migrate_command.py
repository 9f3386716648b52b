"""``icefloe migrate --check``: the state that another sink left of connectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from connect.cli.direct_access import Broker, Direct, Properties, access_by_flag
from connect.cli.gitops.commands import Files
from connect.cli.gitops.connector_files import DesiredConnector, read
from connect.cli.gitops.output import Output, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask_about_file
from connect.cli.terminal import echo
from connect.errors import ConfigError, ExitStatus, IcefloeError
from connect.protocol.control_offsets import offsets_text

migrate_app = typer.Typer(
    name="migrate",
    help="Check whether another sink's connectors can move.\n\nThe report has what that sink left, "
    "where Icefloe starts, and what is not safe. The exit status is 0 if it is safe to start all "
    "connectors, and 1 if not.",
    subcommand_metavar="",
)


@migrate_app.callback(invoke_without_command=True, no_args_is_help=True)
def migrate(
    files: Files,
    check: Annotated[bool, typer.Option("--check", help="Report, and change nothing.")] = False,
    url: Url = DEFAULT_URL,
    *,
    is_direct: Direct = False,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    output: Output = "table",
) -> None:
    """Show what another sink left of connectors, where Icefloe starts, and what is not safe.

    Status 0 when it is safe to start all of them, 1 when it is not.
    """
    if not check:
        raise ConfigError(
            "add --check; there is no other command: the start of the connector takes it over",
            code="usage",
        )

    def checked(desired: DesiredConnector) -> Mapping[str, Any]:
        direct = access_by_flag(
            desired.config, properties, bootstrap_server, is_direct=is_direct, has_broker=True
        )
        if direct is None:
            config = dict(desired.config)
            return ask_about_file(url, desired.name, "migration", "check", json=config)
        return direct.operations.migration(direct.config)

    reports, status = _check_all(read(files), checked)
    is_one_file = len(files) == 1 and files[0].is_file() and len(reports) == 1
    data = reports[0] if is_one_file else reports
    names = [report["connector"] for report in reports]
    emit(output, data, names=names, as_table=lambda: _print(reports))
    if status:
        raise typer.Exit(status)


def _check_all(
    connectors: Sequence[DesiredConnector],
    check_one: Callable[[DesiredConnector], Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], ExitStatus]:
    """Return a report of each connector, and the highest exit status of them.

    With several connectors, one whose check fails does not end the command.
    """
    reports: list[Mapping[str, Any]] = []
    status = ExitStatus.DONE
    for desired in connectors:
        try:
            reports.append(check_one(desired))
        except IcefloeError as e:
            if len(connectors) == 1:
                raise
            reports.append({"connector": desired.name, "safe": None, "error": str(e)})
            status = max(status, e.exit_status)
        if reports[-1]["safe"] is False:
            status = max(status, ExitStatus.NO)
    return reports, status


def _print(reports: Sequence[Mapping[str, Any]]) -> None:
    for report in reports:
        for line in lines(report):
            echo(line)
        if len(reports) > 1:
            echo()
    if len(reports) > 1:
        echo(_summary(reports))


def _summary(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return how many connectors are safe to start, and the names of the others."""
    others = [
        f"{title}: {', '.join(names)}"
        for title, verdict in (("not safe", False), ("not checked", None))
        if (names := [r["connector"] for r in reports if r["safe"] is verdict])
    ]
    safe_count = sum(report["safe"] is True for report in reports)
    return "; ".join([f"{safe_count} of {len(reports)} connectors are safe to start", *others])


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Return a report as text."""
    if "error" in report:
        yield f"connector {report['connector']}"
        yield f"not checked: {report['error']}"
        return
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

"""``icefloe migrate --check``: what another sink left of a connector, in words or as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import typer

from connect.clock import SystemClock
from connect.control_offsets import offsets_text
from connect.direct import opened, read_connector, read_properties
from connect.migration.inspector import Inspector
from connect.migration.report import Report

STATUS_UNSAFE = 2


def run_check(
    file: Path,
    *,
    bootstrap_server: str | None,
    properties: Path | None,
    output: Literal["text", "json"],
) -> int:
    """Look, tell, and return the exit status: 0 safe, 2 not safe.

    Raises:
        IcefloeError: it could not look.
    """
    raw = read_connector(file)
    with opened(raw, read_properties(properties, bootstrap_server), os.environ) as direct:
        inspector = Inspector(
            direct.config, direct.admin, direct.reader, direct.catalog, SystemClock()
        )
        report = inspector.look(direct.partitions)
    if output == "json":
        typer.echo(json.dumps(as_json(report), ensure_ascii=False, indent=1))
    else:
        for line in lines(report):
            typer.echo(line)
    return 0 if report.is_safe else STATUS_UNSAFE


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
    """The report, to be read."""
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
            f"table {table.name}: last sink {table.writer or 'none'}, floor {floors}, valid through "
            f"{table.valid_through or 'unknown'}, waiting {table.pending_files} files with "
            f"{table.pending_records} rows"
        )
    for tp, (offset, why) in report.starts.items():
        yield f"reads {tp.topic}-{tp.partition} from {offset} ({why})"
    for finding in report.findings:
        yield f"{'UNSAFE' if finding.is_unsafe else 'note'} {finding.code}: {finding.text}"
    yield "safe to start" if report.is_safe else "not safe to start"

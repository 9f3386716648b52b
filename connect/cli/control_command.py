"""The ``icefloe control`` commands: decode control events, rebase offsets, reset the VTTS.

The JSON form of events is that of ``tests/golden/control_events/README.md``. Times are ISO instants
with microseconds; bytes are hexadecimal; UUIDs and decimals are text; map keys are field ids. A
null of the wire is null, except in ``spec_id``: it is -1, as in Java.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from connect.cli.gitops.output import Output, Yes, confirm, emit
from connect.cli.rest_client import DEFAULT_URL, Url, ask
from connect.cli.terminal import echo
from connect.errors import ExitStatus
from connect.java_compat.iso_time import date_text, instant_text, time_text
from control_schemas.codec import decode
from control_schemas.errors import MalformedEvent
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    ContentFile,
    DataComplete,
    DataWritten,
    Event,
    PartitionValue,
    Payload,
    TableReference,
)

control_app = typer.Typer(
    name="control", help="Decode control events; repair control offsets.", no_args_is_help=True
)

vtts_app = typer.Typer(name="vtts", help="The valid-through time.", no_args_is_help=True)
control_app.add_typer(vtts_app)


def decode_file(path: Path) -> dict[str, Any]:
    """Read one record value of a control topic from a file.

    Returns:
        The event in the JSON form of the recordings.

    Raises:
        MalformedEvent: the file does not hold a control event.
        OSError: the file cannot be read.
    """
    return event_to_json(decode(path.read_bytes()))


@control_app.callback()
def control() -> None:
    """Decode control events; repair control offsets."""


@control_app.command("decode")
def decode_command(
    files: Annotated[list[Path], typer.Argument(help="Record values, one event each.")],
    output: Output = "table",
) -> None:
    """Print control events as JSON, one line each: {"file", "event"} or {"file", "error"}.

    -o json prints one list. Status 1 when a file holds no control event.
    """
    decoded: list[dict[str, Any]] = []
    for path in files:
        line: dict[str, Any] = {"file": path.name}
        try:
            line["event"] = decode_file(path)
        except (MalformedEvent, OSError) as error:
            line["error"] = str(error)
        decoded.append(line)

    def as_table() -> None:
        for line in decoded:
            echo(json.dumps(line, ensure_ascii=False))

    emit(output, decoded, names=[line["file"] for line in decoded], as_table=as_table)
    if any("error" in line for line in decoded):
        raise typer.Exit(ExitStatus.NO)


@control_app.command("rebase")
def rebase_command(
    connector: Annotated[str, typer.Argument(help="Name of the connector; it must be stopped.")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="A table that the configuration does not name."),
    ] = None,
    *,
    url: Url = DEFAULT_URL,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Repair a stopped connector's control offsets after loss of control events or snapshots."""

    def rebase(*, is_applied: bool) -> None:
        body = {"apply": is_applied, "tables": tables or []}
        answer = ask(url, "POST", connector, "control", "rebase", json=body)
        emit(output, answer, names=[connector], as_table=lambda: _print_rebase(answer))

    if not yes:
        rebase(is_applied=False)
        confirm(f"rebase {connector}?", yes=yes)
    rebase(is_applied=True)
    echo(f"done; resume {connector} when you are ready", err=True)


def _print_rebase(answer: Mapping[str, Any]) -> None:
    for sentence in answer["says"]:
        echo(f"- {sentence}")
    for topic, partition, offset in answer["control_offsets"]:
        echo(f"- control offset of {topic}-{partition}: {offset}")
    for table in answer["tables"]:
        if table["code"] is not None:
            repaired = ": its floor is now the group's control offsets" if table["mended"] else ""
            echo(f"- table {table['table']}: {table['code']}: {table['message']}{repaired}")
    echo(answer["then"])


@vtts_app.callback()
def vtts() -> None:
    """The valid-through time."""  # keeps ``reset`` a subcommand while it is the only one


@vtts_app.command("reset")
def reset_command(
    connector: Annotated[str, typer.Argument(help="Name of the connector; it must be stopped.")],
    reason: Annotated[str, typer.Option("--reason", help="Kept in the snapshot of each table.")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="A table that the configuration does not name."),
    ] = None,
    *,
    url: Url = DEFAULT_URL,
    output: Output = "table",
    yes: Yes = False,
) -> None:
    """Remove a wrong valid-through time, for example after a record dated 2100."""

    def reset(*, is_applied: bool) -> bool:
        body = {"apply": is_applied, "reason": reason, "tables": tables or []}
        answer = ask(url, "POST", connector, "control", "vtts", "reset", json=body)
        emit(output, answer, names=[connector], as_table=lambda: _print_reset(answer))
        return bool(answer["applied"])

    if not yes:
        reset(is_applied=False)
        confirm(f"remove the valid-through times of {connector}?", yes=yes)
    if not reset(is_applied=True):
        echo("not done: fix the errors above, then run the command again", err=True)
        raise typer.Exit(ExitStatus.NO)
    echo(f"done; resume {connector} when you are ready", err=True)


def _print_reset(answer: Mapping[str, Any]) -> None:
    for table in answer["tables"]:
        claims = ", ".join(table["claims"]) or "nothing"
        line = f"- table {table['table']} claims {claims}"
        if table["code"] is not None:
            line = f"- table {table['table']}: {table['code']}: {table['message']}"
        elif table["snapshot_id"] is not None:
            line += f": removed by snapshot {table['snapshot_id']}"
        echo(line)
    if answer["error"] is not None:
        echo(f"- the tables could not be read: {answer['error']}")


DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS: Final = ("lower_bounds", "upper_bounds")
PLAIN: Final = (
    "sort_order_id",
    "first_row_id",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)
NO_SPEC_ID: Final = -1
NS_PER_US: Final = 1000


def event_to_json(event: Event) -> dict[str, Any]:
    """Return the JSON form of an event."""
    return {
        "id": str(event.id),
        "type": event.type.name,
        "type_id": int(event.type),
        "timestamp": _instant(event.timestamp_us),
        "group_id": event.group_id,
        "payload": {"commit_id": str(event.payload.commit_id), **_payload_to_json(event.payload)},
    }


def _payload_to_json(payload: Payload) -> dict[str, Any]:
    if isinstance(payload, DataWritten):
        return {
            "table_reference": _table_to_json(payload.table),
            "data_files": _files_to_json(payload.data_files),
            "delete_files": _files_to_json(payload.delete_files),
        }
    if isinstance(payload, DataComplete):
        assignments = payload.assignments
        return {
            "assignments": None
            if assignments is None
            else [
                {
                    "topic": item.topic,
                    "partition": item.partition,
                    "offset": item.offset,
                    "timestamp": _instant(item.timestamp_us),
                }
                for item in assignments
            ]
        }
    if isinstance(payload, CommitToTable):
        return {
            "table_reference": _table_to_json(payload.table),
            "snapshot_id": payload.snapshot_id,
            "valid_through_ts": _instant(payload.valid_through_us),
        }
    if isinstance(payload, CommitComplete):
        return {"valid_through_ts": _instant(payload.valid_through_us)}
    return {}


def _table_to_json(table: TableReference) -> dict[str, Any]:
    return {
        "catalog": table.catalog,
        "namespace": list(table.namespace),
        "name": table.name,
        "table_uuid": None if table.table_uuid is None else str(table.table_uuid),
    }


def _files_to_json(files: tuple[ContentFile, ...] | None) -> list[dict[str, Any]] | None:
    return None if files is None else [_file_to_json(file) for file in files]


def _file_to_json(file: ContentFile) -> dict[str, Any]:
    counts: dict[str, Mapping[int, int] | None] = {key: getattr(file, key) for key in COUNTS}
    bounds: dict[str, Mapping[int, bytes] | None] = {key: getattr(file, key) for key in BOUNDS}
    return {
        "content": file.content.name,
        "file_path": file.file_path,
        "file_format": file.file_format,
        "spec_id": NO_SPEC_ID if file.spec_id is None else file.spec_id,
        "partition": [
            {
                "field_id": field.field_id,
                "name": field.name,
                "type": field.type,
                "value": value_to_json(field.type, field.value),
            }
            for field in file.partition
        ],
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        **{
            key: None if values is None else {str(k): values[k] for k in sorted(values)}
            for key, values in counts.items()
        },
        **{
            key: None if values is None else {str(k): values[k].hex() for k in sorted(values)}
            for key, values in bounds.items()
        },
        "key_metadata": None if file.key_metadata is None else file.key_metadata.hex(),
        "split_offsets": None if file.split_offsets is None else list(file.split_offsets),
        "equality_ids": None if file.equality_ids is None else list(file.equality_ids),
        **{key: getattr(file, key) for key in PLAIN},
    }


def value_to_json(type_text: str, value: PartitionValue) -> Any:
    """Convert a partition value from Iceberg's internal form to its JSON form."""
    if isinstance(value, bytes):
        return str(UUID(bytes=value)) if type_text == "uuid" else value.hex()
    if type(value) is not int or type_text in ("int", "long"):
        return value
    if match := DECIMAL.fullmatch(type_text):
        digits = tuple(map(int, str(abs(value))))
        return f"{Decimal((int(value < 0), digits, -int(match[2]))):f}"
    if type_text == "date":
        return date_text(value)
    if type_text == "time":
        return time_text(value * NS_PER_US)
    if type_text.startswith("timestamp"):
        text = instant_text(value if type_text.endswith("_ns") else value * NS_PER_US)
        return text if type_text.startswith("timestamptz") else text.removesuffix("Z")
    return value


def _instant(timestamp_us: int | None) -> str | None:
    return None if timestamp_us is None else instant_text(timestamp_us * NS_PER_US)

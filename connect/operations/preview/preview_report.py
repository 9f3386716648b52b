"""A preview as JSON.

Rules of this file:
- Values keep their exact text: decimals and 64-bit numbers outside JSON's range are texts, bytes
  are base64, times are ISO 8601.
"""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from pyiceberg.schema import Schema, index_name_by_id

from connect.config.connector import ConnectorConfig
from connect.java_compat.iso_time import instant_text
from connect.operations.preview.record_preview import Preview, RecordPreview, TablePreview

_JSON_INTEGER_MAX: Final = 2**53 - 1


def report(config: ConnectorConfig, preview: Preview, *, is_complete: bool) -> dict[str, Any]:
    """Return the preview as a JSON object.

    Args:
        config: the connector.
        preview: the preview.
        is_complete: False when reading ended before the number of records that was asked for,
            although the logs hold more.
    """
    outcomes: dict[str, int] = {}
    for record in preview.records:
        outcomes[record.outcome] = outcomes.get(record.outcome, 0) + 1
    return {
        "connector": config.name,
        "complete": is_complete,
        "outcomes": outcomes,
        "tables": [_table(table, preview) for table in preview.tables.values()],
        "not_written": [
            _not_written(record) for record in preview.records if record.outcome != "written"
        ],
    }


def _table(table: TablePreview, preview: Preview) -> dict[str, Any]:
    return {
        "table": table.name,
        "exists": table.exists,
        "location": table.location,
        "columns": _columns(table),
        "partitioned_by": [
            f"{part.transform}({table.schema.find_column_name(part.source_id)})"
            for part in table.spec.fields
        ],
        "rows": [
            {
                **_coordinates(record),
                "operation": row.operation,
                "values": {name: json_value(value) for name, value in row.values.items()},
            }
            for record in preview.records
            for row in record.rows
            if row.table == table.name
        ],
    }


def _columns(table: TablePreview) -> list[dict[str, Any]]:
    before = _types(table.before) if table.before is not None else {}
    columns = []
    for name, (kind, is_required) in _types(table.schema).items():
        column_before = before.get(name)
        change = None
        if table.exists:
            if column_before is None:
                change = "added"
            elif column_before != (kind, is_required):
                change = f"changed from {column_before[0]}{' required' if column_before[1] else ''}"
        columns.append({"name": name, "type": kind, "required": is_required, "change": change})
    return columns


def _types(schema: Schema) -> dict[str, tuple[str, bool]]:
    """Every column, nested ones too, in the order of the schema; structs without their fields."""
    types = {}
    for field_id, name in index_name_by_id(schema).items():
        field = schema.find_field(field_id)
        kind = field.field_type
        text = str(kind) if kind.is_primitive else type(kind).__name__.removesuffix("Type").lower()
        types[name] = (text, field.required)
    return types


def _not_written(record: RecordPreview) -> dict[str, Any]:
    why = record.rejection
    return {
        **_coordinates(record),
        "outcome": record.outcome,
        "stage": why and why.stage,
        "code": why and why.code,
        "message": why.message if why else "filtered by a transformation, or without a route",
        "transform": why and why.transform,
        "column": why and why.column,
    }


def _coordinates(preview: RecordPreview) -> dict[str, Any]:
    record = preview.record
    time_ms = record.timestamp_ms
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": None if time_ms is None else instant_text(time_ms * 1_000_000),
    }


def json_value(value: Any) -> Any:
    """Return a column's Python value as JSON holds it without loss."""
    match value:
        case bool() | None | str():
            return value
        case int():
            return value if abs(value) <= _JSON_INTEGER_MAX else str(value)
        case float():
            return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
        case Decimal() | uuid.UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case Mapping():
            return {str(name): json_value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [json_value(inner) for inner in value]
        case _:
            return str(value)

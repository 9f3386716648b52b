"""``DebeziumTransform``: converts a Debezium change event to its row with a ``_cdc`` struct."""

from __future__ import annotations

from typing import Any, Final

from connect.config.key import Key
from connect.errors import RecordError
from connect.model.records import ConnectSchema, SinkRecord, Struct, Timestamp
from connect.records.conversion.text import java_text
from connect.records.transforms.transform import (
    ICEBERG,
    STRING_SCHEMA,
    TABULAR,
    TIMESTAMP,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_map,
    a_struct,
    all_values,
    field_schema,
    field_value,
    refused,
    struct_like,
    with_side,
)

CDC: Final = "_cdc"
_PURPOSE: Final = "Debezium transform"
_CDC_FIELDS: Final[tuple[tuple[str, ConnectSchema], ...]] = (
    ("op", STRING_SCHEMA),
    ("ts", ConnectSchema("int64", name=TIMESTAMP, version=1)),
    ("offset", ConnectSchema("int64", optional=True)),
    ("source", STRING_SCHEMA),
    ("target", STRING_SCHEMA),
)

_PLAIN_TARGET: Final = "{db}.{table}"
TRUNCATE: Final = "t"
"""Debezium's operation of a truncated table; such an event has no row."""


def operation(op: str) -> str:
    """Return ``I``, ``U`` or ``D`` for Debezium's operation."""
    return {"u": "U", "d": "D"}.get(op, "I")


def target_pattern(options: Options) -> str:
    """Return the pattern of ``_cdc.target``."""
    return str(options["cdc.target.pattern"] or _PLAIN_TARGET)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    pattern = target_pattern(options)
    row_schema = SchemaCache(_row_schema)

    def apply(record: SinkRecord) -> SinkRecord | None:
        if record.value is None:
            return record
        if record.value_schema is None:
            return _from_map(record, pattern)
        return _from_struct(record, pattern, row_schema)

    return apply


def cdc_names(pattern: str, database: str, table: str) -> dict[str, str]:
    """Return ``source`` and ``target`` of a change."""
    target = pattern.replace("{db}", database).replace("{table}", table)
    return {"source": f"{database}.{table}", "target": target}


def _from_map(record: SinkRecord, pattern: str) -> SinkRecord | None:
    value = a_map(record.value, _PURPOSE)
    event = java_text(_there(value, "op"))
    op = operation(event)
    payload = value.get("before" if op == "D" else "after")
    if payload is None:
        if event == TRUNCATE:
            raise truncate_refused()
        return None
    source = a_map(_there(value, "source"), _PURPOSE)
    database = java_text(_there(source, "schema" if "schema" in source else "db"))
    table = java_text(_there(source, "table" if "table" in source else "collection"))
    cdc: dict[str, Any] = {
        "op": op,
        "ts": value.get("ts_ms"),
        "offset": record.offset,
        **cdc_names(pattern, database, table),
    }
    if type(record.key) is dict:  # as in Java, other keys are not added
        cdc["key"] = record.key
    return with_side(record, "value", None, {**a_map(payload, _PURPOSE), CDC: cdc})


def _row_schema(row: ConnectSchema, key: ConnectSchema | None = None) -> ConnectSchema:
    """Return the schema of a row with its change."""
    fields = [*_CDC_FIELDS, *([] if key is None else [("key", key)])]
    return struct_like(row, [*row.fields, (CDC, ConnectSchema("struct", fields=tuple(fields)))])


def _from_struct(record: SinkRecord, pattern: str, row_schema: SchemaCache) -> SinkRecord:
    value = a_struct(record.value, _PURPOSE)
    event = java_text(_field(value, "op"))
    op = operation(event)
    side_name = "before" if op == "D" else "after"
    payload = _field(value, side_name)
    if payload is None:
        if event == TRUNCATE:
            raise truncate_refused()
        raise refused(f"the change event has no {side_name}", "no_row")
    row = a_struct(payload, _PURPOSE)
    ts = _field(value, "ts_ms")
    if type(ts) is not int:
        raise refused("the change event has no ts_ms", "no_timestamp")
    source = a_struct(_field(value, "source"), _PURPOSE)
    has_schema = field_schema(source.schema, "schema") is not None
    database = _field(source, "schema" if has_schema else "db")
    has_table = field_schema(source.schema, "table") is not None
    table = _field(source, "table" if has_table else "collection")
    if pattern != _PLAIN_TARGET and (database is None or table is None):
        raise refused("the change event does not name its source table", "no_field")
    cdc: dict[str, Any] = {
        "op": op,
        "ts": Timestamp(ts),
        "offset": record.offset,
        **cdc_names(pattern, java_text(database), java_text(table)),
    }
    if record.key_schema is not None:
        cdc["key"] = record.key
    updated = row_schema(row.schema, record.key_schema)
    values = {**all_values(row), CDC: Struct(updated.fields[-1][1], cdc)}
    return with_side(record, "value", updated, Struct(updated, values))


def truncate_refused() -> RecordError:
    """Build the error of an event that has no row because its table was truncated."""
    return refused(
        "the source table was truncated, and truncates are not applied: delete the rows with an "
        "engine and skip this record, or set Debezium's skipped.operations to t",
        "truncate",
    )


def _there(value: dict[Any, Any], name: str) -> Any:
    field = value.get(name)
    if field is None:
        raise refused(f"the change has no {name}", "no_field")
    return field


def _field(struct: Struct, name: str) -> Any:
    value = struct.values.get(name)
    if value is not None:
        return value
    schema = field_schema(struct.schema, name)
    if schema is None:
        raise refused(f"the change has no {name}", "unknown_field")
    return field_value(struct, name, schema)


DECLARATION: Final = Declaration(
    "DebeziumTransform",
    ICEBERG,
    "Converts a Debezium change event to its row: `after`, or `before` for deletes. It adds a "
    "struct `_cdc` with `op` (I, U or D), `ts`, `offset`, `source`, `target` and the message "
    "`key`. Route by `_cdc.target`. For records without schema, the key is added only if it is a "
    "map, and an insert, update or logical message without row is dropped and counted. A truncate "
    "is a record error (`truncate`).",
    make,
    Example(
        {"cdc.target.pattern": "lake.{db}_{table}"},
        {
            "value": {
                "op": "u",
                "ts_ms": 1700000000123,
                "source": {"db": "inv", "schema": "public", "table": "cust"},
                "before": {"id": 1, "name": "old"},
                "after": {"id": 1, "name": "new"},
            },
            "key": {"id": 1},
            "offset": 42,
        },
        {
            "value": {
                "id": 1,
                "name": "new",
                "_cdc": {
                    "op": "U",
                    "ts": 1700000000123,
                    "offset": 42,
                    "source": "public.cust",
                    "target": "lake.public_cust",
                    "key": {"id": 1},
                },
            }
        },
    ),
    keys=(
        Key(
            "cdc.target.pattern",
            "STRING",
            "Pattern of `_cdc.target`, with `{db}` and `{table}`; the default is `{db}.{table}`. "
            "`{db}` is the schema of the source table if it has one. For MongoDB `{table}` is the "
            "collection.",
        ),
    ),
    also=(TABULAR,),
    is_column=True,
)

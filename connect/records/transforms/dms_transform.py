"""``DmsTransform``: converts a change event of AWS DMS to its row with a ``_cdc`` struct."""

from __future__ import annotations

from typing import Final

from connect.model.records import SinkRecord
from connect.records.conversion.text import java_text
from connect.records.transforms.debezium_transform import CDC
from connect.records.transforms.transform import (
    ICEBERG,
    TABULAR,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    a_map,
    refused,
    with_side,
)

_PURPOSE: Final = "DMS transform"


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del options, side
    return _apply


def _apply(record: SinkRecord) -> SinkRecord | None:
    if record.value is None:
        return record
    if record.value_schema is not None:
        raise refused("Schema not support for DMS records", "schema")
    value = a_map(record.value, _PURPOSE)
    data, metadata = value.get("data"), value.get("metadata")
    if type(data) is not dict or type(metadata) is not dict:
        return None
    operation = metadata.get("operation")
    if operation is None:
        raise refused("the metadata of the change event has no operation", "no_field")
    op = {"update": "U", "delete": "D"}.get(java_text(operation), "I")
    schema, table = metadata.get("schema-name"), metadata.get("table-name")
    source = f"{java_text(schema)}.{java_text(table)}"
    cdc = {"op": op, "ts": metadata.get("timestamp"), "source": source}
    return with_side(record, "value", None, {**data, CDC: cdc})


DECLARATION: Final = Declaration(
    "DmsTransform",
    ICEBERG,
    "Converts a change event of AWS DMS to its `data` and adds a struct `_cdc` with `op` (U for "
    "update, D for delete, else I), `ts` and `source`. Records without data or metadata are "
    "dropped.",
    make,
    Example(
        {},
        {
            "value": {
                "data": {"id": 1, "name": "ann"},
                "metadata": {
                    "operation": "delete",
                    "timestamp": "2023-01-01T00:00:00.000000Z",
                    "schema-name": "shop",
                    "table-name": "cust",
                },
            }
        },
        {
            "value": {
                "id": 1,
                "name": "ann",
                "_cdc": {
                    "op": "D",
                    "ts": "2023-01-01T00:00:00.000000Z",
                    "source": "shop.cust",
                },
            }
        },
    ),
    also=(TABULAR,),
    is_column=True,
)

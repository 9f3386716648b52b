"""``InsertHeader``: adds a header with a fixed value."""

from __future__ import annotations

import dataclasses
from typing import Final

from connect.config.key import REQUIRED, Key, not_null
from connect.model.records import Header, SinkRecord
from connect.records.transforms.literals import parsed
from connect.records.transforms.transform import KAFKA, Apply, Declaration, Example, Options, Side


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    schema, value = parsed(options["value.literal"])
    header = Header(options["header"], value, schema)

    def apply(record: SinkRecord) -> SinkRecord:
        return dataclasses.replace(record, headers=(*record.headers, header))

    return apply


DECLARATION: Final = Declaration(
    "InsertHeader",
    KAFKA,
    "Adds a header with a literal value. It is parsed as by Kafka's SimpleHeaderConverter: `12` is "
    "a "
    'number, `true` a boolean, `2024-01-02` a date, `[1,2]` a list, `{"a":1}` a map, and '
    "other text a string. For `12,x` and `07:51:30`, only the first number is used.",
    make,
    Example(
        {"header": "source", "value.literal": "eu-1"},
        {"value": {"id": 7}, "headers": {}},
        {"value": {"id": 7}, "headers": {"source": "eu-1"}},
    ),
    keys=(
        Key("header", "STRING", "The header's name.", REQUIRED, "HIGH", check=not_null),
        Key("value.literal", "STRING", "The header's value.", REQUIRED, "HIGH", check=not_null),
    ),
    needs_headers=True,
    is_column=True,
)

"""``ExtractField``: replaces the whole key or value with one of its fields."""

from __future__ import annotations

from typing import Final

from connect.config.key import REQUIRED, Key
from connect.model.records import SinkRecord
from connect.records.transforms.field_path import (
    SYNTAX_VERSION,
    in_map,
    in_schema,
    in_struct,
    steps_of,
)
from connect.records.transforms.transform import (
    KAFKA,
    NULL_DEFAULT,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    a_map,
    a_struct,
    refused,
    side_of,
    with_side,
)

_PURPOSE: Final = "field extraction"


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    steps = steps_of(options["field"], options["field.syntax.version"])
    default = options["replace.null.with.default"]

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if schema is None:
            extracted = None if value is None else in_map(a_map(value, _PURPOSE), steps)
            return with_side(record, side, None, extracted)
        struct = None if value is None else a_struct(value, _PURPOSE)
        inner = in_schema(schema, steps)
        if inner is None:
            raise refused(f"Unknown field: {options['field']}", "unknown_field")
        extracted = None if struct is None else in_struct(struct, steps, default=default)
        return with_side(record, side, inner, extracted)

    return apply


DECLARATION: Final = Declaration(
    "ExtractField",
    KAFKA,
    "Replaces the whole key or value with one of its fields. A missing field results in null; in a "
    "record with schema it is an error.",
    make,
    Example(
        {"field": "after.row", "field.syntax.version": "V2"},
        {"value": {"op": "c", "after": {"row": {"id": 7}}}},
        {"value": {"id": 7}},
    ),
    keys=(
        Key("field", "STRING", "The field to extract.", REQUIRED),
        NULL_DEFAULT,
        SYNTAX_VERSION,
    ),
    has_sides=True,
    is_column=True,
)

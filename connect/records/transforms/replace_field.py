"""``ReplaceField``: includes, excludes and renames fields."""

from __future__ import annotations

from typing import Any, Final

from connect.config.key import Key, displayed, invalid
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.transforms.transform import (
    KAFKA,
    NULL_DEFAULT,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_map,
    a_struct,
    field_value,
    side_of,
    struct_like,
    with_side,
)

_PURPOSE: Final = "field replacement"


def renames_of(value: list[str]) -> dict[str, str]:
    """Parse renames into a map from old name to new name.

    Raises:
        ConfigError: a rename is invalid; the message is Kafka's.
    """
    renames: dict[str, str] = {}
    for item in value:
        parts = item.split(":")
        if len(parts) != 2:
            raise ConfigError(
                invalid("renames", displayed(value), f"Invalid rename mapping: {item}"),
                code="transform_option",
            )
        renames[parts[0].strip()] = parts[1].strip()
    return renames


def _renames(value: Any) -> str | None:
    try:
        renames_of(value or [])
    except ConfigError as error:
        return error.message.partition(": ")[2]
    return None


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    exclude, include = frozenset(options["exclude"]), frozenset(options["include"])
    renames = renames_of(options["renames"])
    default = options["replace.null.with.default"]

    def keeps(name: str) -> bool:
        return name not in exclude and (not include or name in include)

    def rebuilt(schema: ConnectSchema) -> ConnectSchema:
        fields = [(renames.get(n, n), s) for n, s in schema.fields if keeps(n)]
        return struct_like(schema, fields)

    new_schema = SchemaCache(rebuilt)

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if value is None:
            return record
        if schema is None:
            fields = a_map(value, _PURPOSE)
            new = {renames.get(n, n): v for n, v in fields.items() if keeps(n)}
            return with_side(record, side, None, new)
        struct = a_struct(value, _PURPOSE)
        updated = new_schema(struct.schema)
        values = {
            renames.get(n, n): field_value(struct, n, s, default=default)
            for n, s in struct.schema.fields
            if keeps(n)
        }
        return with_side(record, side, updated, Struct(updated, values))

    return apply


DECLARATION: Final = Declaration(
    "ReplaceField",
    KAFKA,
    "Keeps the included fields, removes the excluded fields, and renames fields. `include` and "
    "`exclude` contain the names before renaming.",
    make,
    Example(
        {"exclude": "secret", "renames": "id:order_id"},
        {"value": {"id": 7, "secret": "s", "qty": 3}},
        {"value": {"order_id": 7, "qty": 3}},
    ),
    keys=(
        Key("exclude", "LIST", "Fields to remove; takes precedence over `include`.", ""),
        Key("include", "LIST", "Fields to keep; empty keeps all.", ""),
        Key("renames", "LIST", "`old:new,...`", "", check=_renames),
        NULL_DEFAULT,
    ),
    has_sides=True,
    is_column=True,
)

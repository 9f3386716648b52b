"""Kafka's two syntaxes for fields: a name (V1), or a path with dots (V2)."""

from __future__ import annotations

from typing import Any, Final

from connect.config.key import Key
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, Struct
from connect.records.transforms.transform import a_map, a_struct, field_schema
from connect.records.transforms.transform import field_value as value_of

_PURPOSE: Final = "nested field access"


def _syntax(value: Any) -> str | None:
    if str(value).upper() in ("V1", "V2"):
        return None
    return "String must be one of (case insensitive): V1, V2"


SYNTAX_VERSION: Final = Key(
    "field.syntax.version",
    "STRING",
    "V1: a field name is used unchanged. V2: dots separate nested fields, and backticks enclose "
    "names that contain dots.",
    "V1",
    "HIGH",
    check=_syntax,
)


def steps_of(path: str, version: str) -> tuple[str, ...]:
    """Split a path into field names.

    Raises:
        ConfigError: a backtick is not closed.
    """
    if version.upper() == "V1":
        return (path,)
    steps: list[str] = []
    index = 0
    while index < len(path):
        if path[index] == "`":
            step, index = _quoted(path, index)
        else:
            end = path.find(".", index)
            end = len(path) if end < 0 else end
            step, index = path[index:end], end + 1
        steps.append(step)
    if path.endswith("."):
        steps.append("")
    return tuple(steps)


def _quoted(path: str, opened: int) -> tuple[str, int]:
    """Return the name between backticks, and the index of the next name."""
    name, start, index = "", opened + 1, opened + 1
    while True:
        index = path.find("`", index)
        is_escaped = index > 0 and path[index - 1] == "\\"
        if index < 0 or (index == len(path) - 1 and is_escaped):
            raise ConfigError(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before "
                f"backtick at position {opened} to escape it",
                code="transform_option",
            )
        if index == len(path) - 1:
            return name + path[start:index], index + 1
        if path[index + 1] != ".":
            index += 1
        elif is_escaped:
            name += path[start : index - 1] + "`"
            index += 1
            start = index
        else:
            return name + path[start:index], index + 2


def in_map(value: dict[Any, Any], steps: tuple[str, ...]) -> Any:
    """Return the value at a path, or None if a field is missing.

    Raises:
        RecordError: a value on the path is not a map.
    """
    for name in steps[:-1]:
        inner = value.get(name)
        if inner is None:
            return None
        value = a_map(inner, _PURPOSE)
    return value.get(steps[-1])


def in_schema(schema: ConnectSchema, steps: tuple[str, ...]) -> ConnectSchema | None:
    """Return the schema at a path, or None if a field is missing."""
    field: ConnectSchema | None = schema
    for name in steps:
        field = None if field is None else field_schema(field, name)
    return field


def in_struct(struct: Struct, steps: tuple[str, ...], *, default: bool) -> Any:
    """Return the value at a path, or None if a field is missing."""
    for name in steps[:-1]:
        schema = field_schema(struct.schema, name)
        inner = None if schema is None else value_of(struct, name, schema)
        if inner is None:
            return None
        struct = a_struct(inner, _PURPOSE)
    last = field_schema(struct.schema, steps[-1])
    return None if last is None else value_of(struct, steps[-1], last, default=default)

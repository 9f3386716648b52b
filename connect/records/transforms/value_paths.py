"""Paths with dots in values without schema. Values are copied, not changed.

A nested struct is read as a map of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect.model.records import Struct
from connect.records.transforms.transform import a_map, all_values, refused


def fields_of(value: Any, purpose: str) -> dict[Any, Any]:
    """Return the fields of a map or struct.

    Raises:
        RecordError: the value is neither a map nor a struct.
    """
    return all_values(value) if type(value) is Struct else a_map(value, purpose)


def steps(path: str) -> tuple[str, ...]:
    """Split a path into field names."""
    return tuple(path.split("."))


def get_in(value: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path, or None if a field is missing."""
    field: Any = value
    for name in path:
        if type(field) is Struct:
            field = all_values(field)
        if type(field) is not dict:
            return None
        field = field.get(name)
    return field


def put_in(value: Mapping[str, Any], path: tuple[str, ...], new: Any) -> dict[str, Any]:
    """Return a copy of a map with a value at a path. Missing maps are created.

    Raises:
        RecordError: a value on the path is not a map.
    """
    field, *rest = path
    if not rest:
        return {**value, field: new}
    inner = value.get(field)
    if type(inner) is Struct:
        inner = all_values(inner)
    if inner is not None and type(inner) is not dict:
        raise refused(f"the path contains {field}, which has no fields", "wrong_type")
    return {**value, field: put_in(inner or {}, tuple(rest), new)}


def plain(value: Any) -> Any:
    """Convert structs to maps at all depths."""
    if type(value) is Struct:
        return {name: plain(inner) for name, inner in all_values(value).items()}
    if type(value) is dict:
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(item) for item in value] if type(value) is list else value

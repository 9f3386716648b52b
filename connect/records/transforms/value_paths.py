"""Paths of field names in values without schema, dots between them; values are copied, not changed.

A struct inside reads as a map of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect.model.records import Struct
from connect.records.transforms.transform import a_map, all_values, refused


def fields_of(value: Any, purpose: str) -> dict[Any, Any]:
    """The fields of a map or struct.

    Raises:
        RecordError: it is neither.
    """
    return all_values(value) if type(value) is Struct else a_map(value, purpose)


def steps(path: str) -> tuple[str, ...]:
    """The names of a path."""
    return tuple(path.split("."))


def get_in(value: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path; None where it ends early."""
    found: Any = value
    for name in path:
        if type(found) is Struct:
            found = all_values(found)
        if type(found) is not dict:
            return None
        found = found.get(name)
    return found


def put_in(value: Mapping[str, Any], path: tuple[str, ...], new: Any) -> dict[str, Any]:
    """The map with a value at a path; maps are made where there are none.

    Raises:
        RecordError: the path leads through something that is no map.
    """
    first, *rest = path
    if not rest:
        return {**value, first: new}
    inner = value.get(first)
    if type(inner) is Struct:
        inner = all_values(inner)
    if inner is not None and type(inner) is not dict:
        raise refused(f"the path leads through {first}, which has no fields", "wrong_type")
    return {**value, first: put_in(inner or {}, tuple(rest), new)}


def plain(value: Any) -> Any:
    """Structs as maps, to any depth."""
    if type(value) is Struct:
        return {name: plain(inner) for name, inner in all_values(value).items()}
    if type(value) is dict:
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(item) for item in value] if type(value) is list else value

"""Custom transformations: Python functions, found through entry points of installed packages.

Rules of this file:
- A function is imported when a connector uses it.
- An exception of a class that describes bad data rejects the record. Any other exception is a bug
  and fails the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from connect.errors import ConfigError
from connect.model.records import SinkRecord
from connect.records.entry_point_functions import TRANSFORMATION, made_by
from connect.records.transforms.transform import Apply, Declaration, Example, Options, Side, refused

GROUP: Final = "icefloe.transforms"
_ALL_OPTIONS: Final = ""
_ABOUT_A_RECORD: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


@cache
def installed() -> tuple[Declaration, ...]:
    """Return a declaration for each entry point of the group."""
    return tuple(
        declaration(point) for point in sorted(entry_points(group=GROUP), key=lambda p: p.name)
    )


def declaration(point: EntryPoint) -> Declaration:
    """Return the declaration of an entry point, which is loaded when a connector uses it."""
    return Declaration(
        point.name,
        "",
        f"Installed as {point.value}.",
        partial(_make, point),
        Example({}, {"value": None}, {"value": None}),
        families={_ALL_OPTIONS: "option of the transformation."},
    )


def _make(point: EntryPoint, options: Options, side: Side) -> Apply:
    del side
    own: Mapping[str, str] = options[_ALL_OPTIONS]
    function = made_by(TRANSFORMATION, point, own)
    apply = _of_columns(point.name, function)
    if apply is not None:
        return apply
    if not callable(function):
        raise ConfigError(
            f"transformation {point.name}: {point.value} must return a function of a record, or a "
            "ColumnFunction",
            code="transform_class",
        )
    return _guarded(point.name, function)


def _of_columns(name: str, function: Any) -> Apply | None:
    """Return the transformation if the function is over columns; None if it is over records."""
    from connect.records.transforms.column_function import ColumnApply, ColumnFunction  # noqa: PLC0415 - imports pyarrow

    return ColumnApply(name, function) if isinstance(function, ColumnFunction) else None


def _guarded(name: str, function: Callable[[SinkRecord], Any]) -> Apply:
    def apply(record: SinkRecord) -> SinkRecord | Sequence[SinkRecord] | None:
        try:
            result = function(record)
        except _ABOUT_A_RECORD as error:
            raise refused(f"{name} raised {type(error).__name__}", "custom") from None
        if result is None or isinstance(result, SinkRecord):
            return result
        if isinstance(result, list | tuple) and all(isinstance(r, SinkRecord) for r in result):
            return result
        raise refused(f"{name} returned a {type(result).__name__}, not a record", "custom")

    return apply

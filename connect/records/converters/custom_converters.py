"""Custom converters: Python functions, found through entry points of installed packages.

Rules of this file:
- A function is imported when a connector uses it.
- A result is checked before it leaves this file, so that later steps only see values that they
  know.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol

from connect.errors import ConfigError, IcefloeError
from connect.model.records import (
    ConnectSchema,
    Date,
    Float32,
    Int8,
    Int16,
    Int32,
    Struct,
    Time,
    Timestamp,
)
from connect.records.converters.converter import Converter, Headers, Role, refusal
from connect.records.converters.custom_function import CODE, guarded
from connect.records.entry_point_functions import CONVERTER, made_by

GROUP: Final = "icefloe.converters"
_ROLE_OPTION: Final = "converter.type"
_SIMPLE: Final = frozenset(
    (
        *(type(None), bool, int, float, str, bytes, Decimal, uuid.UUID),
        *(Int8, Int16, Int32, Float32, Date, Time, Timestamp),
        *(dt.date, dt.time, dt.datetime),
    )
)


class RecordConverter(Protocol):
    """A converter of single keys or values, returned by the function of an entry point."""

    def __call__(self, data: bytes, topic: str, headers: Headers) -> Any:
        """Convert bytes to a value.

        Args:
            data: the bytes of the key or value; never None.
            topic: the source topic.
            headers: names and raw values of the record's headers.

        Returns:
            A value without schema (dict, list, str, int, float, bool, bytes, ``Decimal``,
            ``datetime``, ``date``, ``time``, ``UUID`` or None), or a
            ``connect.model.records.Struct``, which has a schema.

        Raises:
            OSError: a service is not available; the batch is retried.
            Exception: the record is rejected.
        """
        ...


@cache
def installed() -> Mapping[str, EntryPoint]:
    """Return the entry points of the group by name."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {point.name: point for point in points}


def custom_converter(point: EntryPoint, options: Mapping[str, str], role: Role) -> Converter:
    """Build the converter of an entry point.

    Args:
        point: of the group.
        options: the converter's options, without prefix.
        role: key, value or header; the function receives it as option ``converter.type``.

    Raises:
        ConfigError: the function cannot be loaded, rejects its options, or returns something else
            than a function or ``ColumnConverter``.
    """
    function = made_by(CONVERTER, point, {_ROLE_OPTION: role, **options})
    column_converter = _column_converter(point.name, function, role)
    if column_converter is not None:
        return column_converter
    if not callable(function):
        raise ConfigError(
            f"converter {point.name}: {point.value} must return a function of bytes, topic and "
            "headers, or a ColumnConverter",
            code="converter_class",
        )
    return CustomConverter(point.name, function, role)


def _column_converter(name: str, function: Any, role: Role) -> Converter | None:
    """Return the converter if the function is over columns; None if it is over records."""
    from connect.records.converters.column_converter import (  # noqa: PLC0415 - imports pyarrow
        ColumnConverter,
        CustomColumnConverter,
    )

    return (
        CustomColumnConverter(name, function, role)
        if isinstance(function, ColumnConverter)
        else None
    )


class CustomConverter:
    """Runs a user's function over single keys or values.

    Args:
        name: name of the entry point.
        function: converts bytes.
        role: key, value or header.
    """

    def __init__(self, name: str, function: RecordConverter, role: Role) -> None:
        self._name = name
        self._function = function
        self._role: Role = role

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``Converter``."""
        if data is None:
            return None, None
        value = guarded(self._name, self._role, lambda: self._value(data, topic, headers))
        return (value.schema if type(value) is Struct else None), value

    def _value(self, data: bytes, topic: str, headers: Headers) -> Any:
        try:
            return self._checked(self._function(data, topic, headers))
        except RecursionError:
            raise refusal(self._role, "too_deep", "the value is nested too deeply") from None

    def _checked(self, value: Any) -> Any:
        """Return a value in the classes of the record path."""
        kind = type(value)
        if kind in _SIMPLE:
            return value
        if kind is list or kind is tuple:
            return [self._checked(item) for item in value]
        if kind is Struct:
            return self._struct(value)
        if isinstance(value, Mapping):
            if not all(type(key) is str for key in value):
                raise self._refused("a map with keys that are not text")
            return {key: self._checked(item) for key, item in value.items()}
        raise self._refused(f"a {kind.__name__}")

    def _struct(self, value: Struct) -> Struct:
        names = [name for name, _ in value.schema.fields]
        if value.schema.type != "struct" or value.values.keys() != set(names):
            raise self._refused("a Struct whose values are not those of its schema")
        return Struct(value.schema, {name: self._checked(value.values[name]) for name in names})

    def _refused(self, result: str) -> IcefloeError:
        return refusal(
            self._role, CODE, f"{self._name} returned {result}, which is no value of a record"
        )

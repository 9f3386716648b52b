"""Where a table is and which columns it has, as a coordinator reports it to its node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS_MAX = 2_000
"""Columns of a description, nested ones included; further columns are left out."""


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """One column, or one field of a nested column.

    Attributes:
        name: of the column; ``_element`` of a list, ``key`` and ``value`` of a map.
        type: as Iceberg writes it; ``struct``, ``array`` or ``map`` for nested types.
        doc: its documentation; None without one.
        fields: of a nested type.
    """

    name: str
    type: str
    doc: str | None = None
    fields: tuple[ColumnDescription, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is sent between processes."""
        nested = {"fields": [field.to_json() for field in self.fields]} if self.fields else {}
        return {"name": self.name, "type": self.type, "doc": self.doc, **nested}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ColumnDescription:
        """Return the column from which ``to_json`` made this form."""
        return cls(data["name"], data["type"], data.get("doc"), columns(data.get("fields", ())))


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table.

    Attributes:
        name: namespace and name, with dots.
        format: ``iceberg``, ``delta`` or ``parquet``.
        location: URI or path of its folder.
        catalog: URI or warehouse of its catalog, without credentials; None where there is none,
            or where it is a secret.
        columns: at most ``COLUMNS_MAX``.
    """

    name: str
    format: str
    location: str
    catalog: str | None
    columns: tuple[ColumnDescription, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is sent between processes."""
        return {
            "table": self.name,
            "format": self.format,
            "location": self.location,
            "catalog": self.catalog,
            "columns": [column.to_json() for column in self.columns],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TableDescription:
        """Return the table from which ``to_json`` made this form."""
        return cls(
            data["table"],
            data["format"],
            data["location"],
            data.get("catalog"),
            columns(data["columns"]),
        )


def columns(listed: Sequence[Mapping[str, Any]]) -> tuple[ColumnDescription, ...]:
    """Return columns from their JSON form."""
    return tuple(ColumnDescription.from_json(item) for item in listed)

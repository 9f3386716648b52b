"""Reports location and columns of tables that were committed to, for lineage events.

Rules of this file:
- No table is loaded for it: a committer passes what it holds after its commit.
- A table is reported after its first commit of a session, and again when its columns or its
  location have changed.
- Reporting never fails a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from connect.config.connector import ConnectorConfig
from connect.model.table_description import COLUMNS_MAX, ColumnDescription, TableDescription
from connect.redaction.secret_values import KNOWN


class TableDescriptions:
    """The tables of one connector. Thread-safe.

    Args:
        config: the connector.
        report: called with the description of a table.
    """

    def __init__(self, config: ConnectorConfig, report: Callable[[TableDescription], None]) -> None:
        self._format = config.table_format
        self._catalog = _catalog(config.catalog_properties) if config.is_iceberg else None
        self._report = report
        self._lock = threading.Lock()
        self._reported: dict[str, tuple[str, Schema]] = {}

    @classmethod
    def reporting(
        cls, config: ConnectorConfig, on_event: Callable[[str, Mapping[str, Any]], None]
    ) -> Self:
        """Report with ``table_described`` events."""
        return cls(config, lambda table: on_event("table_described", table.to_json()))

    def committed(self, name: str, location: str, schema: Schema) -> None:
        """Report a table unless its last report says the same.

        Args:
            name: of the table.
            location: of its folder.
            schema: its present columns.
        """
        present = (location, schema)
        with self._lock:
            if self._reported.get(name) == present:
                return
            self._reported[name] = present
        listed = tuple(described(schema.fields))
        self._report(TableDescription(name, self._format, location, self._catalog, listed))


def described(fields: Iterable[NestedField]) -> Iterator[ColumnDescription]:
    """Yield the columns of a schema, at most ``COLUMNS_MAX`` with those inside of them."""
    left = [COLUMNS_MAX]
    yield from (_column(f.name, f.field_type, f.doc, left) for f in fields if left[0] > 0)


def _column(name: str, kind: IcebergType, doc: str | None, left: list[int]) -> ColumnDescription:
    left[0] -= 1
    named: tuple[tuple[str, IcebergType, str | None], ...] = ()
    match kind:
        case StructType():
            text, named = "struct", tuple((f.name, f.field_type, f.doc) for f in kind.fields)
        case ListType():
            text, named = "array", (("_element", kind.element_type, None),)
        case MapType():
            text = "map"
            named = (("key", kind.key_type, None), ("value", kind.value_type, None))
        case _:
            text = str(kind)
    inner = tuple(_column(*each, left) for each in named if left[0] > 0)
    return ColumnDescription(name, text, doc, inner)


def _catalog(properties: Mapping[str, str]) -> str | None:
    """Return the address of the catalog without user, password and query."""
    address = properties.get("uri") or properties.get("warehouse")
    if not address or KNOWN.mask(address) != address:
        return None
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not parts.scheme:
        return address if address.startswith("/") else None
    authority = host or ""
    if port is not None:
        authority += f":{port}"
    return f"{parts.scheme}://{authority}{parts.path}"

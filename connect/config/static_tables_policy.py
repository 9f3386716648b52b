"""Static tables that queries of a connector may join.

Rules of this file:
- The operator grants static tables with the node properties ``icefloe.static.tables.<connector>``:
  name patterns of tables in the connector's catalog, and locations of Parquet files.
- If the REST API has users, tables that no property lists are not allowed.
- Local files also require ``icefloe.local.paths.allowed``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from connect.config.location_policy import (
    EVERYWHERE,
    STATIC_TABLES_PREFIX,
    LocationPolicy,
    granted_entries,
)
from connect.config.name_pattern import matches


@dataclass(frozen=True, slots=True)
class StaticTablesPolicy:
    """The static tables that a connector may use.

    Attributes:
        names: patterns of table names (``*`` matches any text); None for all tables.
        locations: allowed locations of Parquet files.
    """

    names: tuple[str, ...] | None = None
    locations: LocationPolicy = EVERYWHERE

    @classmethod
    def of(
        cls,
        name: str,
        node: Mapping[str, str],
        resolve: Callable[[str], str] | None = None,
    ) -> StaticTablesPolicy:
        """Return the policy of a connector from the node's properties.

        Args:
            name: name of the connector.
            node: node properties.
            resolve: resolves placeholders; None if the properties have none.
        """
        of_connector = LocationPolicy.of(name, node, resolve)
        entries = granted_entries(name, STATIC_TABLES_PREFIX, node, resolve)
        if entries is None:
            return cls(None, LocationPolicy(of_connector.granted, of_connector.local))
        return cls(
            tuple(entry for entry in entries if not is_location(entry)),
            LocationPolicy(tuple(filter(is_location, entries)), of_connector.local),
        )

    def refusal(self, source: str) -> str | None:
        """Return the reason why a static table is not allowed, or None if it is allowed.

        Args:
            source: ``<namespace>.<table>``, or the location of Parquet files.
        """
        if is_location(source):
            if self.locations.refusal(source) is None:
                return None
        elif self.names is None or any(matches(pattern, source) for pattern in self.names):
            return None
        return (
            f"{source} is not among the static tables in the node's properties "
            f"{STATIC_TABLES_PREFIX}<connector>"
        )


EVERY_STATIC_TABLE: Final = StaticTablesPolicy()


def is_location(source: str) -> bool:
    """Return whether a static table is a location instead of a table in the catalog."""
    return "/" in source

"""Which static tables the queries of a connector may join.

Rules of this file:
- The operator decides, with the node properties ``icefloe.static.tables.<connector>``: names of
  tables of the connector's catalog, as patterns, and locations of Parquet files.
- Where the API has users, what no property lists is refused.
- Local files also need ``icefloe.local.paths.allowed``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from connect.config.key import list_of
from connect.config.local_paths import USERS_FILE
from connect.config.location_policy import (
    EVERYWHERE,
    STATIC_TABLES_PREFIX,
    LocationPolicy,
    grant_of,
)
from connect.config.name_pattern import matches


@dataclass(frozen=True, slots=True)
class StaticTablesPolicy:
    """Static tables that one connector may use.

    Attributes:
        names: patterns of tables' names (``*`` is any text); None: all.
        locations: where Parquet files may lie.
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
        """The policy for a connector that the node's properties state.

        Args:
            name: of the connector.
            node: node properties.
            resolve: turns placeholders in them into values; None when they have none.
        """
        of_connector = LocationPolicy.of(name, node, resolve)
        listed = grant_of(name, STATIC_TABLES_PREFIX, node)
        if listed is None:
            names = () if node.get(USERS_FILE) else None
            granted = () if node.get(USERS_FILE) else of_connector.granted
            return cls(names, LocationPolicy(granted, of_connector.local))
        entries = list_of((resolve or str)(listed))
        return cls(
            tuple(entry for entry in entries if not is_location(entry)),
            LocationPolicy(tuple(filter(is_location, entries)), of_connector.local),
        )

    def refusal(self, source: str) -> str | None:
        """Why a query may not join a static table, as a sentence; None when it may.

        Args:
            source: ``<namespace>.<table>``, or the location of Parquet files.
        """
        if is_location(source):
            if self.locations.refusal(source) is None:
                return None
        elif self.names is None or any(matches(pattern, source) for pattern in self.names):
            return None
        return (
            f"{source} is not among the static tables that the node's properties "
            f"{STATIC_TABLES_PREFIX}<connector> list"
        )


EVERY_STATIC_TABLE: Final = StaticTablesPolicy()


def is_location(source: str) -> bool:
    """Whether a static table is named by a location and not by its name in the catalog."""
    return "/" in source

"""Where the tables, warehouses and local catalogs of a connector may lie.

Rules of this file:
- The operator decides, with two kinds of node properties: ``icefloe.local.paths.allowed`` for
  folders of the node's machines, ``icefloe.locations.<connector>`` for everything of the
  connectors whose names match.
- What a location names, and whether a local one is allowed, is ``local_paths``'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from connect.config import local_paths
from connect.config.key import list_of
from connect.config.local_paths import (
    DATA_PATHS,
    LOCAL,
    LOCAL_KEY,
    USERS_FILE,
    followed,
    is_below,
    place,
)
from connect.config.name_pattern import matches

LOCATIONS_PREFIX: Final = "icefloe.locations."
STATIC_TABLES_PREFIX: Final = "icefloe.static.tables."
_DEFAULT: Final = "default"


def grant_of(name: str, prefix: str, node: Mapping[str, str]) -> str | None:
    """The node's property for a connector: its own, else the longest pattern, else the default.

    Args:
        name: of the connector.
        prefix: of the properties; behind it stands a name, a pattern (``*`` is any text) or
            ``default``.
        node: node properties.
    """
    listed = {
        key.removeprefix(prefix): text for key, text in node.items() if key.startswith(prefix)
    }
    if name in listed:
        return listed[name]
    matching = [p for p in listed if p != _DEFAULT and matches(p, name)]
    return listed.get(max(matching, key=len, default=_DEFAULT))


@dataclass(frozen=True, slots=True)
class LocationPolicy:
    """Places that one connector may use.

    Attributes:
        granted: everything of it lies below one of these; None: anywhere.
        local: folders of this machine that it may use; None: all.
    """

    granted: tuple[str, ...] | None = None
    local: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        node: Mapping[str, str],
        resolve: Callable[[str], str] | None = None,
    ) -> LocationPolicy:
        """The policy for a connector that the node's properties state.

        Args:
            name: of the connector.
            node: node properties.
            resolve: turns placeholders in them into values; None when they have none.
        """
        listed = grant_of(name, LOCATIONS_PREFIX, node)
        read = resolve or str
        return cls(
            None if listed is None else tuple(list_of(read(listed))),
            local_paths.allowed_roots(node, resolve),
        )

    def refusal(self, location: str) -> str | None:
        """Why a connector may not use a location, as the end of a sentence; None when it may."""
        if self == EVERYWHERE:
            return None
        at = place(location)
        if at.scheme == LOCAL:
            if (why := local_paths.refusal(location, self.local)) is not None:
                return why
            try:
                at = followed(at)
            except (OSError, RuntimeError, ValueError):
                return "is no path of this machine"
        if self.granted is not None and not is_below(at, self.granted):
            return (
                "is not below a location that the node's properties "
                f"{LOCATIONS_PREFIX}<connector> grant"
            )
        return None

    def refusals(self, locations: Iterable[str]) -> str | None:
        """The first refusal, with its location, as a sentence; None when there is none."""
        for location in locations:
            if (why := self.refusal(location)) is not None:
                return f"{location} {why}"
        return None


EVERYWHERE: Final = LocationPolicy()


def table_places(location: str, properties: Mapping[str, str]) -> list[str]:
    """Where a table's data files go: its location, and what its properties name."""
    named = (properties.get(key) for key in DATA_PATHS)
    return [location, *(path for path in named if path)]


def decides_locations(name: str) -> bool:
    """Whether a property of the node decides what connectors may write or join."""
    prefixes = (LOCATIONS_PREFIX, STATIC_TABLES_PREFIX)
    return name in {LOCAL_KEY, USERS_FILE} or name.startswith(prefixes)

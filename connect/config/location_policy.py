"""Locations that a connector may use for tables, warehouses and local catalogs.

Rules of this file:
- The operator grants locations with node properties: ``icefloe.local.paths.allowed`` for local
  folders, and ``icefloe.locations.<connector>`` for all locations of connectors with matching
  names.
- Executors on other machines do not see the folders of this one. If ``spark.master`` names a
  cluster, only folders that the operator lists are allowed.
- ``local_paths`` parses locations and checks local ones.
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
    normalized_location,
)
from connect.config.name_pattern import matches
from connect.config.spark_master import MASTER, is_local

LOCATIONS_PREFIX: Final = "icefloe.locations."
STATIC_TABLES_PREFIX: Final = "icefloe.static.tables."
OUTPUT_TOPICS_PREFIX: Final = "icefloe.output.topics."
_DEFAULT: Final = "default"
_REMOTE: Final = (
    ". Executors of spark.master {} may run on other machines: use an object store, or list a "
    "folder that all of them mount"
)


def grant_of(name: str, prefix: str, node: Mapping[str, str]) -> str | None:
    """Return the grant of a connector.

    The property with the connector's name counts, else the longest matching pattern, else the
    default.

    Args:
        name: name of the connector.
        prefix: prefix of the node properties. The suffix is a name, a pattern (``*`` matches any
            text) or ``default``.
        node: node properties.
    """
    listed = {
        key.removeprefix(prefix): text for key, text in node.items() if key.startswith(prefix)
    }
    if name in listed:
        return listed[name]
    matching = [p for p in listed if p != _DEFAULT and matches(p, name)]
    return listed.get(max(matching, key=len, default=_DEFAULT))


def granted_entries(
    name: str, prefix: str, node: Mapping[str, str], resolve: Callable[[str], str] | None
) -> tuple[str, ...] | None:
    """Return what a grant lists. Without one: nothing if the REST API has users, else everything.

    Args:
        name: name of the connector.
        prefix: as in ``grant_of``.
        node: node properties.
        resolve: resolves placeholders; None if the properties have none.

    Returns:
        None for everything.
    """
    listed = grant_of(name, prefix, node)
    if listed is None:
        return () if node.get(USERS_FILE) else None
    return tuple(list_of((resolve or str)(listed)))


@dataclass(frozen=True, slots=True)
class LocationPolicy:
    """The locations that a connector may use.

    Attributes:
        granted: locations that contain all of its tables; None for any location.
        local: local folders that it may use; None for any folder.
        master: the cluster whose executors write the files; None if they run on this machine.
    """

    granted: tuple[str, ...] | None = None
    local: tuple[str, ...] | None = None
    master: str | None = None

    @classmethod
    def of(
        cls,
        name: str,
        node: Mapping[str, str],
        resolve: Callable[[str], str] | None = None,
    ) -> LocationPolicy:
        """Return the policy of a connector from the node's properties.

        Args:
            name: name of the connector.
            node: node properties.
            resolve: resolves placeholders; None if the properties have none.
        """
        listed = grant_of(name, LOCATIONS_PREFIX, node)
        read = resolve or str
        local = local_paths.allowed_roots(node, resolve)
        master = read(node[MASTER]) if MASTER in node else None
        if is_local(master):
            master = None
        elif local is None:
            local = ()
        return cls(None if listed is None else tuple(list_of(read(listed))), local, master)

    def refusal(self, location: str) -> str | None:
        """Return the reason why a location is not allowed, or None if it is allowed."""
        if self == EVERYWHERE:
            return None
        at = normalized_location(location)
        if at.scheme == LOCAL:
            if (why := local_paths.refusal(location, self.local)) is not None:
                return why if self.master is None else f"{why}{_REMOTE.format(self.master)}"
            try:
                at = followed(at)
            except (OSError, RuntimeError, ValueError):
                return "is not a valid local path"
        if self.granted is not None and not is_below(at, self.granted):
            return (
                "is not below a location that the node's properties "
                f"{LOCATIONS_PREFIX}<connector> grant"
            )
        return None

    def refusals(self, locations: Iterable[str]) -> str | None:
        """Return an error message for the first location that is not allowed, or None."""
        for location in locations:
            if (why := self.refusal(location)) is not None:
                return f"{location} {why}"
        return None


EVERYWHERE: Final = LocationPolicy()


def table_places(location: str, properties: Mapping[str, str]) -> list[str]:
    """Return the locations of a table's data files, from its location and properties."""
    named = (properties.get(key) for key in DATA_PATHS)
    return [location, *(path for path in named if path)]


def decides_locations(name: str) -> bool:
    """Return whether a node property grants tables, locations or topics to connectors."""
    prefixes = (LOCATIONS_PREFIX, STATIC_TABLES_PREFIX, OUTPUT_TOPICS_PREFIX)
    return name in {LOCAL_KEY, USERS_FILE, MASTER} or name.startswith(prefixes)

"""Where the tables, warehouses and local catalogs of a connector may lie.

Rules of this file:
- The operator decides, with two kinds of node properties: ``icefloe.local.paths.allowed`` for
  folders of the node's machines, ``icefloe.locations.<connector>`` for everything of the
  connectors whose names match.
- A local folder is judged after links and ``..`` are followed.
- Spellings of one place are one place: ``s3a`` is ``s3``, ``file:/x`` is ``/x``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from connect.config.keys import list_of
from connect.config.name_pattern import matches

LOCAL_KEY: Final = "icefloe.local.paths.allowed"
LOCATIONS_PREFIX: Final = "icefloe.locations."
STATIC_TABLES_PREFIX: Final = "icefloe.static.tables."
USERS_FILE: Final = "icefloe.rest.users.file"
PATH_PROPERTIES: Final = (
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Table properties that place data files outside the table's location."""
METADATA_PATH: Final = "write.metadata.path"
_DEFAULT: Final = "default"
_LOCATION: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_SAME_SCHEME: Final = {"s3a": "s3", "s3n": "s3", "": "file", "wasbs": "abfss", "wasb": "abfs"}
_LOCAL: Final = "file"


class Place(NamedTuple):
    """A location in parts; spellings of one place compare equal."""

    scheme: str
    host: str
    path: str

    def holds(self, other: Place) -> bool:
        """Whether the other place is this one or below it."""
        is_same_store = (self.scheme, self.host) == (other.scheme, other.host)
        return is_same_store and f"{other.path}/".startswith(f"{self.path}/")


def place(location: str) -> Place:
    """Scheme, host and path without detours.

    Nothing is a query or a fragment here: stores take ``?`` and ``#`` as part of a name.
    """
    found = _LOCATION.fullmatch(location)
    scheme, host, path = found.groups(default="") if found else ("", "", location)
    path = posixpath.normpath("/" + path.lstrip("/")).rstrip("/")
    return Place(_SAME_SCHEME.get(scheme.lower(), scheme.lower()), host, path)


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
        local = node.get(LOCAL_KEY)
        if local is None and node.get(USERS_FILE):
            local = ""
        read = resolve or str
        return cls(
            None if listed is None else tuple(list_of(read(listed))),
            None if local is None else tuple(list_of(read(local))),
        )

    def refusal(self, location: str) -> str | None:
        """Why a connector may not use a location, as the end of a sentence; None when it may."""
        if self == EVERYWHERE:
            return None
        at = place(location)
        if at.scheme == _LOCAL:
            try:
                at = _followed(at)
            except (OSError, RuntimeError, ValueError):  # too long, a circle of links, no path
                return "is no path of this machine"
            if self.local is not None and not _is_below(at, self.local):
                return f"is not below a folder that the node's property {LOCAL_KEY} lists"
        if self.granted is not None and not _is_below(at, self.granted):
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
    named = (properties.get(key) for key in PATH_PROPERTIES)
    return [location, *(path for path in named if path)]


def decides_locations(name: str) -> bool:
    """Whether a property of the node decides what connectors may write or join."""
    prefixes = (LOCATIONS_PREFIX, STATIC_TABLES_PREFIX)
    return name in {LOCAL_KEY, USERS_FILE} or name.startswith(prefixes)


def _followed(local: Place) -> Place:
    """A local place with its links followed. A host in it means this machine.."""
    return local._replace(host="", path=str(Path(local.path or "/").resolve()).rstrip("/"))


def _is_below(at: Place, roots: Iterable[str]) -> bool:
    places = map(place, roots)
    return any((_followed(p) if p.scheme == _LOCAL else p).holds(at) for p in places)

"""Which folders of this machine the clients of connectors may use, and how locations name them.

Rules of this file:
- Everything that judges a local path asks here: clients before they open a file (``reach``), and
  the policy of a connector's tables, warehouses and catalogs (``config/location_policy``).
- The operator decides with ``icefloe.local.paths.allowed``. Where the API has users, connectors are
  written by tenants, and no folder is allowed unless it is listed.
- A path is judged after links and ``..`` are followed.
- Spellings of one place are one place: ``s3a`` is ``s3``, ``file:/x`` is ``/x``. Where paths are
  judged, a local location with a host is refused: clients differ in the path that they open.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

LOCAL_KEY: Final = "icefloe.local.paths.allowed"
USERS_FILE: Final = "icefloe.rest.users.file"
LOCAL: Final = "file"
DATA_PATHS: Final = (
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Table properties that place data files outside the table's location."""
METADATA_PATH: Final = "write.metadata.path"
TABLE_PATHS: Final = (*DATA_PATHS, METADATA_PATH)
"""Table properties that say where files of the table lie."""
_LOCATION: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_SAME_SCHEME: Final = {"s3a": "s3", "s3n": "s3", "": LOCAL, "wasbs": "abfss", "wasb": "abfs"}


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
    scheme = _SAME_SCHEME.get(scheme.lower(), scheme.lower())
    if scheme == LOCAL and not host:
        path = os.path.abspath(path)  # noqa: PTH100 - links are followed by who judges, not here
    path = posixpath.normpath("/" + path.lstrip("/")).rstrip("/")
    return Place(scheme, host, path)


def followed(at: Place) -> Place:
    """A local place with its links followed.

    Raises:
        OSError, RuntimeError, ValueError: too long, a circle of links, no path.
    """
    return at._replace(path=str(Path(at.path or "/").resolve()).rstrip("/"))


def is_below(at: Place, roots: Iterable[str]) -> bool:
    """Whether a place, its links followed, is one of these locations or below one."""
    places = map(place, roots)
    return any((followed(p) if p.scheme == LOCAL else p).holds(at) for p in places)


def allowed_roots(
    node: Mapping[str, str], resolve: Callable[[str], str] | None = None
) -> tuple[str, ...] | None:
    """The folders that a node's properties allow; None for every one.

    Args:
        node: node properties.
        resolve: turns placeholders in them into values; None when they have none.
    """
    listed = node.get(LOCAL_KEY)
    if listed is None:
        return () if node.get(USERS_FILE) else None
    text = listed if resolve is None else resolve(listed)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def refusal(location: str, roots: tuple[str, ...] | None) -> str | None:
    """Why a path or local location may not be used, as the end of a sentence; None when it may.

    Args:
        location: a path, or a location of scheme ``file``.
        roots: as ``allowed_roots`` gives them.
    """
    if roots is None:
        return None
    at = place(location)
    if at.host:
        return "names a host: a path of this machine has none"
    try:
        is_allowed = is_below(followed(at), roots)
    except (OSError, RuntimeError, ValueError):
        return "is no path of this machine"
    if is_allowed:
        return None
    return f"is not below a folder that the node's property {LOCAL_KEY} lists"

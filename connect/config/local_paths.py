"""Local folders that clients of connectors may use.

Rules of this file:
- All checks of local paths use this module: clients before they open a file (``access_policy``),
  and the policy of a connector's tables, warehouses and catalogs (``config/location_policy``).
- The operator allows folders with ``icefloe.local.paths.allowed``. If the REST API has users,
  tenants write connectors, so only listed folders are allowed.
- Paths are checked after links and ``..`` are resolved.
- Spellings of one location are equal: ``s3a`` is ``s3``, ``file:/x`` is ``/x``. A local location
  with a host is rejected, because clients do not agree on its path.
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
"""Table properties that contain locations of the table's files."""
_LOCATION: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_SAME_SCHEME: Final = {"s3a": "s3", "s3n": "s3", "": LOCAL, "wasbs": "abfss", "wasb": "abfs"}


class NormalizedLocation(NamedTuple):
    """A normalized location. Spellings of one location are equal."""

    scheme: str
    host: str
    path: str

    def holds(self, other: NormalizedLocation) -> bool:
        """Return whether another location is this location or below it."""
        is_same_store = (self.scheme, self.host) == (other.scheme, other.host)
        return is_same_store and f"{other.path}/".startswith(f"{self.path}/")


def normalized_location(location: str) -> NormalizedLocation:
    """Parse and normalize a location.

    The location has no query or fragment: in object stores, ``?`` and ``#`` are part of a name.
    """
    match = _LOCATION.fullmatch(location)
    scheme, host, path = match.groups(default="") if match else ("", "", location)
    scheme = _SAME_SCHEME.get(scheme.lower(), scheme.lower())
    if scheme == LOCAL and not host:
        path = os.path.abspath(path)  # noqa: PTH100 - must not resolve links
    path = posixpath.normpath("/" + path.lstrip("/")).rstrip("/")
    return NormalizedLocation(scheme, host, path)


def followed(at: NormalizedLocation) -> NormalizedLocation:
    """Resolve the links of a local location.

    Raises:
        OSError, RuntimeError, ValueError: the path is too long or invalid, or its links form a
            loop.
    """
    return at._replace(path=str(Path(at.path or "/").resolve()).rstrip("/"))


def is_below(at: NormalizedLocation, roots: Iterable[str]) -> bool:
    """Return whether a location with resolved links is one of the roots or below one."""
    places = map(normalized_location, roots)
    return any((followed(p) if p.scheme == LOCAL else p).holds(at) for p in places)


def allowed_roots(
    node: Mapping[str, str], resolve: Callable[[str], str] | None = None
) -> tuple[str, ...] | None:
    """Return the folders that the node's properties allow, or None if all are allowed.

    Args:
        node: node properties.
        resolve: resolves placeholders; None if the properties have none.
    """
    listed = node.get(LOCAL_KEY)
    if listed is None:
        return () if node.get(USERS_FILE) else None
    text = listed if resolve is None else resolve(listed)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def refusal(location: str, roots: tuple[str, ...] | None) -> str | None:
    """Return the reason why a path or local location is not allowed, or None if it is allowed.

    Args:
        location: a path, or a location with the scheme ``file``.
        roots: the result of ``allowed_roots``.
    """
    if roots is None:
        return None
    at = normalized_location(location)
    if at.host:
        return "contains a host, which a local path cannot have"
    try:
        is_allowed = is_below(followed(at), roots)
    except (OSError, RuntimeError, ValueError):
        return "is not a valid local path"
    if is_allowed:
        return None
    return f"is not below a folder in the node's property {LOCAL_KEY}"

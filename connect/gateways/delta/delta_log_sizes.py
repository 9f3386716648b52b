"""Limits the log of a Delta table before the library reads it into the memory of the process.

Rules of this file:
- The library reads the newest complete checkpoint and all later commits. Their sizes in the store
  are added up. A checkpoint that is named but not complete does not count: the library ignores it.
- Only on nodes with users: there, tenants name stores that they can write to, and connectors of
  several tenants share a process. The check costs two requests.
- In S3 it needs boto3, which is not a requirement of Delta tables. Without it, there is no check.
- The sizes are those in the store. A checkpoint takes more memory when it is decompressed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from connect.gateways.access_policy import access_policy
from connect.gateways.parquet.folder_store import FolderStore
from connect.gateways.parquet.parquet_tables import open_folder_store
from connect.gateways.storage.log_sizes import check_values, log_too_large
from control_schemas import bounded_json

_LOG: Final = "_delta_log"
_SIDECARS: Final = f"{_LOG}/_sidecars"
_NAME: Final = re.compile(
    r"(?P<version>[0-9]{20})\.(json|(?P<checkpoint>checkpoint(\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})"
    r"|\.(?P<id>[0-9a-fA-F-]{36}))?\.(parquet|json)))"
)
_STORES: Final = ("file", "s3", "s3a")
_ROLES: Final = ("s3.role-arn", "client.role-arn")  # the library does not use them

Listing = Sequence[tuple[str, int]]


def check_log(properties: Mapping[str, Any], location: str) -> None:
    """Check the size of what the library will read of a log.

    Args:
        properties: of the store, with the connector's own credentials.
        location: of the table, with a scheme. Only local folders and S3 are checked.

    Raises:
        CommitRefused: ``metadata_too_large``; ``forbidden``.
        RetriableError: ``catalog_unavailable``.
    """
    scheme = location.partition(":")[0].lower()
    if not access_policy().is_guarded or scheme not in _STORES:
        return
    if scheme != "file" and find_spec("boto3") is None:
        return
    own = {key: value for key, value in properties.items() if key not in _ROLES}
    if _read_bytes(open_folder_store(own, location)) > access_policy().answer_bytes_max:
        raise log_too_large()


def _read_bytes(store: FolderStore) -> int:
    """Return how many bytes of a log are read."""
    hint = _hinted_version(store.read(f"{_LOG}/_last_checkpoint"))
    listing = [] if hint is None else store.listed(_LOG, f"{hint:020}")
    version = _newest_checkpoint(listing)
    if version is None:
        listing = store.listed(_LOG, "")
        version = _newest_checkpoint(listing)
    size, has_sidecars = 0, False
    for name, size_bytes in listing:
        if (match := _NAME.fullmatch(name)) and (
            version is None or int(match["version"]) >= version
        ):
            size += size_bytes
            has_sidecars |= match["id"] is not None
    if has_sidecars:
        size += sum(size_bytes for _, size_bytes in store.listed(_SIDECARS, ""))
    return size


def _hinted_version(content: bytes | None) -> int | None:
    """Return the version of the checkpoint that a log names; None for an invalid text."""
    if content is None:
        return None
    check_values(content)
    try:
        version = bounded_json.loads(content.decode())["version"]
    except (ValueError, LookupError, TypeError):
        return None
    return version if type(version) is int and 0 <= version < 10**19 else None


def _newest_checkpoint(listing: Listing) -> int | None:
    """Return the version of the newest complete checkpoint."""
    parts: dict[tuple[int, int], int] = {}
    newest: int | None = None
    for name, _ in listing:
        match = _NAME.fullmatch(name)
        if match is None or match["checkpoint"] is None:
            continue
        version = int(match["version"])
        if match["parts"] is not None:
            of = version, int(match["parts"])
            parts[of] = parts.get(of, 0) + 1
            if parts[of] < of[1]:
                continue
        newest = version if newest is None else max(newest, version)
    return newest

"""Deletes data files and delete files of rounds: only those that the newest version does not name.

Rules of this file:
- A file that a round announced is not its own: any client can announce a live file again. That a
  commit did not add a file is no proof that the table lacks it.
- The newest version is the commit that just landed, or one that was read after it. A commit is
  conditional on the version before it, so the files of both are known.
- Without that knowledge nothing is deleted. The files are left as orphans.
- Two spellings of one location are one file.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog
from pyiceberg.io import FileIO

from connect.config.local_paths import normalized_location
from connect.gateways.storage.object_store import delete_files

log = structlog.get_logger("coordinator")


def delete_unnamed(io: FileIO, paths: Collection[str], named: Collection[str] | None) -> int:
    """Delete files that a table does not name.

    Args:
        io: of the table.
        paths: files that are not needed by a commit.
        named: of these at least, the files that the newest version names; None where that is not
            known.

    Returns:
        Number of deleted files.
    """
    if named is None:
        log.warning("files of a round are left as orphans", files=len(paths))
        return 0
    by_name = {path.rsplit("/", 1)[-1] for path in paths}
    places = {normalized_location(p) for p in named if p.rsplit("/", 1)[-1] in by_name}
    return delete_files(io, sorted(p for p in set(paths) if normalized_location(p) not in places))

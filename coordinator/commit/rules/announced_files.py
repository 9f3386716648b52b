"""Checks that announced files are in the store: a table that lists a missing file cannot be read.

Rules of this file:
- A file is asked for once per attempt, several at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyiceberg.io import FileIO

from connect.errors import CommitRefused
from connect.gateways.storage.object_store import storage_errors

_PARALLEL: Final = 16


def missing_file(path: str) -> CommitRefused:
    """Return the error of an announced file that is not in the store."""
    return CommitRefused(
        "an announced file is not in the store: it was committed before and is announced again, or "
        "it was deleted before its commit; skip the announcement in the first case, and restore "
        "the file in the other",
        code="announced_file_missing",
        file=path,
    )


def verify_present(io: FileIO, paths: Collection[str]) -> None:
    """Check that files are in the store.

    Raises:
        CommitRefused: ``announced_file_missing``. RetriableError: ``storage_unavailable``.
    """

    def verify(path: str) -> None:
        with storage_errors(f"reading {path}"):
            try:
                len(io.new_input(path))
            except FileNotFoundError as error:
                raise missing_file(path) from error

    if len(paths) <= 1:
        for path in paths:
            verify(path)
        return
    with ThreadPoolExecutor(min(_PARALLEL, len(paths)), thread_name_prefix="verify") as pool:
        list(pool.map(verify, paths))

"""What a log of a Parquet folder needs of the store; local folders and S3 implement it.

Rules of this file:
- ``create`` is the only conditional request, and the one that decides. All others can be repeated,
  by any process, at any time.
- A file appears complete or not at all, under each of its names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class FolderStore(Protocol):
    """The files of one folder; paths are relative to it, with ``/``.

    Attributes:
        parallel: requests that should be under way at the same time.
        is_posix: whether the store is a file system of the machine, which needs no proof that it
            creates a file only once.
    """

    parallel: int
    is_posix: bool

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is none.

        Raises:
            CommitRefused: ``forbidden``; RetriableError: ``catalog_unavailable``.
        """
        ...

    def create(self, path: str, content: bytes) -> None:
        """Write a file on condition that it does not exist.

        Raises:
            CommitConflict: it exists; perhaps because an earlier request of this call succeeded.
            CommitStateUnknown: perhaps written. CommitRefused: ``forbidden``,
                ``conditional_writes``.
        """
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Write a file; errors as ``read``."""
        ...

    def names(self, folder: str, after: str) -> list[str]:
        """Return the names of a folder's files that sort after ``after``, sorted; as ``read``."""
        ...

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if there is none. Raises as ``read``."""
        ...

    def publish(self, staged: str, path: str, size_bytes: int) -> bool:
        """Give a staged file a second name, where readers find it.

        Returns:
            False if there is no staged file; True if the file has the name, also from before.

        Raises:
            As ``read``.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; what cannot be deleted is left."""
        ...

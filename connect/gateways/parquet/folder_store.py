"""What a log of a Parquet folder needs of the store; local folders and S3 implement it.

Rules of this file:
- ``create`` is the only conditional request, and the one that decides. All others can be repeated,
  by any process, at any time.
- A file appears complete or not at all, under each of its names.
- What is read or listed is limited: others may write to the folder.
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
            CommitRefused: ``forbidden``, ``metadata_too_large``.
            RetriableError: ``catalog_unavailable``.
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

    def listed(self, folder: str, after: str) -> list[tuple[str, int]]:
        """Return names and sizes of a folder's files whose names sort after ``after``, sorted.

        Raises:
            As ``read``.
        """
        ...

    def has_files(self, folder: str) -> bool:
        """Return whether a folder has a file or folder; as ``read``."""
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

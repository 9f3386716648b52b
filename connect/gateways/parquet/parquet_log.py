"""The log of one Parquet folder: numbered commits, and the publication of their files.

Rules of this file:
- A commit is one conditional write of a numbered file. It decides; all that follows can be repeated
  by any process.
- The files of a commit are published before the next commit is made. So only the newest commit can
  have files that readers do not see, and the process that commits next publishes those first.
- A marker says that a commit is published. Staged files are deleted after the marker was written.
  Without a marker, each file of the commit is staged, or another process has just published it.
- A store whose conditional writes are not known to work is asked once: it must refuse to create a
  file that exists. No commit is used for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from connect import failpoints
from connect.errors import CommitConflict, CommitRefused
from connect.gateways.parquet.folder_store import FolderStore
from connect.gateways.parquet.parquet_commit import (
    CHECKPOINT,
    COMMITS,
    CONDITIONS,
    ParquetCommit,
    PublishedFile,
    commit_path,
    marker_path,
    newest_number,
)

CHECKPOINT_COMMITS: Final = 100
"""Commits between two checkpoints, from which a process that starts lists the log."""
_CHECKPOINT_BYTES_MAX: Final = 1_000
_T = TypeVar("_T")
_R = TypeVar("_R")


class ParquetLog:
    """The log of one folder. Threads may share it.

    Args:
        store: of the folder.
        checkpoint_commits: commits between two checkpoints.
    """

    def __init__(self, store: FolderStore, *, checkpoint_commits: int = CHECKPOINT_COMMITS) -> None:
        self._store = store
        self._checkpoint_commits = checkpoint_commits
        self._known: tuple[ParquetCommit, bytes] | None = None
        self._published: tuple[int, object] | None = None  # number and table of a published commit
        self._is_proved = store.is_posix

    def newest(self) -> ParquetCommit | None:
        """Return the newest commit; None if the folder has no log.

        Raises:
            CommitRefused: ``log_lost``, ``log_unreadable``, ``metadata_too_large``,
            ``forbidden``; RetriableError: ``catalog_unavailable``.
        """
        known = self._known
        # the folder may hold another table now, or an earlier state of this one
        if known is not None and self._store.read(commit_path(known[0].number)) != known[1]:
            known = None
        if known is None:
            known = self._listed()
        while known is not None and (after := self._read(known[0].number + 1)) is not None:
            known = after
        self._known = known
        return known and known[0]

    def commit(self, number: int) -> ParquetCommit | None:
        """Return a commit; None if the log does not have it. Raises as ``newest``."""
        stored = self._read(number)
        return stored and stored[0]

    def write(self, commit: ParquetCommit) -> None:
        """Commit, on condition that no commit has the number.

        Raises:
            CommitConflict, CommitStateUnknown, CommitRefused: as ``FolderStore.create``.
        """
        self._store.create(commit_path(commit.number), commit.to_bytes())

    def publish(self, commit: ParquetCommit) -> None:
        """Let readers see all files of a commit, unless they do.

        Raises:
            CommitRefused: ``file_missing``, ``forbidden``; RetriableError: ``catalog_unavailable``.
        """
        if not commit.files or self._published == (commit.number, commit.table_uuid):
            return
        if self._has_marker(commit):  # its process may have ended before it deleted staged files
            self._clear(commit)
            return
        missing = [file for file in self._each(self._publish, commit.files) if file is not None]
        if missing and not self._has_marker(commit):
            lost = [f for f in missing if self._store.size(f.path) != f.size_bytes]
            if lost and not self._has_marker(commit):
                raise CommitRefused(
                    f"{len(lost)} files of commit {commit.number} are neither staged nor "
                    f"published: restore {lost[0].staged}, or create the file "
                    f"{marker_path(commit.number)} to give the files up; then retry the table",
                    code="file_missing",
                    file=lost[0].path,
                )
        failpoints.hit("P3")
        self._store.replace(marker_path(commit.number), b"{}\n")
        failpoints.hit("P4")
        self._clear(commit)
        if commit.number % self._checkpoint_commits == 0:
            self._store.replace(CHECKPOINT, f'{{"number": {commit.number}}}\n'.encode())

    def staged(self, files: Iterable[PublishedFile]) -> tuple[PublishedFile, ...]:
        """Return the files that are staged, without those that are published already.

        Raises:
            CommitRefused: ``file_missing``: a file is neither, or has another size.
        """
        files = tuple(files)
        sizes = self._each(lambda file: self._store.size(file.staged), files)
        out = []
        for file, size in zip(files, sizes, strict=True):
            if size == file.size_bytes:
                out.append(file)
            elif size is not None or self._store.size(file.path) != file.size_bytes:
                raise CommitRefused(
                    "an announced file is not in the store, or has another size: restore it and "
                    "retry, or skip the file",
                    code="file_missing",
                    file=file.staged,
                )
        return tuple(out)

    def prove_conditions(self) -> None:
        """Check once that the store refuses to create a file twice.

        Raises:
            CommitRefused: ``conditional_writes``.
        """
        if self._is_proved:
            return
        self._store.replace(CONDITIONS, b"\n")
        try:
            self._store.create(CONDITIONS, b"\n")
        except CommitConflict:
            self._is_proved = True
            return
        raise CommitRefused(
            "the store wrote an existing file again, although the request was conditional: use a "
            "store with conditional writes (If-None-Match)",
            code="conditional_writes",
        )

    def has_folder(self, name: str) -> bool:
        """Return whether a folder below the table's location has files."""
        return self._store.has_files(name)

    def _publish(self, file: PublishedFile) -> PublishedFile | None:
        is_there = self._store.publish(file.staged, file.path, file.size_bytes)
        failpoints.hit("P2")
        return None if is_there else file

    def _clear(self, commit: ParquetCommit) -> None:
        """Delete the staged files of a published commit."""
        self._store.delete(file.staged for file in commit.files)
        self._published = commit.number, commit.table_uuid

    def _has_marker(self, commit: ParquetCommit) -> bool:
        return self._store.size(marker_path(commit.number)) is not None

    def _listed(self) -> tuple[ParquetCommit, bytes] | None:
        checkpoint = self._store.read(CHECKPOINT)
        after = ""
        if checkpoint is not None:
            after = f"{_checkpoint_number(checkpoint):020}"
        number = newest_number(name for name, _ in self._store.listed(COMMITS, after))
        if number is None and checkpoint is not None:
            raise CommitRefused(
                f"the log has no commit {int(after)} or later, which its checkpoint names: restore "
                f"the files of {COMMITS}",
                code="log_lost",
            )
        return None if number is None else self._read(number)

    def _read(self, number: int) -> tuple[ParquetCommit, bytes] | None:
        content = self._store.read(commit_path(number))
        return None if content is None else (ParquetCommit.from_bytes(content), content)

    def _each(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        items = tuple(items)
        if min(self._store.parallel, len(items)) <= 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(self._store.parallel, len(items))) as pool:
            return list(pool.map(work, items))


def _checkpoint_number(content: bytes) -> int:
    digits = re.search(rb"[0-9]{1,20}(?![0-9])", content[:_CHECKPOINT_BYTES_MAX])
    return int(digits[0]) if digits else 0

"""Files of a Parquet folder in a file system of the machine.

Rules of this file:
- A file is created by a hard link to a complete one: the link fails if the name exists, and no
  process sees a part of the content.
- A writer holds a lock on its temporary file. The lock of a killed process is gone, so the next one
  deletes the file. A frozen process keeps its lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from connect.clock import SystemClock
from connect.errors import CommitConflict, CommitRefused, CommitStateUnknown, RetriableError
from connect.gateways.storage.log_sizes import limited_content, limited_entries

_CLOCK: Final = SystemClock()
_TEMPORARY: Final = "_icefloe/tmp"
_LOCKED_AFTER_MS: Final = 60_000
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV})


class LocalStore:
    """A folder; see ``FolderStore``.

    Args:
        root: the folder; it may not exist yet.
    """

    parallel = 1
    is_posix = True

    def __init__(self, root: Path) -> None:
        self._root = root
        self._has_cleared = False

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        with _mapped("reading", path):
            try:
                with (self._root / path).open("rb") as file:
                    return limited_content(file.read)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def create(self, path: str, content: bytes) -> None:
        """Write a file on condition that it does not exist."""
        with _mapped("writing", path), self._written(content) as made:
            try:
                self._linked(made, path)
            except FileExistsError:
                raise CommitConflict(f"{path} exists") from None
            except OSError as error:
                if _is_refusal(error):
                    raise
                raise CommitStateUnknown(f"writing {path}: {error}") from error

    def replace(self, path: str, content: bytes) -> None:
        """Write a file."""
        with _mapped("writing", path), self._written(content) as made:
            made.rename(self._root / path)

    def listed(self, folder: str, after: str) -> list[tuple[str, int]]:
        """Return names and sizes of a folder's files whose names sort after ``after``, sorted."""
        with _mapped("listing", folder):
            try:
                with os.scandir(self._root / folder) as entries:
                    later = (_named(entry) for entry in entries if entry.name > after)
                    return sorted(limited_entries(entry for entry in later if entry is not None))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def has_files(self, folder: str) -> bool:
        """Return whether a folder has a file or folder."""
        with _mapped("listing", folder):
            try:
                with os.scandir(self._root / folder) as entries:
                    return next(entries, None) is not None
            except (FileNotFoundError, NotADirectoryError):
                return False

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if there is none."""
        with _mapped("reading", path):
            try:
                return (self._root / path).stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def publish(self, staged: str, path: str, size_bytes: int) -> bool:  # noqa: ARG002 - of the protocol
        """Give a staged file a second name; False if there is no staged file."""
        with _mapped("publishing", path):
            try:
                self._linked(self._root / staged, path)
            except FileExistsError:
                return True
            except FileNotFoundError:
                return False
        return True

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; what cannot be deleted is left."""
        for path in paths:
            with contextlib.suppress(OSError):
                (self._root / path).unlink()

    @contextlib.contextmanager
    def _written(self, content: bytes) -> Iterator[Path]:
        """Write a temporary file, locked and deleted after the block."""
        folder = self._root / _TEMPORARY
        folder.mkdir(parents=True, exist_ok=True)
        self._delete_leftovers(folder)
        made = folder / str(_CLOCK.new_uuid())
        with made.open("xb") as file:
            try:
                _lock(file.fileno())
                made.write_bytes(content)  # closed before the link: network file systems need that
                yield made
            finally:
                with contextlib.suppress(OSError):
                    made.unlink()

    def _delete_leftovers(self, folder: Path) -> None:
        """Delete temporary files of processes that were killed; once."""
        if self._has_cleared:
            return
        self._has_cleared = True
        for path in folder.iterdir():
            with contextlib.suppress(OSError, ValueError):
                uuid.UUID(path.name)  # other files are not of a store
                _delete_unless_locked(path)

    def _linked(self, source: Path, path: str) -> None:
        target = self._root / path
        try:
            os.link(source, target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, target)


def _named(entry: os.DirEntry[str]) -> tuple[str, int] | None:
    """Return name and size of a file; None if it was deleted meanwhile."""
    try:
        return entry.name, entry.stat().st_size
    except FileNotFoundError:
        return None


def _lock(descriptor: int) -> bool:
    """Lock a file unless another process has the lock; without locks of files return false."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _delete_unless_locked(path: Path) -> None:
    # a link or a device is not opened: others may write to the folder
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and _is_old(status) and _lock(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)


def _is_old(status: os.stat_result) -> bool:
    """Whether a file is older than the time between its creation and its lock."""
    return _CLOCK.now_ms() - status.st_mtime_ns // 1_000_000 > _LOCKED_AFTER_MS


def _is_refusal(error: OSError) -> bool:
    return isinstance(error, PermissionError) or error.errno in _NO_LINKS


@contextlib.contextmanager
def _mapped(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_LINKS and not isinstance(error, PermissionError):
            raise CommitRefused(
                f"{doing} {path}: the file system has no hard links, which Parquet folders need",
                code="conditional_writes",
            ) from error
        if _is_refusal(error):
            raise CommitRefused(f"{doing} {path}: {error}", code="forbidden") from error
        raise RetriableError(f"{doing} {path}: {error}", code="catalog_unavailable") from error

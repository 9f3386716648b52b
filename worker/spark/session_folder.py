"""Private folders of worker processes. The next worker removes those of killed workers.

Rules of this file:
- A folder is in use while a process holds the lock of a file in it. The system releases the lock
  when the process ends. A folder is locked before it gets its final name.
- The lock file is removed last, so that a folder that could not be emptied is found again.
- Other users may have access to the parent. Folders are opened by descriptors, links are not
  followed, and folders that are not owned by this user alone are left unchanged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PREFIX: Final = "icefloe-worker-"
_UNNAMED: Final = "new-icefloe-"
_LOCK: Final = ".lock"
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """A folder of this process.

    Attributes:
        path: path of the folder.
        lock: descriptor of the locked file.
    """

    path: Path
    lock: int

    @classmethod
    def make(cls, parent: Path | None = None) -> SessionFolder:
        """Make a folder; remove folders of ended processes next to it.

        Args:
            parent: where to make it; the system's temporary folder if None.

        Raises:
            OSError: the parent is not writable.
        """
        parent = (parent or Path(tempfile.gettempdir())).absolute()
        with _descriptor(os.open(parent, _FOLDER_FLAGS)) as opened:
            for name in os.listdir(opened):  # noqa: PTH208 - by its descriptor
                if name.startswith(PREFIX):
                    _remove_unused(opened, name)
        unnamed = Path(tempfile.mkdtemp(prefix=_UNNAMED, dir=parent))
        with _own_folder(unnamed) as folder:
            lock = _locked(folder, os.O_CREAT)
        named = unnamed.rename(parent / unnamed.name.replace(_UNNAMED, PREFIX, 1))
        return cls(named, lock)

    def remove(self) -> None:
        """Remove the folder and its content, if it is still the folder that was made."""
        with contextlib.suppress(OSError), _own_folder(self.path) as folder:
            status = os.stat(_LOCK, dir_fd=folder, follow_symlinks=False)
            if os.path.samestat(status, os.fstat(self.lock)):
                _empty(folder)
                self.path.rmdir()
        os.close(self.lock)


@contextlib.contextmanager
def _descriptor(opened: int) -> Iterator[int]:
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def _own_folder(name: str | Path, parent: int | None = None) -> Iterator[int]:
    """Open a folder; OSError if it is a link, or if other users own it or have access to it."""
    with _descriptor(os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)) as folder:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"other users have access to {name}")
        yield folder


def _locked(folder: int, more: int = 0) -> int:
    """Open and lock a folder's lock file; OSError if it is missing or locked by a process."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | more
    lock = os.open(_LOCK, flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove_unused(parent: int, name: str) -> None:
    """Remove a folder that no process has locked."""
    with contextlib.suppress(OSError), _own_folder(name, parent) as folder:
        with _descriptor(_locked(folder)):
            _empty(folder)
        os.rmdir(name, dir_fd=parent)


def _empty(folder: int) -> None:
    with os.scandir(folder) as entries:
        children = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in children:
        if is_folder:
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        elif name != _LOCK:
            os.unlink(name, dir_fd=folder)
    if os.listdir(folder) == [_LOCK]:
        os.unlink(_LOCK, dir_fd=folder)

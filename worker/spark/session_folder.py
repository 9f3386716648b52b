"""Private folders of worker processes; what a killed worker left is removed by the next one.

Rules of this file:
- A folder is in use for as long as somebody holds the lock of a file in it; the system lets go of
  that when the process dies. A folder gets its name when it is locked already.
- The lock file goes last, so that what could not be removed is found again.
- The parent may be open to other users: folders are opened by descriptors, links are not followed,
  and what this user does not own alone is left as it is.
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
        path: where it is.
        lock: descriptor of the locked file.
    """

    path: Path
    lock: int

    @classmethod
    def make(cls, parent: Path | None = None) -> SessionFolder:
        """A new folder; those in the same place that nobody holds any more are removed.

        Args:
            parent: where; the system's temporary folder if None.

        Raises:
            OSError: nothing can be written there.
        """
        parent = (parent or Path(tempfile.gettempdir())).absolute()
        with _descriptor(os.open(parent, _FOLDER_FLAGS)) as opened:
            for name in os.listdir(opened):  # noqa: PTH208 - by its descriptor
                if name.startswith(PREFIX):
                    _remove_left(opened, name)
        made = Path(tempfile.mkdtemp(prefix=_UNNAMED, dir=parent))
        with _own_folder(made) as folder:
            lock = _locked(folder, os.O_CREAT)
        named = made.rename(parent / made.name.replace(_UNNAMED, PREFIX, 1))
        return cls(named, lock)

    def remove(self) -> None:
        """Remove it with all that is in it, if it is still the folder that was made."""
        with contextlib.suppress(OSError), _own_folder(self.path) as folder:
            found = os.stat(_LOCK, dir_fd=folder, follow_symlinks=False)
            if os.path.samestat(found, os.fstat(self.lock)):
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
    """Open a folder; OSError where it is a link, or where others own it or may use it."""
    with _descriptor(os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)) as folder:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{name} is open to other users")
        yield folder


def _locked(folder: int, more: int = 0) -> int:
    """Open and lock a folder's lock file; OSError when there is none or a process holds it."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | more
    lock = os.open(_LOCK, flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove_left(parent: int, name: str) -> None:
    """Remove a folder that no process holds."""
    with contextlib.suppress(OSError), _own_folder(name, parent) as folder:
        with _descriptor(_locked(folder)):
            _empty(folder)
        os.rmdir(name, dir_fd=parent)


def _empty(folder: int) -> None:
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if is_folder:
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        elif name != _LOCK:
            os.unlink(name, dir_fd=folder)
    if os.listdir(folder) == [_LOCK]:
        os.unlink(_LOCK, dir_fd=folder)

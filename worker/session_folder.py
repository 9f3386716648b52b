"""Private folders of worker processes; what a killed worker left is removed by the next one.

Rules of this file:
- A folder is in use for as long as somebody holds the lock of a file in it; the system lets go of
  that when the process dies. A folder gets its name when it is locked already.
- The lock file goes last, so that what could not be removed is found again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PREFIX: Final = "icefloe-worker-"
_UNNAMED: Final = "new-icefloe-"
_LOCK: Final = ".lock"


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
        for left in parent.glob(f"{PREFIX}*"):
            _remove_left(left)
        made = Path(tempfile.mkdtemp(prefix=_UNNAMED, dir=parent))
        lock = _locked(made, os.O_CREAT)
        named = made.rename(parent / made.name.replace(_UNNAMED, PREFIX, 1))
        return cls(named, lock)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        _remove(self.path)
        os.close(self.lock)


def _locked(folder: Path, more: int = 0) -> int:
    """Open and lock a folder's lock file; OSError when there is none or somebody holds it."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | more
    lock = os.open(folder / _LOCK, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if folder.is_symlink():
            return
        lock = _locked(folder)
        try:
            _remove(folder)
        finally:
            os.close(lock)


def _remove(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != _LOCK:
            entry.unlink(missing_ok=True)
    if [entry.name for entry in folder.iterdir()] == [_LOCK]:
        shutil.rmtree(folder, ignore_errors=True)

"""Arms failpoints of processes that run; see ``connect.failpoints``."""

from __future__ import annotations

from pathlib import Path


def arm(folder: Path, point: str, action: str) -> Path:
    """Arm a failpoint; return the file, which the process that acts removes.

    The file appears with its content: a process that read an empty one would remove it and not act.
    """
    new = folder / f".{point}"
    new.write_text(action, "utf-8")
    return new.rename(folder / point)

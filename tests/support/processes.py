"""Reads properties of processes that may end at any time."""

from __future__ import annotations

import psutil


def arguments(process: psutil.Process) -> list[str]:
    """The arguments of a process; none when it has just ended."""
    try:
        command: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return command

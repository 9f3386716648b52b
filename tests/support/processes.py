"""Reads properties of processes that may end at any time."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil


def arguments(process: psutil.Process) -> list[str]:
    """The arguments of a process; none when it has just ended."""
    try:
        command: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return command


def still_running(processes: Iterable[psutil.Process], wait_s: float) -> list[psutil.Process]:
    """Wait until processes have ended; return those that still run after ``wait_s``.

    ``psutil.wait_procs`` fails if the id of one that has ended is a thread of another process now.
    """
    deadline_s = time.monotonic() + wait_s
    left = list(processes)
    while left := [process for process in left if _is_running(process)]:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    return left


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

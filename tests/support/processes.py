"""Reads properties of processes that may end at any time."""

from __future__ import annotations

import contextlib
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


def kill_tree(root: psutil.Process, wait_s: float) -> None:
    """SIGKILL for a process and its descendants, the parent first; wait for their end.

    The children end with their parent: some have ended before they get the signal.
    """
    tree = [root]
    with contextlib.suppress(psutil.NoSuchProcess):
        tree += root.children(recursive=True)
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    left = still_running(tree, wait_s)
    assert not left, left
    root.wait(wait_s)  # a child of this process leaves the process table


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

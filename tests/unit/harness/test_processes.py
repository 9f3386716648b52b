"""Processes that have ended are distinguished from those that still run."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.support.processes import still_running


def test_what_still_runs_is_returned() -> None:
    """A process that has ended counts as ended, also while its parent has not reaped it."""
    command = [sys.executable, "-S", "-c", "input()"]
    running, zombie, reaped = (subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3))
    processes = [psutil.Process(one.pid) for one in (running, zombie, reaped)]
    zombie.kill()
    reaped.kill()
    reaped.wait()
    assert not still_running(processes[1:], 60)
    assert still_running(processes, 0) == processes[:1]
    for one in (running, zombie):
        one.kill()
        one.communicate()
    assert not still_running(processes, 60)
    assert reaped.stdin is not None
    reaped.stdin.close()

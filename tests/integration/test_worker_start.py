"""The start of a worker's Spark: its Python daemon starts before the first batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import contextlib, sys
from pathlib import Path
import psutil
from worker.spark.session_opening import SessionOpening, start_daemon
from worker.spark.warm_up import warm_up

def daemons():
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "worker.spark.daemon" in process.cmdline():
                found[process.pid] = process.ppid()
    return {pid for pid, parent in found.items() if parent not in found}  # the others are forks

session = SessionOpening({"spark.master": "local[2]"}, Path(sys.argv[1])).session.result()
start_daemon(session.context)
first = daemons()
warm_up(session)
print(len(first), daemons() == first)
session.close()
"""


def test_the_daemon_of_the_start_serves_the_first_batch(tmp_path: Path) -> None:
    """A job without SQL starts it, and Spark starts no second one for a query."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("1 True\n", 0), done.stderr

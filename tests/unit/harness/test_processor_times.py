"""The plugin that measures processor times: a test has that of its children, alive or ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import TESTS
from tests.support.processor_times import used_s

BUSY = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\n"
TESTED = f"""
import subprocess, sys

BUSY = {BUSY!r}


def test_idle():
    pass


def test_busy():
    subprocess.run([sys.executable, "-c", BUSY], check=True)
"""


def test_the_time_of_a_child_counts_while_it_runs_and_after_it() -> None:
    """Once: it is the child's, and then that of this process."""
    before_s = used_s(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", f"{BUSY}sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running_s = used_s(os.getpid())
        assert used_s(child.pid) >= 0.4
        child.communicate()
    assert running_s - before_s >= 0.4
    assert used_s(os.getpid()) - running_s < 0.4


def test_the_summary_names_files_and_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest first, and only so many as wanted."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    (tmp_path / "test_a.py").write_text(TESTED)
    options = ["-p", "tests.support.processor_times", "--processor-times", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_a.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    _, _, summary = done.stdout.partition("processor time: ")
    times = [line.split() for line in summary.splitlines() if " s  " in line]
    assert [name for *_, name in times] == ["test_a.py", "test_a.py::test_busy"]
    assert all(float(seconds) >= 0.4 for seconds, *_ in times)

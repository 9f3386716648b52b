"""Private folders of workers: those that nobody holds any more are removed, no others."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from worker.session_folder import SessionFolder

HOLDS = """
import pathlib, sys, time
from worker.session_folder import SessionFolder
folder = SessionFolder.make(pathlib.Path(sys.argv[1]))
(folder.path / "sub").mkdir()
(folder.path / "sub" / "file").touch()
print(folder.path, flush=True)
time.sleep(600)
"""


def names(parent: Path) -> set[str]:
    """What is in a folder."""
    return {entry.name for entry in parent.iterdir()}


def test_a_killed_process_folder_is_removed_by_the_next(tmp_path: Path) -> None:
    """Not while it lives; what is no worker's folder is left alone."""
    (tmp_path / "icefloe-worker-of-somebody").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".lock").touch()
    (tmp_path / "icefloe-worker-link").symlink_to(outside)
    others = names(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    with holder.stdout:
        held = Path(holder.stdout.readline().strip())
        first = SessionFolder.make(tmp_path)
        assert names(tmp_path) == {*others, held.name, first.path.name}
        assert (held / "sub" / "file").exists()
        holder.send_signal(signal.SIGKILL)
        holder.wait(60)
    second = SessionFolder.make(tmp_path)
    assert names(tmp_path) == {*others, first.path.name, second.path.name}
    first.remove()
    second.remove()
    assert names(tmp_path) == others
    assert (outside / ".lock").exists()

"""Private folders of workers: only those of ended processes are removed."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from worker.spark.session_folder import SessionFolder

HOLDS = """
import pathlib, sys, time
from worker.spark.session_folder import SessionFolder
folder = SessionFolder.make(pathlib.Path(sys.argv[1]))
(folder.path / "sub").mkdir()
(folder.path / "sub" / "file").touch()
print(folder.path, flush=True)
time.sleep(600)
"""


def names(parent: Path) -> set[str]:
    """Names of the entries of a folder."""
    return {entry.name for entry in parent.iterdir()}


def test_the_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    """It stays while the process runs; other folders are never removed."""
    (tmp_path / "icefloe-worker-of-another-user").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".lock").touch()
    (tmp_path / "icefloe-worker-link").symlink_to(outside)
    others = names(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        cwd=Path(__file__).parents[4],
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


def _left_over(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir(mode=0o700)
    (folder / ".lock").touch()
    (folder / "spill").mkdir()
    return folder


def test_a_link_in_the_place_of_a_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the opened and locked folder is removed."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "data").write_text("kept")
    parent = tmp_path / "parent"
    parent.mkdir()
    evil = _left_over(parent, "icefloe-worker-evil")
    flock = fcntl.flock

    def swapping(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if evil.exists() and not evil.is_symlink():
            evil.rename(tmp_path / "moved")
            evil.symlink_to(target)

    monkeypatch.setattr(fcntl, "flock", swapping)
    SessionFolder.make(parent).remove()
    assert (target / "data").read_text() == "kept"


def test_folders_of_other_users_are_not_removed(tmp_path: Path) -> None:
    """Also folders that other users may write, and links."""
    names_left = set()
    open_to_others = _left_over(tmp_path, "icefloe-worker-open")
    open_to_others.chmod(0o777)
    names_left.add(open_to_others.name)
    linked = _left_over(tmp_path, "icefloe-worker-linked-lock")
    (linked / ".lock").unlink()
    (linked / ".lock").symlink_to(tmp_path / "missing")
    names_left.add(linked.name)
    if os.geteuid() == 0:
        foreign = _left_over(tmp_path, "icefloe-worker-foreign")
        os.chown(foreign, 12_345, 12_345)
        names_left.add(foreign.name)
    folder = SessionFolder.make(tmp_path)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert names(tmp_path) == {*names_left, folder.path.name}
    for name in names_left:
        assert (tmp_path / name / "spill").is_dir()
    folder.remove()


def test_a_replaced_folder_is_not_removed(tmp_path: Path) -> None:
    """A worker that ends removes its own folder, not another one with the same name."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "data").write_text("kept")
    folder = SessionFolder.make(tmp_path)
    folder.path.rename(tmp_path / "moved")
    folder.path.symlink_to(target)
    folder.remove()
    assert (target / "data").read_text() == "kept"

"""Temporary files of a local Parquet folder: those of killed processes are deleted, no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connect.errors import CommitConflict
from connect.gateways.parquet.local_store import LocalStore

WRITER = """
import sys, time
from pathlib import Path
from connect.gateways.parquet.local_store import LocalStore

class Held(LocalStore):
    def _linked(self, source, path):
        print("written", flush=True)
        time.sleep(600)

Held(Path(sys.argv[1])).create("_icefloe/commits/0.json", b"{}")
"""


@contextmanager
def held_writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has written a temporary file and goes no further."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def temporary(folder: Path) -> list[Path]:
    """The temporary files, all of them dated in the past."""
    paths = sorted((folder / "_icefloe/tmp").iterdir())
    for path in paths:
        os.utime(path, (0, 0), follow_symlinks=False)
    return paths


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_the_file_of_a_killed_process_is_deleted(tmp_path: Path, operation: str) -> None:
    """When the next process writes; a process that lives, or is frozen, keeps its own."""
    with held_writer(tmp_path) as frozen, held_writer(tmp_path) as killed:
        assert len(temporary(tmp_path)) == 2
        killed.kill()
        killed.wait()
        frozen.send_signal(signal.SIGSTOP)
        getattr(LocalStore(tmp_path), operation)("_icefloe/1.json", b"{}")
        assert len(temporary(tmp_path)) == 1
        frozen.send_signal(signal.SIGCONT)
    LocalStore(tmp_path).create("_icefloe/2.json", b"{}")
    assert temporary(tmp_path) == []


def test_only_old_files_of_a_store_are_deleted(tmp_path: Path) -> None:
    """No other name, no link, no folder, and no file that is as young as one without its lock."""
    folder = tmp_path / "_icefloe/tmp"
    folder.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_text("kept")
    (folder / str(uuid.uuid4())).symlink_to(outside)
    (folder / str(uuid.uuid4())).mkdir()
    os.mkfifo(folder / str(uuid.uuid4()))
    (folder / "notes.txt").write_text("kept")
    before = temporary(tmp_path)
    young = folder / str(uuid.uuid4())
    young.write_text("kept")
    LocalStore(tmp_path).create("_icefloe/commits/0.json", b"{}")
    assert {*before, young} == set(folder.iterdir())
    assert outside.read_text() == "kept"


def test_no_temporary_file_is_left_by_a_conflict(tmp_path: Path) -> None:
    """Nor by a success."""
    store = LocalStore(tmp_path)
    store.create("a/0.json", b"0")
    with pytest.raises(CommitConflict):
        store.create("a/0.json", b"1")
    store.replace("a/1.json", b"1")
    assert (store.read("a/0.json"), store.read("a/1.json")) == (b"0", b"1")
    assert temporary(tmp_path) == []

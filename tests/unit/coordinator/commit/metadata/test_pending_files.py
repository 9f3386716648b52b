"""Files of an attempt are written together, and compared with the store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from connect.errors import RetriableError
from coordinator.commit.metadata.pending_files import PendingFiles

CONTENTS = {"m0.avro": b"one", "m1.avro": b"two", "snap.avro": b"three"}


class RemoteIO(PyArrowFileIO):
    """Files of a store at ``s3://bucket``, which are files of a folder.

    Args:
        folder: contains them.
        refused: path whose write fails.
        at_once: writes that must be under way before one of them continues.
    """

    def __init__(self, folder: Path, refused: str = "", at_once: int = 1) -> None:
        super().__init__({})
        self._folder = folder
        self._refused = refused
        self._arrived = threading.Barrier(at_once)

    def new_input(self, location: str) -> PyArrowFile:
        """Open a file of the folder."""
        return super().new_input(self._local(location))

    def new_output(self, location: str) -> PyArrowFile:
        """Wait for the other writes, then open a file of the folder, or refuse it."""
        self._arrived.wait(timeout=60)
        if self._refused and location.endswith(self._refused):
            raise OSError("no space")
        return super().new_output(self._local(location))

    def _local(self, location: str) -> str:
        return f"file://{self._folder}/{location.rpartition('/')[2]}"


def pending(io: PyArrowFileIO, root: str) -> PendingFiles:
    """Hold all files."""
    files = PendingFiles(io)
    for name, content in CONTENTS.items():
        output = files.new_output(f"{root}/{name}")
        with output.create() as stream:
            stream.write(content)
        assert (len(output), output.exists()) == (len(content), True)
    return files


def contents(folder: Path) -> dict[str, bytes]:
    """Return what the folder has."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_files_of_an_object_store_are_written_at_the_same_time(tmp_path: Path) -> None:
    """Each of them waits for the others; none is there before ``write``."""
    files = pending(RemoteIO(tmp_path, at_once=len(CONTENTS)), "s3://bucket")
    assert contents(tmp_path) == {}
    files.write()
    assert contents(tmp_path) == CONTENTS


def test_files_of_a_folder_are_written_in_order(tmp_path: Path) -> None:
    """Also with what was flushed before, which is not written again."""
    files = pending(PyArrowFileIO(), f"file://{tmp_path}")
    files.flush()
    assert contents(tmp_path) == CONTENTS
    for file in tmp_path.iterdir():
        file.unlink()
    files.write()
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("refused", CONTENTS)
def test_no_write_is_under_way_after_an_error(tmp_path: Path, refused: str) -> None:
    """The other files are complete, so the caller can delete them."""
    files = pending(RemoteIO(tmp_path, refused), "s3://bucket")
    with pytest.raises(RetriableError) as failed:
        files.write()
    assert failed.value.code == "storage_unavailable"
    assert refused in str(failed.value)
    assert contents(tmp_path) == {k: v for k, v in CONTENTS.items() if k != refused}
    assert not [t for t in threading.enumerate() if t.name.startswith("metadata-write")]


def test_a_file_of_another_size_is_an_error(tmp_path: Path) -> None:
    """The store acknowledged a file that it cut off."""

    class CuttingIO(RemoteIO):
        def new_input(self, location: str) -> PyArrowFile:
            file = tmp_path / location.rpartition("/")[2]
            file.write_bytes(file.read_bytes()[:-1])
            return super().new_input(location)

    files = pending(CuttingIO(tmp_path), "s3://bucket")
    with pytest.raises(RetriableError, match="3 bytes, found 2"):
        files.write()

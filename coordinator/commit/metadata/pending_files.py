"""The metadata files of one attempt: held until all of them are complete, then written together.

A commit writes a manifest and a manifest list, and asks the store for the size of both. In an
object store each of these requests takes some ten milliseconds, and none needs the answer of
another one: only the catalog's change must come after all of them.

Rules of this file:
- ``write`` has written and compared all files when it returns. Only then may a catalog name one.
- When it fails, no write is under way: the caller can delete the files.
- Files of a local folder are written one after the other: threads would take longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Final

from pyiceberg.io import FileIO, InputFile, OutputFile

from connect import failpoints
from connect.config.local_paths import LOCAL, normalized_location
from connect.gateways.storage.object_store import storage_errors, verify_written

_THREADS_MAX: Final = 8


class PendingFiles:
    """Files that are complete, or will be, and that the store does not have yet.

    Args:
        io: writes them.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._contents: dict[str, bytes] = {}

    def new_output(self, path: str) -> OutputFile:
        """Return a file whose content is held when its stream is closed."""
        return _PendingFile(path, self)

    def hold(self, path: str, content: bytes) -> None:
        """Write a file of this content with the next ``write``."""
        self._contents[path] = content

    def size(self, path: str) -> int | None:
        """Return the size in bytes of a file that is held; None for another one."""
        content = self._contents.get(path)
        return None if content is None else len(content)

    def open(self, path: str) -> InputFile:
        """Return a file of the store."""
        return self._io.new_input(path)

    def write(self) -> None:
        """Write all files that are held, and compare their sizes in the store.

        Raises:
            RetriableError: ``storage_unavailable``: one was not written.
        """
        if self._are_local:
            self._write_in_order(list(self._contents)[:-1])
        failpoints.hit("C8")
        self.flush()

    def flush(self) -> None:
        """Write what is held now, because it is going to be read; raises as ``write``."""
        if len(self._contents) < 2 or self._are_local:
            self._write_in_order(list(self._contents))
        else:
            self._write_together()

    @property
    def _are_local(self) -> bool:
        return all(normalized_location(path).scheme == LOCAL for path in self._contents)

    def _write_in_order(self, paths: Sequence[str]) -> None:
        contents = {path: self._contents.pop(path) for path in paths}
        for path, content in contents.items():
            self._write(path, content)

    def _write_together(self) -> None:
        contents, self._contents = self._contents, {}
        threads = min(len(contents), _THREADS_MAX)
        with ThreadPoolExecutor(threads, thread_name_prefix="metadata-write") as writers:
            results = [writers.submit(self._write, *item) for item in contents.items()]
        for result in results:
            result.result()

    def _write(self, path: str, content: bytes) -> None:
        with (
            storage_errors(f"writing {path}"),
            self._io.new_output(path).create(overwrite=True) as stream,
        ):
            stream.write(content)
        verify_written(self._io, {path: len(content)})


class _PendingFile(OutputFile):
    """A file among ``PendingFiles``."""

    def __init__(self, location: str, files: PendingFiles) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        """The size in bytes."""
        size = self._files.size(self.location)
        return len(self.to_input_file()) if size is None else size

    def exists(self) -> bool:
        """Whether the content is complete, or the store has the file."""
        return self._files.size(self.location) is not None or self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        """Return the file of the store."""
        return self._files.open(self.location)

    def create(self, overwrite: bool = False) -> _Content:  # noqa: ARG002 - paths are unique
        """Return a stream for the content."""
        return _Content(self.location, self._files)


class _Content(BytesIO):
    """Hands its content over when it is closed."""

    def __init__(self, location: str, files: PendingFiles) -> None:
        super().__init__()
        self._location = location
        self._files = files

    def close(self) -> None:
        """Hand the content over."""
        if not self.closed:
            self._files.hold(self._location, self.getvalue())
        super().close()

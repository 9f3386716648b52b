"""Files of a state in a local folder or an object store.

Rules of this file:
- A file has a name that no other file ever had. So no file is overwritten, and a reader that knows
  a name reads either the whole file or an error.
- A local file is on the disk when ``write`` returns.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from connect.config.location_policy import EVERYWHERE, LocationPolicy
from connect.errors import ConfigError, RetriableError
from connect.gateways.catalog_properties import client_config, refuse_places
from connect.gateways.storage.guarded_io import GuardedFileIO
from connect.gateways.storage.object_store import check_storage, is_refusal, store_error_text
from connect.gateways.storage.store_file_io import StoreFileIO

STATE_UNAVAILABLE = "state_unavailable"
_COPIED_BYTES: Final = 2**20


class StateFolder:
    """The files below a location.

    Args:
        properties: of the store, as a connector's ``state_properties``.
        location: of the folder, with a scheme or a local path.
        policy: locations that the connector may use.

    Raises:
        ConfigError: the location is not allowed, or a property is not valid.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        location: str,
        policy: LocationPolicy = EVERYWHERE,
    ) -> None:
        client = client_config(dict(properties))
        refuse_places(client.properties, policy)
        if (why := policy.refusal(location)) is not None:
            raise ConfigError(f"{location} {why}", code="location_not_granted")
        io = GuardedFileIO(client.properties)
        check_storage(io.properties, location)
        scheme, host, path = StoreFileIO.parse_location(location)
        self._files: FileSystem = io.fs_by_scheme(scheme, host)
        self._root = path.rstrip("/")
        self._is_local = isinstance(self._files, LocalFileSystem)
        self.location = location

    def names(self) -> list[str]:
        """Return the relative paths of all files, sorted.

        Raises:
            RetriableError: ``state_unavailable``.
        """
        with self._mapped("listing", ""):
            selector = FileSelector(self._root, allow_not_found=True, recursive=True)
            infos = self._files.get_file_info(selector)
        return sorted(
            info.path.removeprefix(self._root).lstrip("/")
            for info in infos
            if info.type == FileType.File
        )

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        """Return the content of a file.

        Args:
            name: of the file.
            bytes_max: return so many bytes of it at most; None returns all.

        Raises:
            FileNotFoundError: there is no such file.
            RetriableError: ``state_unavailable``.
        """
        with self._mapped("reading", name), self._input(name) as source:
            content: bytes = source.read(bytes_max)
            return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file.

        Raises:
            RetriableError: ``state_unavailable``.
        """
        with self._mapped("writing", name), self._output(name) as target:
            target.write(content)

    def upload(self, source: Path, name: str) -> None:
        """Write a file with the content of a local one.

        Raises:
            FileNotFoundError: the local file does not exist.
            RetriableError: ``state_unavailable``.
        """
        with source.open("rb") as read, self._mapped("writing", name), self._output(name) as target:
            shutil.copyfileobj(read, target, _COPIED_BYTES)

    def download(self, name: str, target: Path) -> None:
        """Write a local file with the content of a file; errors as ``read``."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            target.open("wb") as written,
            self._mapped("reading", name),
            self._input(name) as source,
        ):
            shutil.copyfileobj(source, written, _COPIED_BYTES)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; what cannot be deleted is left."""
        for name in names:
            with contextlib.suppress(OSError):
                self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _input(self, name: str) -> Any:
        return self._files.open_input_stream(self._path(name))

    @contextlib.contextmanager
    def _output(self, name: str) -> Iterator[BinaryIO | Any]:
        path = self._path(name)
        if not self._is_local:
            with self._files.open_output_stream(path) as stream:
                yield stream
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())

    @contextlib.contextmanager
    def _mapped(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            advice = ""
            if is_refusal(error):
                advice = "; check the permissions of the connector at the location"
            raise RetriableError(
                f"{doing} {name or 'files'} of the state at {self.location}: "
                f"{store_error_text(error)}{advice}",
                code=STATE_UNAVAILABLE,
            ) from error

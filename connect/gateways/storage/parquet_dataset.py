"""Parquet files that are no table: found by their path, read whole.

Apart from ``storage``, which every process needs: this takes pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow.dataset import dataset
from pyarrow.fs import FileSelector, FileType

from connect.errors import ConfigError
from connect.gateways.storage.guarded_io import GuardedFileIO
from connect.gateways.storage.object_store import check_storage, storage_errors


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Parquet files of one folder, as they were found.

    Attributes:
        filesystem: where they are.
        files: path, bytes and time of change (nanoseconds since 1970) of each, by path.
    """

    filesystem: Any
    files: tuple[tuple[str, int, int | None], ...]

    def read(self) -> Any:
        """All of them as one ``pyarrow.Table``.

        Raises:
            ConfigError: one is no Parquet file, or they have no schema in common.
            RetriableError: ``storage_unavailable``.
        """
        paths = [path for path, _, _ in self.files]
        with storage_errors(f"reading {len(paths)} Parquet files"):
            try:
                return dataset(paths, filesystem=self.filesystem, format="parquet").to_table()
            except pa.ArrowException as error:  # its text may quote what is in the files
                kind = type(error).__name__
                raise ConfigError(f"the Parquet files cannot be read: {kind}") from None


def parquet_files(properties: Mapping[str, str], location: str) -> ParquetFiles:
    """List a Parquet file, or those below a folder, except names with a leading ``_`` or ``.``.

    Raises:
        ConfigError: nothing is there.
        RetriableError: ``storage_unavailable``.
    """
    scheme, host, path = GuardedFileIO.parse_location(location, dict(properties))
    check_storage(properties, location)
    with storage_errors(f"listing {location}"):
        filesystem = GuardedFileIO(dict(properties)).fs_by_scheme(scheme, host)
        reported = filesystem.get_file_info(path)
        if reported.type == FileType.Directory:
            inside = filesystem.get_file_info(FileSelector(path, recursive=True))
        else:
            inside = [reported]
    files = tuple(
        (file.path, file.size, file.mtime_ns)
        for file in sorted(inside, key=lambda file: str(file.path))
        if file.type == FileType.File and file.base_name[0] not in "_."
    )
    if not files:
        raise ConfigError(f"there are no Parquet files at {location}")
    return ParquetFiles(filesystem, files)

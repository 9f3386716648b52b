"""Parquet files that are no table: found by their path, read whole.

Apart from ``storage``, which every process needs: this takes pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import ParquetFileFormat, ParquetReadOptions, dataset
from pyarrow.fs import FileSelector, FileType

from connect.errors import ConfigError
from connect.gateways.storage.guarded_io import GuardedFileIO
from connect.gateways.storage.object_store import check_storage, storage_errors

_OFFSET_BYTES: Final = 4


def text_columns(schema: Any) -> tuple[str, ...]:
    """Return the columns that are read as dictionaries: equal texts are in memory once then.

    A file may have one long text in millions of rows. PyArrow decodes a whole row group.
    """
    types = pa.types
    is_text = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return tuple(f.name for f in schema if any(matches(f.type) for matches in is_text))


def bounded_table(schema: Any, batches: Iterable[Any], bytes_max: int) -> Any:
    """Return batches as one ``pyarrow.Table`` without dictionaries.

    Args:
        schema: of the batches.
        batches: perhaps with dictionaries.
        bytes_max: size of the table.

    Returns:
        The table; None as soon as the batches are larger.
    """
    kept, size = [], 0
    for batch in batches:
        size += sum(map(_decoded_bytes, batch.columns))
        if size > bytes_max:
            return None
        kept.append(batch)
    table = pa.Table.from_batches(kept, schema)
    plain = [
        f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema
    ]
    return table.cast(pa.schema(plain)).combine_chunks()


def _decoded_bytes(column: Any) -> int:
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return int(pc.sum(lengths).as_py() or 0) + _OFFSET_BYTES * len(column)


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Parquet files of one folder, as they were found.

    Attributes:
        filesystem: where they are.
        files: path, bytes and time of change (nanoseconds since 1970) of each, by path.
    """

    filesystem: Any
    files: tuple[tuple[str, int, int | None], ...]

    def read(self, bytes_max: int) -> Any:
        """All of them as one ``pyarrow.Table``.

        Args:
            bytes_max: size of the table; the files may be much smaller.

        Returns:
            The table; None if it is larger.

        Raises:
            ConfigError: one is no Parquet file, or they have no schema in common.
            RetriableError: ``storage_unavailable``.
        """
        paths = [path for path, _, _ in self.files]
        with storage_errors(f"reading {len(paths)} Parquet files"):
            try:
                open_as = partial(dataset, paths, filesystem=self.filesystem)
                texts = text_columns(open_as(format="parquet").schema)
                options = ParquetReadOptions(dictionary_columns=set(texts))
                files = open_as(format=ParquetFileFormat(read_options=options))
                return bounded_table(files.schema, files.to_batches(), bytes_max)
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

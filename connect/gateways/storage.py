"""Object stores: which properties open them, and how files go away.

Rules of this file:
- Only text properties travel to other processes; tokens of the catalog do not.
- What a store said it has taken is looked at before anything refers to it.
- Files are opened by PyIceberg's own ``FileIO`` for the location's scheme, never by a class that
  a property names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import structlog
from pyiceberg.io import FileIO, load_file_io

from connect.errors import ConfigError, RetriableError
from connect.gateways.catalog_properties import python_modules_in

_STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "client.", "hdfs.", "hf.")
_MESSAGE_CHARACTERS_MAX = 500
_log = structlog.get_logger(__name__)


def storage_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """The part of a ``FileIO``'s properties that opens files, for a worker's plan.

    Args:
        properties: ``table.io.properties``: the catalog's, with credentials the catalog lent.

    Returns:
        Text only; may hold secrets of the object store, none of the catalog's.
    """
    return {
        key: value
        for key, value in properties.items()
        if key.startswith(_STORAGE_PREFIXES)
        and isinstance(value, str)
        and not python_modules_in({key: value})
    }


def open_storage(properties: Mapping[str, str], location: str) -> FileIO:
    """A ``FileIO`` for files at and below ``location``.

    Raises:
        ConfigError: a property names a Python module.
    """
    if named := python_modules_in(properties):
        raise ConfigError(f"{named[0]} would import a Python module", code="python_module_refused")
    return load_file_io(dict(properties), location)


def delete_files(io: FileIO, paths: Iterable[str]) -> int:
    """Delete files that nobody can refer to; what cannot be deleted is left as an orphan.

    Returns:
        How many are gone.
    """
    deleted = 0
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("orphan_left", path=path, error=str(error))
            continue
        deleted += 1
    return deleted


def verify_written(io: FileIO, sizes: Mapping[str, int | None]) -> None:
    """Make sure that files are there which the store said it has taken.

    A table that refers to a file which is not there cannot be read.

    Args:
        io: of the files.
        sizes: path -> size in bytes, None for any but nothing.

    Raises:
        RetriableError: ``storage_unavailable``: one is missing or of another size.
    """
    for path, expected in sizes.items():
        with storage_errors(f"looking at {path}"):
            try:
                found: int | None = len(io.new_input(path))
            except FileNotFoundError:
                found = None
        if not found or expected not in {None, found}:
            raise RetriableError(
                f"the store said that {path} was written "
                f"({'' if expected is None else f'{expected} bytes, '}found "
                f"{'nothing' if found is None else found})",
                code="storage_unavailable",
            )


@contextlib.contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn what an object store raises into a ``RetriableError``: ``storage_unavailable``.

    Args:
        doing: what failed, for the message.
    """
    try:
        yield
    except OSError as error:
        text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS_MAX]
        raise RetriableError(f"{doing}: {text}", code="storage_unavailable") from error

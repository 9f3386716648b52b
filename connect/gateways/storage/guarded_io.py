"""A ``FileIO`` that opens allowed locations only, with the credentials of its table.

Rules of this file:
- Every location is checked when it is opened: the owner of a table writes its metadata, which may
  name files anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table

import connect.gateways.storage.avro_limits  # noqa: F401 - PyIceberg reads checked manifests then
from connect.config.local_paths import TABLE_PATHS
from connect.errors import ConfigError
from connect.gateways.access_policy import access_policy
from connect.gateways.storage.object_store import check_storage, own_credentials, storage_properties
from connect.gateways.storage.store_file_io import StoreFileIO, azure_client, container_of


class GuardedFileIO(StoreFileIO):
    """Reads and writes below allowed roots and at allowed hosts."""

    def __init__(self, properties: Any) -> None:
        super().__init__(own_credentials(properties))

    def new_input(self, location: str) -> PyArrowFile:
        """Open a file to read; raises ``ConfigError`` where it may not be."""
        check_storage(self.properties, location)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        """Open a file to write; raises ``ConfigError`` where it may not be."""
        check_storage(self.properties, location)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; raises ``ConfigError`` where it may not be."""
        path = location if isinstance(location, str) else location.location
        check_storage(self.properties, path)
        super().delete(path)


def guarded(io: FileIO) -> FileIO:
    """Return a client that checks every location.

    Raises:
        ConfigError: another kind of client, whose locations cannot be checked, where the API has
            users.
    """
    if not isinstance(io, StoreFileIO):
        if not access_policy().is_guarded:
            return io
        raise ConfigError(
            f"{type(io).__name__} is not supported: files are opened with PyArrow's clients only",
            code="storage_client",
        )
    return GuardedFileIO(io.properties)


def table_storage(table: Table, write_properties: Mapping[str, str]) -> dict[str, str]:
    """``storage_properties`` of a table, after its locations were checked.

    Args:
        table: as the catalog gave it.
        write_properties: the connector's own, over the table's.

    Raises:
        ConfigError: as ``check_storage``.
    """
    properties = {**table.properties, **write_properties}
    for location in (table.location(), *filter(None, map(properties.get, TABLE_PATHS))):
        check_storage(table.io.properties, location)
        if container_of(location) is not None:  # reports an invalid key before executors do
            azure_client(table.io.properties, StoreFileIO.parse_location(location)[1])
    return storage_properties(table.io.properties)

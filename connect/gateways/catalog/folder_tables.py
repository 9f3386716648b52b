"""Opens the tables of formats without a catalog; a format's libraries are imported when used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from connect.config.location_policy import EVERYWHERE, LocationPolicy
from connect.config.table_formats import DELTA, FORMAT_NAMES, PARQUET, UNSUPPORTED
from connect.errors import ConfigError
from connect.gateways.folder_catalog import FolderTables

_CLASSES: Final = {
    DELTA: ("connect.gateways.delta.delta_tables", "DeltaTables"),
    PARQUET: ("connect.gateways.parquet.parquet_tables", "ParquetTables"),
}


def open_folder_tables(
    table_format: str,
    properties: Mapping[str, Any],
    locations: LocationPolicy = EVERYWHERE,
    observe: Callable[[str, str, int], None] = lambda *_: None,
) -> FolderTables:
    """Open the tables of a connector.

    Args:
        table_format: of the tables.
        properties: of the client, as ``client_config`` returns them.
        locations: where tables may lie.
        observe: called after each operation with its name, its outcome (``ok`` or the error's
            code) and its milliseconds.

    Raises:
        ConfigError: ``aggregate_unsupported``: the format has no tables.
    """
    if table_format not in _CLASSES:
        raise ConfigError(
            f"{FORMAT_NAMES[table_format]} are in a topic, and have no tables",
            code=UNSUPPORTED[table_format],
        )
    module, name = _CLASSES[table_format]
    made = getattr(importlib.import_module(module), name)(properties, locations, observe)
    return cast(FolderTables, made)

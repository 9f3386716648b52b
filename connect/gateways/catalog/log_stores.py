"""Opens the logs of a connector's tables without catalog, with the checks of every catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from connect.config.location_policy import LocationPolicy
from connect.gateways.access_policy import access_policy
from connect.gateways.catalog.catalog_libraries import require_libraries
from connect.gateways.catalog.catalog_policy import check_catalog
from connect.gateways.catalog.folder_tables import open_folder_tables
from connect.gateways.catalog_properties import client_config
from connect.gateways.delta.delta_model import DeltaStore
from connect.gateways.folder_catalog import FolderTables

if TYPE_CHECKING:
    from connect.gateways.parquet.parquet_tables import ParquetTables


def open_logs(
    properties: Mapping[str, str],
    locations: LocationPolicy,
    observe: Callable[[str, str, int], None],
) -> FolderTables:
    """Open the tables of a connector without catalog; args and errors as ``open_catalog``."""
    config = client_config(properties)
    check_catalog(config, access_policy())
    require_libraries(config)
    return open_folder_tables(config.kind, config.properties, locations, observe)


def open_delta_tables(
    properties: Mapping[str, str],
    locations: LocationPolicy,
    observe: Callable[[str, str, int], None],
) -> DeltaStore:
    """Open the Delta tables of a connector; as ``open_logs``."""
    return open_logs(properties, locations, observe)


def open_parquet_tables(
    properties: Mapping[str, str],
    locations: LocationPolicy,
    observe: Callable[[str, str, int], None],
) -> ParquetTables:
    """Open the Parquet folders of a connector; as ``open_logs``."""
    return cast("ParquetTables", open_logs(properties, locations, observe))

"""Opens the store of a connector's Delta tables, with the checks of every catalog."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import cast

from connect.config.location_policy import LocationPolicy
from connect.gateways.catalog.catalog_libraries import require_libraries
from connect.gateways.catalog.catalog_reach import check_catalog
from connect.gateways.catalog_properties import client_config
from connect.gateways.delta.delta_model import DeltaStore
from connect.gateways.reach import reach


def open_delta_tables(
    properties: Mapping[str, str],
    locations: LocationPolicy,
    observe: Callable[[str, str, int], None],
) -> DeltaStore:
    """Open the tables of a connector; args and errors as ``open_catalog``."""
    config = client_config(properties)
    check_catalog(config, reach())
    require_libraries(config)
    module = importlib.import_module("connect.gateways.delta.delta_tables")
    return cast(DeltaStore, module.DeltaTables(config.properties, locations, observe))

"""The catalog's properties of a configuration: those of its catalog, or of its Delta tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connect.config.client_overrides import split
from connect.config.keys.delta_keys import DELTA, DELTA_LOCATION, FORMAT
from connect.gateways.catalog_properties import DELTA_ROOT, TABLE_LOCATION

_CATALOG: Final = "iceberg.catalog."
_TABLE: Final = "iceberg.table."
_LOCATION: Final = ".location"
_NO_PROPERTY: Final = "multi-table-commit"


def is_delta(raw: Mapping[str, str | None]) -> bool:
    """Return whether the configuration's tables are Delta tables."""
    return (raw.get(FORMAT) or "").strip() == DELTA


def catalog_properties(raw: Mapping[str, str | None]) -> dict[str, str]:
    """Return the properties of the catalog's client.

    For Delta tables these are type ``delta``, the locations of all tables and of single
    tables, and the options of the object store.
    """
    properties = split(raw, _CATALOG)
    properties.pop(_NO_PROPERTY, None)
    if not is_delta(raw):
        return properties
    places = {
        TABLE_LOCATION + name.removesuffix(_LOCATION): location.strip()
        for name, location in split(raw, _TABLE).items()
        if name.endswith(_LOCATION) and location.strip()
    }
    return {
        **properties,
        **places,
        "type": DELTA,
        DELTA_ROOT: (raw.get(DELTA_LOCATION) or "").strip(),
    }

"""The catalog's properties of a configuration: those of its catalog, or of its folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connect.config.client_overrides import split
from connect.config.table_formats import AGGREGATE, FOLDER_FORMATS, FORMAT
from connect.gateways.catalog_properties import FOLDER_OF_TABLE, FOLDER_ROOTS

_CATALOG: Final = "iceberg.catalog."
_TABLE: Final = "iceberg.table."
_LOCATION: Final = ".location"
_NO_PROPERTY: Final = "multi-table-commit"
STATE_STORE: Final = ("s3.", "adls.", "gcs.", "client.")
"""Beginnings of the options of the store of a state."""


def folder_format(raw: Mapping[str, str | None]) -> str | None:
    """Return the format of tables that are folders without a catalog; None for Iceberg tables."""
    chosen = (raw.get(FORMAT) or "").strip()
    return chosen if chosen in FOLDER_FORMATS else None


def is_folder(raw: Mapping[str, str | None]) -> bool:
    """Return whether tables are folders without a catalog."""
    return folder_format(raw) is not None


def catalog_properties(raw: Mapping[str, str | None]) -> dict[str, str]:
    """Return the properties of the catalog's client.

    For tables without a catalog these are the format as type, the locations of all tables and of
    single tables, and the options of the object store. Aggregates have a catalog for static tables
    only.
    """
    properties = split(raw, _CATALOG)
    properties.pop(_NO_PROPERTY, None)
    chosen = folder_format(raw)
    if chosen is None or chosen == AGGREGATE:
        return properties
    places = {
        FOLDER_OF_TABLE + name.removesuffix(_LOCATION): location.strip()
        for name, location in split(raw, _TABLE).items()
        if name.endswith(_LOCATION) and location.strip()
    }
    return {
        **properties,
        **places,
        "type": chosen,
        FOLDER_ROOTS[chosen]: (raw.get(FOLDER_FORMATS[chosen]) or "").strip(),
    }


def state_properties(raw: Mapping[str, str | None]) -> dict[str, str]:
    """Return the properties of the store of a state: location and options; empty without state."""
    chosen = folder_format(raw)
    if chosen != AGGREGATE:
        return {}
    properties = split(raw, _CATALOG)
    return {
        **{name: text for name, text in properties.items() if name.startswith(STATE_STORE)},
        "type": chosen,
        FOLDER_ROOTS[chosen]: (raw.get(FOLDER_FORMATS[chosen]) or "").strip(),
    }

"""Keys that a connector of Delta tables cannot use, and what to do instead.

Rules of this file:
- Nothing is ignored: a key without effect on Delta tables is an error with the way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from connect.config.key import invalid
from connect.config.keys.delta_keys import DELTA, DELTA_LOCATION, FORMAT
from connect.config.local_paths import TABLE_PATHS
from connect.gateways.catalog_properties import delta_place_error
from connect.validation.config_view import ConfigView
from connect.validation.key_checks import split_terms

_ROW_LEVEL: Final = "rows of Delta tables are only added; unset it, or use Iceberg tables"
_NO_CATALOG: Final = f"Delta tables have no catalog; remove it, and set {DELTA_LOCATION}"
_REFUSED: Final = {
    "iceberg.tables.cdc-field": _ROW_LEVEL,
    "iceberg.tables.upsert-mode-enabled": _ROW_LEVEL,
    "iceberg.tables.default-commit-branch": "Delta tables have no branches; unset it",
    "iceberg.tables.default-sort-by": "Delta tables have no sort order; unset it",
    "iceberg.tables.default-location": f"set {DELTA_LOCATION} instead",
    "iceberg.catalog.multi-table-commit": "every Delta table has a log of its own; unset it",
    "iceberg.catalog.catalog-impl": _NO_CATALOG,
    "iceberg.catalog.type": _NO_CATALOG,
    "iceberg.catalog.uri": _NO_CATALOG,
    "iceberg.catalog.warehouse": _NO_CATALOG,
}
_REFUSED_OF_TABLE: Final = {
    "commit-branch": "Delta tables have no branches; unset it",
    "sort-by": "Delta tables have no sort order; unset it",
}
_STORE_PREFIXES: Final = ("s3.", "adls.", "client.")
_MAINTENANCE: Final = "iceberg.maintenance."
_OFF: Final = frozenset({"", "false"})


def delta_keys(view: ConfigView) -> Iterator[tuple[str, str]]:
    """With `icefloe.format=delta`, keys that Delta tables do not support are not set."""
    if view[FORMAT] != DELTA:
        if view.has(DELTA_LOCATION):
            yield DELTA_LOCATION, f"{DELTA_LOCATION} needs {FORMAT}=delta"
        return
    for name in view.raw:
        why = _why(name)
        if why is not None and (view.raw[name] or "").strip().lower() not in _OFF:
            yield name, f"{name} cannot be used with {FORMAT}=delta: {why}"
    fold = "iceberg.tables.schema-case-insensitive"
    if (view.raw.get(fold) or "").strip().lower() == "false":
        yield fold, f"{fold} cannot be false with {FORMAT}=delta: names of columns ignore the case"
    for name in (DELTA_LOCATION, *(key for key, _, _ in view.per_table("location"))):
        location = (view.raw.get(name) or "").strip()
        if location and not view.has_placeholder(name) and (why := delta_place_error(location)):
            yield name, invalid(name, location, why)


def delta_partition_terms(view: ConfigView) -> Iterator[tuple[str, str]]:
    """With `icefloe.format=delta`, partition terms are names of columns."""
    if view[FORMAT] != DELTA:
        return
    names = [name for name, _, _ in view.per_table("partition-by")]
    for name in ("iceberg.tables.default-partition-by", *names):
        if view.has_placeholder(name):
            continue
        for term in split_terms(view.raw.get(name)):
            if "(" in term or "." in term:
                why = (
                    f"Partition term {term!r} cannot be used with {FORMAT}=delta, which partitions "
                    "by top-level columns; add the value as a column, for example with a "
                    "transformation"
                )
                yield name, why


def _why(name: str) -> str | None:
    if name in _REFUSED:
        return _REFUSED[name]
    if name.startswith(_MAINTENANCE):
        return "use OPTIMIZE and VACUUM of an engine of your lake; unset it"
    if name.startswith("iceberg.catalog."):
        option = name.removeprefix("iceberg.catalog.")
        return None if option.startswith(_STORE_PREFIXES) else _NO_CATALOG
    if name.startswith("iceberg.table."):
        return _REFUSED_OF_TABLE.get(name.rpartition(".")[2])
    if name.startswith(("iceberg.tables.write-props.", "iceberg.tables.auto-create-props.")):
        setting = name.partition("-props.")[2]
        if setting in TABLE_PATHS or setting.startswith("write.object-storage."):
            return "files of a Delta table are below its location; unset it"
        if setting == "format-version":
            return "it is the version of Iceberg's format; unset it"
    return None

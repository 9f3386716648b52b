"""Keys that a connector of tables without a catalog cannot use, and what to do instead.

Rules of this file:
- Nothing is ignored: a key without effect on the format's tables is an error with the way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from connect.config.key import invalid
from connect.config.local_paths import TABLE_PATHS
from connect.config.output_config import OUTPUT_PREFIX, OUTPUTS
from connect.config.table_formats import (
    AGGREGATE,
    DELTA,
    FOLDER_FORMATS,
    FORMAT,
    FORMAT_NAMES,
    MERGE_ON_READ,
    PARQUET,
    ROWS_COLUMNS,
    TOPIC,
)
from connect.gateways.catalog_properties import folder_place_error
from connect.validation.catalog_view import STATE_STORE
from connect.validation.config_view import ConfigView
from connect.validation.key_checks import split_terms
from connect.validation.query_rules import catalog_tables

_REFUSED: Final = {
    "iceberg.tables.default-commit-branch": "{tables} have no branches; unset it",
    "iceberg.tables.default-sort-by": "{tables} have no sort order; unset it",
    "iceberg.tables.sort-enabled": "{tables} have no sort order; unset it",
    "iceberg.tables.default-location": "set {location} instead",
    "iceberg.tables.deletion-vectors-enabled": "{tables} get no deletion vectors; unset it",
    "iceberg.tables.deletion-vectors-max-bytes": "{tables} get no deletion vectors; unset it",
    "iceberg.tables.equality-deletes-enabled": "{tables} get no equality deletes; unset it",
    "iceberg.catalog.multi-table-commit": "{tables} have a log each; unset it",
}
_ROW_LEVEL: Final = (
    "iceberg.tables.cdc-field",
    "iceberg.tables.upsert-mode-enabled",
    "iceberg.tables.write-mode",
    "iceberg.tables.copy-on-write-max-bytes",
)
_ONLY_ADDED: Final = "rows of {tables} are only added; unset it, or use Iceberg or Delta tables"
_NO_DELETE_FILES: Final = "{tables} have no delete files; unset it, or set copy-on-write"
_NO_CATALOG: Final = "{tables} have no catalog; remove it, and set {location}"

_REFUSED_OF_TABLE: Final = {
    "commit-branch": "{tables} have no branches; unset it",
    "sort-by": "{tables} have no sort order; unset it",
    "sort-enabled": "{tables} have no sort order; unset it",
    "deletion-vectors-enabled": "{tables} get no deletion vectors; unset it",
    "equality-deletes-enabled": "{tables} get no equality deletes; unset it",
}
_MAINTENANCE_INSTEAD: Final = {
    DELTA: "use OPTIMIZE and VACUUM of an engine of your lake; unset it",
    PARQUET: "files of Parquet folders are neither compacted nor expired; unset it",
    AGGREGATE: "they have no table; unset it",
}
_STORE_PREFIXES: Final = {
    DELTA: ("s3.", "adls.", "client."),
    PARQUET: ("s3.", "client."),
    AGGREGATE: STATE_STORE,
}
_NO_STORE_OPTION: Final = "options of the object store are {prefixes}; unset it"
_MAINTENANCE: Final = "iceberg.maintenance."
_OF_ROWS: Final = frozenset(
    {"iceberg.tables.timestamp-unit", "iceberg.tables.schema-case-insensitive"}
)
"""Keys of tables that also concern rows for topics."""
_OF_TABLES: Final = ("errors.deadletterqueue.table", "iceberg.catalog.multi-table-commit")
_OFF: Final = frozenset({"", "false"})
_TIMES: Final = ("year", "month", "day", "hour")


def folder_keys(view: ConfigView) -> Iterator[tuple[str, str]]:
    """With a format without catalog, keys that its tables do not support are not set."""
    chosen = view[FORMAT]
    for other, location in FOLDER_FORMATS.items():
        if other != chosen and view.has(location):
            yield location, f"{location} needs {FORMAT}={other}"
    if chosen not in FOLDER_FORMATS:
        return
    has_catalog = chosen == AGGREGATE and bool(catalog_tables(view))
    for name in view.raw:
        if has_catalog and name.startswith("iceberg.catalog.") and name not in _REFUSED:
            continue
        why = _why(name, chosen, (view.raw[name] or "").strip().lower())
        if why is not None and (view.raw[name] or "").strip().lower() not in _OFF:
            yield name, f"{name} cannot be used with {FORMAT}={chosen}: {why}"
    fold = "iceberg.tables.schema-case-insensitive"
    if (view.raw.get(fold) or "").strip().lower() == "false":
        why = "names of columns ignore the case"
        yield fold, f"{fold} cannot be false with {FORMAT}={chosen}: {why}"
    places = (FOLDER_FORMATS[chosen], *(key for key, _, _ in view.per_table("location")))
    for name in places:
        location = (view.raw.get(name) or "").strip()
        error = folder_place_error(chosen, location)
        if location and not view.has_placeholder(name) and error is not None:
            yield name, invalid(name, location, error)


def topic_keys(view: ConfigView) -> Iterator[tuple[str, str]]:
    """With `icefloe.format=topic`, no key of tables is set; `icefloe.rows.columns` needs it."""
    if view[FORMAT] != TOPIC:
        if view.has(ROWS_COLUMNS):
            yield ROWS_COLUMNS, f"{ROWS_COLUMNS} needs {FORMAT}={TOPIC}"
        return
    for name, text in view.raw.items():
        is_of_tables = name.startswith(("iceberg.tables", "iceberg.table.", _MAINTENANCE))
        if name in _OF_ROWS or not (is_of_tables or name in _OF_TABLES):
            continue
        if (text or "").strip().lower() not in _OFF:
            why = "the connector has no tables; unset it"
            yield name, f"{name} cannot be used with {FORMAT}={TOPIC}: {why}"
    for output in view[OUTPUTS] or ():
        name = f"{OUTPUT_PREFIX}{output}.tables"
        if view.has(name):
            why = "the connector has no tables; unset it"
            yield name, f"{name} cannot be used with {FORMAT}={TOPIC}: {why}"


def folder_partition_terms(view: ConfigView) -> Iterator[tuple[str, str]]:
    """With a format without catalog, partition terms are such that every reader understands."""
    chosen = view[FORMAT]
    if chosen not in FOLDER_FORMATS:
        return
    names = [name for name, _, _ in view.per_table("partition-by")]
    for name in ("iceberg.tables.default-partition-by", *names):
        if view.has_placeholder(name):
            continue
        for term in split_terms(view.raw.get(name)):
            if (why := _wrong_term(term, chosen)) is not None:
                yield name, f"Partition term {term!r} cannot be used with {FORMAT}={chosen}, {why}"


def _wrong_term(term: str, chosen: str) -> str | None:
    """Return why a partition term cannot be used, or None."""
    function, parenthesis, _ = term.partition("(")
    if chosen == DELTA and (parenthesis or "." in term):
        return (
            "which partitions by top-level columns; add the value as a column, for example with a "
            "transformation"
        )
    if chosen == PARQUET:
        if "." in term or (parenthesis and function.removesuffix("s") not in _TIMES):
            return (
                "which partitions by top-level columns, and by year, month, day or hour of one; "
                "add the value as a column, for example with a transformation"
            )
        if term.partition("(")[2].startswith(("_", ".")) or term.startswith(("_", ".")):
            return (
                "because readers ignore folders whose names begin with _ or . ; rename the column"
            )
    return None


def _why(name: str, chosen: str, value: str) -> str | None:
    text = _row_level_text(name, chosen, value) or _text(name, chosen)
    prefixes = " and ".join(f"iceberg.catalog.{each}*" for each in _STORE_PREFIXES[chosen])
    return text and text.format(
        tables=FORMAT_NAMES[chosen], location=FOLDER_FORMATS[chosen], prefixes=prefixes
    )


def _row_level_text(name: str, chosen: str, value: str) -> str | None:
    is_mode = name.endswith(".write-mode")
    if chosen == PARQUET and (name in _ROW_LEVEL or is_mode):
        return _ONLY_ADDED
    return _NO_DELETE_FILES if is_mode and value == MERGE_ON_READ else None


def _text(name: str, chosen: str) -> str | None:
    if name in _REFUSED:
        return _REFUSED[name]
    if name.startswith(_MAINTENANCE):
        return _MAINTENANCE_INSTEAD[chosen]
    if name.startswith("iceberg.catalog."):
        option = name.removeprefix("iceberg.catalog.")
        if option.startswith(_STORE_PREFIXES[chosen]):
            return None
        is_other_store = chosen == PARQUET and option.startswith(("adls.", "gcs."))
        return _NO_STORE_OPTION if is_other_store else _NO_CATALOG
    if name.startswith("iceberg.table."):
        return _REFUSED_OF_TABLE.get(name.rpartition(".")[2])
    if name.startswith(("iceberg.tables.write-props.", "iceberg.tables.auto-create-props.")):
        setting = name.partition("-props.")[2]
        if setting in TABLE_PATHS or setting.startswith("write.object-storage."):
            return "files of a table are below its location; unset it"
        if setting == "format-version":
            return "it is the version of Iceberg's format; unset it"
    return None

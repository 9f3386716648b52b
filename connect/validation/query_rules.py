"""Rules for connectors whose rows are those of a query, the transformation ``Sql``."""

from __future__ import annotations

from collections.abc import Iterator

from connect.config.aggregation import EVERY_ROW, FUNCTIONS, GROUP_BY, TIME_FIELD, parse_functions
from connect.config.static_tables_policy import is_location
from connect.config.table_formats import AGGREGATE, FORMAT, TOPIC
from connect.errors import ConfigError
from connect.records.transforms.sql.sql_columns import columns_schema
from connect.records.transforms.sql.sql_query import column_names, parse_query
from connect.records.transforms.sql.sql_transform import STATIC_TABLE, is_sql
from connect.validation.config_view import ConfigView

_CATALOG_KEYS = ("type", "catalog-impl", "uri")


def catalog_tables(view: ConfigView) -> list[str]:
    """Return the keys of static tables that are not Parquet files: a catalog has them."""
    prefix = _prefix(view)
    if prefix is None:
        return []
    tables = view.under(f"{prefix}{STATIC_TABLE}")
    keys = {f"{prefix}{STATIC_TABLE}{name}": source.strip() for name, source in tables.items()}
    return [key for key, source in keys.items() if source and not is_location(source)]


def static_tables(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Where rows go to topics only, static tables of a catalog need `iceberg.catalog.*`."""
    catalog = view.under("iceberg.catalog.")
    if view[FORMAT] not in {TOPIC, AGGREGATE} or any(map(catalog.get, _CATALOG_KEYS)):
        return
    for key in catalog_tables(view):
        if not view.has_placeholder(key):
            yield (
                key,
                (
                    f"the query joins table {view.raw[key]}: set iceberg.catalog.* to its catalog, "
                    "or give the path of Parquet files"
                ),
            )


def aggregated_columns(view: ConfigView) -> Iterator[tuple[str, str]]:
    """The query before aggregates has the columns that these use."""
    prefix = _prefix(view)
    if view[FORMAT] != AGGREGATE or prefix is None:
        return
    key = f"{prefix}query"
    names = _names(view, key, f"{prefix}columns")
    if names is None:
        return
    for user, column in _used(view):
        if column not in names:
            yield (
                key,
                (
                    f"the query has no column {column}, which {user} uses: select it, or name an "
                    f"expression: <expression> AS {column}"
                ),
            )


def _prefix(view: ConfigView) -> str | None:
    """Return the prefix of the options of the query; None without one."""
    prefixes = [f"transforms.{alias}." for alias in view["transforms"] or ()]
    return next((p for p in prefixes if is_sql(view.raw.get(f"{p}type") or "")), None)


def _names(view: ConfigView, query: str, columns: str) -> frozenset[str] | None:
    """Return the names of the query's columns; None if they are not known, or have errors."""
    if view.has_placeholder(query) or view.has_placeholder(columns):
        return None
    try:
        fields = columns_schema(view.raw.get(columns) or "").fields
        return column_names(parse_query(view.raw.get(query) or ""), [f.name for f in fields])
    except ConfigError:  # the transformation's own check reports it
        return None


def _used(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Yield keys of the aggregates with a column that each uses."""
    if time_field := (view[TIME_FIELD] or "").strip():
        yield TIME_FIELD, time_field
    yield from ((GROUP_BY, name) for name in view[GROUP_BY] or ())
    try:
        functions = parse_functions(view[FUNCTIONS] or ())
    except ConfigError:  # another check reports it
        return
    yield from ((FUNCTIONS, f.column) for f in functions if f.column != EVERY_ROW)

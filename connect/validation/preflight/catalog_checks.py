"""Checks of a configuration against its catalog. They do not create tables.

Rules of this file:
- The internal tables of a SQL catalog are not created. A database without them has no tables.
- A successful check proves that a table can be loaded, not that it can be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import Table

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.table_formats import FOLDER_FORMATS, FORMAT_NAMES, FORMAT_VERSIONS
from connect.errors import CommitRefused, ConfigError, RecordError, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog_properties import (
    CONNECT_TIMEOUT_MS,
    READ_TIMEOUT_MS,
    ClientConfig,
    catalog_kind,
    client_config,
    refuse_places,
    sqlite_file,
)
from connect.records.row_operations import key_columns
from connect.records.tables.partition_spec import spec_for
from connect.records.tables.sort_order import sort_order_for
from connect.records.transforms.transform_chain import changes_keys
from connect.validation.change_stream_traps import has_no_fields
from connect.validation.preflight.live_checks import Check, Found, reported

_LIMITS = {
    "rest.client.connection-timeout-ms": CONNECT_TIMEOUT_MS,
    "rest.client.socket-timeout-ms": READ_TIMEOUT_MS,
    "s3.connection-timeout-ms": CONNECT_TIMEOUT_MS,
    "s3.socket-timeout-ms": READ_TIMEOUT_MS,
}
_CATALOG_TABLE = "iceberg_tables"
_CATALOG_KEYS = (*FOLDER_FORMATS.values(), "iceberg.catalog.uri", "iceberg.catalog.type")
_MULTI_TABLE = "iceberg.catalog.multi-table-commit"


@dataclass(frozen=True, slots=True)
class WantedTable:
    """A configured table and its key.

    Attributes:
        name: of the table, with its namespace.
        key: of the configuration, which names it.
        is_created: whether a missing table is created.
        is_row_level: whether rows are changed and deleted by key.
    """

    name: str
    key: str
    is_created: bool
    is_row_level: bool


def bounded(properties: Mapping[str, str], each_s: float) -> dict[str, str]:
    """Return a catalog's properties with shorter timeouts and without creation of tables."""
    each_ms = int(each_s * 1000)
    limits = {
        key: str(min(each_ms, int(properties.get(key, longest))))
        for key, longest in _LIMITS.items()
    }
    return {**properties, **limits, "init_catalog_tables": "false"}


def wanted_tables(config: ConnectorConfig) -> list[WantedTable]:
    """Return the tables that a configuration names."""
    keys = dict.fromkeys(config.tables if config.has_tables else (), "iceberg.tables")
    keys |= {
        config.qualified(table): "iceberg.tables.topic-to-table-map"
        for table in config.topic_tables.values()
    }
    tables = [
        WantedTable(name, key, config.auto_create_enabled, config.is_row_level)
        for name, key in keys.items()
    ]
    if dead_letter_table := config.errors.dead_letter_table:
        key = "errors.deadletterqueue.table"
        tables.append(WantedTable(dead_letter_table, key, is_created=True, is_row_level=False))
    return tables


class CatalogQuestions:
    """Checks of one connector's catalog.

    Args:
        config: the configuration with resolved placeholders.
        each_s: timeout of a request in seconds, and of the checks of all tables.
        clock: monotonic clock.
    """

    def __init__(self, config: ConnectorConfig, *, each_s: float, clock: Clock) -> None:
        self._config = config
        self._each_s = each_s
        self._clock = clock
        self._key = next(
            (k for k in _CATALOG_KEYS if config.raw.get(k)),
            "iceberg.catalog",
        )

    def check(self) -> Check:
        """Return all of them as one check."""
        kind = catalog_kind(self._config.catalog_properties)
        uri = self._config.raw.get("iceberg.catalog.uri")  # as sent, not as resolved
        where = f"the {kind} catalog" + (f" at {uri}" if uri else "")
        if not self._config.is_iceberg:
            where = f"the logs of the {FORMAT_NAMES[self._config.table_format]}"
        return Check(
            self._key, f"Asked {where} (each request within {self._each_s:g} s)", self._run
        )

    def _run(self) -> Found:
        properties = bounded(self._config.catalog_properties, self._each_s)
        client = client_config(properties)
        if client.kind != "rest":
            refuse_places(client.properties, self._config.locations)
        if (missing := absent_database(client)) is not None:
            yield from self._without_database(missing)
            return
        gateway = open_catalog(self._config.catalog_name, properties, self._config.locations)
        try:
            yield from self._ask(gateway)
        except RetriableError as error:
            if _CATALOG_TABLE not in str(error.__cause__):
                yield self._key, reported(error)
            else:  # a new database: the catalog creates its internal tables when it is first opened
                yield from self._absent(wanted_tables(self._config))
        finally:
            gateway.close()

    def _ask(self, gateway: CatalogGateway) -> Found:
        if self._config.multi_table_commit and not gateway.has_transactions:
            yield _MULTI_TABLE, "the catalog does not support multi-table transactions"
        deadline_ms = self._clock.monotonic_ms() + int(self._each_s * 1000)
        tables = wanted_tables(self._config)
        if not tables:
            namespace = self._config.default_namespace or "default"
            gateway.has_namespace(namespace.split("."))  # any answer is sufficient
        for each in tables:
            if self._clock.monotonic_ms() > deadline_ms:
                return  # the other tables are not checked
            try:
                table = gateway.load(each.name.split("."))
            except CommitRefused as error:
                if error.code == "table_missing":
                    yield from self._absent([each])
                else:
                    yield each.key, f"table {each.name}: {reported(error)}"
            else:
                yield from self._present(each, table)

    def _absent(self, tables: list[WantedTable]) -> Found:
        for each in tables:
            if not each.is_created:
                yield (
                    each.key,
                    (
                        f"table {each.name} does not exist; create it, or set "
                        "iceberg.tables.auto-create-enabled to true"
                    ),
                )
            elif each.is_row_level and not self._config.table(each.name).id_columns:
                yield from self._keyless(each)

    def _present(self, each: WantedTable, table: Table) -> Found:
        version = table.metadata.format_version
        if version not in FORMAT_VERSIONS:
            yield (
                each.key,
                (
                    f"table {each.name} has format version {version}; only versions 2 and 3 are "
                    "supported"
                ),
            )
        if each.is_row_level:
            yield from self._keys(each, table)
        table_config, schema = self._config.table(each.name), table.schema()
        for setting, judge in (
            ("partition-by", lambda: spec_for(table_config.partition_by, schema)),
            ("sort-by", lambda: sort_order_for(table_config.sort_by, schema)),
        ):
            own = f"iceberg.table.{each.name}.{setting}"
            if own in self._config.raw:
                try:
                    judge()
                except (ConfigError, RecordError) as error:
                    yield own, f"table {each.name}: {reported(error)}"

    def _keys(self, each: WantedTable, table: Table) -> Found:
        own, common = f"iceberg.table.{each.name}.id-columns", "iceberg.tables.default-id-columns"
        try:
            columns = key_columns(
                table.schema(), self._config.table(each.name).id_columns, table=each.name
            )
        except ConfigError as error:
            named_key = next((key for key in (own, common) if key in self._config.raw), each.key)
            yield named_key, f"table {each.name}: {reported(error)}"
        else:
            if not columns:
                yield from self._keyless(each)

    def _keyless(self, each: WantedTable) -> Found:
        """Check that message keys have fields if no key columns are configured or in the table."""
        config = self._config
        if config.table(each.name).appends_without_key:
            return
        classes = [each.key_converter.class_name for each in config.converter_sets]
        kinds = [name.rpartition(".")[2].removesuffix("Converter") for name in classes]
        is_changed = any(changes_keys(t.class_name) for t in config.transforms)
        if all(map(has_no_fields, classes)) and not is_changed:
            yield (
                each.key,
                (
                    f"rows of table {each.name} cannot be identified: it has no identifier fields, "
                    f"and keys of {kinds[0]}Converter have no fields; set "
                    f"iceberg.table.{each.name}.id-columns"
                ),
            )

    def _without_database(self, file: Path) -> Found:
        if not file.parent.is_dir():
            yield self._key, "the folder of the database does not exist"
        else:
            yield from self._absent(wanted_tables(self._config))


def absent_database(catalog: ClientConfig) -> Path | None:
    """Return the missing file of a SQLite catalog, which opening would create, or None."""
    name = sqlite_file(catalog.properties["uri"]) if catalog.kind == "sql" else None
    file = Path(name) if name else None
    return file if file is not None and not file.exists() else None

"""Reads the static tables of a query, Iceberg tables and Parquet files, completely into Arrow.

Rules of this file:
- A table is read again only if it changed: another snapshot or schema, or other files.
- A table that cannot be read, for a reason that a retry does not fix, is a configuration error.
  This is also true after the start: a join with an older state would write wrong rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import structlog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from connect.clock import Clock
from connect.config.static_tables_policy import EVERY_STATIC_TABLE, StaticTablesPolicy, is_location
from connect.errors import CommitRefused, ConfigError
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.storage.avro_limits import ReadBudget
from connect.gateways.storage.object_store import storage_errors, storage_properties
from connect.gateways.storage.parquet_dataset import bounded_table, parquet_files, text_columns
from connect.records.transforms.sql.sql_transform import SqlPlan

log = structlog.get_logger("worker.sql")


@dataclass(slots=True)
class StaticTables:
    """The static tables of one task.

    Args:
        plan: names the tables.
        catalog: loads Iceberg tables; its owner closes it.
        clock: for the time of the next refresh.
        policy: the tables that the node's operator allows.
    """

    plan: SqlPlan
    catalog: CatalogGateway
    clock: Clock
    policy: StaticTablesPolicy = EVERY_STATIC_TABLE
    tables: dict[str, pa.Table] = field(default_factory=dict, init=False)
    _versions: dict[str, Any] = field(default_factory=dict, init=False)
    _refreshed_ms: int | None = field(default=None, init=False)

    def refresh(self) -> bool:
        """Read changed tables, if a refresh is due; return whether a table changed.

        Raises:
            ConfigError: ``sql_table``: a table is missing, too large, or unreadable.
            CommitRefused, RetriableError: errors of catalogs and object stores.
        """
        now_ms = self.clock.monotonic_ms()
        if self._refreshed_ms is not None and now_ms - self._refreshed_ms < self.plan.refresh_ms:
            return False
        changed = False
        for name, place in self.plan.tables.items():
            try:
                self._check_policy(place)
                read = self._parquet if is_location(place) else self._iceberg
                table = read(name, place)
            except ConfigError as error:
                error.code = "sql_table"
                error.message = f"static table {name}: {error.message}"
                raise
            if table is not None:
                self.tables[name] = spark_table(table)
                log.info("static table read", table=name, place=place, rows=table.num_rows)
                changed = True
        self._refreshed_ms = now_ms
        return changed

    def _iceberg(self, name: str, place: str) -> pa.Table | None:
        try:
            table = self.catalog.load(place.split("."), with_history=False)
        except CommitRefused as error:
            if error.code != "table_missing":
                raise
            raise ConfigError(f"{place} does not exist") from error
        snapshot = table.current_snapshot()
        version = (table.metadata.table_uuid, snapshot and snapshot.snapshot_id, table.schema())
        if self._versions.get(name) == version:
            return None
        with storage_errors(f"reading {place}"), _unreadable(place):
            self._check_manifests(table)
            scan = table.scan()
            self._check_files(
                file.file_path
                for task in scan.plan_files()
                for file in (task.file, *task.delete_files)
            )
            self._check_size(name, sum(task.file.file_size_in_bytes for task in scan.plan_files()))
            texts = text_columns(schema_to_pyarrow(scan.projection()))
            batches = scan.to_arrow_batch_reader(dictionary_columns=texts)
            rows = bounded_table(batches.schema, batches, self.plan.bytes_max)
        self._check_read(name, rows)
        self._versions[name] = version
        return rows

    def _parquet(self, name: str, place: str) -> pa.Table | None:
        files = parquet_files(storage_properties(self.catalog.config.properties), place)
        if self._versions.get(name) == files.files:
            return None
        self._check_size(name, sum(size for _, size, _ in files.files))
        table: pa.Table = files.read(self.plan.bytes_max)
        self._check_read(name, table)
        self._versions[name] = files.files
        return table

    def _check_policy(self, place: str) -> None:
        if (why := self.policy.refusal(place)) is not None:
            raise ConfigError(why)

    def _check_manifests(self, table: Table) -> None:
        """Refuse manifests at forbidden locations: metadata may name any file as a manifest."""
        snapshot = table.current_snapshot()
        if snapshot is not None:
            self._check_files([snapshot.manifest_list])
            manifests = snapshot.manifests(table.io)
            self._check_files(manifest.manifest_path for manifest in manifests)
            with ReadBudget().applied():  # PyIceberg reads all of them into memory afterwards
                for manifest in manifests:
                    manifest.fetch_manifest_entry(table.io)

    def _check_files(self, paths: Iterable[str]) -> None:
        """Refuse files at locations that are forbidden for the connector's tables."""
        if (why := self.catalog.locations.refusals(paths)) is not None:
            raise ConfigError(f"its file {why}")

    def _check_read(self, name: str, rows: pa.Table | None) -> None:
        if rows is None:
            self._check_size(name, self.plan.bytes_max + 1)

    def _check_size(self, name: str, size: int) -> None:
        if size > self.plan.bytes_max:
            raise ConfigError(
                f"static table {name} has {size} bytes or more, tables.max.bytes allows "
                f"{self.plan.bytes_max}",
                code="sql_table",
            )


@contextlib.contextmanager
def _unreadable(place: str) -> Iterator[None]:
    """Map errors of invalid files to an error that names the table but no content."""
    try:
        yield
    except (ValueError, TypeError, KeyError, EOFError, pa.ArrowException) as error:
        raise ConfigError(f"{place} cannot be read: {type(error).__name__}") from None


def spark_table(table: pa.Table) -> pa.Table:
    """Return the columns that have a Spark type, cast to that type."""
    kept = [(f.name, kind) for f in table.schema if (kind := _spark(f.type)) is not None]
    columns = [table.column(name).cast(kind) for name, kind in kept]
    return pa.Table.from_arrays(columns, names=[name for name, _ in kept])


def _spark(kind: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_dictionary(kind):
        return _spark(kind.value_type)
    if types.is_unsigned_integer(kind):
        return {8: pa.int32(), 16: pa.int32(), 32: pa.int64()}.get(kind.bit_width)
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _spark(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_map(kind):
        key, item = _spark(kind.key_type), _spark(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if types.is_struct(kind):
        parts = [(f.name, _spark(f.type)) for f in kind]
        return None if any(part is None for _, part in parts) else pa.struct(parts)
    is_plain = (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal128(kind)
        or types.is_date32(kind)
    )
    return kind if is_plain and not types.is_float16(kind) else None

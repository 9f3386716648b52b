"""PyIceberg's SQL catalog with fewer steps for a load and a commit.

Rules of this file:
- The conditions of a commit are those of PyIceberg: requirements are checked against what was read,
  and the row changes only if it still has the location that was read.
- PyIceberg reads the table again at the commit. This client does so only if its thread does not
  keep the table as it was loaded. A change by another client since then is a conflict.
- A metadata file is never changed. So a thread keeps what it parsed last: one table, none after a
  commit, and none with a long history.
- A metadata file that no row names is deleted after a conflict.
- Statements are compiled once. They have the values of PyIceberg's.

Source:
    PyIceberg 0.12.0 ``pyiceberg.catalog.sql.SqlCatalog``.
"""

from __future__ import annotations

import threading
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.serializers import Compressor
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import Table as SqlTable
from sqlalchemy import bindparam, select, update

from connect.gateways.catalog.table_metadata import table_metadata
from connect.gateways.storage.object_store import delete_files

_KEPT_SNAPSHOTS_MAX = 500  # about 2 MB


class LeanSqlCatalog(SqlCatalog):
    """A SQL catalog; safe to use from many threads."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._last = threading.local()
        rows = IcebergTables.__table__
        assert isinstance(rows, SqlTable)
        columns = rows.c
        is_row = (
            (columns.catalog_name == self.name)
            & (columns.table_namespace == bindparam("in_namespace"))
            & (columns.table_name == bindparam("of_table"))
        )
        self._select = select(
            columns.table_namespace, columns.table_name, columns.metadata_location
        ).where(is_row)
        if (is_table := self._iceberg_type_filter()) is not None:
            self._select = self._select.where(is_table)
        self._update = (
            update(rows)
            .where(is_row, columns.metadata_location == bindparam("before"))
            .values(
                metadata_location=bindparam("after"), previous_metadata_location=bindparam("before")
            )
        )

    @property
    def _leaves_history_out(self) -> bool:
        """Whether metadata files are read without their history now."""
        return False

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table.

        Raises:
            NoSuchTableError: there is none.
        """
        self._last.parsed = None
        return self._load(_key(identifier))

    def _load(self, key: dict[str, str]) -> Table:
        with self.engine.connect() as connection:
            row = connection.execute(self._select, key).first()
        if row is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(key.values())}")
        return self._convert_orm_to_iceberg(row)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Change a table if the requirements hold.

        Raises:
            CommitFailedException: a requirement failed, or another client changed the table.
            NoSuchTableError: there is none.
        """
        if not self.engine.dialect.supports_sane_rowcount:
            return super().commit_table(table, requirements, updates)
        key = _key(table.name())
        try:
            # without updates nothing compares the row with what was read
            current = (self._kept(table) if updates else None) or self._load(key)
        finally:
            self._last.parsed = None
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        if staged.metadata == current.metadata:
            return _answer(current.metadata, current.metadata_location)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        places = {"before": current.metadata_location, "after": staged.metadata_location}
        with self.engine.begin() as connection:
            changed = connection.execute(self._update, {**key, **places}).rowcount
        if changed < 1:
            delete_files(staged.io, [staged.metadata_location])
            raise CommitFailedException(
                f"Table has been updated by another process: {'.'.join(key.values())}"
            )
        return _answer(staged.metadata, staged.metadata_location)

    def _kept(self, table: Table) -> Table | None:
        """Return the table as this thread loaded it last; None if it keeps another one."""
        kept: tuple[str, bool, TableMetadata] | None = getattr(self._last, "parsed", None)
        if kept is None or kept[:2] != (table.metadata_location, self._leaves_history_out):
            return None
        return Table(
            identifier=table.name(),
            metadata=kept[2],
            metadata_location=table.metadata_location,
            io=table.io,
            catalog=self,
        )

    def _convert_orm_to_iceberg(self, orm_table: Any) -> Table:
        location = orm_table.metadata_location
        if not location:
            return super()._convert_orm_to_iceberg(orm_table)  # raises
        metadata = self._metadata(location)
        return Table(
            identifier=(
                *Catalog.identifier_to_tuple(orm_table.table_namespace),
                orm_table.table_name,
            ),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def _metadata(self, location: str) -> TableMetadata:
        parsed: tuple[str, bool, TableMetadata] | None = getattr(self._last, "parsed", None)
        if parsed is not None and parsed[:2] == (location, self._leaves_history_out):
            return parsed[2]
        io = self._load_file_io(location=location)
        compression = Compressor.get_compressor(location)
        with (
            io.new_input(location).open() as stream,
            compression.stream_decompressor(stream) as plain,
        ):
            metadata = table_metadata(plain.read())
        if len(metadata.snapshots) <= _KEPT_SNAPSHOTS_MAX:
            self._last.parsed = location, self._leaves_history_out, metadata
        return metadata


def _answer(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})


def _key(identifier: str | Identifier) -> dict[str, str]:
    namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
    return {"in_namespace": namespace, "of_table": Catalog.table_name_from(identifier)}

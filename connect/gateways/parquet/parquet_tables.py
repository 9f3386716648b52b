"""Parquet folders below one location: load, create, add columns, commit files.

Rules of this file:
- Any process may load a table. Only one that commits publishes what an earlier commit left.
- Columns are only added. A folder has files of every earlier schema, which no one rewrites.
"""

from __future__ import annotations

import contextlib
import importlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from connect import failpoints
from connect.clock import SystemClock
from connect.config.location_policy import EVERYWHERE, LocationPolicy
from connect.config.table_formats import PARQUET
from connect.errors import (
    CommitConflict,
    CommitRefused,
    CommitStateUnknown,
    IcefloeError,
    RetriableError,
)
from connect.gateways.parquet.folder_store import FolderStore
from connect.gateways.parquet.hive_paths import check_partitions, unsupported
from connect.gateways.parquet.local_store import LocalStore
from connect.gateways.parquet.parquet_commit import (
    STAGED,
    ParquetCommit,
    PublishedFile,
    commit_path,
)
from connect.gateways.parquet.parquet_log import CHECKPOINT_COMMITS, ParquetLog
from connect.gateways.storage.folder_locations import FolderLocations
from connect.gateways.storage.object_store import own_credentials
from connect.gateways.storage.store_file_io import StoreFileIO

Observe: TypeAlias = Callable[[str, str, int], None]
OpenStore: TypeAlias = Callable[[Mapping[str, Any], str], FolderStore]
_CLOCK: Final = SystemClock()
_FOREIGN: Final = {
    "_delta_log": "a Delta table",
    "metadata": "an Iceberg table",
    "_spark_metadata": "the log of a Spark file sink, which hides other files from Spark",
}
_SEARCHED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ParquetVersion:
    """One version of a Parquet folder: the table as a commit left it.

    Attributes:
        name: ``namespace.table``.
        location: with a scheme.
        commit: the newest one.
        log: of the folder.
        observe: see ``ParquetTables``.
    """

    name: str
    location: str
    commit: ParquetCommit
    log: ParquetLog
    observe: Observe

    @property
    def version(self) -> int:
        """Number of the commit."""
        return self.commit.number

    @property
    def table_uuid(self) -> uuid.UUID:
        """The table's identity."""
        return self.commit.table_uuid

    @property
    def schema(self) -> Schema:
        """As Iceberg schema."""
        return self.commit.schema

    @property
    def spec(self) -> PartitionSpec:
        """Partition columns."""
        return self.commit.spec

    @property
    def properties(self) -> Mapping[str, str]:
        """Of the table."""
        return self.commit.properties

    @property
    def log_file(self) -> str:
        """The file of the log that made this version."""
        return f"{self.location}/{commit_path(self.version)}"

    @property
    def write_properties(self) -> Mapping[str, str]:
        """Properties that place data files: where readers do not see them."""
        return {"write.data.path": f"{self.location}/{STAGED}"}

    def transaction(self, app_id: str) -> int | None:
        """Return the last version of a transaction identifier; None if it was never written."""
        return self.commit.transactions.get(app_id)

    def append(
        self,
        files: Sequence[PublishedFile],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        now_ms: int,
    ) -> int:
        """Commit files as the next version, and publish them; as ``TableVersion.append``."""
        with _mapped(self.name, "commit", self.observe):
            self.log.prove_conditions()
            made = self.commit.following(
                now_ms,
                transactions={**self.commit.transactions, **transactions},
                summary={key: str(value) for key, value in metadata.items()},
                files=self.log.staged(files),
            )
            self.log.write(made)
            failpoints.hit("P1")
        with _mapped(self.name, "publish", self.observe):
            self.log.publish(made)
        return made.number

    def committed_version(self, key: str, value: str) -> int | None:
        """Return the newest version whose commit has an entry; None if none of the last has."""
        with _mapped(self.name, "history", self.observe):
            commit: ParquetCommit | None = self.commit
            for _ in range(_SEARCHED_MAX):
                if commit is None:
                    return None
                if commit.summary.get(key) == value:
                    return commit.number
                commit = self.log.commit(commit.number - 1) if commit.number else None
        return None


class ParquetTables:
    """The Parquet folders of one connector; safe to use from many threads.

    Args:
        properties: of the client, as ``client_config`` returns them.
        locations: where tables may lie.
        observe: called after each operation with its name, its outcome (``ok`` or the error's
            code) and its milliseconds.
        open_store: opens the store of a location.
        checkpoint_commits: commits of a table between two checkpoints.
    """

    table_format = PARQUET

    def __init__(
        self,
        properties: Mapping[str, Any],
        locations: LocationPolicy = EVERYWHERE,
        observe: Observe = lambda *_: None,
        open_store: OpenStore | None = None,
        *,
        checkpoint_commits: int = CHECKPOINT_COMMITS,
    ) -> None:
        self.properties: Mapping[str, Any] = own_credentials(properties)
        self._locations = FolderLocations(PARQUET, self.properties, locations)
        self._observe = observe
        self._open_store = open_store or open_folder_store
        self._checkpoint_commits = checkpoint_commits
        self._logs: dict[str, ParquetLog] = {}

    def load(self, identifier: Sequence[str]) -> ParquetVersion:
        """Return the newest version of a table.

        Raises:
            CommitRefused: ``table_missing``, ``log_lost``, ``log_unreadable``,
                ``parquet_unsupported``, ``forbidden``; as ``FolderLocations.of``.
            RetriableError: ``catalog_unavailable``.
        """
        name, location = ".".join(identifier), self._locations.of(identifier)
        with _mapped(name, "load", self._observe):
            log = self._log(location)
            commit = log.newest()
            if commit is None:
                raise CommitRefused(
                    "there is no Parquet folder with a log; set iceberg.tables.auto-create-enabled",
                    code="table_missing",
                )
        return ParquetVersion(name, location, commit, log, self._observe)

    def create(
        self,
        identifier: Sequence[str],
        schema: Schema,
        spec: PartitionSpec,
        properties: Mapping[str, str],
    ) -> None:
        """Create a table; a table that another writer created at the same time is no error.

        Raises:
            CommitRefused: ``parquet_unsupported``; as ``load``.
            RetriableError: ``catalog_unavailable``; the table may exist.
        """
        name, location = ".".join(identifier), self._locations.of(identifier)
        with _mapped(name, "create", self._observe):
            check_partitions(schema, spec)
            log = self._log(location)
            for folder, tables in _FOREIGN.items():
                if log.has_folder(folder):
                    raise unsupported(f"the folder holds {tables}")
            made = ParquetCommit(
                number=0,
                table_uuid=_CLOCK.new_uuid(),
                made_ms=_CLOCK.now_ms(),
                schema=schema,
                spec=spec,
                properties=dict(properties),
                transactions={},
                summary={},
                files=(),
            )
            if log.newest() is not None:
                return
            try:
                log.write(made)
            except CommitConflict:
                return
            except CommitStateUnknown as error:
                raise RetriableError(error.message, code="catalog_unavailable") from error

    def add_columns(self, snapshot: ParquetVersion, schema: Schema) -> None:
        """Add the columns that ``schema`` has in addition, as the version after the snapshot.

        Raises:
            CommitConflict, CommitStateUnknown: as ``ParquetVersion.append``.
            CommitRefused: ``parquet_unsupported`` if more than columns would change.
        """
        before = snapshot.schema
        check_added(StructType(*before.fields), StructType(*schema.fields), "")
        if before.as_struct() == schema.as_struct():
            return
        after = Schema(*schema.fields, schema_id=before.schema_id + 1)
        with _mapped(snapshot.name, "add_columns", self._observe):
            check_partitions(after, snapshot.spec)
            snapshot.log.publish(snapshot.commit)
            snapshot.log.write(snapshot.commit.following(_CLOCK.now_ms(), schema=after))

    def _log(self, location: str) -> ParquetLog:
        log = self._logs.get(location)
        if log is None:
            store = self._open_store(self.properties, location)
            log = ParquetLog(store, checkpoint_commits=self._checkpoint_commits)
            log = self._logs.setdefault(location, log)
        return log


class CompletedTables:
    """Tables for a process that commits: what an earlier commit left is published at the load.

    Args:
        tables: of the connector.
    """

    def __init__(self, tables: ParquetTables) -> None:
        self._tables = tables

    def load(self, identifier: Sequence[str]) -> ParquetVersion:
        """Return the newest version of a table, all of whose files readers see.

        Raises:
            CommitRefused: ``file_missing``; as ``ParquetTables.load``.
            RetriableError: ``catalog_unavailable``.
        """
        version = self._tables.load(identifier)
        with _mapped(version.name, "publish", version.observe):
            version.log.publish(version.commit)
        return version


def open_folder_store(properties: Mapping[str, Any], location: str) -> FolderStore:
    """Open the store of a folder.

    Args:
        properties: of the store, with the connector's own credentials.
        location: with a scheme.

    Raises:
        ConfigError: ``parquet_location``: Parquet folders cannot be in this store.
    """
    scheme, _, path = StoreFileIO.parse_location(location)
    if scheme == "file":
        return LocalStore(Path(path))
    bucket, _, prefix = path.partition("/")
    module = importlib.import_module("connect.gateways.parquet.s3_store")
    return cast(FolderStore, module.S3Store(properties, bucket, prefix.strip("/")))


def check_added(before: IcebergType, after: IcebergType, path: str) -> None:
    """Check that a type only gets columns, at any depth.

    Raises:
        CommitRefused: ``parquet_unsupported``.
    """
    if isinstance(before, StructType) and isinstance(after, StructType):
        after_by_name = {field.name: field for field in after.fields}
        for field in before.fields:
            now = after_by_name.pop(field.name, None)
            inner = f"{path}.{field.name}".lstrip(".")
            if now is None:
                raise unsupported(f"column {inner} cannot be removed or renamed")
            if (now.field_id, now.required) != (field.field_id, field.required):
                raise unsupported(f"column {inner} cannot be replaced, or made optional")
            check_added(field.field_type, now.field_type, inner)
        for name, field in after_by_name.items():
            if field.required:
                raise unsupported(f"the new column {path}.{name} cannot be required")
    elif isinstance(before, ListType) and isinstance(after, ListType):
        check_added(before.element_type, after.element_type, f"{path}.element")
    elif isinstance(before, MapType) and isinstance(after, MapType):
        check_added(before.key_type, after.key_type, f"{path}.key")
        check_added(before.value_type, after.value_type, f"{path}.value")
    elif before != after:
        raise unsupported(f"the type of column {path} cannot change from {before} to {after}")


@contextlib.contextmanager
def _mapped(name: str, operation: str, observe: Observe) -> Iterator[None]:
    """Name the table in errors of an operation, and report its duration."""
    started_ms, outcome = _CLOCK.monotonic_ms(), "ok"
    try:
        yield
    except IcefloeError as error:
        outcome = error.code
        raise error.at(table=name) from error.__cause__
    finally:
        observe(operation, outcome, _CLOCK.monotonic_ms() - started_ms)

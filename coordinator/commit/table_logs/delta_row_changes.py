"""Removes the rows that a round deletes from a Delta table's data files: copy-on-write.

Rules of this file:
- A round's deletes are resolved against one version, and committed as the next one on condition
  that it does not exist. After a conflict they are resolved again.
- Partition columns have the values of the log. An empty text there is null, as for all readers.
- Delete files never get into the table. When the round is in the table they are deleted, as are
  data files of which no row or only a copy is left; never a file of the newest version.
- A file that is added without being read is verified in the store, as in ``row_removal``.
- There is no other way to delete rows: what cannot be rewritten fails the table.

Source:
    Delta transaction log protocol, "Add File and Remove File".
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.types import (
    DoubleType,
    FloatType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from connect import failpoints
from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, IcefloeError, RetriableError
from connect.gateways.catalog import table_properties
from connect.gateways.delta.delta_model import (
    ChangeableDeltaVersion,
    DeltaFile,
    LiveDeltaFile,
)
from connect.gateways.delta.delta_schema import leaves
from connect.gateways.storage.file_metrics import FileMetrics, FooterReader
from connect.metrics import process_metrics
from control_schemas.events import ContentFile, FileContent
from coordinator.commit.rules.announced_files import missing_file, verify_present
from coordinator.commit.rules.file_selection import Selection
from coordinator.commit.rules.unnamed_files import delete_unnamed
from coordinator.commit.table_logs.delta_files import delta_file, delta_stats, partition_text
from coordinator.row_deletes.deleted_keys import IN_TABLE, DeletedKeys, KnownValues
from coordinator.row_deletes.file_copies import FileCopies, FileCopy
from coordinator.row_deletes.limits import OUT_OF_TIME, NotResolved, ResolveBudget
from coordinator.row_deletes.parquet_rows import KeyColumns, storage_type
from coordinator.row_deletes.round_deletes import (
    EVERYWHERE,
    DeleteFile,
    RoundDeletes,
    SourceFile,
)

_TOO_LARGE: Final = frozenset({"bytes", "keys"})
_TIMESTAMP_ERROR_US: Final = 1_000
"""Statistics of timestamps may be cut to milliseconds."""


@dataclass(slots=True)
class DeltaRowChanges:
    """The copy-on-write of one selection, over all attempts; used by one thread.

    Attributes:
        selection: what the commit adds.
        budget: limits.
        clock: names files, measures the time.
        labels: of metrics.
        last_version: the highest version that an attempt aims at.
        created: paths of all copies.
    """

    selection: Selection
    budget: ResolveBudget
    clock: Clock
    labels: Mapping[str, str]
    last_version: int = 0
    created: list[str] = field(default_factory=list)
    _table: ChangeableDeltaVersion | None = None
    _copies: FileCopies | None = None
    _named: frozenset[str] | None = None
    _verified: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, config: ConnectorConfig, clock: Clock, selection: Selection, table: str
    ) -> DeltaRowChanges:
        """Return the changes of a selection."""
        budget = ResolveBudget(clock, config.table(table).copy_bytes_max)
        return cls(selection, budget, clock, {"connector": config.name, "table": table})

    def on(
        self, table: ChangeableDeltaVersion, now_ms: int
    ) -> Callable[[Mapping[str, int], Any, int], int]:
        """Resolve the deletes against a version; see ``RowChanges``.

        Raises:
            CommitRefused: ``copy_on_write_limit``, ``delta_unsupported``,
                ``announced_file_missing``; as ``delta_file``.
            RetriableError: ``storage_unavailable``, ``copy_on_write_time``.
        """
        self.last_version = table.version + 1
        started_ms = self.clock.monotonic_ms()
        try:
            added, removed = self._resolved(table, now_ms)
        except NotResolved as error:
            raise _refusal(error) from error
        finally:
            duration_ms = self.clock.monotonic_ms() - started_ms
            process_metrics.counter("copy_on_write_seconds", **self.labels).inc(duration_ms / 1000)
        failpoints.hit("D1")

        def commit(transactions: Mapping[str, int], metadata: Any, now_ms: int) -> int:
            return table.replace(added, removed, transactions, metadata, now_ms)

        return commit

    def begin_round(self, deadline_ms: int) -> None:
        """Set until when the changes may be resolved; see ``RowChanges``."""
        self.budget.deadline_ms = deadline_ms

    def landed(self, newest: ChangeableDeltaVersion | None) -> None:
        """Delete files of the round that are not in the table; see ``RowChanges``."""
        if self._table is None or self._copies is None:
            return
        named = self._named if newest is None else _named_by(newest)
        delete_unnamed(self._table.io, {*self.selection.paths, *self.created}, named)
        process_metrics.counter("copy_on_write_files", **self.labels).inc(len(self.created))
        read = self._copies.bytes_read
        process_metrics.counter("copy_on_write_bytes", **self.labels).inc(read)

    def discard(self, newest: ChangeableDeltaVersion) -> None:
        """Delete all copies: no attempt can land."""
        if self.created:
            delete_unnamed(newest.io, self.created, _named_by(newest))
        self.created.clear()

    def _resolved(
        self, table: ChangeableDeltaVersion, now_ms: int
    ) -> tuple[list[DeltaFile], list[DeltaFile]]:
        """The files to add, and those to remove."""
        self.budget.start()
        files = _DeltaSources(table, frozenset(self.selection.paths), self.clock)
        if self.selection.is_row_level:
            table.check_changes()
        live = table.live_files(files.key_names(self.selection))
        paths = {each.path for each in live}
        new = [
            (file, step)
            for step, each in enumerate(self.selection.steps)
            for file in each.data_files
            if file.file_path.removeprefix(f"{table.location}/") not in paths
        ]
        announced = [(delta_file(file, table, now_ms), file, step) for file, step in new]
        work = self._copies_on(table, files)
        sources = [files.announced(file, step) for _, file, step in announced]
        in_table = [(each, files.live(each)) for each in live] if work.deletes.files else []
        copies = work.of([*sources, *(source for _, source in in_table)])
        added: list[DeltaFile] = []
        for (file, _, _), source in zip(announced, sources, strict=True):
            if source.path not in copies:
                self._verify(files, source.path)
                added.append(file)
            else:
                added += files.described(file.partition_values, copies[source.path], now_ms)
        removed = []
        for each, source in in_table:
            if source.path in copies:
                values = files.texts(each.partition)
                removed.append(DeltaFile(each.path, each.size_bytes, values, 0, ""))
                added += files.described(values, copies[source.path], now_ms)
        names = paths.union(f.path for f in added).difference(f.path for f in removed)
        self._named = frozenset(f"{table.location}/{path}" for path in names)
        return added, removed

    def _copies_on(self, table: ChangeableDeltaVersion, files: _DeltaSources) -> FileCopies:
        before, self._table = self._table, table
        if self._copies is None or before is None or before.schema != table.schema:
            deletes = RoundDeletes(
                [
                    files.deletes(file, step)
                    for step, each in enumerate(self.selection.steps)
                    for file in each.delete_files
                ],
                files.open_input,
                files.names_of_deletes,
                self.budget,
            )
            options = {
                "compression": table_properties.codec(table.properties),
                "compression_level": table_properties.level(table.properties),
                "store_schema": False,
                "version": "2.6",
            }
            self._copies = FileCopies(deletes, files.create, options, self.created)
        return self._copies

    def _verify(self, files: _DeltaSources, path: str) -> None:
        if path not in self._verified:
            files.verify(path)
            self._verified.add(path)


class _DeltaSources:
    """The files of one version.

    Args:
        table: the version.
        announced: paths of the round.
        clock: names copies.
    """

    def __init__(
        self, table: ChangeableDeltaVersion, announced: frozenset[str], clock: Clock
    ) -> None:
        self._table = table
        self._io = table.io
        self._announced = announced
        self._clock = clock
        self._columns = {column.field_id: column for column in table.schema.fields}
        self._in_log = {part.source_id: part.name for part in table.spec.fields}

    def key_names(self, selection: Selection) -> list[str]:
        """Return the names of the key columns of a selection."""
        ids = {
            field_id
            for step in selection.steps
            for file in step.delete_files
            for field_id in file.equality_ids or ()
        }
        return [self._columns[field_id].name for field_id in sorted(ids & self._columns.keys())]

    def live(self, file: LiveDeltaFile) -> SourceFile:
        """A file of the table as a source."""
        values = {name: _plain(file.partition[name]) for name in self._in_log.values()}
        return self._source(
            f"{self._table.location}/{file.path}",
            file.size_bytes,
            IN_TABLE,
            values,
            lambda columns, keys: self._may_have(file, values, columns, keys),
        )

    def announced(self, file: ContentFile, step: int) -> SourceFile:
        """A file of the round as a source."""
        by_id = {part.field_id: _plain(part.value) for part in file.partition}
        values = {part.name: by_id[part.field_id] for part in self._table.spec.fields}
        return self._source(file.file_path, file.file_size_in_bytes, step, values, lambda *_: True)

    def deletes(self, file: ContentFile, step: int) -> DeleteFile:
        """A delete file.

        Raises:
            CommitRefused: ``delta_deletes``, ``schema_replaced``.
        """
        if file.content is not FileContent.EQUALITY_DELETES or file.partition:
            raise CommitRefused(
                "delete files other than those of this sink cannot be committed to a Delta table; "
                "skip them, and find the process that announced them",
                code="delta_deletes",
                file=file.file_path,
            )
        kinds = []
        for field_id in file.equality_ids or ():
            column = self._columns.get(field_id)
            if column is None or not _is_key(column):
                raise CommitRefused(
                    "a delete file has a key column that the table does not have with the same "
                    "type: its schema was replaced after the file was written; restore the schema "
                    "and retry, or skip the file",
                    code="schema_replaced",
                    file=file.file_path,
                )
            kinds.append(storage_type(schema_to_pyarrow(column.field_type)))
        ids = tuple(file.equality_ids or ())
        texts = {i for i in ids if isinstance(self._columns[i].field_type, StringType)}
        columns = KeyColumns(ids, tuple(kinds), frozenset(texts & self._in_log.keys()))
        return DeleteFile(file.file_path, file.record_count, columns, EVERYWHERE, step)

    def names_of_deletes(self, schema: pa.Schema) -> Mapping[int, str]:
        """Return the columns of a delete file by field id."""
        present = set(schema.names)
        return {i: c.name for i, c in self._columns.items() if c.name in present}

    def open_input(self, path: str) -> Any:
        """Open a file for reading.

        Raises:
            CommitRefused: ``announced_file_missing``. NotResolved: a file of the table is missing.
        """
        try:
            return self._io.new_input(path).open()
        except FileNotFoundError as error:
            if path in self._announced:
                raise missing_file(path) from error
            raise NotResolved("file_missing", f"{path} of the table is missing") from error

    def verify(self, path: str) -> None:
        """Check that an announced file is in the store."""
        verify_present(self._io, (path,))

    def create(self, source: SourceFile) -> tuple[str, Any]:
        """Create a copy of a source, in its folder."""
        folder = posixpath.dirname(source.path)
        path = f"{folder}/{self._clock.new_timed_uuid()}-00000.parquet"
        return path, self._io.new_output(path).create(overwrite=True)

    def described(
        self, partition_values: Mapping[str, str | None], copy: FileCopy, now_ms: int
    ) -> list[DeltaFile]:
        """Return a copy as the log holds it; nothing if no row is left."""
        if copy.path is None:
            return []
        schema = self._table.schema
        collectors = compute_statistics_plan(
            schema, table_properties.metrics(self._table.properties)
        )
        try:
            metrics = FooterReader(collectors, parquet_path_to_id_mapping(schema)).read(copy.footer)
        except KeyError:  # a path in the file that another writer named differently
            metrics = FileMetrics()
        content = ContentFile(
            content=FileContent.DATA,
            file_path=copy.path,
            file_format="PARQUET",
            spec_id=None,
            partition=(),
            record_count=copy.footer.num_rows,
            file_size_in_bytes=copy.size_bytes,
            null_value_counts=metrics.null_value_counts,
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
        )
        stats = delta_stats(content, self._table, leaves(schema))
        path = copy.path.removeprefix(f"{self._table.location}/")
        return [DeltaFile(path, copy.size_bytes, partition_values, now_ms, stats)]

    def texts(self, partition: Mapping[str, Any]) -> dict[str, str | None]:
        """Return partition values in Delta's text form."""
        schema = self._table.schema
        return {
            name: None
            if partition[name] is None
            else partition_text(schema.find_type(field_id), partition[name])
            for field_id, name in self._in_log.items()
        }

    def _source(
        self,
        path: str,
        size_bytes: int,
        step: int,
        values: Mapping[str, Any],
        may_have: Callable[[KeyColumns, DeletedKeys], bool],
    ) -> SourceFile:
        constants = {field_id: values[name] for field_id, name in self._in_log.items()}
        reach: Hashable = tuple(sorted(constants))
        return SourceFile(path, size_bytes, reach, step, self._names_of, constants, may_have)

    def _names_of(self, schema: pa.Schema) -> Mapping[int, str]:
        """Return the columns that are read from a data file by field id."""
        present = set(schema.names)
        return {
            i: c.name
            for i, c in self._columns.items()
            if c.name in present and i not in self._in_log
        }

    def _may_have(
        self,
        file: LiveDeltaFile,
        values: Mapping[str, Any],
        columns: KeyColumns,
        keys: DeletedKeys,
    ) -> bool:
        """Whether a file may have rows with a key, by its statistics and its partition."""
        return all(
            keys.may_be_in(at, _known(file, values, self._columns[field_id]))
            for at, field_id in enumerate(columns.field_ids)
        )


def _named_by(table: ChangeableDeltaVersion) -> frozenset[str] | None:
    """Return the data files of a version; None where they cannot be read."""
    try:
        return frozenset(f"{table.location}/{each.path}" for each in table.live_files(()))
    except (RetriableError, CommitRefused):
        return None


def _known(file: LiveDeltaFile, values: Mapping[str, Any], column: NestedField) -> KnownValues:
    """What the log says of the values of a column."""
    if column.name in values:
        value = values[column.name]
        return KnownValues(value, value, value is None, value is None)
    low, high = file.bounds.get(column.name, (None, None))
    if low is not None and isinstance(column.field_type, TimestampType | TimestamptzType):
        low, high = low - _TIMESTAMP_ERROR_US, high + _TIMESTAMP_ERROR_US
    return KnownValues(low, high, file.has_nulls.get(column.name, True))


def _is_key(column: NestedField) -> bool:
    kind = column.field_type
    return isinstance(kind, PrimitiveType) and not isinstance(kind, FloatType | DoubleType)


def _plain(value: Any) -> Any:
    """Return a partition value as readers have it: they read an empty text as null."""
    return None if value == "" else value.bytes if isinstance(value, UUID) else value


def _refusal(error: NotResolved) -> IcefloeError:
    if error.reason == "time":
        return RetriableError(
            f"rows were not replaced in time: {error}; the table is committed in a later round",
            code=OUT_OF_TIME,
        )
    if error.reason in _TOO_LARGE:
        return CommitRefused(
            f"rows cannot be replaced: {error}; raise the limit or make the commits smaller, then "
            "retry",
            code="copy_on_write_limit",
        )
    return CommitRefused(f"rows cannot be replaced: {error}", code="delta_unsupported")

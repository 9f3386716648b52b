"""Removes the rows that a round deletes from a table's data files: copy-on-write.

Rules of this file:
- A round's deletes are resolved against one snapshot, and committed on condition that it is still
  the head of the branch. After a conflict they are resolved again.
- A copy has the partition, the sequence number and the sort order of its source. So older delete
  files of the table still apply to it, and only those.
- Delete files of the round are in no snapshot. They, and data files of which no row or only a copy
  is left, are deleted when a snapshot with the round is certainly in the table.
- A file that is added without being read is looked up in the store: an announcement that is
  repeated may name a file that an earlier round has consumed.
- Copies are deleted only if no attempt may list them. Otherwise they are orphans.
- What cannot be rewritten is committed with delete files (merge-on-read), and reported.

Source:
    Iceberg specification, "Scan Planning", "Sequence Numbers"; Iceberg 1.12.0
    ``BaseOverwriteFiles``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
import structlog
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import UpdateMetrics
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connect import failpoints
from connect.clock import Clock
from connect.config.table_formats import COPY_ON_WRITE
from connect.errors import CommitRefused
from connect.gateways.catalog import table_properties
from connect.gateways.storage.file_metrics import FooterReader
from connect.gateways.storage.object_store import delete_files, storage_errors, verify_written
from connect.metrics import process_metrics
from connect.protocol.snapshot_ancestry import ANNOUNCED_RECORDS, WRITE_MODE
from coordinator.commit.content_files import FileConverter
from coordinator.commit.file_selection import Selection
from coordinator.commit.manifests import ManifestSet, NewFile, manifest_set
from coordinator.commit.prepared_manifests import AddedManifests, AttemptId
from coordinator.copy_on_write.deleted_keys import IN_TABLE, DeletedKeys
from coordinator.copy_on_write.limits import NotRewritten, RewriteBudget
from coordinator.copy_on_write.parquet_rows import FORM, KeyColumns, storage_type
from coordinator.copy_on_write.round_deletes import (
    EVERYWHERE,
    DeleteFile,
    FileCopy,
    RoundDeletes,
    SourceFile,
)

NOT_REWRITTEN: Final = "icefloe.copy-on-write.not-used"
_FORMAT_VERSION: Final = 2
_WHOLE: Final = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)
_FIELD_ID: Final = b"PARQUET:field_id"

log = structlog.get_logger("coordinator")


@dataclass(frozen=True, slots=True)
class RewrittenRows:
    """What one attempt adds and removes.

    Attributes:
        added: manifests of the new files and copies.
        existing: manifests of the head without removed files.
        changed: manifests that replace those with removed files.
        summary: snapshot properties.
    """

    added: AddedManifests
    existing: tuple[ManifestFile, ...]
    changed: tuple[ManifestFile, ...]
    summary: Mapping[str, str]


class _Partition(NamedTuple):
    """A partition of a spec, as the reach of deletes."""

    spec_id: int
    values: tuple[Any, ...]


@dataclass(slots=True)
class _Removal:
    """A manifest with files that are removed, and their paths."""

    manifest: ManifestFile
    entries: list[ManifestEntry]
    paths: set[str] = field(default_factory=set)


@dataclass(slots=True)
class RowRewriter:
    """The copy-on-write of one commit, over all its attempts; used by one thread.

    Attributes:
        selection: what the commit adds.
        budget: limits.
        clock: names files, measures the time.
        labels: of metrics.
        created: paths of all copies.
    """

    selection: Selection
    budget: RewriteBudget
    clock: Clock
    labels: Mapping[str, str]
    created: list[str] = field(default_factory=list)
    _work: _TableWork | None = None
    _used: frozenset[str] = frozenset()
    _refused: NotRewritten | None = None

    def on(
        self,
        table: Table,
        existing: Sequence[ManifestFile],
        attempt: AttemptId,
        written: list[str],
    ) -> RewrittenRows | None:
        """Resolve the deletes against a snapshot.

        Args:
            table: as it was loaded.
            existing: manifests of its head.
            attempt: the one that lists the result.
            written: gets the paths of manifests, also where writing fails.

        Returns:
            What the attempt adds and removes; None where delete files must be used.

        Raises:
            CommitRefused: ``announced_file_missing``; as ``FileConverter``.
            RetriableError: ``storage_unavailable``.
        """
        self._used, self._refused = frozenset(), None
        started_ms = self.clock.monotonic_ms()
        try:
            if self._work is None or self._work.shape != _shape(table):
                self._work = _TableWork.of(table, self)
            else:
                self._work.table = table
            out = self._work.resolve(existing, attempt, written)
        except NotRewritten as error:
            self._refused = error
            log.warning(
                "rows are deleted by delete files instead of copy-on-write",
                reason=error.reason,
                error=str(error),
                **self.labels,
            )
            return None
        finally:
            duration_ms = self.clock.monotonic_ms() - started_ms
            process_metrics.counter("copy_on_write_seconds", **self.labels).inc(duration_ms / 1000)
        self._used = self._work.used
        return out

    @property
    def summary(self) -> dict[str, str]:
        """Snapshot properties of a commit with delete files."""
        return {} if self._refused is None else {NOT_REWRITTEN: self._refused.reason}

    @property
    def consumed(self) -> frozenset[str]:
        """Announced files that the last attempt does not list."""
        if self._work is None or self._refused is not None:
            return frozenset()
        return frozenset(self.selection.paths) - self._used

    def delete_all(self, table: Table) -> None:
        """Delete every copy: no attempt was applied."""
        delete_files(table.io, self.created)
        self.created.clear()
        self._work = None

    def landed(self, table: Table, snapshot_id: int, *, is_last: bool) -> None:
        """Delete what the snapshot in the table does not list.

        The snapshots of all attempts have one id, so no other attempt can land any more.

        Args:
            table: with the snapshot.
            snapshot_id: of the commit.
            is_last: whether the snapshot is certainly that of the last attempt.
        """
        if self._refused is not None:
            process_metrics.counter(
                "copy_on_write_fallbacks", **self.labels, reason=self._refused.reason
            ).inc()
        if self._work is None:
            return
        listed = self._used if is_last else _listed(table, snapshot_id)
        if listed is not None:
            unused = {*self.created, *self.consumed} - listed
            delete_files(table.io, sorted(unused))
        process_metrics.counter("copy_on_write_files", **self.labels).inc(len(self.created))
        process_metrics.counter("copy_on_write_bytes", **self.labels).inc(
            self._work.deletes.bytes_read
        )


@dataclass(slots=True)
class _TableWork:
    """The work on one schema of the table.

    Attributes:
        table: as it was last loaded.
        shape: schema and specs of the table.
        selection: what the commit adds.
        new: the announced data files with their steps.
        deletes: of the round.
        used: paths of new files and copies that the last attempt lists.
    """

    table: Table
    shape: Hashable
    selection: Selection
    new: list[tuple[DataFile, SourceFile]]
    deletes: RoundDeletes
    verified: set[str]
    used: frozenset[str] = frozenset()

    @classmethod
    def of(cls, table: Table, rewriter: RowRewriter) -> _TableWork:
        """Prepare the work; nothing is read."""
        metadata, selection = table.metadata, rewriter.selection
        if metadata.format_version != _FORMAT_VERSION:
            raise NotRewritten(
                "format_version", f"the table has format version {metadata.format_version}"
            )
        convert = FileConverter(metadata.schema(), metadata.specs(), metadata.default_spec_id)
        files = _Files(table, rewriter)
        new, deletes = [], []
        for step, files_of_step in enumerate(selection.steps):
            for each in files_of_step.data_files:
                data_file = convert.data_file(each)
                new.append((data_file, files.source(data_file, step)))
            for each in files_of_step.delete_files:
                data_file = convert.data_file(each)
                deletes.append(files.deletes(data_file, step))
        options = _writer_options(table.properties)
        work = RoundDeletes(
            deletes,
            files.open_input,
            files.create,
            files.names_of,
            options,
            rewriter.budget,
            created=rewriter.created,
        )
        return cls(table, _shape(table), selection, new, work, set())

    def resolve(
        self, existing: Sequence[ManifestFile], attempt: AttemptId, written: list[str]
    ) -> RewrittenRows:
        """Return what is added and removed on these manifests."""
        self.deletes.budget.start()
        files = _Files(self.table, None)
        removals, sources = self._sources(existing, files) if self.deletes.files else ([], [])
        affected = self.deletes.affected(
            [*(source for _, source in self.new), *(source for _, _, source in sources)]
        )
        copies = {source.path: self.deletes.copy(source) for source in affected}
        failpoints.hit("D1")
        manifests = manifest_set(
            self.table,
            attempt.snapshot_id,
            f"{attempt.commit_uuid}-{attempt.number}-r",
            written,
        )
        metrics, partitions = UpdateMetrics(), set()
        added = self._added(copies, files, metrics)
        for removal, entry, source in sources:
            if source.path not in copies:
                continue
            if not manifests.is_mergeable(entry.data_file.spec_id):
                raise NotRewritten("partition_spec", "a column of a partition spec was dropped")
            removal.paths.add(source.path)
            metrics.remove_file(entry.data_file)
            partitions.add(_partition(entry.data_file))
            if (copy := files.described(entry.data_file, copies[source.path])) is not None:
                metrics.add_file(copy)
                added.append(NewFile(copy, entry.sequence_number))
        partitions |= {_partition(new.data_file) for new in added}
        self.used = frozenset(new.data_file.file_path for new in added)
        with storage_errors("writing manifests"):
            changed = [_without(manifests, r) for r in removals if r.paths]
            listed = manifests.add(ManifestContent.DATA, added)
        verify_written(
            self.table.io, {m.manifest_path: m.manifest_length for m in (*changed, *listed)}
        )
        failpoints.hit("C8")
        gone = {r.manifest.manifest_path for r in removals if r.paths}
        return RewrittenRows(
            AddedManifests(listed, [], metrics, len(partitions)),
            tuple(m for m in existing if m.manifest_path not in gone),
            tuple(changed),
            {WRITE_MODE: COPY_ON_WRITE, ANNOUNCED_RECORDS: str(self.selection.records)},
        )

    def _added(
        self, copies: Mapping[str, FileCopy], files: _Files, metrics: UpdateMetrics
    ) -> list[NewFile]:
        """The announced data files, or what is left of them."""
        out = []
        for data_file, source in self.new:
            left: DataFile | None = data_file
            if source.path in copies:
                left = files.described(data_file, copies[source.path])
            elif source.path not in self.verified:
                files.verify(source.path)
                self.verified.add(source.path)
            if left is not None:
                metrics.add_file(left)
                out.append(NewFile(left))
        return out

    def _sources(
        self, existing: Sequence[ManifestFile], files: _Files
    ) -> tuple[list[_Removal], list[tuple[_Removal, ManifestEntry, SourceFile]]]:
        """The data files of the table, by manifest."""
        io = self.table.io
        removals, sources = [], []
        with storage_errors("reading manifests"):
            for manifest in existing:
                if not (manifest.has_added_files() or manifest.has_existing_files()):
                    continue
                entries = manifest.fetch_manifest_entry(io)
                if manifest.content == ManifestContent.DELETES:
                    if any(
                        e.data_file.content != DataFileContent.EQUALITY_DELETES for e in entries
                    ):
                        raise NotRewritten("position_deletes", "the table has position deletes")
                    continue
                removal = _Removal(manifest, entries)
                removals.append(removal)
                for entry in entries:
                    source = files.source(entry.data_file, IN_TABLE)
                    sources.append((removal, entry, source))
        return removals, sources


class _Files:
    """The files of a table.

    Args:
        table: as it was loaded.
        rewriter: names copies; None where none are made.
    """

    def __init__(self, table: Table, rewriter: RowRewriter | None) -> None:
        self._table = table
        self._specs = table.specs()
        self._schema = table.schema()
        self._announced = frozenset(rewriter.selection.paths) if rewriter else frozenset()
        self._clock = rewriter.clock if rewriter else None
        self._places = table_properties.location_provider(table.location(), table.properties)

    def source(self, data_file: DataFile, step: int) -> SourceFile:
        """A data file as a source."""
        spec = self._specs[data_file.spec_id]
        return SourceFile(
            data_file.file_path,
            data_file.file_size_in_bytes,
            _partition(data_file),
            step,
            self.names_of,
            _constants(spec, data_file),
            lambda columns, keys: self._may_have(data_file, spec, columns, keys),
        )

    def deletes(self, data_file: DataFile, step: int) -> DeleteFile:
        """A delete file.

        Raises:
            NotRewritten: its deletes are not by key.
        """
        if data_file.content != DataFileContent.EQUALITY_DELETES or not data_file.equality_ids:
            raise NotRewritten("position_deletes", "the round has position deletes")
        spec = self._specs[data_file.spec_id]
        fields = [self._key_field(field_id) for field_id in data_file.equality_ids]
        kinds = tuple(storage_type(schema_to_pyarrow(f.field_type)) for f in fields)
        is_global = all(isinstance(f.transform, VoidTransform) for f in spec.fields)
        return DeleteFile(
            data_file.file_path,
            data_file.record_count,
            KeyColumns(tuple(f.field_id for f in fields), kinds),
            EVERYWHERE if is_global else _partition(data_file),
            step,
        )

    def names_of(self, schema: pa.Schema) -> Mapping[int, str]:
        """Return the name of each top-level column of a file by its field id."""
        ids = {
            int(f.metadata[_FIELD_ID]): f.name for f in schema if _FIELD_ID in (f.metadata or {})
        }
        if ids:
            return ids
        mapping = self._table.name_mapping()
        if mapping is None:
            raise NotRewritten(FORM, "a data file has no field ids, and the table no name mapping")
        names = set(schema.names)
        return {
            mapped.field_id: name
            for mapped in mapping.root
            for name in mapped.names
            if name in names and mapped.field_id is not None
        }

    def open_input(self, path: str) -> Any:
        """Open a file for reading.

        Raises:
            CommitRefused: ``announced_file_missing``. NotRewritten: a file of the table is missing.
        """
        try:
            return self._table.io.new_input(path).open()
        except FileNotFoundError as error:
            if path in self._announced:
                raise _missing(path) from error
            raise NotRewritten("file_missing", f"{path} of the table is missing") from error

    def verify(self, path: str) -> None:
        """Check that an announced file is in the store."""
        with storage_errors(f"reading {path}"):
            try:
                len(self._table.io.new_input(path))
            except FileNotFoundError as error:
                raise _missing(path) from error

    def create(self, source: SourceFile) -> tuple[str, Any]:
        """Create a copy of a source; return its path and a stream."""
        assert self._clock is not None
        partition = cast("_Partition", source.partition)
        spec = self._specs[partition.spec_id]
        name = f"{self._clock.new_timed_uuid()}-00000.parquet"
        path = spec.partition_to_path(Record(*partition.values), self._schema)
        folder = _Folder(path) if spec.fields else None
        path = self._places.new_data_location(name, folder)  # type: ignore[arg-type] # as _Folder
        return path, self._table.io.new_output(path).create(overwrite=True)

    def described(self, source: DataFile, copy: FileCopy) -> DataFile | None:
        """Return a copy as manifests hold it; None if no row is left."""
        if copy.path is None:
            return None
        properties = table_properties.metrics(self._table.properties)
        try:
            schema = pyarrow_to_schema(copy.schema, self._table.name_mapping())
            collectors = compute_statistics_plan(schema, properties)
            ids = parquet_path_to_id_mapping(schema)
            metrics = FooterReader(collectors, ids).read(copy.footer)
        except (ValueError, TypeError, KeyError) as error:
            raise NotRewritten(FORM, "the columns of a data file are not Iceberg's") from error
        out = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=copy.path,
            file_format=FileFormat.PARQUET,
            partition=source.partition,
            record_count=copy.footer.num_rows,
            file_size_in_bytes=copy.size_bytes,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts={},
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            key_metadata=None,
            split_offsets=metrics.split_offsets,
            equality_ids=None,
            sort_order_id=source.sort_order_id,
        )
        out.spec_id = source.spec_id
        return out

    def _key_field(self, field_id: int) -> NestedField:
        for schema in (self._schema, *self._table.schemas().values()):
            for each in schema.fields:
                if each.field_id == field_id:
                    is_plain = isinstance(each.field_type, PrimitiveType)
                    if is_plain and not isinstance(each.field_type, FloatType | DoubleType):
                        return each
        raise NotRewritten("key_columns", f"field {field_id} is no top-level column of plain type")

    def _may_have(
        self, file: DataFile, spec: PartitionSpec, columns: KeyColumns, keys: DeletedKeys
    ) -> bool:
        """Whether a file may have rows with a key, by its bounds and its partition."""
        for at, field_id in enumerate(columns.field_ids):
            kind = self._key_field(field_id).field_type
            if not _may_have_value(file, field_id, kind, at, keys):
                return False
            for place, part in enumerate(spec.fields):
                value = file.partition[place]
                if part.source_id == field_id and not _may_be_in(value, part, kind, at, keys):
                    return False
        if file.file_format != FileFormat.PARQUET or file.key_metadata:
            raise NotRewritten(FORM, f"{file.file_path} is no plain Parquet file")
        return True


def _may_have_value(file: DataFile, field_id: int, kind: Any, at: int, keys: DeletedKeys) -> bool:
    nulls = (file.null_value_counts or {}).get(field_id)
    if keys.has_null(at) and nulls != 0:
        return True
    if nulls is not None and nulls == file.record_count:
        return False
    low = (file.lower_bounds or {}).get(field_id)
    high = (file.upper_bounds or {}).get(field_id)
    if low is None or high is None or isinstance(kind, UUIDType):
        # without bounds all values may be null, or the column is missing, which is null, too
        return True
    return keys.has_between(at, _bound(kind, low), _bound(kind, high))


def _bound(kind: PrimitiveType, value: bytes) -> Any:
    """Return a bound in internal form; that of an older file may have a narrower type."""
    is_whole = isinstance(kind, _WHOLE)
    return int.from_bytes(value, "little", signed=True) if is_whole else from_bytes(kind, value)


def _may_be_in(value: Any, part: PartitionField, kind: Any, at: int, keys: DeletedKeys) -> bool:
    if isinstance(part.transform, VoidTransform) or isinstance(kind, UUIDType):
        return True
    results = keys.transformed(at, str(part.transform), part.transform.transform(kind))
    return results is None or value in results


def _listed(table: Table, snapshot_id: int) -> frozenset[str] | None:
    """Return the files that a snapshot added; None where that cannot be read."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return None
    try:
        return frozenset(
            entry.data_file.file_path
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
        )
    except OSError as error:
        log.warning("files of a round are left as orphans", error=str(error))
        return None


def _shape(table: Table) -> Hashable:
    """Return what sources, keys and copies depend on."""
    metadata = table.metadata
    return metadata.current_schema_id, metadata.default_spec_id, frozenset(metadata.specs())


def _partition(file: DataFile) -> _Partition:
    values = file.partition
    return _Partition(file.spec_id, tuple(values[i] for i in range(len(values))))


def _constants(spec: PartitionSpec, file: DataFile) -> dict[int, Any]:
    return {
        part.source_id: file.partition[place]
        for place, part in enumerate(spec.fields)
        if isinstance(part.transform, IdentityTransform)
    }


def _without(manifests: ManifestSet, removal: _Removal) -> ManifestFile:
    return manifests.rewritten(removal.manifest, removal.entries, removal.paths)


def _writer_options(properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        "compression": table_properties.codec(properties),
        "compression_level": table_properties.level(properties),
        "store_schema": False,
        "store_decimal_as_integer": True,
        "version": "2.6",
    }


def _missing(path: str) -> CommitRefused:
    return CommitRefused(
        "an announced file is not in the store: it was committed before and is announced again, or "
        "it was deleted before its commit; skip the announcement in the first case, and restore "
        "the file in the other",
        code="announced_file_missing",
        file=path,
    )


@dataclass(frozen=True, slots=True)
class _Folder:
    """A partition as a location provider takes it."""

    path: str

    def to_path(self) -> str:
        """Return the partition's folder."""
        return self.path

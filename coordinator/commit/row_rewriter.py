"""Removes the rows that a round deletes from a table's data files: copy-on-write.

Rules of this file:
- A round's deletes are resolved against one snapshot, and committed on condition that it is still
  the head of the branch. After a conflict they are resolved again.
- A copy has the partition, the sequence number and the sort order of its source. So older delete
  files of the table still apply to it, and only those.
- Delete files of the round are in no snapshot. They, and data files of which no row or only a copy
  is left, are deleted when a snapshot with the round is certainly in the table.
- A file that is added without being read is verified in the store: an announcement that is
  repeated may name a file that an earlier round has consumed.
- Copies are deleted only if no attempt may list them. Otherwise they are orphans.
- What cannot be rewritten is committed with delete files (merge-on-read), and reported.

Source:
    Iceberg specification, "Scan Planning", "Sequence Numbers"; Iceberg 1.12.0
    ``BaseOverwriteFiles``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import UpdateMetrics

from connect import failpoints
from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.table_formats import COPY_ON_WRITE
from connect.gateways.catalog import table_properties
from connect.gateways.storage.object_store import delete_files, storage_errors, verify_written
from connect.metrics import process_metrics
from connect.protocol.snapshot_ancestry import ANNOUNCED_RECORDS, WRITE_MODE
from coordinator.commit.content_files import FileConverter
from coordinator.commit.file_selection import Selection
from coordinator.commit.manifests import ManifestSet, NewFile, manifest_set
from coordinator.commit.prepared_manifests import AddedManifests, AttemptId
from coordinator.commit.source_files import TableFiles, partition_of
from coordinator.copy_on_write.deleted_keys import IN_TABLE
from coordinator.copy_on_write.limits import NotRewritten, RewriteBudget
from coordinator.copy_on_write.round_deletes import (
    FileCopy,
    RoundDeletes,
    SourceFile,
)

NOT_REWRITTEN: Final = "icefloe.copy-on-write.not-used"
_FORMAT_VERSION: Final = 2
_READERS: Final = 8

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

    @classmethod
    def of(
        cls, config: ConnectorConfig, table: str, selection: Selection, clock: Clock
    ) -> RowRewriter | None:
        """Return the rewriter of a commit; None for tables without copy-on-write."""
        settings = config.table(table)
        if not (config.is_row_level and settings.copies_on_write):
            return None
        budget = RewriteBudget(clock, settings.copy_bytes_max)
        return cls(selection, budget, clock, {"connector": config.name, "table": table})

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
        files = TableFiles(table, frozenset(selection.paths), rewriter.clock)
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
        files = TableFiles(self.table, frozenset(), self.deletes.budget.clock)
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
            partitions.add(partition_of(entry.data_file))
            if (copy := files.described(entry.data_file, copies[source.path])) is not None:
                metrics.add_file(copy)
                added.append(NewFile(copy, entry.sequence_number))
        partitions |= {partition_of(new.data_file) for new in added}
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
        self, copies: Mapping[str, FileCopy], files: TableFiles, metrics: UpdateMetrics
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
        self, existing: Sequence[ManifestFile], files: TableFiles
    ) -> tuple[list[_Removal], list[tuple[_Removal, ManifestEntry, SourceFile]]]:
        """The data files of the table, by manifest."""
        io = self.table.io
        removals, sources = [], []
        with storage_errors("reading manifests"):
            live = [m for m in existing if m.has_added_files() or m.has_existing_files()]
            with ThreadPoolExecutor(_READERS, thread_name_prefix="manifest-read") as readers:
                read = list(readers.map(lambda m: m.fetch_manifest_entry(io), live))
            for manifest, entries in zip(live, read, strict=True):
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

"""Removes the rows that a round deletes: by copies of data files, or by deletion vectors.

Rules of this file:
- A round's deletes are resolved against one snapshot, and committed on condition that it is still
  the head of the branch. After a conflict they are resolved again.
- Delete files of the round are in no snapshot. They, and data files of which no row or only a copy
  is left, are deleted when a snapshot with the round is certainly in the table.
- Files that were created for an attempt are deleted only if no attempt may list them. Otherwise
  they are orphans.
- What cannot be resolved is committed with equality delete files, and reported; a table that must
  not have them fails, or waits where time was short. After a commit that took too long, the next
  ones are not tried for some time: else each would take as long.
- All ways to remove rows share the time of a commit. One that had no time left is tried next time.

Source:
    Iceberg specification, "Scan Planning", "Sequence Numbers"; Iceberg 1.12.0
    ``BaseOverwriteFiles``, ``BaseRowDelta``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table, TableProperties

from connect import failpoints
from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.table_formats import COPY_ON_WRITE, DELETION_VECTORS
from connect.errors import CommitRefused, IcefloeError, RetriableError
from connect.gateways.storage.object_store import delete_files
from connect.metrics import process_metrics
from connect.protocol.snapshot_ancestry import ANNOUNCED_RECORDS, WRITE_MODE
from coordinator.commit.metadata.content_files import FileConverter
from coordinator.commit.metadata.head_files import HeadFiles
from coordinator.commit.metadata.manifests import manifest_set
from coordinator.commit.metadata.pending_files import PendingFiles
from coordinator.commit.metadata.prepared_manifests import AttemptId
from coordinator.commit.metadata.row_lineage import has_row_lineage, writer_version
from coordinator.commit.row_changes.copied_rows import CopyWriter, writer_options
from coordinator.commit.row_changes.former_deletes import FormerPositions, FormerVectors
from coordinator.commit.row_changes.row_change import NewSource, RemovedRows, RowChange, RowWriter
from coordinator.commit.row_changes.source_files import TableFiles
from coordinator.commit.row_changes.vector_rows import VectorWriter
from coordinator.commit.rules.file_selection import Selection
from coordinator.commit.rules.unnamed_files import delete_unnamed
from coordinator.row_deletes.file_copies import FileCopies
from coordinator.row_deletes.limits import OUT_OF_TIME, NotResolved, ResolveBudget, RowLimits
from coordinator.row_deletes.round_deletes import RoundDeletes
from coordinator.row_deletes.row_positions import RowPositions

_VECTORS_KEY: Final = "iceberg.tables.deletion-vectors-max-bytes"
_SECONDS: Final = {
    COPY_ON_WRITE: "copy_on_write_seconds",
    DELETION_VECTORS: "deletion_vector_seconds",
}
_FALLBACKS: Final = {
    COPY_ON_WRITE: "copy_on_write_fallbacks",
    DELETION_VECTORS: "deletion_vector_fallbacks",
}

log = structlog.get_logger("coordinator")


@dataclass(slots=True)
class RowRemoval:
    """The removal of rows by one commit, over all its attempts; used by one thread.

    Attributes:
        selection: what the commit adds.
        modes: ways to remove the rows, in the order in which they are tried, with their limits.
        clock: names files, measures the time.
        labels: of metrics.
        pauses: until when a mode is not tried on the table, monotonic; kept between commits.
        uses_equality_deletes: whether the table may get equality delete files.
        created: paths of all files that were written for attempts.
    """

    selection: Selection
    modes: Mapping[str, ResolveBudget]
    clock: Clock
    labels: Mapping[str, str]
    pauses: dict[str, int]
    uses_equality_deletes: bool = True
    created: list[str] = field(default_factory=list)
    _deadline_ms: int | None = None
    _slow_mode: str | None = None
    _works: dict[str, _TableWork] = field(default_factory=dict)
    _mode: str | None = None
    _refused: dict[str, NotResolved] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        config: ConnectorConfig,
        clock: Clock,
        table: str,
        selection: Selection,
        pauses: dict[str, int],
        *,
        limits: RowLimits,
    ) -> RowRemoval | None:
        """Return the removal of a commit; None where rows are never removed but by their keys."""
        settings = config.table(table)
        modes = {}
        if settings.copies_on_write:
            modes[COPY_ON_WRITE] = ResolveBudget(clock, settings.copy_bytes_max, limits=limits)
        if settings.uses_vectors:
            budget = ResolveBudget(clock, settings.vector_bytes_max, _VECTORS_KEY, limits)
            modes[DELETION_VECTORS] = budget
        if settings.uses_equality_deletes and not (config.is_row_level and modes):
            return None
        if not config.is_row_level and not selection.is_row_level:
            return None
        labels = {"connector": config.name, "table": table}
        return cls(selection, modes, clock, labels, pauses, settings.uses_equality_deletes)

    def on(
        self,
        table: Table,
        existing: Sequence[ManifestFile],
        attempt: AttemptId,
        pending: PendingFiles,
        written: list[str],
    ) -> RemovedRows | None:
        """Resolve the deletes against a snapshot.

        Args:
            table: as it was loaded.
            existing: manifests of its head.
            attempt: the one that lists the result.
            pending: get the manifests, and write them later.
            written: gets the paths of manifests, also where writing fails.

        Returns:
            What the attempt adds and removes; None where equality delete files must be used.

        Raises:
            CommitRefused: ``announced_file_missing``, ``equality_deletes_disabled``; as
                ``FileConverter``.
            RetriableError: ``storage_unavailable``, ``copy_on_write_time``.
        """
        self._mode, self._refused = None, {}
        for mode, budget in self.modes.items():
            if mode == DELETION_VECTORS and not has_row_lineage(table.metadata):
                continue
            started_ms = self.clock.monotonic_ms()
            if self._deadline_ms is None:
                self._deadline_ms = started_ms + budget.limits.duration_ms_max
            budget.deadline_ms = self._deadline_ms
            try:
                self._check_pause(mode)
                work = self._work(mode, table, budget)
                out = work.resolve(table, existing, attempt, pending, written)
            except NotResolved as error:
                self._refused[mode] = error
                if error.reason == "time" and self.uses_equality_deletes:
                    self._pause(mode, budget.limits.pause_ms)
                log.warning(
                    "rows are removed in another way than configured",
                    refused=mode,
                    reason=error.reason,
                    error=str(error),
                    **self.labels,
                )
            else:
                self._mode = mode
                return out
            finally:
                duration_s = (self.clock.monotonic_ms() - started_ms) / 1000
                process_metrics.counter(_SECONDS[mode], **self.labels).inc(duration_s)
        if self.selection.is_row_level and not self.uses_equality_deletes:
            raise self._refusal(table)
        return None

    @property
    def summary(self) -> dict[str, str]:
        """Snapshot properties: why a mode was not used."""
        return {f"icefloe.{m}.not-used": error.reason for m, error in self._refused.items()}

    @property
    def consumed(self) -> frozenset[str]:
        """Announced files that the last attempt does not list."""
        if self._mode is None:
            return frozenset()
        return frozenset(self.selection.paths) - self._works[self._mode].used

    def delete_all(self, table: Table) -> None:
        """Delete every file that was written for an attempt: no attempt was applied."""
        delete_files(table.io, self.created)
        self.created.clear()
        self._works.clear()

    def landed(self, table: Table, snapshot_id: int, *, is_last: bool) -> None:
        """Delete what the snapshot in the table does not list.

        The snapshots of all attempts have one id, so no other attempt can land any more. The
        manifests of the snapshot before it do not list the announced files (``HeldFiles``).

        Args:
            table: with the snapshot.
            snapshot_id: of the commit.
            is_last: whether the snapshot is certainly that of the last attempt.
        """
        for mode, error in self._refused.items():
            labels = {**self.labels, "reason": error.reason}
            process_metrics.counter(_FALLBACKS[mode], **labels).inc()
        if not self._works:
            return
        last = self._works.get(self._mode or "")
        listed = (last.used if last else frozenset()) if is_last else _listed(table, snapshot_id)
        delete_unnamed(table.io, {*self.created, *self.consumed}, listed)
        used_mode = self._mode if is_last else _write_mode(table, snapshot_id)
        if used_mode in self._works:
            self._works[used_mode].writer.count(self.labels)

    def _pause(self, mode: str, pause_ms: int) -> None:
        """Pause a mode that took the time; one that had none left is not paused."""
        if mode not in self.pauses and self._slow_mode in {None, mode}:
            self._slow_mode = mode
            self.pauses[mode] = self.clock.monotonic_ms() + pause_ms

    def _refusal(self, table: Table) -> IcefloeError:
        """Return the error of a commit that may not write equality deletes."""
        reasons = [f"{mode}: {error}" for mode, error in self._refused.items()]
        if any(error.reason == "time" for error in self._refused.values()):
            return RetriableError(
                f"rows were not removed in time ({'; '.join(reasons)}); the table is committed in "
                "a later round",
                code=OUT_OF_TIME,
            )
        cure = "raise the limit"
        if not reasons:
            version = table.metadata.format_version
            reasons = [f"the table has format version {version}, without deletion vectors"]
            cure = "set iceberg.tables.write-mode=copy-on-write"
        return CommitRefused(
            "rows cannot be removed without equality deletes, which "
            f"iceberg.tables.equality-deletes-enabled forbids ({'; '.join(reasons)}); {cure}, or "
            "allow equality deletes, then retry",
            code="equality_deletes_disabled",
        )

    def _check_pause(self, mode: str) -> None:
        if mode not in self.pauses:
            return
        left_ms = self.pauses[mode] - self.clock.monotonic_ms()
        if left_ms > 0:
            raise NotResolved(
                "time", f"an earlier commit took too long; tried again in {left_ms // 1000} s"
            )
        del self.pauses[mode]

    def _work(self, mode: str, table: Table, budget: ResolveBudget) -> _TableWork:
        work = self._works.get(mode)
        if work is None or work.shape != _shape(table):
            work = self._works[mode] = _TableWork.of(mode, table, self, budget)
        return work


@dataclass(slots=True)
class _TableWork:
    """The work of one mode on one shape of the table.

    Attributes:
        mode: how rows are removed.
        shape: schema, specs and name mapping of the table.
        selection: what the commit adds.
        new: the announced data files with their steps.
        deletes: of the round.
        writer: removes the rows.
        verified: announced files that are certainly in the store.
        used: paths of the files that the last attempt adds.
    """

    mode: str
    shape: Hashable
    selection: Selection
    new: list[NewSource]
    deletes: RoundDeletes
    writer: RowWriter
    verified: set[str] = field(default_factory=set)
    used: frozenset[str] = frozenset()

    @classmethod
    def of(cls, mode: str, table: Table, removal: RowRemoval, budget: ResolveBudget) -> _TableWork:
        """Prepare the work; nothing is read."""
        metadata, selection = table.metadata, removal.selection
        convert = FileConverter(
            metadata.schema(),
            metadata.specs(),
            metadata.default_spec_id,
            writer_version(metadata),
            metadata.schemas,
        )
        files = TableFiles(table, frozenset(selection.paths), removal.clock)
        steps = list(enumerate(selection.steps))
        new = [
            NewSource(file, files.source(file, step))
            for step, of_step in steps
            for file in map(convert.data_file, of_step.data_files)
        ]
        delete_files = [
            files.deletes(file, step)
            for step, of_step in steps
            for file in map(convert.data_file, of_step.delete_files)
        ]
        deletes = RoundDeletes(delete_files, files.open_input, files.names_of, budget)
        vectors, positions = FormerVectors(budget), FormerPositions(budget)
        writer: RowWriter
        if mode == COPY_ON_WRITE:
            options = writer_options(table.properties)
            copies = FileCopies(deletes, files.create, options, removal.created)
            has_lineage = has_row_lineage(metadata)
            writer = CopyWriter(copies, vectors, positions, has_lineage=has_lineage)
        else:
            writer = VectorWriter(RowPositions(deletes), vectors, positions, removal.created)
        return cls(mode, _shape(table), selection, new, deletes, writer)

    def resolve(
        self,
        table: Table,
        existing: Sequence[ManifestFile],
        attempt: AttemptId,
        pending: PendingFiles,
        written: list[str],
    ) -> RemovedRows:
        """Return what is added and removed on these manifests."""
        budget = self.deletes.budget
        budget.start()
        files = TableFiles(table, frozenset(), budget.clock)
        head = HeadFiles(existing)
        if self.deletes.files:

            def is_needed(manifest: ManifestFile) -> bool:
                return files.may_list(manifest, self.deletes)

            head = HeadFiles.read(table, existing, is_needed, budget)
        change = RowChange(
            files,
            self.new,
            head,
            manifest_set(
                table,
                attempt.snapshot_id,
                f"{attempt.commit_uuid}-{attempt.number}-r",
                pending,
                written,
            ),
            self.verified,
        )
        self.writer.apply(change)
        failpoints.hit("D1")
        self.used = change.used
        summary = {WRITE_MODE: self.mode, ANNOUNCED_RECORDS: str(self.selection.records)}
        return change.write(summary)


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


def _write_mode(table: Table, snapshot_id: int) -> str | None:
    """Return how a snapshot removed rows; None if by equality delete files, or if it is gone."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        return None
    return snapshot.summary.additional_properties.get(WRITE_MODE)


def _shape(table: Table) -> Hashable:
    """Return what sources, keys and copies depend on."""
    metadata = table.metadata
    return (
        metadata.format_version,
        metadata.current_schema_id,
        metadata.default_spec_id,
        frozenset(metadata.specs()),
        table.properties.get(TableProperties.DEFAULT_NAME_MAPPING),
    )

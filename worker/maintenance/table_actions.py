"""Work on one table, done by Iceberg's own actions for Spark.

Rules of this file:
- Rewritten files keep the sequence number of the snapshot that they were read from
  (``use-starting-sequence-number``): a delete that is committed meanwhile still reaches their rows.
- A commit that meets another one is repeated by Iceberg, as often as the table's properties say.
  Its default is four times within two seconds. A stream that commits every second may win all of
  them, in every run. So a table without such properties gets ``RETRIES``.
- Every commit has Iceberg's own validation. A conflict with another commit fails the work, and
  nothing else. What was committed before (partial progress) stays.
- A delete file is removed only when Iceberg's planning of a scan finds no data file that it applies
  to. Data that is committed later has a higher sequence number: the delete does not apply to it.
- What was read must be an ancestor of what is committed. After a rewind or a rollback, rows that
  were deleted before may be there again. Iceberg checks that where data files are replaced. Where
  only delete files are removed, it checks nothing: ``_ReadSnapshot`` does.
- So ``rewrite_position_delete_files`` is not used: its commit accepts no such check.
- Snapshots that the coordinator would expire meanwhile are kept by a tag (``history_kept``).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final

import structlog
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyiceberg.table.refs import MAIN_BRANCH
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from connect.protocol.maintenance_tag import READ_PROPERTY, is_tag_of, tag_name
from worker.maintenance.rewrite_plans import LIMIT, RewritePlans
from worker.spark.jvm import gateway_of, java_session

SUMMARY_PROPERTY: Final = "icefloe.maintenance"
"""Snapshot property of every commit of the maintenance process: the work."""
MIN_INPUT_FILES: Final = 5
"""Files of a partition that are worth a rewrite once it runs: Iceberg's default."""
GROUP_BYTES: Final = 2 * 2**30
"""Data that one commit of partial progress rewrites at most, if a file is not larger."""
MAX_COMMITS: Final = 10
REF_ATTEMPTS_MAX: Final = 10
"""Of a change of the table's tags, which is lost when another commit comes first."""
RETRIES: Final = {"commit.retry.num-retries": "50", "commit.retry.max-wait-ms": "1000"}
"""Table properties: Iceberg takes them from nowhere else. The files stay rewritten meanwhile."""
_BY_PREFIX: Final = True  # files are listed by the client of the table, not by Hadoop's
_NUMBER: Final = re.compile("[0-9]{1,18}")
_LOST: Final = "rewrite commits failed"

log = structlog.get_logger("maintenance")


@dataclass(frozen=True, slots=True)
class WorkResult:
    """What a run of one work has done.

    Attributes:
        rewritten_files: data files that were replaced.
        rewritten_bytes: their size.
        added_files: data files that replaced them.
        removed_delete_files: delete files that are no longer part of the table.
        rewritten_manifests: manifests that were replaced.
        orphan_files: files that were deleted.
        failed_files: data files that could not be rewritten; they stay as they are.
        lost_commits: commits of rewritten files that lost against another commit.
    """

    rewritten_files: int = 0
    rewritten_bytes: int = 0
    added_files: int = 0
    removed_delete_files: int = 0
    rewritten_manifests: int = 0
    orphan_files: int = 0
    failed_files: int = 0
    lost_commits: int = 0

    def as_json(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class UnneededDeletes:
    """Delete files that apply to no data file.

    Attributes:
        snapshot_id: the snapshot of which that is known.
        files: Iceberg's delete files in the JVM.
    """

    snapshot_id: int
    files: Sequence[JavaObject]


class _ReadSnapshot:
    """Requires that a snapshot is an ancestor of the one that is committed.

    Iceberg calls it with the ancestry of the branch, for each attempt of a commit.

    Args:
        snapshot_id: of the snapshot.
    """

    def __init__(self, snapshot_id: int) -> None:
        self._snapshot_id = snapshot_id

    def validate(self, ancestry: JavaObject) -> bool:
        """Return whether the snapshot is in an ancestry, which begins with the newest one."""
        return any(snapshot.snapshotId() == self._snapshot_id for snapshot in _each(ancestry))

    def errorMessage(self) -> str:  # noqa: N802 - Iceberg's name
        """Return why a commit is refused."""
        return f"snapshot {self._snapshot_id}, which was read, has left the branch"

    class Java:
        """The interface, for py4j."""

        implements: ClassVar = ["org.apache.iceberg.SnapshotAncestryValidator"]


class TableActions:
    """Iceberg's actions on one table.

    Args:
        spark: the session.
        table: Iceberg's table in the JVM.
        branch: the branch that the connector commits to.
        target_bytes: size of compacted files; None leaves it to the table's properties.
        min_input_files: small files of a partition that are worth a rewrite.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: JavaObject,
        *,
        branch: str,
        target_bytes: int | None,
        min_input_files: int,
    ) -> None:
        self._gateway = gateway_of(spark.sparkContext)
        jvm, in_java = self._gateway.jvm, java_session(spark)
        # the threads of a rewrite inherit it; a thread without one has none of Spark's settings
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(in_java)
        self._jvm = jvm.org.apache.iceberg
        self._actions = self._jvm.spark.actions.SparkActions.get(in_java)
        self._table: Any = table
        self._branch = branch
        self._target_bytes = target_bytes
        self._min_input_files = max(2, min(MIN_INPUT_FILES, min_input_files))
        self._cores = spark.sparkContext.defaultParallelism

    @contextlib.contextmanager
    def history_kept(
        self, connector: str, now_ms: int, *, is_whole: bool = False
    ) -> Iterator[None]:
        """Keep the snapshot that is read, and all later ones, until the block ends.

        Tags that earlier runs for the connector left are removed.

        Args:
            connector: its name.
            now_ms: wall clock.
            is_whole: keep all snapshots of the branch.

        Raises:
            Py4JJavaError: the tag cannot be set.
        """
        snapshot = self._snapshot()
        if snapshot is None:
            yield
            return
        name = tag_name(connector, now_ms)

        def create() -> None:
            self._set_retries()
            kept = self._snapshot().snapshotId()
            if is_whole:
                kept = self._jvm.util.SnapshotUtil.oldestAncestorOf(self._table, kept).snapshotId()
            change = self._table.manageSnapshots().createTag(name, kept)
            for left in self._tags_of(connector):
                change.removeTag(left)
            change.commit()

        self._change_refs(create)
        try:
            yield
        finally:
            try:
                self._change_refs(lambda: self._table.manageSnapshots().removeTag(name).commit())
            except Py4JError as error:  # the next run removes it
                log.warning("tag of the maintenance left in the table", tag=name, error=str(error))

    def _set_retries(self) -> None:
        """Have commits repeated more often, unless the table's properties say how often."""
        properties = self._table.properties()
        if any(properties.containsKey(key) for key in RETRIES):
            return
        change = self._table.updateProperties()
        for key, value in RETRIES.items():
            change.set(key, value)
        change.commit()

    def _change_refs(self, change: Callable[[], None]) -> None:
        """Make and commit a change; again if another commit came between the two.

        Iceberg does not repeat such a change by itself.
        """
        for attempt in range(1, REF_ATTEMPTS_MAX + 1):
            self._table.refresh()
            try:
                change()
            except Py4JJavaError as error:
                is_conflict = "CommitFailedException" in str(error.java_exception.toString())
                if not is_conflict or attempt == REF_ATTEMPTS_MAX:
                    raise
            else:
                self._table.refresh()
                return

    def apply_delete_files(self, bytes_max: int) -> WorkResult:
        """Rewrite data files without the rows that delete files remove; then remove these.

        Small files next to them are compacted as well.
        """
        before = _total(self._summary(), "total-delete-files")
        done = self._rewrite(bytes_max, {"delete-file-threshold": "1"})
        self.remove_deletes(self.unneeded_deletes())
        removed = max(0, before - _total(self._summary(), "total-delete-files"))
        return replace(done, removed_delete_files=removed)

    def unneeded_deletes(self) -> UnneededDeletes | None:
        """Return the delete files that apply to no data file; None if there are none."""
        snapshot = self._snapshot()
        if snapshot is None or not _total(self._summary(), "total-delete-files"):
            return None
        needed: set[str] = set()
        scan = self._table.newScan().useSnapshot(snapshot.snapshotId())
        tasks = scan.planFiles()
        try:
            for task in _each(tasks):
                needed.update(file.location() for file in task.deletes())
        finally:
            tasks.close()
        unneeded = []
        io, specs = self._table.io(), self._table.specs()
        for manifest in snapshot.deleteManifests(io):
            reader = self._jvm.ManifestFiles.readDeleteManifest(manifest, io, specs)
            try:
                unneeded += [f.copy() for f in _each(reader) if f.location() not in needed]
            finally:
                reader.close()
        return UnneededDeletes(snapshot.snapshotId(), unneeded) if unneeded else None

    def remove_deletes(self, unneeded: UnneededDeletes | None) -> None:
        """Remove delete files from the table, unless what they were found in has left the branch.

        Raises:
            Py4JJavaError: ``ValidationException``; nothing was changed.
        """
        if unneeded is None:
            return
        ensure_callback_server_started(self._gateway)
        rewrite = self._table.newRewrite().validateWith(_ReadSnapshot(unneeded.snapshot_id))
        for file in unneeded.files:
            rewrite.deleteFile(file)
        rewrite.set(SUMMARY_PROPERTY, "delete-files").toBranch(self._branch).commit()
        self._table.refresh()

    def compact(self, bytes_max: int) -> WorkResult:
        """Rewrite small data files into larger ones."""
        return self._rewrite(bytes_max, {})

    def rewrite_manifests(self) -> WorkResult:
        """Rewrite manifests so that each has the entries of few partitions; on main only."""
        if self._branch != MAIN_BRANCH:
            return WorkResult()
        done = (
            self._actions.rewriteManifests(self._table)
            .snapshotProperty(SUMMARY_PROPERTY, "manifests")
            .execute()
        )
        return WorkResult(rewritten_manifests=sum(1 for _ in _each(done.rewrittenManifests())))

    def remove_orphan_files(self, older_than_ms: int) -> WorkResult:
        """Delete files below the table's location that no snapshot lists.

        Args:
            older_than_ms: files that were changed at that time (epoch) or later stay.
        """
        done = (
            self._actions.deleteOrphanFiles(self._table)
            .olderThan(older_than_ms)
            .usePrefixListing(_BY_PREFIX)
            .execute()
        )
        return WorkResult(orphan_files=int(done.orphanFilesCount()))

    def _rewrite(self, bytes_max: int, more: Mapping[str, str]) -> WorkResult:
        snapshot, summary = self._snapshot(), self._summary()
        files = _total(summary, "total-data-files")
        if snapshot is None or not files:
            return WorkResult()
        read = snapshot.snapshotId()
        size = max(1, _total(summary, "total-files-size") // files)
        options = {
            "use-starting-sequence-number": "true",
            "partial-progress.enabled": "true",
            "partial-progress.max-commits": str(MAX_COMMITS),
            "partial-progress.max-failed-commits": "0",  # reported by an error, which has no result
            "max-concurrent-file-group-rewrites": str(self._cores),
            "max-file-group-size-bytes": str(max(GROUP_BYTES, self._target_bytes or 0)),
            "min-input-files": str(self._min_input_files),
            LIMIT: str(max(self._min_input_files, bytes_max // size)),
            **more,
        }
        if self._target_bytes is not None:
            options["target-file-size-bytes"] = str(self._target_bytes)
        plans = RewritePlans(self._gateway, self._table, read, options)
        chosen = plans.filter()
        action = self._actions.rewriteDataFiles(self._table).toBranch(self._branch).filter(chosen)
        for name, value in options.items():
            action = action.option(name, value)
        work = "delete-files" if "delete-file-threshold" in more else "small-files"
        try:
            action = action.snapshotProperty(READ_PROPERTY, str(read))
            done = action.snapshotProperty(SUMMARY_PROPERTY, work).execute()
        except Py4JJavaError as error:
            if _LOST not in str(error.java_exception.getMessage()):
                raise
            self._table.refresh()
            done, commits = self._rewritten_since(read, work)
            return replace(done, lost_commits=max(0, plans.commits(chosen) - commits))
        self._table.refresh()
        return WorkResult(
            int(done.rewrittenDataFilesCount()),
            int(done.rewrittenBytesCount()),
            int(done.addedDataFilesCount()),
            failed_files=int(done.failedDataFilesCount()),
        )

    def _rewritten_since(self, snapshot_id: int, work: str) -> tuple[WorkResult, int]:
        """Return what the branch has of this process after a snapshot, and in how many commits."""
        files = size = added = commits = 0
        snapshot = self._snapshot()
        while snapshot is not None and snapshot.snapshotId() != snapshot_id:
            summary = dict(snapshot.summary())
            if summary.get(SUMMARY_PROPERTY) == work:
                commits += 1
                files += _total(summary, "deleted-data-files")
                size += _total(summary, "removed-files-size")
                added += _total(summary, "added-data-files")
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._table.snapshot(parent)
        return WorkResult(files, size, added), commits

    def _tags_of(self, connector: str) -> list[str]:
        names = [str(name) for name in _each(self._table.refs().keySet())]
        return [name for name in names if is_tag_of(name, connector)]

    def _snapshot(self) -> Any:
        return self._table.snapshot(self._branch)

    def _summary(self) -> Mapping[str, str]:
        snapshot = self._snapshot()
        return {} if snapshot is None else dict(snapshot.summary())


def _each(iterable: Any) -> Iterator[Any]:
    """Yield the elements of a Java ``Iterable``."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _total(summary: Mapping[str, str], name: str) -> int:
    text = summary.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else 0

"""Commits one snapshot to a table: attempt, read the table, attempt again.

Rules of this file:
- The snapshot id is the same in every attempt, so any attempt that the catalog applied is found.
- After any error the table is read and searched for the id. A client may have sent a refused
  request twice, and the catalog may have applied a request without an answer.
- Manifest lists and merged manifests of attempts that certainly failed are deleted; files of other
  attempts are not. Manifests of the new files are kept for the next attempt, of any round.
- While the table is unchanged, the same attempt is sent again and no file is written.
- If the catalog throttles (429), the request is repeated after the time that the answer names,
  within a bound.
- If the catalog calls a change invalid and the table has changed meanwhile, that is a conflict.
  Servers of Iceberg 1.10 and older answer so (400) when another branch got a snapshot.
- The answer to a request for several tables does not decide about one table: the table is read,
  and committed alone if it lacks the snapshot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import structlog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from connect import failpoints
from connect.clock import Clock
from connect.errors import (
    CommitConflict,
    CommitError,
    CommitRefused,
    CommitStateUnknown,
    IcefloeError,
    RetriableError,
)
from connect.gateways.catalog.catalog import CatalogGateway, TableChange
from connect.gateways.catalog.catalog_errors import INVALID, THROTTLED
from connect.gateways.storage.object_store import delete_files, storage_errors
from coordinator.commit.commit_retries import (
    ATTEMPTS_MAX,
    READ_MS_MIN,
    ThrottleBackoff,
    WaitingClock,
    pause_before,
    read_after,
)
from coordinator.commit.iceberg.floor import FloorKeys, TableState
from coordinator.commit.iceberg.snapshots import SnapshotContent, StagedUpdate, stage
from coordinator.commit.iceberg.table_expiry import TableExpiry
from coordinator.commit.metadata.pending_files import PendingFiles
from coordinator.commit.metadata.prepared_manifests import AttemptId, PreparedManifests
from coordinator.commit.metadata.row_lineage import listed_manifests
from coordinator.commit.row_changes.row_removal import RowRemoval
from coordinator.commit.rules.announced_files import verify_present

log = structlog.get_logger("coordinator")

Manifests = tuple[int, tuple[ManifestFile, ...]]


class FloorMoved(RetriableError):  # noqa: N818 - the field's term
    """Floor, VTTS or files of the table changed meanwhile: load it and choose the files again."""

    default_code = "floor_moved"


@dataclass(frozen=True, slots=True)
class CommittedTable:
    """The table that holds the snapshot, and the manifests of its head where they are known."""

    table: Table
    manifests: Manifests | None


@dataclass(slots=True)
class StagedSnapshot:
    """The metadata files of one snapshot, and what is known of the attempts that list them.

    Attributes:
        clock: gives the time of the snapshot.
        keys: branch and tag.
        content: what is added.
        known_manifests: of the head after the last commit.
        new_manifests: of the files that are added.
        expiry: removes old snapshots with the commit; None removes none.
        removal: of rows, other than by equality delete files; None for no such one.
        is_in_doubt: an attempt with these files may have been applied.
    """

    clock: Clock
    keys: FloorKeys
    content: SnapshotContent
    known_manifests: Manifests | None
    new_manifests: PreparedManifests
    expiry: TableExpiry | None = None
    removal: RowRemoval | None = None
    is_in_doubt: bool = False
    _staged: StagedUpdate | None = None
    _staged_for: str = ""
    _attempt_files: list[str] = field(default_factory=list)
    _failed_files: list[str] = field(default_factory=list)

    def on(self, table: Table, state: TableState, attempt: int) -> StagedUpdate:
        """Return the snapshot on this table; written again if the table has changed.

        Raises:
            RetriableError: ``storage_unavailable``, ``clock_off``.
        """
        if self._staged is not None:
            if table.metadata_location == self._staged_for:
                return self._staged
            if not self.is_in_doubt:
                self._failed_files += self._attempt_files
        self._staged, self.is_in_doubt = None, False
        self._attempt_files = []
        try:
            staged = self._made(table, state, attempt)
        except BaseException:
            self.new_manifests.drop_unwritten()
            raise
        self.new_manifests.confirm()
        failpoints.hit("C9")
        self._staged, self._staged_for = staged, table.metadata_location
        return staged

    def _made(self, table: Table, state: TableState, attempt: int) -> StagedUpdate:
        """Make the files of an attempt, and write them."""
        content, files = self.content, PendingFiles(table.io)
        numbered = AttemptId(content.snapshot_id, content.commit_uuid, attempt)
        existing = self._existing(table, state)
        removed = None
        if self.removal is not None:
            removed = self.removal.on(table, existing, numbered, files, self._attempt_files)
            content = replace(content, summary={**content.summary, **self.removal.summary})
        if removed is None:
            verify_present(table.io, content.selection.unverified)
            added = self.new_manifests.add(table, content.selection, numbered, files)
        else:
            added, existing = removed.added, removed.existing
        now_ms = self.clock.now_ms()
        expired = self.expiry.due(table, self.keys, now_ms) if self.expiry else ()
        with storage_errors("writing metadata of a snapshot"):
            staged = stage(
                table,
                state,
                self.keys,
                content,
                added=added,
                existing=existing,
                files=files,
                written=self._attempt_files,
                attempt=attempt,
                now_ms=now_ms,
                expired=expired,
                removed=removed,
            )
        files.write()
        return staged

    def is_in(self, table: Table) -> bool:
        """Whether the table holds the snapshot."""
        snapshot_id = self.content.snapshot_id
        return any(s.snapshot_id == snapshot_id for s in table.metadata.snapshots)

    def delete_all(self, table: Table) -> None:
        """Delete every file: no attempt was applied."""
        delete_files(table.io, [*self._failed_files, *self._attempt_files])
        if self.removal is not None:
            self.removal.delete_all(table)

    def delete_failed(self, table: Table) -> None:
        """Delete the files of attempts that certainly failed."""
        delete_files(table.io, self._failed_files)

    def _existing(self, table: Table, state: TableState) -> tuple[ManifestFile, ...]:
        if state.head is None:
            return ()
        cached = self.known_manifests
        if cached is not None and cached[0] == state.head.snapshot_id:
            return cached[1]
        return listed_manifests(table, state.head)


@dataclass(slots=True)
class CommitAttempts:
    """The attempts to commit one snapshot to one table.

    Attributes:
        catalog: where the table is.
        identifier: of the table.
        clock: time and waiting.
        snapshot: what is committed.
        check: reads a reloaded table's state; raises when the commit must stop.
        reads_answer: whether the answer to the commit is parsed: where it decides what is deleted.
        is_uncertain: an attempt was made that may still be applied.
        is_reloaded: the table was read again; others may have committed to it.
    """

    catalog: CatalogGateway
    identifier: tuple[str, ...]
    clock: WaitingClock
    snapshot: StagedSnapshot
    check: Callable[[Table], TableState]
    reads_answer: bool = True
    is_uncertain: bool = False
    is_reloaded: bool = False
    _prepared: StagedUpdate | None = None

    def prepare(self, table: Table, state: TableState) -> TableChange:
        """Stage the first attempt, for a request with other tables; then call ``settle``.

        Without other tables, ``commit`` sends it.

        Raises:
            RetriableError: ``storage_unavailable``, ``clock_off``.
        """
        with self._clearing(table):
            staged = self._prepared = self.snapshot.on(table, state, 0)
        self.snapshot.new_manifests.is_sent = True
        return TableChange(table, staged.requirements, staged.updates)

    def settle(self, answer: CommitError | RetriableError | None, table: Table) -> CommittedTable:
        """After ``prepare`` and one request for several tables: read the table, then commit alone.

        Args:
            answer: what the catalog answered to all; None is success.
            table: as it was prepared.

        Raises:
            CommitError, RetriableError: as ``commit``.
        """
        staged, self._prepared = self._prepared, None
        assert staged is not None
        error: CommitError | RetriableError
        match answer:
            case None:
                error = CommitStateUnknown("the catalog answered that it committed all tables")
            case CommitRefused() if answer.code != THROTTLED:  # perhaps because of another table
                error = CommitConflict(str(answer))
            case _:
                error = answer
        with self._clearing(table):
            table = self._after(error)
            if self.snapshot.is_in(table):
                snapshot_id = self.snapshot.content.snapshot_id
                done = CommittedTable(table, (snapshot_id, staged.manifests))
            elif error.code == THROTTLED:  # a request for each table would be even more
                raise error
            else:
                log.info("table is committed separately", table=self.identifier, code=error.code)
                done = self._attempt(table, self.check(table), first=1)
        return self._noted(done)

    def commit(self, table: Table, state: TableState) -> CommittedTable:
        """Attempt until the snapshot is in the table or certainly cannot be.

        Raises:
            CommitConflict: other writers were faster every time.
            CommitStateUnknown: the table could not be read after an unanswered attempt.
            CommitRefused: the catalog refuses the commit.
            RetriableError: ``storage_unavailable``, ``clock_off``; ``FloorMoved``: load it again.
        """
        with self._clearing(table):
            done = self._attempt(table, state)
        return self._noted(done)

    @contextlib.contextmanager
    def _clearing(self, table: Table) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if not self.is_uncertain:
                self.snapshot.delete_all(table)
            raise

    def _noted(self, done: CommittedTable) -> CommittedTable:
        was_uncertain, self.is_uncertain = self.is_uncertain, True  # until the caller knows
        failpoints.hit("C12")
        if not was_uncertain:
            # a snapshot found by its id may be that of any attempt, but of no failed one
            self.snapshot.delete_failed(done.table)
        manifests = None if was_uncertain or done.manifests is None else done.manifests[1]
        self.snapshot.new_manifests.landed(manifests)
        if self.snapshot.removal is not None:
            snapshot_id = self.snapshot.content.snapshot_id
            self.snapshot.removal.landed(done.table, snapshot_id, is_last=not was_uncertain)
        return done

    def _attempt(self, table: Table, state: TableState, first: int = 0) -> CommittedTable:
        throttle = ThrottleBackoff(self.clock)
        for attempt in range(first, ATTEMPTS_MAX):
            staged = self._prepared or self.snapshot.on(table, state, attempt)
            self._prepared = None
            was_uncertain, self.is_uncertain = self.is_uncertain, True  # until it is answered
            self.snapshot.new_manifests.is_sent = True
            try:
                failpoints.hit_in_flight("C10")
                after = self.catalog.commit(
                    table, staged.requirements, staged.updates, reads_answer=self.reads_answer
                )
                failpoints.hit("C11")
            except (CommitError, RetriableError) as error:
                self.is_uncertain = was_uncertain
                before = table.metadata_location
                table = self._after(error)
                if self.snapshot.is_in(table):
                    return CommittedTable(table, None)
                has_waited = throttle.wait(error)
                has_moved = before != table.metadata_location
                is_stale = has_moved and error.code == INVALID
                if isinstance(error, CommitRefused) and not (has_waited or is_stale):
                    raise
                log.info("commit repeated", attempt=attempt, code=error.code, error=str(error))
                if not has_waited:
                    pause_before(self.clock, attempt)
                state = self.check(table)
            else:
                self.is_uncertain = was_uncertain
                snapshot_id = self.snapshot.content.snapshot_id
                return CommittedTable(after, (snapshot_id, staged.manifests))
        raise CommitConflict(f"other writers committed first, {ATTEMPTS_MAX} times in a row")

    def _after(self, error: IcefloeError) -> Table:
        """Read the table after a failed attempt, and note whether its files may be in use."""
        is_certain = isinstance(error, CommitConflict | CommitRefused)
        was_uncertain, self.is_uncertain = self.is_uncertain, True
        self.is_reloaded = True
        timeout_ms = READ_MS_MIN + self.catalog.request_timeout_ms
        try:
            table = read_after(
                error, lambda: self.catalog.load(self.identifier), self.clock, timeout_ms
            )
        except CommitRefused as refused:
            raise (error if isinstance(error, CommitRefused) else refused) from error
        if is_certain and not self.snapshot.is_in(table):
            self.is_uncertain = self.snapshot.new_manifests.is_sent = was_uncertain
        else:
            self.snapshot.is_in_doubt = True
        return table

"""Brings one snapshot into a table: attempt, look, attempt again.

Rules of this file:
- The snapshot id is the same in every attempt, so that whichever lands can be recognised.
- After any error the table is read and the id looked for; a refused request may have been sent
  twice, an unanswered one may have been applied.
- Of attempts that certainly failed the lists and merged manifests are deleted; of others nothing
  is. Manifests of the new files are kept for the next attempt, also that of another round.
- While the table is the same, the same attempt is sent again: nothing is written for it.
- A catalog that asks for patience (429) is waited for, as long as it says, within a bound.
- An attempt that is sent together with other tables' says nothing of this table by its answer:
  the table is read, and what it lacks is attempted alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

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
from connect.gateways.catalog.catalog_errors import THROTTLED
from connect.gateways.storage.object_store import delete_files, storage_errors, verify_written
from coordinator.commit.floor import FloorKeys, TableState
from coordinator.commit.prepared_manifests import Attempt, PreparedManifests
from coordinator.commit.snapshots import Content, Staged, stage

ATTEMPTS_MAX = 10
LOOK_MS_MIN = 10_000
PAUSE_MIN_MS = 20
PAUSE_MAX_MS = 2_000
PATIENCE_MS_MAX = 30_000
PATIENCE_PAUSE_MS = 500

log = structlog.get_logger("coordinator")

Manifests = tuple[int, tuple[ManifestFile, ...]]


class WaitingClock(Clock, Protocol):
    """A clock that can also wait."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Block the calling thread."""
        ...


@dataclass(slots=True)
class Patience:
    """The waits of one commit for a catalog that is throttling; all of them are bounded.

    Args:
        clock: waits.
    """

    clock: WaitingClock
    _left_ms: int = PATIENCE_MS_MAX
    _pause_ms: int = PATIENCE_PAUSE_MS

    def wait(self, error: IcefloeError) -> bool:
        """Wait as the answer asks; False, at once, where it does not ask or asks for too much."""
        if error.code != THROTTLED:
            return False
        # many commits were refused together and should not come back together
        pause_ms = self._pause_ms // 2 + self.clock.new_snapshot_id() % self._pause_ms
        pause_ms += 1_000 * error.coordinates.get("retry_after_s", 0)
        if pause_ms > self._left_ms:
            return False
        self._left_ms -= pause_ms
        self._pause_ms *= 2
        self.clock.sleep_ms(pause_ms)
        return True


@dataclass(frozen=True, slots=True)
class Landed:
    """The table that holds the snapshot, and the manifests of its head where they are known."""

    table: Table
    manifests: Manifests | None


@dataclass(slots=True)
class Landing:
    """One snapshot on its way into one table.

    Attributes:
        catalog: where the table is.
        identifier: of the table.
        clock: time and waiting.
        keys: branch and tag.
        content: what is added.
        check: reads a reloaded table's state; raises when the commit must not go on.
        manifests: manifests known from the last commit.
        new_manifests: of the files that are added.
        is_uncertain: an attempt was made that may still land.
    """

    catalog: CatalogGateway
    identifier: tuple[str, ...]
    clock: WaitingClock
    keys: FloorKeys
    content: Content
    check: Callable[[Table], TableState]
    manifests: Manifests | None = None
    new_manifests: PreparedManifests = field(default_factory=PreparedManifests)
    is_uncertain: bool = False
    _staged: Staged | None = None
    _staged_for: str = ""
    _is_staged_in_doubt: bool = False
    _attempt_files: list[str] = field(default_factory=list)
    _failed_files: list[str] = field(default_factory=list)
    _prepared: Staged | None = None

    def prepare(self, table: Table, state: TableState) -> TableChange:
        """Stage the first attempt, for the caller to send with others'; then ``settle``.

        ``land`` sends it too, should there be no others.

        Raises:
            RetriableError: ``storage_unavailable``, ``clock_off``.
        """
        with self._clearing(table):
            staged = self._prepared = self._stage(table, state, 0)
        self.new_manifests.is_sent = True
        return TableChange(table, staged.requirements, staged.updates)

    def settle(self, answer: CommitError | RetriableError | None, table: Table) -> Landed:
        """After ``prepare`` and one request for several tables: find out, go on alone if need be.

        Args:
            answer: what the catalog answered to all; None is success.
            table: as it was prepared.

        Raises:
            CommitError, RetriableError: as ``land``.
        """
        staged, self._prepared = self._prepared, None
        assert staged is not None
        error: CommitError | RetriableError
        match answer:
            case None:
                error = CommitStateUnknown("the catalog says that it committed all tables")
            case CommitRefused() if answer.code != THROTTLED:  # perhaps because of another table
                error = CommitConflict(str(answer))
            case _:
                error = answer
        with self._clearing(table):
            table = self._after(error)
            if self._is_in(table):
                landed = Landed(table, (self.content.snapshot_id, staged.manifests))
            elif error.code == THROTTLED:  # one request was too much: as many as tables are more
                raise error
            else:
                log.info("commit repeated alone", table=self.identifier, code=error.code)
                landed = self._land(table, self.check(table), first=1)
        return self._noted(landed)

    def land(self, table: Table, state: TableState) -> Landed:
        """Attempt until the snapshot is in the table or certainly cannot be.

        Raises:
            CommitConflict: others were faster every time.
            CommitStateUnknown: the table could not be read after an unanswered attempt.
            CommitRefused: the catalog will not have it.
            RetriableError: ``storage_unavailable``, ``clock_off``.
        """
        with self._clearing(table):
            landed = self._land(table, state)
        return self._noted(landed)

    @contextlib.contextmanager
    def _clearing(self, table: Table) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if not self.is_uncertain:
                delete_files(table.io, [*self._failed_files, *self._attempt_files])
            raise

    def _noted(self, landed: Landed) -> Landed:
        was_uncertain, self.is_uncertain = self.is_uncertain, True  # until the caller knows
        failpoints.hit("C12")
        if not was_uncertain:
            # a snapshot found by its id may be that of any attempt, but of no failed one
            delete_files(landed.table.io, self._failed_files)
        known = None if was_uncertain or landed.manifests is None else landed.manifests[1]
        self.new_manifests.landed(known)
        return landed

    def _land(self, table: Table, state: TableState, first: int = 0) -> Landed:
        patience = Patience(self.clock)
        for attempt in range(first, ATTEMPTS_MAX):
            staged = self._prepared or self._stage(table, state, attempt)
            self._prepared = None
            was_uncertain, self.is_uncertain = self.is_uncertain, True  # until it is answered
            self.new_manifests.is_sent = True
            try:
                failpoints.hit_in_flight("C10")
                after = self.catalog.commit(table, staged.requirements, staged.updates)
                failpoints.hit("C11")
            except (CommitError, RetriableError) as error:
                self.is_uncertain = was_uncertain
                table = self._after(error)
                if self._is_in(table):
                    return Landed(table, None)
                has_waited = patience.wait(error)
                if isinstance(error, CommitRefused) and not has_waited:
                    raise
                log.info("commit repeated", attempt=attempt, code=error.code, error=str(error))
                if not has_waited:
                    self._pause(attempt)
                state = self.check(table)
            else:
                self.is_uncertain = was_uncertain
                return Landed(after, (self.content.snapshot_id, staged.manifests))
        raise CommitConflict(f"others committed first, {ATTEMPTS_MAX} times in a row")

    def _stage(self, table: Table, state: TableState, attempt: int) -> Staged:
        if self._staged is not None:
            if table.metadata_location == self._staged_for:
                return self._staged
            if not self._is_staged_in_doubt:
                self._failed_files += self._attempt_files
        self._staged, self._is_staged_in_doubt = None, False
        self._attempt_files = []
        content = self.content
        numbered = Attempt(content.snapshot_id, content.commit_uuid, attempt)
        added = self.new_manifests.add(table, content.selection, numbered)
        with storage_errors("writing metadata of a snapshot"):
            staged = stage(
                table,
                state,
                self.keys,
                content,
                added=added,
                existing=self._existing(table, state),
                written=self._attempt_files,
                attempt=attempt,
                now_ms=self.clock.now_ms(),
            )
        lengths = {m.manifest_path: m.manifest_length for m in staged.manifests}
        verify_written(table.io, {path: lengths.get(path) for path in self._attempt_files})
        self._staged, self._staged_for = staged, table.metadata_location
        return staged

    def _existing(self, table: Table, state: TableState) -> tuple[ManifestFile, ...]:
        if state.head is None:
            return ()
        if self.manifests is not None and self.manifests[0] == state.head.snapshot_id:
            return self.manifests[1]
        return tuple(state.head.manifests(table.io))

    def _after(self, error: IcefloeError) -> Table:
        """The table after a failed attempt, and what the failure means for the files of it."""
        is_certain = isinstance(error, CommitConflict | CommitRefused)
        was_uncertain, self.is_uncertain = self.is_uncertain, True
        deadline_ms = self.clock.monotonic_ms() + LOOK_MS_MIN + self.catalog.request_timeout_ms
        pause_ms = PAUSE_MIN_MS
        while True:
            try:
                table = self.catalog.load(self.identifier)
                break
            except RetriableError as unanswered:
                if self.clock.monotonic_ms() >= deadline_ms:
                    raise CommitStateUnknown(
                        f"the table did not answer after a commit: {unanswered}"
                    ) from error
            except CommitRefused as refused:
                raise (error if isinstance(error, CommitRefused) else refused) from error
            self.clock.sleep_ms(pause_ms)
            pause_ms = min(pause_ms * 2, PAUSE_MAX_MS)
        if is_certain and not self._is_in(table):
            self.is_uncertain = self.new_manifests.is_sent = was_uncertain
        else:
            self._is_staged_in_doubt = True
        return table

    def _is_in(self, table: Table) -> bool:
        wanted = self.content.snapshot_id
        return any(s.snapshot_id == wanted for s in table.metadata.snapshots)

    def _pause(self, attempt: int) -> None:
        longest_ms = min(PAUSE_MIN_MS * 2**attempt, PAUSE_MAX_MS)
        # Two committers that met once should not meet again: any random number will do.
        self.clock.sleep_ms(self.clock.new_snapshot_id() % longest_ms + 1)

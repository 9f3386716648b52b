"""What a coordinator knows of one table between rounds, and its loads of the table.

Rules of this file:
- The floor decides which announcements are new. If the floor has changed and this coordinator did
  not change it, another coordinator has committed.
- While the head is our last commit, the table is loaded without its history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connect.errors import CommitRefused, Fenced
from connect.gateways.catalog.catalog import CatalogGateway
from connect.protocol.control_offsets import covers, merged, offsets_text
from coordinator.commit.iceberg.commit_attempt import FloorMoved, Manifests
from coordinator.commit.iceberg.floor import FloorKeys, TableState
from coordinator.commit.metadata.prepared_manifests import PreparedManifests
from coordinator.commit.rules.file_selection import Selection
from coordinator.commit.rules.held_files import HeldFiles
from coordinator.kernel.announcements import Identifier
from coordinator.kernel.effects import TableCommit


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table that a commit begins with.

    Attributes:
        table: as it was loaded.
        has_history: whether it was loaded with its history.
    """

    table: Table
    has_history: bool


@dataclass(slots=True)
class TableMemory:
    """What is known of a table between rounds; used under its lock.

    Attributes:
        table_uuid: of the table that all this is about.
        floor: what the table held after our last read or commit; None before the first.
        pending: snapshot id -> control offsets of attempts with an unknown outcome.
        pending_copied: snapshot id -> announced files that such an attempt has copies of.
        head_id: snapshot of our last commit; None where others may have committed before it, after
            the history was read.
        is_alone: no other writer committed between the last two loads.
        valid_through_texts: the last VTTS of the connector, as of that commit.
        manifests: of the head after our last commit.
        held_files: which announced files the table already holds.
        new_manifests: of announced files that no snapshot lists yet.
        removal_pauses: of ``RowRemoval``.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    table_uuid: UUID | None = None
    floor: dict[int, int] | None = None
    pending: dict[int, Mapping[int, int]] = field(default_factory=dict)
    pending_copied: dict[int, Collection[str]] = field(default_factory=dict)
    head_id: int | None = None
    is_alone: bool = False
    valid_through_texts: tuple[str, ...] = ()
    manifests: Manifests | None = None
    held_files: HeldFiles = field(default_factory=HeldFiles)
    new_manifests: PreparedManifests = field(default_factory=PreparedManifests)
    removal_pauses: dict[str, int] = field(default_factory=dict)

    def begin(self, table: Table, state: TableState) -> None:
        """Forget what is known of another table, and start with this one."""
        self.table_uuid = table.metadata.table_uuid
        self.floor = dict(state.floor)
        self.forget_pending()
        self.head_id = self.manifests = None
        self.held_files = HeldFiles()
        self.new_manifests.discard()

    def note_pending(
        self, snapshot_id: int, offsets: Mapping[int, int], selection: Selection, now_ms: int
    ) -> None:
        """Remember an attempt with an unknown outcome."""
        self.pending[snapshot_id] = offsets
        self.pending_copied[snapshot_id] = tuple(selection.copies.values())
        self.held_files.own.since_ms = now_ms  # it may hold these files

    def forget_pending(self) -> None:
        """Forget these attempts: none of them can be applied any more."""
        self.pending.clear()
        self.pending_copied.clear()

    def load(
        self,
        catalog: CatalogGateway,
        identifier: Identifier,
        keys: FloorKeys,
        *,
        may_leave_out: bool,
        now_ms: int,
    ) -> LoadedTable:
        """Return the table as it is now."""
        if may_leave_out and self._needs_no_history(now_ms):
            table = catalog.load(identifier, with_history=False)
            if self._is_own(table, keys):
                return LoadedTable(table, has_history=False)
        table = catalog.load(identifier)
        self.is_alone = self.head_id is not None and self._is_newest(table, keys)
        return LoadedTable(table, has_history=True)

    def _needs_no_history(self, now_ms: int) -> bool:
        return self.is_alone and not self.pending and self.held_files.reaches_back(now_ms)

    def _is_own(self, table: Table, keys: FloorKeys) -> bool:
        """Whether it is the same table, and no other client has committed to its branch."""
        return table.metadata.table_uuid == self.table_uuid and self._is_newest(table, keys)

    def _is_newest(self, table: Table, keys: FloorKeys) -> bool:
        """Whether our last commit is the head of the branch and the connector's tag."""
        refs = table.metadata.refs
        heads = {ref.snapshot_id for ref in map(refs.get, (keys.branch, keys.tag)) if ref}
        return keys.branch in refs and keys.tag in refs and heads == {self.head_id}

    def check(self, table: Table, state: TableState, commit: TableCommit) -> None:
        """Compare the table with what this coordinator committed to it.

        Raises:
            Fenced: another coordinator committed to the table.
            CommitRefused: ``table_rolled_back``.
        """
        assert self.floor is not None
        for snapshot in table.metadata.snapshots if self.pending else ():
            offsets = self.pending.pop(snapshot.snapshot_id, None)
            self.floor = merged(self.floor, offsets or {})
            copied = self.pending_copied.pop(snapshot.snapshot_id, ())
            self.held_files.own.add(copied, snapshot.timestamp_ms)
        if not covers(self.floor, state.floor):
            raise Fenced(
                f"the table's control offsets are {offsets_text(state.floor)}; this coordinator "
                f"knows {offsets_text(self.floor)}: another one is active",
                table=str(commit.table),
                commit_id=str(commit.commit_id),
            )
        if not covers(state.floor, self.floor):
            raise CommitRefused(
                f"the table's control offsets are {offsets_text(state.floor)}, but "
                f"{offsets_text(self.floor)} was committed: it was restored to an earlier state",
                code="table_rolled_back",
            )

    def without_held(
        self,
        table: Table,
        head: Snapshot | None,
        selection: Selection,
        now_ms: int,
        load: Callable[[], Table] | None,
    ) -> Selection:
        """Return a selection without files that the table holds, as ``HeldFiles.among``."""
        held = self.held_files.among(
            table, head, selection.paths, now_ms, known=self.manifests, load=load
        )
        left = selection.without(held)
        return replace(left, unverified=self.held_files.own.unverified(left.paths, now_ms))

    def refuse_held(
        self, table: Table, head: Snapshot | None, paths: Collection[str], now_ms: int
    ) -> None:
        """Search announced files again after a conflict: another connector may have added them.

        Raises:
            RetriableError: ``floor_moved``: the table holds some; ``storage_unavailable``.
        """
        if self.held_files.among(table, head, paths, now_ms):
            raise FloorMoved("another client committed announced files meanwhile")

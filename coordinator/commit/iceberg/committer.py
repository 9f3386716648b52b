"""Commits one table's share of a round: once, or not at all.

``commit`` does all steps. For a request that several tables share, ``multi_table_commit`` calls the
steps: ``begin`` for each table, the request, ``settle`` for each. The caller holds each ``lock``.

Rules of this file:
- The floor decides which announcements are new. If the floor has changed and this coordinator did
  not change it, another coordinator has committed.
- An attempt with an unknown outcome is remembered. If the next commit finds its snapshot in the
  table, it counts the attempt as its own.
- The table is loaded in every round. The answer of the last commit would be enough for the data.
  But a commit that moves a branch or a tag also writes its retention, and an old copy would undo a
  change that another client made meanwhile.
- While the head is our last commit, the table is loaded without its history. The answer to a commit
  is not parsed. Both grow with the number of snapshots (docs/decisions/0053, 0066).

Source:
    Iceberg Kafka Connect ``Coordinator.commitToTable``; differs by fencing on the branch, by
    reading the table after errors, and by never counting a missing table as committed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import structlog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connect import failpoints
from connect.config.connector import ConnectorConfig
from connect.config.table_formats import FORMAT_VERSIONS
from connect.errors import (
    CommitError,
    CommitRefused,
    RetriableError,
)
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.storage.object_store import delete_files
from connect.protocol.control_offsets import merged, offsets_text
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.iceberg.commit_attempt import (
    CommitAttempts,
    CommittedTable,
    FloorMoved,
    StagedSnapshot,
)
from coordinator.commit.iceberg.floor import (
    VALID_THROUGH_PROPERTY,
    FloorKeys,
    TableState,
    floor_keys,
    may_claim,
    table_state,
)
from coordinator.commit.iceberg.replaced_columns import replaced_columns, with_current_columns
from coordinator.commit.iceberg.snapshots import SnapshotContent, instant_text, instant_us
from coordinator.commit.iceberg.table_expiry import ExpiredFileCleaner
from coordinator.commit.iceberg.table_memory import LoadedTable, TableMemory
from coordinator.commit.row_changes.row_removal import RowRemoval
from coordinator.commit.rules.commit_rules import (
    announced_uuids,
    commit_summary,
    guarded,
    refuse_foreign_table,
)
from coordinator.commit.rules.file_selection import Selection, select
from coordinator.commit.rules.lost_records import lost_records
from coordinator.commit.rules.table_descriptions import TableDescriptions
from coordinator.commit.rules.unnamed_files import delete_unnamed
from coordinator.control_log_check import ControlLogCheck
from coordinator.kernel.effects import (
    CommitOutcome,
    TableCommit,
    TableCommitted,
)
from coordinator.maintenance.due_work import DueWork
from coordinator.row_deletes.limits import DEFAULT_LIMITS, RowLimits

_RESTARTS_MAX = 3
log = structlog.get_logger("coordinator")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadyCommit:
    """A table's commit that is ready to be attempted.

    Attributes:
        commit: what is announced.
        memory: of the table.
        table: as it was loaded.
        state: what it says.
        selection: what is new.
        offsets: control offsets that the commit stores.
        attempts: commit it.
        started_ms: monotonic.
    """

    commit: TableCommit
    memory: TableMemory
    table: Table
    state: TableState
    selection: Selection
    offsets: Mapping[int, int]
    attempts: CommitAttempts
    started_ms: int

    def delete_copies(self) -> None:
        """Delete the files that were written in place of announced ones: no attempt was applied."""
        delete_files(self.table.io, list(self.selection.copies))


class Committer:
    """Commits to the tables of one connector; any thread may commit any table.

    Args:
        catalog: where the tables are.
        config: the connector.
        clock: time, identities, waiting.
        control_topic_id: remembered in each table, so that a re-created control topic is noticed.
        control: the control topic; None without a broker.
        has_history: False when the connector's control group has no committed offsets yet.
        due: reports maintenance that is due after a commit; None reports none.
        descriptions: reports the tables that were committed to; None reports none.
        row_limits: of the removal of rows.
    """

    def __init__(
        self,
        catalog: CatalogGateway,
        config: ConnectorConfig,
        clock: WaitingClock,
        *,
        control_topic_id: str | None = None,
        control: ControlLogCheck | None = None,
        has_history: bool = True,
        due: DueWork | None = None,
        descriptions: TableDescriptions | None = None,
        row_limits: RowLimits = DEFAULT_LIMITS,
    ) -> None:
        self._catalog = catalog
        self._config = config
        self._due = due
        self._descriptions = descriptions
        self.clock = clock
        self._topic_id = control_topic_id
        self._control = control or ControlLogCheck(None, config.control_topic)
        self._has_history = has_history
        self._new_removal = partial(RowRemoval.of, config, clock, limits=row_limits)
        self._memories: defaultdict[tuple[str, ...], TableMemory] = defaultdict(TableMemory)
        self._lock = threading.Lock()
        self._cleaner = ExpiredFileCleaner(config)

    def commit(self, commit: TableCommit) -> CommitOutcome:
        """Bring everything announced for a table into it.

        Returns:
            TableCommitted with the snapshot id, or without one when nothing was left to add;
            TableFailed when the announcements must be kept; CoordinatorFenced when another
            coordinator committed meanwhile.
        """
        with self.lock(commit):
            return guarded(commit, lambda: self._commit(commit))

    def lock(self, commit: TableCommit) -> threading.Lock:
        """Return the lock of the table; every commit of it holds the lock."""
        return self._memory(commit).lock

    def close(self) -> None:
        """Delete the manifests of announced files that no snapshot can list.

        No commit may be under way. The next session writes them again. A store that does not
        delete is not asked for the rest: the session's end must not wait for it.
        """
        self._cleaner.close()
        for memory in self._memories.values():
            if not memory.new_manifests.discard():
                break

    def _commit(self, commit: TableCommit) -> CommitOutcome:
        for _ in range(_RESTARTS_MAX):
            with contextlib.suppress(FloorMoved):
                return self._commit_once(commit)
        return self._commit_once(commit)

    def _commit_once(self, commit: TableCommit) -> CommitOutcome:
        ready = self.begin(commit)
        if not isinstance(ready, ReadyCommit):
            return ready
        return self._end(ready, partial(ready.attempts.commit, ready.table, ready.state))

    def commit_alone(self, ready: ReadyCommit) -> CommitOutcome:
        """End a commit that was begun with a request for this table only; the lock must be held."""
        try:
            return self._end(ready, partial(ready.attempts.commit, ready.table, ready.state))
        except FloorMoved:
            return self._commit(ready.commit)

    def settle(
        self, ready: ReadyCommit, answer: CommitError | RetriableError | None
    ) -> CommitOutcome:
        """End a commit that was prepared and sent together with others; the lock must be held.

        Args:
            ready: the commit.
            answer: what the catalog said to all of them; None is success.
        """
        try:
            return self._end(ready, partial(ready.attempts.settle, answer, ready.table))
        except FloorMoved:
            return self._commit(ready.commit)

    def begin(self, commit: TableCommit) -> ReadyCommit | TableCommitted:
        """Load the table and choose what is new to it; the lock must be held.

        Returns:
            What is to be attempted; TableCommitted when nothing is left to add.

        Raises:
            CommitError, RetriableError, Fenced: the table cannot be committed to now.
        """
        memory = self._memory(commit)
        started_ms = self.clock.monotonic_ms()
        keys = floor_keys(self._config, str(commit.table), has_history=self._has_history)
        catalog, clock, key = self._catalog, self.clock, commit.table.identifier
        may_leave_out = not self._cleaner.is_enabled  # snapshots that expire are in the history
        loaded = memory.load(catalog, key, keys, may_leave_out=may_leave_out, now_ms=clock.now_ms())
        return self._ready(commit, memory, loaded, keys, started_ms)

    def _ready(
        self,
        commit: TableCommit,
        memory: TableMemory,
        loaded: LoadedTable,
        keys: FloorKeys,
        started_ms: int,
    ) -> ReadyCommit | TableCommitted:
        """Choose what is new to a table that was loaded."""
        table = loaded.table
        failpoints.hit("C7")
        state = self._checked(table, commit, keys, memory)
        if not loaded.has_history:
            texts = *state.valid_through_texts, *memory.valid_through_texts
            state = replace(state, valid_through_texts=texts)
        refuse_foreign_table(commit, state.floor, self._config)
        floor = merged(state.floor, memory.floor or {})
        selection = select(commit, floor, table.location(), table.properties)
        load = None if loaded.has_history else partial(self._catalog.load, table.name())
        now_ms = self.clock.now_ms()
        selection = memory.without_held(table, state.head, selection, now_ms, load)
        _log_repeated(commit, selection)
        replaced = replaced_columns(table)
        selection = with_current_columns(table, selection, self.clock)
        memory.new_manifests.keep(selection)
        if not selection.steps:
            return TableCommitted(commit.table, commit.commit_id, None)
        offsets = merged(floor, commit.control_offsets)

        def check(reloaded: Table) -> TableState:
            state_now = self._checked(reloaded, commit, keys, memory)
            now = merged(state_now.floor, memory.floor or {}), state_now.reset_offsets
            if now != (floor, state.reset_offsets):
                raise FloorMoved("an earlier attempt landed, or the VTTS was reset, meanwhile")
            held = selection.announced_paths
            memory.refuse_held(reloaded, state_now.head, held, self.clock.now_ms())
            if replaced_columns(reloaded) != replaced:
                raise FloorMoved("another client replaced columns meanwhile")
            return state_now

        config, clock = self._config, self.clock
        content = _content(
            commit, state, selection, offsets, config=config, clock=clock, topic_id=self._topic_id
        )
        snapshot = StagedSnapshot(
            self.clock,
            keys,
            content,
            memory.manifests,
            memory.new_manifests,
            self._cleaner.expiry_of(table, memory.pending, selection.paths, clock.now_ms()),
            self._new_removal(str(commit.table), selection, memory.removal_pauses),
        )
        attempts = CommitAttempts(
            self._catalog,
            commit.table.identifier,
            self.clock,
            snapshot,
            check,
            reads_answer=self._cleaner.is_enabled or _deletes_metadata(table),
        )
        return ReadyCommit(commit, memory, table, state, selection, offsets, attempts, started_ms)

    def _end(self, ready: ReadyCommit, work: Callable[[], CommittedTable]) -> TableCommitted:
        commit, memory, attempts = ready.commit, ready.memory, ready.attempts
        name, snapshot_id = str(commit.table), attempts.snapshot.content.snapshot_id
        try:
            done = work()
        except BaseException:
            if attempts.is_uncertain:
                memory.note_pending(
                    snapshot_id, ready.offsets, ready.selection, self.clock.now_ms()
                )
            else:
                ready.delete_copies()
            raise
        memory.floor = dict(ready.offsets)
        memory.head_id = None if attempts.is_reloaded else snapshot_id
        claimed = attempts.snapshot.content.summary.get(VALID_THROUGH_PROPERTY)
        memory.valid_through_texts = (claimed,) if claimed else ready.state.valid_through_texts
        memory.manifests = done.manifests
        memory.forget_pending()
        selection = ready.selection
        held = {*selection.announced_paths, *selection.paths}
        memory.held_files.committed(held, snapshot_id, self.clock.now_ms())
        delete_unnamed(done.table.io, selection.copies.values(), selection.paths)
        if _deletes_metadata(done.table):
            old = _superseded_metadata(ready.table.metadata, done.table.metadata)
            delete_files(done.table.io, old)
        self._cleaner.add(ready.table.metadata, attempts.snapshot.expiry, done.table)
        if self._due is not None:
            count = None if done.manifests is None else len(done.manifests[1])
            self._due.committed(name, ready.selection.data_files, done.table.metadata, count)
        if self._descriptions is not None:
            self._descriptions.committed(name, done.table.location(), done.table.schema())
        return TableCommitted(
            commit.table,
            commit.commit_id,
            snapshot_id,
            ready.selection.files,
            ready.selection.records,
            self.clock.monotonic_ms() - ready.started_ms,
            ready.selection.size_bytes,
        )

    def _memory(self, commit: TableCommit) -> TableMemory:
        with self._lock:
            return self._memories[commit.table.identifier]

    def _checked(
        self, table: Table, commit: TableCommit, keys: FloorKeys, memory: TableMemory
    ) -> TableState:
        """The table's state, once it is sure that the table is ours to commit to."""
        _refuse_other_table(table, commit)
        state = table_state(table.metadata, keys)
        if self._control.is_of_former_topic(
            table.properties.get(self._config.topic_id_property), self._topic_id
        ):
            state = replace(state, floor={}, reset_offsets={})
        if memory.table_uuid != table.metadata.table_uuid:
            self._control.check_floor(state.floor)
            memory.begin(table, state)
        memory.check(table, state, commit)
        return state


def _content(
    commit: TableCommit,
    state: TableState,
    selection: Selection,
    offsets: Mapping[int, int],
    *,
    config: ConnectorConfig,
    clock: WaitingClock,
    topic_id: str | None,
) -> SnapshotContent:
    summary = lost_records(commit.announcements, state.floor) | commit_summary(commit)
    summary[config.offsets_property] = offsets_text(offsets)
    properties = {config.offsets_mirror_property: offsets_text(offsets)}
    if (claimed_us := _claimed_us(state, commit)) is not None:
        summary[VALID_THROUGH_PROPERTY] = instant_text(claimed_us)
        properties[config.valid_through_mirror_property] = instant_text(claimed_us)
    if topic_id:
        properties[config.topic_id_property] = topic_id
    ids = clock.new_snapshot_id(), str(clock.new_uuid())
    return SnapshotContent(*ids, selection, summary, properties)


def _log_repeated(commit: TableCommit, selection: Selection) -> None:
    if selection.duplicates or selection.repeated:
        log.warning(
            "files announced more than once are taken once",
            table=str(commit.table),
            announced_twice=selection.duplicates,
            in_the_table_already=selection.repeated,
        )


def _claimed_us(state: TableState, commit: TableCommit) -> int | None:
    """Return the VTTS that a commit may claim for the table, in microseconds; None is none.

    The kernel does not know for which partitions a higher claim of the table was made, so nothing
    is claimed until the round has caught up with it.
    """
    given_us = commit.valid_through_us
    if given_us is None or not may_claim(state, commit.control_offsets):
        return None
    claimed = [instant_us(text) for text in state.valid_through_texts]
    last_us = max((us for us in claimed if us is not None), default=given_us)
    return given_us if given_us >= last_us else None


def _refuse_other_table(table: Table, commit: TableCommit) -> None:
    """Raise when files were written for another table than this.

    Raises:
        CommitRefused: ``table_replaced``, ``format_version_unsupported``.
    """
    others = announced_uuids(commit) - {table.metadata.table_uuid}
    if others:
        raise CommitRefused(
            f"the table is now {table.metadata.table_uuid}; files were written for "
            f"{', '.join(sorted(map(str, others)))}",
            code="table_replaced",
            present_uuid=table.metadata.table_uuid,
        )
    if table.metadata.format_version not in FORMAT_VERSIONS:
        raise CommitRefused(
            f"the table has format version {table.metadata.format_version}; only versions 2 and 3 "
            "can be written",
            code="format_version_unsupported",
        )


def _deletes_metadata(table: Table) -> bool:
    text = table.properties.get("write.metadata.delete-after-commit.enabled", "")
    return text.lower() == "true"


def _superseded_metadata(before: TableMetadata, after: TableMetadata) -> list[str]:
    """Metadata files that a commit removed from the log and that the table wants deleted.

    PyIceberg's catalogs do not delete them. Iceberg's table operations in Java do, for
    ``write.metadata.delete-after-commit.enabled``.
    """
    kept = {entry.metadata_file for entry in after.metadata_log}
    return [e.metadata_file for e in before.metadata_log if e.metadata_file not in kept]

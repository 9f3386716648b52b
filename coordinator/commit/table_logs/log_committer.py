"""Commits one table's share of a round to the table's log: once, or not at all.

Delta tables and Parquet folders have such a log (``connect.gateways.table_log``).

Rules of this file:
- The floor is in the log, as transaction identifiers: one per control partition, whose version is
  the next control offset. Identifiers survive checkpoints and the cleanup of the log. Nothing else
  decides what is new.
- A commit is conditional on the version whose floor was read. So of two coordinators at most one
  commits a round. An attempt without a known outcome either is in the log when the next one is
  refused, or can never get there.
- After any error the log is read again. A floor that an attempt of ours would have stored is ours;
  any other floor means another coordinator.
- A commit that ran out of time keeps what it has made. The next round commits the same
  announcements first, with that, and then those that came later.
- A path goes into a table once, also after maintenance has removed it: what this process committed
  is in its memory, and ``prove`` reads the log for older files.

Source:
    Delta transaction log protocol, "Transaction Identifiers"; protocol of the Iceberg committer in
    ``committer``.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, Protocol
from uuid import UUID

import structlog

from connect import failpoints
from connect.config.connector import ConnectorConfig
from connect.errors import (
    CommitConflict,
    CommitError,
    CommitRefused,
    Fenced,
    RetriableError,
)
from connect.gateways.table_log import File, TableLogs, TableVersion
from connect.protocol.control_offsets import covers, merged, offsets_text
from connect.protocol.log_transactions import TransactionIds, topic_version
from control_schemas.events import ContentFile
from coordinator.commit.commit_retries import (
    ATTEMPTS_MAX,
    READ_MS_MIN,
    WaitingClock,
    pause_before,
    read_after,
)
from coordinator.commit.iceberg.snapshots import instant_text
from coordinator.commit.rules.commit_rules import (
    announced_uuids,
    commit_summary,
    guarded,
    refuse_foreign_table,
)
from coordinator.commit.rules.file_selection import Selection, select
from coordinator.commit.rules.held_files import CommittedFiles
from coordinator.commit.rules.lost_records import lost_records
from coordinator.commit.rules.table_descriptions import TableDescriptions
from coordinator.control_log_check import ControlLogCheck
from coordinator.kernel.announcements import Identifier
from coordinator.kernel.effects import CommitOutcome, TableCommit, TableCommitted
from coordinator.row_deletes.limits import DEFAULT_LIMITS, OUT_OF_TIME

COMMIT_UUID: Final = "icefloe.commit-uuid"
VALID_THROUGH: Final = "kafka.connect.valid-through-ts"
_PENDING_MAX: Final = 1_000

log = structlog.get_logger("coordinator")


@dataclass(frozen=True, slots=True)
class LogState:
    """What a table's log says about this connector.

    Attributes:
        floor: control partition -> next control offset.
        stale: control partitions of a former control topic, whose floors no longer count.
        valid_through_ms: the last VTTS; None if there was none.
    """

    floor: Mapping[int, int]
    stale: frozenset[int]
    valid_through_ms: int | None


@dataclass(frozen=True, slots=True)
class _Change:
    """Transaction identifiers with versions, and metadata of a commit."""

    transactions: Mapping[str, int]
    summary: Mapping[str, str]


@dataclass(slots=True)
class _Memory:
    """What is known of a table between rounds; used under its lock.

    Attributes:
        table_uuid: of the table that all this is about.
        floor: what the table held after our last read or commit; None before the first.
        pending: floors that attempts whose outcome is not known would have stored, with the files.
        own: what this process committed.
        row_changes: of attempts that are not known to be in the table.
        unfinished: a commit that ran out of time, and its row-level changes.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    table_uuid: UUID | None = None
    floor: dict[int, int] | None = None
    pending: list[tuple[dict[int, int], list[str]]] = field(default_factory=list)
    own: CommittedFiles = field(default_factory=CommittedFiles)
    row_changes: list[RowChanges] = field(default_factory=list)
    unfinished: tuple[TableCommit, RowChanges] | None = None

    def begin(self, table_uuid: UUID, floor: Mapping[int, int]) -> None:
        """Forget what is known of another table, and start with this one."""
        self.table_uuid = table_uuid
        self.own = CommittedFiles()
        self.committed(floor)

    def check(self, floor: Mapping[int, int], commit: TableCommit, now_ms: int) -> None:
        """Compare the table's floor with what this coordinator committed.

        Raises:
            Fenced: another coordinator committed to the table.
            CommitRefused: ``table_rolled_back``.
        """
        assert self.floor is not None
        if dict(floor) == self.floor:
            return
        landed = [paths for offsets, paths in self.pending if offsets == dict(floor)]
        if landed:
            self.own.add((path for paths in landed for path in paths), now_ms)
            self.committed(floor)
            return
        if not covers(floor, self.floor):
            raise CommitRefused(
                f"the table's control offsets are {offsets_text(floor)}, but "
                f"{offsets_text(self.floor)} was committed: its log was restored to an earlier "
                "state; restore the later state, then retry the table",
                code="table_rolled_back",
            )
        raise Fenced(
            f"the table's control offsets are {offsets_text(floor)}; this coordinator knows "
            f"{offsets_text(self.floor)}: another one is active",
            table=str(commit.table),
            commit_id=str(commit.commit_id),
        )

    def committed(self, floor: Mapping[int, int]) -> None:
        """Take a floor as ours.

        Earlier attempts cannot land any more: the versions that they are conditional on are taken.
        """
        self.floor = dict(floor)
        self.pending.clear()
        self.row_changes.clear()

    def take_unfinished(self, commit: TableCommit) -> tuple[TableCommit, RowChanges] | None:
        """Return a commit that ran out of time, if this one announces the same and more."""
        unfinished, self.unfinished = self.unfinished, None
        if unfinished is None or not _is_part(unfinished[0], commit):
            return None
        return unfinished

    def settle(self, table: TableVersion[Any], version: int, present: RowChanges | None) -> None:
        """Delete copies of attempts that cannot land: the version that they aim at is taken.

        The floor is not theirs, so the version is not theirs, either. The present changes are kept.

        Args:
            table: as it was loaded; what we committed on it names no file of another attempt.
            version: the newest one.
            present: changes that are under way, or landed as that version.
        """
        left = []
        for each in self.row_changes[-_PENDING_MAX:]:
            if each is present or each.last_version > version:
                left.append(each)
            else:
                each.discard(table)
        self.row_changes = left


class RowChanges(Protocol):
    """The row-level changes of one selection of files.

    Attributes:
        selection: the files.
        last_version: the highest version that an attempt aims at.
    """

    selection: Selection
    last_version: int

    def on(self, table: Any, now_ms: int) -> Callable[[Mapping[str, int], Any, int], int]:
        """Resolve the changes against a version.

        Returns:
            Commits them as the next version; takes transactions, metadata and wall clock.

        Raises:
            CommitRefused, RetriableError: they cannot be resolved.
        """
        ...

    def begin_round(self, deadline_ms: int) -> None:
        """Set until when the changes may be resolved in this round, monotonic."""
        ...

    def landed(self, newest: Any) -> None:
        """Delete files that are not needed any more, and that the table does not name.

        Args:
            newest: a version that was read later; None if the last attempt landed just now.
        """
        ...

    def discard(self, newest: Any) -> None:
        """Delete all copies: no attempt can land, and ``newest`` names none of them."""
        ...


RowChangesOf = Callable[[Selection, str], "RowChanges | None"]
Prove = Callable[[Any, Collection[str], Collection[str], int], Collection[str]]
"""Takes a version, files that may be gone, those of them that may be old, and the wall clock."""


class LogCommitter(Generic[File]):
    """Commits to the tables of one connector; any thread may commit any table.

    Args:
        tables: of the connector.
        to_file: returns an announced file as the format needs it, for a version of its table and
            the wall clock; raises ``CommitRefused`` for a file that does not fit the table.
        config: the connector.
        clock: time, identities, waiting.
        control_topic_id: remembered in each table, so that a re-created control topic is noticed.
        control: the control topic; None where no broker is at hand.
        descriptions: reports the tables that were committed to; None reports none.
        row_changes: returns the row-level changes of a selection for a table's name; None where
            files are only added.
        prove: which announced files a version held before; raises where that cannot be proved, or
            where a file is not in the store.
    """

    def __init__(
        self,
        tables: TableLogs[File],
        to_file: Callable[[ContentFile, Any, int], File],
        config: ConnectorConfig,
        clock: WaitingClock,
        *,
        control_topic_id: str | None = None,
        control: ControlLogCheck | None = None,
        descriptions: TableDescriptions | None = None,
        row_changes: RowChangesOf = lambda *_: None,
        prove: Prove = lambda *_: frozenset(),
    ) -> None:
        self._tables = tables
        self._prove = prove
        self._row_changes = row_changes
        self._to_file = to_file
        self._config = config
        self._clock = clock
        self._descriptions = descriptions
        self._topic_id = control_topic_id
        self._control = control or ControlLogCheck(None, config.control_topic)
        self._ids = TransactionIds.of(config)
        self._memories: defaultdict[tuple[str, ...], _Memory] = defaultdict(_Memory)
        self._lock = threading.Lock()

    def commit(self, commit: TableCommit) -> CommitOutcome:
        """Bring everything announced for a table into it.

        Returns:
            TableCommitted with the version as snapshot id, or without one when nothing was left to
            add; TableFailed when the announcements must be kept; CoordinatorFenced when another
            coordinator committed meanwhile.
        """
        with self._lock:
            memory = self._memories[commit.table.identifier]
        with memory.lock:
            return guarded(commit, lambda: self._commit(commit, memory))

    def close(self) -> None:
        """End; nothing is kept open."""

    def _commit(self, commit: TableCommit, memory: _Memory) -> TableCommitted:
        started_ms = self._clock.monotonic_ms()
        first: TableCommitted | None = None
        if unfinished := memory.take_unfinished(commit):
            first = self._commit_part(*unfinished, memory, started_ms)
        return _together(first, self._commit_part(commit, None, memory, started_ms))

    def _commit_part(
        self,
        commit: TableCommit,
        changes: RowChanges | None,
        memory: _Memory,
        started_ms: int,
    ) -> TableCommitted:
        """Commit what is announced; ``changes`` are those of an earlier round for the same."""
        commit_uuid = str(self._clock.new_uuid())
        added: Selection | None = None
        failure: CommitError | RetriableError | None = None
        for attempt in range(ATTEMPTS_MAX):
            table = _loaded(self._tables, commit.table.identifier, failure, self._clock)
            state = self._checked(table, commit, memory)
            memory.settle(table, table.version, changes)
            refuse_foreign_table(commit, state.floor, self._config)
            selection = self._new_files(commit, state, table, memory)
            if not selection.steps:
                committed_version = None if added is None else _version_of(table, commit_uuid)
                _landed(changes, table)
                return self._committed(commit, table, committed_version, added, started_ms)
            if isinstance(failure, CommitRefused):
                raise failure
            if attempt:
                _log_repeated(attempt, commit, failure)
                pause_before(self._clock, attempt)
            floor = merged(state.floor, commit.control_offsets)
            offsets = {partition: offset for partition, offset in floor.items() if offset}
            added = selection
            memory.pending = [*memory.pending[-_PENDING_MAX:], (offsets, selection.paths)]
            changes = self._changes_of(selection, changes, commit, memory)
            if changes is not None:
                changes.begin_round(started_ms + DEFAULT_LIMITS.duration_ms_max)
            try:
                change = self._change(commit, state, offsets)
                version = self._append(table, selection, change, commit_uuid, changes)
            except (CommitError, RetriableError) as error:
                if changes is not None and error.code == OUT_OF_TIME:
                    memory.unfinished = commit, changes
                    raise
                failure = error
            else:
                memory.settle(table, version, changes)
                memory.committed(offsets)
                memory.own.add(selection.paths, self._clock.now_ms())
                failpoints.hit("C12")
                _landed(changes, None)
                return self._committed(commit, table, version, selection, started_ms)
        raise CommitConflict(
            f"other writers committed first, {ATTEMPTS_MAX} times in a row"
        ) from failure

    def _new_files(
        self, commit: TableCommit, state: LogState, table: TableVersion[File], memory: _Memory
    ) -> Selection:
        """The announced files that the table neither holds nor held."""
        selection = select(commit, state.floor, table.location, {})
        now_ms = self._clock.now_ms()
        selection = selection.without(memory.own.among(selection.paths, now_ms))
        unverified = memory.own.unverified(selection.paths, now_ms)
        if not unverified:
            return selection
        held = self._prove(table, unverified, memory.own.older(unverified), now_ms)
        return selection.without(held)

    def _changes_of(
        self, selection: Selection, before: RowChanges | None, commit: TableCommit, memory: _Memory
    ) -> RowChanges | None:
        """The row-level changes of a selection, with the copies of earlier attempts."""
        if before is not None and before.selection == selection:
            return before
        changes = self._row_changes(selection, str(commit.table))
        memory.row_changes += [changes] if changes else []
        return changes

    def _change(self, commit: TableCommit, state: LogState, offsets: Mapping[int, int]) -> _Change:
        """What a commit says of itself, and what the table remembers."""
        ids = self._ids
        transactions = {ids.floor(p): offset for p, offset in offsets.items()}
        transactions |= {ids.floor(p): 0 for p in state.stale - offsets.keys()}
        if self._topic_id is not None:
            transactions[ids.topic] = topic_version(self._topic_id)
        summary = lost_records(commit.announcements, state.floor) | commit_summary(commit)
        summary[self._config.offsets_property] = offsets_text(offsets)
        claimed_us = commit.valid_through_us
        if claimed_us is not None and claimed_us // 1000 >= (state.valid_through_ms or 0):
            summary[VALID_THROUGH] = instant_text(claimed_us)
            transactions[ids.valid_through] = claimed_us // 1000
        return _Change(transactions, summary)

    def _append(
        self,
        table: TableVersion[File],
        selection: Selection,
        change: _Change,
        commit_uuid: str,
        changes: RowChanges | None,
    ) -> int:
        now_ms = self._clock.now_ms()
        if changes is not None:
            append = changes.on(table, now_ms)
        else:
            files = [
                self._to_file(file, table, now_ms)
                for step in selection.steps
                for file in (*step.data_files, *step.delete_files)
            ]
            append = partial(table.append, files)
        summary = {**change.summary, COMMIT_UUID: commit_uuid}
        failpoints.hit_in_flight("C10")
        version = append(change.transactions, summary, now_ms)
        failpoints.hit("C11")
        return version

    def _checked(self, table: TableVersion[File], commit: TableCommit, memory: _Memory) -> LogState:
        """The table's state, once it is sure that the table is ours to commit to."""
        if others := announced_uuids(commit) - {table.table_uuid}:
            raise CommitRefused(
                f"the table is now {table.table_uuid}; files were written for "
                f"{', '.join(sorted(map(str, others)))}; restore that table and "
                "retry, or skip the files",
                code="table_replaced",
                present_uuid=table.table_uuid,
            )
        state = self._state(table, {*commit.control_offsets, *(memory.floor or ())})
        if memory.table_uuid != table.table_uuid:
            self._control.check_floor(state.floor)
            memory.begin(table.table_uuid, state.floor)
        memory.check(state.floor, commit, self._clock.now_ms())
        return state

    def _state(self, table: TableVersion[File], partitions: set[int]) -> LogState:
        floor: dict[int, int] = {}
        last = max(partitions, default=0)
        partition = 0
        # partitions are numbered without gaps: the table may know some that were not read yet
        while (offset := table.transaction(self._ids.floor(partition))) is not None or (
            partition <= last
        ):
            if offset:
                floor[partition] = offset
            partition += 1
        valid_through_ms = table.transaction(self._ids.valid_through)
        if self._is_of_former_topic(table):
            return LogState({}, frozenset(floor), valid_through_ms)
        return LogState(floor, frozenset(), valid_through_ms)

    def _is_of_former_topic(self, table: TableVersion[File]) -> bool:
        """Whether the floors are of a control topic that the operator has given up."""
        version = table.transaction(self._ids.topic)
        topic_ids = {topic_version(each): each for each in self._control.abandoned}
        if self._topic_id is not None:
            topic_ids[topic_version(self._topic_id)] = self._topic_id
        named = None if version is None else topic_ids.get(version, f"(number {version})")
        return self._control.is_of_former_topic(named, self._topic_id)

    def _committed(
        self,
        commit: TableCommit,
        table: TableVersion[File],
        version: int | None,
        added: Selection | None,
        started_ms: int,
    ) -> TableCommitted:
        if version is None or added is None:
            return TableCommitted(commit.table, commit.commit_id, None)
        if self._descriptions is not None:
            self._descriptions.committed(str(commit.table), table.location, table.schema)
        return TableCommitted(
            commit.table,
            commit.commit_id,
            version,
            added.files,
            added.records,
            self._clock.monotonic_ms() - started_ms,
            added.size_bytes,
        )


def _loaded(
    tables: TableLogs[Any],
    identifier: Identifier,
    failure: CommitError | RetriableError | None,
    clock: WaitingClock,
) -> Any:
    """Load the table; after a failed attempt, until it answers."""
    if failure is None:
        table = tables.load(identifier)
        failpoints.hit("C7")
        return table
    return read_after(failure, lambda: tables.load(identifier), clock, READ_MS_MIN)


def _version_of(table: TableVersion[Any], commit_uuid: str) -> int:
    """The version of a commit that is in the log; the newest one if its entry is gone."""
    try:
        version = table.committed_version(COMMIT_UUID, commit_uuid)
    except RetriableError:
        version = None
    return table.version if version is None else version


def _is_part(part: TableCommit, whole: TableCommit) -> bool:
    """Whether a round announces everything of an earlier one, to the same table."""
    announced = {(each.partition, each.offset) for each in whole.announcements}
    return (
        part.table == whole.table
        and covers(whole.control_offsets, part.control_offsets)
        and all((each.partition, each.offset) in announced for each in part.announcements)
    )


def _together(first: TableCommitted | None, last: TableCommitted) -> TableCommitted:
    """The outcome of a round that was committed as two versions."""
    if first is None or first.snapshot_id is None:
        return last
    return replace(
        last,
        snapshot_id=last.snapshot_id or first.snapshot_id,
        files=first.files + last.files,
        records=first.records + last.records,
        duration_ms=first.duration_ms + last.duration_ms,
        size_bytes=first.size_bytes + last.size_bytes,
    )


def _landed(changes: RowChanges | None, newest: TableVersion[Any] | None) -> None:
    if changes is not None:
        changes.landed(newest)


def _log_repeated(
    attempt: int, commit: TableCommit, failure: CommitError | RetriableError | None
) -> None:
    code = None if failure is None else failure.code
    log.info(
        "commit repeated", table=str(commit.table), attempt=attempt, code=code, error=str(failure)
    )

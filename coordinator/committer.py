"""Commits one table's share of a round: once, or not at all.

Rules of this file:
- The floor decides what is new. A floor that moved without us means another coordinator.
- An attempt whose fate is not known is remembered; the next commit counts what it would have
  brought as ours, should it have landed.
- The table is loaded in every round, though the last answer would serve: moving a branch or a tag
  also writes its retention, and an old copy would undo what its owner set meanwhile.

Source:
    Iceberg Kafka Connect ``Coordinator.commitToTable``; differs by fencing on the branch, by
    looking after errors, and by never counting a missing table as committed.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

import structlog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from connect import failpoints
from connect.config.connector import ConnectorConfig
from connect.errors import CommitError, CommitRefused, Fenced, RetriableError
from connect.gateways.catalog import CatalogGateway
from connect.gateways.storage import delete_files
from coordinator.effects import (
    CommitOutcome,
    CoordinatorFenced,
    TableCommit,
    TableCommitted,
    TableFailed,
)
from coordinator.floor import (
    VALID_THROUGH_PROPERTY,
    FloorKeys,
    TableState,
    covers,
    merged,
    offsets_text,
    table_state,
)
from coordinator.landing import Landing, Manifests, WaitingClock
from coordinator.selection import Selection, select
from coordinator.snapshots import Content, instant_text, instant_us
from coordinator.table_checks import refuse_other_table, superseded_metadata

_RESTARTS_MAX = 3
_RETRIABLE_REFUSALS = frozenset({"unauthorized", "forbidden", "catalog_throttled"})

log = structlog.get_logger("coordinator")


class _FloorMoved(RetriableError):  # noqa: N818 - the field's word
    """An attempt of ours from before landed after all: choose the files again."""

    default_code = "floor_moved"


@dataclass(slots=True)
class _Memory:
    """What is known of a table between rounds; used under its lock.

    Attributes:
        floor: what the table held after our last look or commit; None before the first.
        pending: snapshot id -> control offsets of attempts whose fate is not known.
        manifests: of the head after our last commit.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    floor: dict[int, int] | None = None
    pending: dict[int, Mapping[int, int]] = field(default_factory=dict)
    manifests: Manifests | None = None


class Committer:
    """Commits to the tables of one connector; any thread may commit any table.

    Args:
        catalog: where the tables are.
        config: the connector.
        clock: time, identities, waiting.
        control_topic_id: remembered in each table, so that a re-created control topic is noticed.
        has_history: False when the connector's control group has no committed offsets yet.
    """

    def __init__(
        self,
        catalog: CatalogGateway,
        config: ConnectorConfig,
        clock: WaitingClock,
        *,
        control_topic_id: str | None = None,
        has_history: bool = True,
    ) -> None:
        self._catalog = catalog
        self._config = config
        self._clock = clock
        self._topic_id = control_topic_id
        self._has_history = has_history
        self._version = version("icefloe")
        self._memories: defaultdict[tuple[str, ...], _Memory] = defaultdict(_Memory)
        self._lock = threading.Lock()

    @property
    def topic_id_property(self) -> str:
        """Table property that remembers the control topic's id."""
        return f"icefloe.topic-id.{self._config.control_topic}"

    def commit(self, commit: TableCommit) -> CommitOutcome:
        """Bring everything announced for a table into it.

        Returns:
            TableCommitted with the snapshot id, or without one when nothing was left to add;
            TableFailed when the announcements must be kept; CoordinatorFenced when another
            coordinator committed meanwhile.
        """
        with self._lock:
            memory = self._memories[commit.table.identifier]
        with memory.lock:
            try:
                return self._commit_again(commit, memory)
            except Fenced as error:
                return CoordinatorFenced(commit.table, commit.commit_id, str(error))
            except (CommitError, RetriableError) as error:
                error.at(table=str(commit.table), commit_id=str(commit.commit_id))
                is_final = isinstance(error, CommitRefused) and (
                    error.code not in _RETRIABLE_REFUSALS
                )
                return TableFailed(
                    commit.table,
                    commit.commit_id,
                    error.code,
                    str(error),
                    not is_final,
                    error.coordinates.get("present_uuid"),
                )

    def _commit_again(self, commit: TableCommit, memory: _Memory) -> CommitOutcome:
        for _ in range(_RESTARTS_MAX):
            try:
                return self._commit(commit, memory)
            except _FloorMoved:
                continue
        return self._commit(commit, memory)

    def _commit(self, commit: TableCommit, memory: _Memory) -> CommitOutcome:
        started_ms = self._clock.monotonic_ms()
        keys = self._keys(commit)
        table = self._catalog.load(commit.table.identifier)
        failpoints.hit("C7")
        state = self._checked(table, commit, keys, memory)
        floor = merged(state.floor, memory.floor or {})
        selection = select(commit, floor, table.location(), table.properties)
        if selection.duplicates:
            log.warning("files announced twice", table=str(commit.table), n=selection.duplicates)
        if not selection.steps:
            return TableCommitted(commit.table, commit.commit_id, None)
        offsets = merged(floor, commit.control_offsets)
        content = self._content(commit, state, selection, offsets)

        def check(reloaded: Table) -> TableState:
            seen = self._checked(reloaded, commit, keys, memory)
            if merged(seen.floor, memory.floor or {}) != floor:
                raise _FloorMoved("an earlier attempt landed meanwhile")
            return seen

        landing = Landing(
            self._catalog,
            commit.table.identifier,
            self._clock,
            keys,
            content,
            check,
            memory.manifests,
        )
        try:
            landed = landing.land(table, state)
        finally:
            if landing.is_uncertain:
                memory.pending[content.snapshot_id] = offsets
        memory.floor = offsets
        memory.manifests = landed.manifests
        memory.pending.clear()
        old = superseded_metadata(table.metadata, landed.table.metadata)
        delete_files(landed.table.io, old)
        return TableCommitted(
            commit.table,
            commit.commit_id,
            content.snapshot_id,
            selection.files,
            selection.records,
            self._clock.monotonic_ms() - started_ms,
        )

    def _checked(
        self, table: Table, commit: TableCommit, keys: FloorKeys, memory: _Memory
    ) -> TableState:
        """The table's state, once it is sure that the table is ours to commit to."""
        refuse_other_table(table, commit)
        known_topic = table.properties.get(self.topic_id_property)
        if self._topic_id and known_topic and known_topic != self._topic_id:
            raise CommitRefused(
                f"the table was written from control topic {known_topic}; the topic of that name "
                f"is now {self._topic_id}",
                code="control_log_reset",
            )
        state = table_state(table.metadata, keys)
        if memory.floor is None:
            memory.floor = dict(state.floor)
        for snapshot in table.metadata.snapshots if memory.pending else ():
            offsets = memory.pending.pop(snapshot.snapshot_id, None)
            memory.floor = merged(memory.floor, offsets or {})
        if not covers(memory.floor, state.floor):
            raise Fenced(
                f"the table's control offsets are {offsets_text(state.floor)}; this coordinator "
                f"knows {offsets_text(memory.floor)}: another one is active",
                table=str(commit.table),
                commit_id=str(commit.commit_id),
            )
        return state

    def _keys(self, commit: TableCommit) -> FloorKeys:
        config = self._config
        return FloorKeys(
            summary=config.offsets_property,
            mirror=config.offsets_mirror_property,
            tag=f"icefloe-{config.name}",
            branch=config.table(str(commit.table)).commit_branch or MAIN_BRANCH,
            has_history=self._has_history,
        )

    def _content(
        self,
        commit: TableCommit,
        state: TableState,
        selection: Selection,
        offsets: Mapping[int, int],
    ) -> Content:
        summary = {
            self._config.offsets_property: offsets_text(offsets),
            "kafka.connect.commit-id": str(commit.commit_id),
            "kafka.connect.task-id": commit.task_id,
            "engine-name": "icefloe",
            "engine-version": self._version,
        }
        last_us = instant_us(state.valid_through_text)
        given_us = commit.valid_through_us
        # lower than the last claim: the kernel does not know for which partitions that one was
        # made, so nothing is claimed until this one has caught up
        if given_us is not None and (last_us is None or given_us >= last_us):
            summary[VALID_THROUGH_PROPERTY] = instant_text(given_us)
        properties = {self._config.offsets_mirror_property: offsets_text(offsets)}
        if self._topic_id:
            properties[self.topic_id_property] = self._topic_id
        return Content(
            self._clock.new_snapshot_id(),
            str(self._clock.new_uuid()),
            selection,
            summary,
            properties,
        )

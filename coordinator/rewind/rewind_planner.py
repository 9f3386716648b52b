"""Plans a rewind: the commit to go back to, tables, source offsets, and what forbids it.

Rules of this file:
- Nothing is changed. The plan is computed from the control topic, the tables and the offsets.
- Only tables that the node's operator grants to the connector are read: events of the control topic
  and a request can name any table.
- Every table that has files of announcements above the cut is part of the plan, or the rewind
  would read their records a second time. So the control topic must still hold everything from the
  cut on.
- A plan of some tables moves the offsets of topics that feed no other table. So all records that
  are read again go to these tables, and announcements of other tables stay as they are.
- What cannot be proved is a problem with a code. Some problems may be accepted by the operator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connect.config.connector import ConnectorConfig
from connect.config.start_position import StartPosition
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.storage.object_store import storage_errors
from connect.model.layout import TopicPartition
from connect.protocol.control_offsets import covers, parse_offsets
from connect.protocol.control_topic import OWN_PARTITION
from connect.protocol.snapshot_ancestry import summary
from coordinator.commit.iceberg.floor import FloorKeys, floor_keys, table_state
from coordinator.rewind.control_history import (
    AnnouncedTables,
    ControlHistory,
    NextCommit,
    SourcePositions,
)
from coordinator.rewind.control_log import ControlLog
from coordinator.rewind.rewind_plan import RewindPlan, instant_text
from coordinator.rewind.rewind_request import (
    NOT_GRANTED,
    RECORDS_GONE,
    TABLES_UNKNOWN,
    RewindRequest,
)
from coordinator.rewind.rewound_topics import choose_topics
from coordinator.rewind.table_history import (
    HISTORY_EXPIRED,
    OwnCommit,
    own_commits,
    rollback,
)

_SHOWN_MAX = 20
NO_COMMIT = "no_such_commit"
_SNAPSHOTS_STAY = (
    "snapshots that leave a branch stay in the table until they expire; readers that read a branch "
    "incrementally have to start again"
)


@dataclass(frozen=True, slots=True)
class RewindPlanner:
    """Plans rewinds of one connector.

    Args:
        config: the connector, placeholders resolved.
        log: its events on the control topic.
        admin: the cluster.
        catalog: where the tables are.
        ranges_from: control offsets below which a rebase gave up events.
        unfinished: ids of the rewind that has not ended and of those that it replaced. Their
            snapshots are no commits to go back to, because their source offsets are not stored.
    """

    config: ConnectorConfig
    log: ControlLog
    admin: KafkaAdmin
    catalog: CatalogGateway
    ranges_from: Mapping[int, int]
    unfinished: Collection[str] = ()

    def plan(self, request: RewindRequest) -> RewindPlan:
        """Return the plan.

        Raises:
            CommitRefused: ``no_such_commit``; a table cannot be read.
            RetriableError: broker or catalog cannot be reached.
        """
        starts = self.log.starts()
        announced = AnnouncedTables(request.offsets)
        self.log.read(announced.take)
        names = {*self.config.tables, *announced.names, *request.tables}
        planned = RewindPlan(None)
        if request.only:
            names = set(request.only)
            choose_topics(planned, self.config, self.admin, request.only)
        _refuse_foreign(planned, self.config, names)
        tables = {name: table for name in names if (table := self.catalog.find(name)) is not None}
        if request.is_to_beginning:
            is_whole = not any(starts.values())
            self._to_beginning(planned, request, tables, announced.names, is_whole=is_whole)
        else:
            planned.commit = self._chosen(request, tables, announced.control_offset_max, starts)
            self._to_cut(planned, planned.commit.offsets, tables, starts)
        self._check_sources(planned)
        planned.notes.append(_SNAPSHOTS_STAY)
        return planned

    def _chosen(
        self,
        request: RewindRequest,
        tables: Mapping[str, Table],
        control_offset_max: int | None,
        starts: Mapping[int, int],
    ) -> OwnCommit:
        commits = [
            commit
            for name, table in tables.items()
            for commit in own_commits(name, table.metadata, self._keys(name))
            if commit.rewind_id not in self.unfinished
        ]
        lowest = {p: max(at, self.ranges_from.get(p, 0)) for p, at in starts.items()}
        return chosen_commit(commits, request, control_offset_max, lowest)

    # ------------------------------------------------------------ tables and positions

    def _to_beginning(
        self,
        planned: RewindPlan,
        request: RewindRequest,
        tables: Mapping[str, Table],
        announced: Collection[str],
        *,
        is_whole: bool,
    ) -> None:
        if self.config.names_tables_by_record and not (is_whole or request.tables or request.only):
            planned.refuse(
                TABLES_UNKNOWN,
                "records name the tables, and the control topic no longer holds all "
                "announcements: other tables than these may hold rows of the connector; name "
                "them with --table",
            )
        accepted = HISTORY_EXPIRED in request.accepted
        for name, table in tables.items():
            self._add(planned, name, table, None, may_have_expired=accepted)
            planned_before = planned.rollbacks.get(name)
            if planned_before is not None and not planned_before.removed and name not in announced:
                del planned.rollbacks[name]  # the connector never wrote to it
        topics = self.admin.topics()
        planned.before = {
            tp: at
            for tp, at in self.admin.committed_all(self.config.connect_group_id).items()
            if tp.partition < topics.get(tp.topic, 0) and planned.moves(tp)
        }
        start, logs = self.config.start, self.admin.watermarks(list(planned.before))
        since: Mapping[TopicPartition, int] = {}
        if start.timestamp_ms is not None:
            since = self.admin.offsets_at(list(logs), start.timestamp_ms)
        beginning = first_positions(start, logs, since)
        planned.positions = dict(beginning.offsets)
        planned.notes += beginning.notes
        if beginning.gone:
            planned.refuse(
                RECORDS_GONE,
                f"Kafka no longer holds records {', '.join(beginning.gone[:_SHOWN_MAX])}: rows "
                "of them that are removed are not loaded again",
            )

    def _to_cut(
        self,
        planned: RewindPlan,
        cut: Mapping[int, int],
        tables: Mapping[str, Table],
        starts: Mapping[int, int],
    ) -> None:
        for name, table in tables.items():
            self._add(planned, name, table, cut)
        compared = {
            name: NextCommit(
                parse_offsets(summary(table_plan.removed[-1])[self._keys(name).summary])
            )
            for name, table_plan in planned.rollbacks.items()
            if table_plan.removed and not covers(table_plan.floor, starts)
        }
        floors = {name: table_plan.floor for name, table_plan in planned.rollbacks.items()}
        uuids = {name: tables[name].metadata.table_uuid for name in floors}
        history = ControlHistory(cut, floors, uuids, compared)
        self.log.read(history.take)
        for name, table_plan in list(planned.rollbacks.items()):
            if name in compared:
                self._compare(
                    planned, name, tables[name], table_plan.removed[-1], history.paths[name]
                )
            if not table_plan.removed and not history.announced[name]:
                del planned.rollbacks[name]  # nothing above the cut
        self._add_positions(planned, history.positions)
        for name, count in sorted(history.stranded.items()):
            if count:
                planned.refuse(
                    "announced_before",
                    f"{count} files were announced before this commit and committed after it, "
                    "or not at all, because the table failed or was skipped: choose another "
                    "commit",
                    name,
                )
        if history.has_other_partitions:
            planned.refuse(
                "announced_by_java",
                "the Java sink, or an older version, announced files after this commit; their "
                "source positions are not known",
            )
        if history.dead_letters:
            planned.notes.append(
                f"{history.dead_letters} dead letters were sent after this commit; their records "
                "are read again, so they are sent again"
            )

    def _add(
        self,
        planned: RewindPlan,
        name: str,
        table: Table,
        cut: Mapping[int, int] | None,
        *,
        may_have_expired: bool = False,
    ) -> None:
        keys = self._keys(name)
        try:
            self._refuse_foreign(name, table)
            table_plan = rollback(table.metadata, keys, cut, may_have_expired=may_have_expired)
            table_state(table.metadata, keys)
        except CommitRefused as refused:
            planned.refuse(refused.code, refused.message, name)
            return
        if table_plan.is_history_expired:
            planned.refuse(HISTORY_EXPIRED, "the table is emptied", name)
        planned.rollbacks[name] = table_plan

    def _refuse_foreign(self, name: str, table: Table) -> None:
        if not self.config.may_write(name):
            raise CommitRefused(
                "the connector does not write to this table", code="table_not_configured"
            )
        table_topic_id = table.properties.get(self.config.topic_id_property)
        present = self.admin.topic_id(self.config.control_topic)
        if table_topic_id not in {None, present}:
            raise CommitRefused(
                f"the table was written from another control topic of that name ({table_topic_id})",
                code="control_log_reset",
            )

    def _compare(
        self, planned: RewindPlan, name: str, table: Table, first_removed: Snapshot, paths: set[int]
    ) -> None:
        """Every file of the first commit to remove must have been announced above the cut."""
        if any(hash(path) not in paths for path in _added_paths(table, first_removed)):
            planned.refuse(
                "announced_before",
                f"snapshot {first_removed.snapshot_id} also holds files that were announced before "
                "this commit: choose another commit",
                name,
            )

    def _add_positions(self, planned: RewindPlan, at_cut: SourcePositions) -> None:
        committed = self.admin.committed_all(self.config.connect_group_id)
        unknown = []
        changed = filter(at_cut.is_changed, {*committed, *at_cut.starts_above})
        for tp in sorted(filter(planned.moves, changed)):
            position = at_cut.at(tp)
            if position is None:
                unknown.append(f"{tp.topic}-{tp.partition}")
            elif position != committed.get(tp):
                planned.positions[tp] = position
        planned.before = {tp: committed.get(tp) for tp in planned.positions}
        if unknown:
            planned.refuse(
                "position_unknown",
                "source offsets were set after this commit, and no announcement says where "
                f"these partitions stood: {', '.join(unknown[:_SHOWN_MAX])}",
            )

    def _check_sources(self, planned: RewindPlan) -> None:
        """The records to read again must still be in Kafka."""
        topics = self.admin.topics()
        existing = [tp for tp in planned.positions if tp.partition < topics.get(tp.topic, 0)]
        marks = self.admin.watermarks(existing)
        deleted = []
        for tp, position in sorted(planned.positions.items()):
            start, end = marks.get(tp, (None, 0))
            if start is None:
                deleted.append(f"all of {tp.topic}-{tp.partition}")
                del planned.positions[tp]
            elif position < start:
                deleted.append(f"{tp.topic}-{tp.partition} {position}..{start - 1}")
                planned.positions[tp] = start
            elif position > end:
                planned.refuse(
                    "position_unknown",
                    f"{tp.topic}-{tp.partition} ends at {end}, below {position}: the topic was "
                    "created again",
                )
        if deleted:
            planned.refuse(
                RECORDS_GONE,
                f"Kafka no longer holds records {', '.join(deleted[:_SHOWN_MAX])}: their rows are "
                "removed and not loaded again",
            )

    def _keys(self, name: str) -> FloorKeys:
        return floor_keys(self.config, name)


def _refuse_foreign(planned: RewindPlan, config: ConnectorConfig, names: set[str]) -> None:
    """Remove the tables that the connector may not write, and note them as problems."""
    for name in sorted(name for name in names if not config.is_granted(name)):
        names.remove(name)
        planned.refuse(
            NOT_GRANTED,
            f"the node's operator does not grant {name} to connector {config.name}",
            name,
        )


def _added_paths(table: Table, snapshot: Snapshot) -> list[str]:
    with storage_errors("reading manifests of a snapshot"):
        return [
            entry.data_file.file_path
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.status == ManifestEntryStatus.ADDED
            and entry.snapshot_id == snapshot.snapshot_id
        ]


def chosen_commit(
    commits: Sequence[OwnCommit],
    request: RewindRequest,
    control_offset_max: int | None,
    lowest: Mapping[int, int],
) -> OwnCommit:
    """Return the newest commit that fits a request.

    Args:
        commits: of all tables.
        request: where to go back to.
        control_offset_max: the highest control offset that the requested source offsets allow.
        lowest: control partition -> control offset from which the control topic is complete.

    Raises:
        CommitRefused: ``no_such_commit``: none fits, or it is below ``lowest``. A commit that is
            older than the one that fits is never chosen instead: it would remove more rows.
    """
    candidates = [
        c
        for c in commits
        if (request.timestamp_ms is None or c.committed_ms <= request.timestamp_ms)
        and (request.snapshot_id is None or c.snapshot_id == request.snapshot_id)
        and (control_offset_max is None or _at(c) <= control_offset_max)
    ]
    last = max(candidates, key=lambda c: (_at(c), c.committed_ms), default=None)
    if last is not None and covers(last.offsets, lowest):
        return last
    reason = (
        "no commit of the connector that the tables still hold fits"
        if last is None
        else f"the commit of {instant_text(last.committed_ms)} is too old: the control topic no "
        "longer holds what was announced after it"
    )
    possible = [c for c in commits if covers(c.offsets, lowest)]
    oldest = min(possible, key=_at, default=None)
    other = (
        "--to-beginning loads everything again"
        if oldest is None
        else f"the oldest commit to go back to is snapshot {oldest.snapshot_id} of "
        f"{oldest.table}, {instant_text(oldest.committed_ms)}"
    )
    raise CommitRefused(f"{reason}; {other}", code=NO_COMMIT)


def _at(commit: OwnCommit) -> int:
    return commit.offsets.get(OWN_PARTITION, 0)


@dataclass(frozen=True, slots=True)
class FirstPositions:
    """Start offsets of partitions.

    Attributes:
        offsets: of each partition, inside its log.
        gone: the ranges of records that Kafka no longer holds, as text.
        notes: what the operator should know, a sentence each.
    """

    offsets: Mapping[TopicPartition, int]
    gone: tuple[str, ...]
    notes: tuple[str, ...]


def first_positions(
    start: StartPosition,
    logs: Mapping[TopicPartition, tuple[int, int]],
    since: Mapping[TopicPartition, int],
) -> FirstPositions:
    """Return where a connector reads again that goes back before its first commit.

    Its start offsets count as for a new connector: records before them were never wanted.
    ``auto.offset.reset`` does not count, nor does an offset of -1 or -2: they name no record, and
    ``latest`` would skip every row that is to be loaded again.

    Args:
        start: the connector's settings.
        logs: start and end of each partition's log.
        since: first offsets at or after ``start.timestamp_ms``; empty without it.
    """
    offsets, gone = {}, []
    for tp, (log_start, end) in sorted(logs.items()):
        named = start.offsets.get(tp, -1)
        position = named if named >= 0 else since.get(tp, 0)
        offsets[tp] = min(max(position, log_start), end)
        # records before the timestamp may be among those that are gone: it is not known
        lost_from = 0 if named < 0 and position == log_start else position
        if lost_from < log_start:
            gone.append(f"{tp.topic}-{tp.partition} {lost_from}..{log_start - 1}")
    notes = []
    if any(offsets.values()) and (start.offsets or start.timestamp_ms is not None):
        notes.append("reading begins where icefloe.start.offsets and icefloe.start.timestamp say")
    if start.reset != "earliest":
        notes.append(
            f"auto.offset.reset={start.reset} names no record: other partitions are read from the "
            "beginning of their topics"
        )
    return FirstPositions(offsets, tuple(gone), tuple(notes))

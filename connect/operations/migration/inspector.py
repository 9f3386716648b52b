"""What a connector of another sink left behind, and where Icefloe would start from it.

Rules of this file:
- It looks and changes nothing; what it cannot look at is an error, never a finding.
- A finding says what was found, why that is not safe, and what to do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.operations.migration.migration_report import MigrationReport, SinkGroup, TableLeft
from connect.protocol.control_offsets import merged, parse_offsets
from connect.protocol.control_topic import ControlRecord, read_to_end
from connect.protocol.snapshot_ancestry import ancestry, engine, is_cut_off, summary
from control_schemas.events import DataWritten

VALID_THROUGH = ("kafka.connect.valid-through-ts", "kafka.connect.vtts")
FORMAT_VERSION = 2


class Inspector:
    """Looks at one connector's groups, control topic and tables.

    Args:
        config: the connector, placeholders resolved.
        admin: the cluster.
        reader: for the control topic; owned by the caller.
        catalog: where the tables are.
        clock: for bounded waits.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        admin: KafkaAdmin,
        reader: LogReader,
        catalog: CatalogGateway,
        clock: Clock,
    ) -> None:
        self._config = config
        self._admin = admin
        self._reader = reader
        self._catalog = catalog
        self._clock = clock

    def inspect(self, partitions: Iterable[TopicPartition]) -> MigrationReport:
        """Look at everything.

        Args:
            partitions: source partitions that the connector would read.

        Raises:
            IcefloeError: broker or catalog cannot be asked.
        """
        report = MigrationReport(self._config.name, self._config.connect_group_id)
        source = sorted(partitions)
        topic = self._config.control_topic
        count = self._admin.topics().get(topic, 0)
        control = [TopicPartition(topic, number) for number in range(count)]
        marks = self._admin.watermarks(control)
        report.control_topic = {tp.partition: marks[tp] for tp in control}
        report.groups = [g for g in self._groups(source, control) if g.is_used]
        self._judge_groups(report)
        self._judge_control_topic(report, control)
        waiting = self._waiting(report, marks)
        for name in sorted({*self._config.tables, *waiting}):
            table = self._table(report, name, waiting.get(name, ()))
            report.tables.append(table)
        self._judge_tables(report)
        self._judge_lost_offsets(report)
        self._place(report, source)
        return report

    # ------------------------------------------------------------ groups

    def _groups(
        self, source: list[TopicPartition], control: list[TopicPartition]
    ) -> Iterator[SinkGroup]:
        names = (
            self._config.connect_group_id,
            self._config.framework_group_id,
            f"cg-control-{self._config.name}",
        )
        for name in dict.fromkeys(names):
            coordinator = f"{name}-coord"
            found = self._admin.committed(coordinator, control)
            yield SinkGroup(
                name,
                {
                    tp: at
                    for tp, at in self._admin.committed(name, source).items()
                    if at is not None
                },
                {tp.partition: at for tp, at in found.items() if at is not None},
                (*self._admin.members(name), *self._admin.members(coordinator)),
            )

    def _judge_groups(self, report: MigrationReport) -> None:
        for group in report.groups:
            if group.members:
                report.unsafe(
                    "group_in_use",
                    f"{len(group.members)} members are in group {group.name} or its -coord, first "
                    f"{group.members[0]}: stop the connector there; a worker that was killed "
                    "leaves when its session is over",
                )
        own = report.used(report.group)
        old = report.used(f"cg-control-{report.connector}")
        if old is not None and old.name != report.group:
            report.unsafe(
                "offsets_elsewhere",
                f"group {old.name} of the older io.tabular sink holds offsets, but this JSON "
                f"goes on with {report.group}: keep that sink's connector.class, or set "
                f"iceberg.control.group-id to {old.name}; else delete the group",
            )
        others = [
            g for g in report.groups if g.name != report.group and g.source_offsets and g is not old
        ]
        if own is None:
            report.note("no_offsets", f"group {report.group} has no offsets: a first start")
        for other in others:
            if own is not None and other.source_offsets != own.source_offsets:
                report.note(
                    "offsets_in_two_places",
                    f"{other.name} has other source offsets than {report.group}, which count",
                )

    # ------------------------------------------------------------ control topic

    def _judge_control_topic(self, report: MigrationReport, control: list[TopicPartition]) -> None:
        own = report.used(report.group)
        topic = self._config.control_topic
        if not control:
            if own is not None and own.source_offsets:
                report.unsafe(
                    "control_topic_missing",
                    f"there are source offsets, but no control topic {topic}: is "
                    "iceberg.control.topic the one that the other sink used?",
                )
            return
        if own is not None and own.source_offsets and not own.control_offsets:
            report.note(
                "no_control_offsets",
                f"group {own.name}-coord has none: the control topic is read from its beginning",
            )
        for partition, offset in sorted((own.control_offsets if own else {}).items()):
            first, end = report.control_topic.get(partition, (0, 0))
            if offset < first:
                report.unsafe(
                    "control_log_lost",
                    f"control events {topic}-{partition} [{offset}, {first}) are gone by "
                    "retention; files announced in them are in no table",
                )
            elif offset > end:
                report.unsafe(
                    "control_log_reset",
                    f"group {report.group}-coord stands at {offset} of {topic}-{partition}, which "
                    f"ends at {end}: the topic was made anew",
                )
        ends = self._admin.ends(control)
        behind = [tp for tp, at in self._admin.high_watermarks(control).items() if at > ends[tp]]
        if behind:
            report.note(
                "open_transaction",
                f"a transaction is open in {topic}, partitions {[tp.partition for tp in behind]}: "
                "a killed task's ends by itself within a minute; look again then",
            )

    def _waiting(
        self, report: MigrationReport, marks: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[str, list[ControlRecord]]:
        """Announcements at or above the group's control offsets, by table."""
        own = report.used(report.group)
        known = own.control_offsets if own is not None else {}
        starts = {
            tp: min(max(known.get(tp.partition, first), first), end)
            for tp, (first, end) in marks.items()
        }
        ends = {tp: end for tp, (_, end) in marks.items()}
        out: defaultdict[str, list[ControlRecord]] = defaultdict(list)
        problems: Counter[str] = Counter()
        first_old: ControlRecord | None = None
        for record in read_to_end(self._reader, starts, ends, self._clock):
            event = record.event
            if record.error is not None:
                problems["malformed"] += 1
            elif record.legacy is not None:
                if record.legacy.is_announcement and record.legacy.is_of(report.group):
                    problems["legacy"] += 1
                    first_old = first_old or record
            elif (
                event is not None
                and event.group_id == report.group
                and isinstance(event.payload, DataWritten)
            ):
                out[str(event.payload.table)].append(record)
        if first_old is not None:
            report.unsafe(
                "legacy_announcement",
                f"{problems['legacy']} announcements of files in the old event format wait, first "
                f"at {self._config.control_topic}-{first_old.partition} offset {first_old.offset}: "
                "let the old sink run until its coordinator has committed them",
            )
        if problems["malformed"]:
            report.note(
                "malformed_events",
                f"{problems['malformed']} control events cannot be read; they will be passed over",
            )
        return dict(out)

    # ------------------------------------------------------------ tables

    def _table(
        self, report: MigrationReport, name: str, waiting: Iterable[ControlRecord]
    ) -> TableLeft:
        try:
            table = self._catalog.load(tuple(name.split(".")))
        except CommitRefused as e:
            if e.code != "table_missing":
                raise
            files, records = _amount(waiting, {})
            return TableLeft(name, exists=False, pending_files=files, pending_records=records)
        metadata = table.metadata
        branch = self._config.table(name).commit_branch or MAIN_BRANCH
        chain = list(ancestry(metadata, branch))
        groups = {report.group, *(g.name for g in report.groups)}
        floors = {g: found for g in sorted(groups) if (found := self._floor(metadata, chain, g))}
        newest = next(
            (s for s in chain if any(k.startswith(self._prefix) for k in summary(s))), None
        )
        marks = {} if newest is None else summary(newest)
        files, records = _amount(waiting, floors.get(report.group, {}))
        self._judge_table(report, name, metadata, chain, floors)
        return TableLeft(
            name,
            exists=True,
            floors=floors,
            writer=None if newest is None else engine(marks),
            valid_through=next((marks[key] for key in VALID_THROUGH if key in marks), None),
            pending_files=files,
            pending_records=records,
        )

    @property
    def _prefix(self) -> str:
        return f"kafka.connect.offsets.{self._config.control_topic}."

    def _floor(
        self, metadata: TableMetadata, chain: Iterable[Snapshot], group: str
    ) -> dict[int, int]:
        key = self._prefix + group
        newest = next((text for s in chain if (text := summary(s).get(key))), None)
        mirror = f"icefloe.offsets.{self._config.control_topic}.{group}"
        return merged(parse_offsets(newest), parse_offsets(metadata.properties.get(mirror)))

    def _judge_table(
        self,
        report: MigrationReport,
        name: str,
        metadata: TableMetadata,
        chain: list[Snapshot],
        floors: Mapping[str, Mapping[int, int]],
    ) -> None:
        if metadata.format_version != FORMAT_VERSION:
            report.unsafe(
                "format_version_unsupported",
                f"{name} has format version {metadata.format_version}; only version 2 is written",
            )
        own = report.used(report.group)
        is_unsure = bool(chain) and is_cut_off(chain[-1], metadata)
        if report.group not in floors and is_unsure and own is not None and own.control_offsets:
            mirror = f"icefloe.offsets.{self._config.control_topic}.{report.group}"
            report.unsafe(
                "floor_lost",
                f"snapshots of {name} were expired and none says what this connector committed"
                f": set table property {mirror} to {{}} if nothing of it waits to be committed",
            )
        for partition, offset in sorted(floors.get(report.group, {}).items()):
            end = report.control_topic.get(partition, (0, 0))[1]
            if offset > end:
                report.unsafe(
                    "control_log_reset",
                    f"{name} holds everything below {offset} of control partition {partition}, "
                    f"which ends at {end}: the topic was made anew, new files would be taken for "
                    "old ones",
                )

    def _judge_tables(self, report: MigrationReport) -> None:
        if self._config.dynamic_enabled:
            report.note(
                "dynamic_tables", "tables are named by records: only those with files are looked at"
            )
        for table in report.tables:
            if table.pending_files and not table.exists:
                report.unsafe(
                    "table_missing",
                    f"{table.pending_files} files are announced for {table.name}: it is not there",
                )
            elif table.pending_files:
                report.note(
                    "pending",
                    f"{table.pending_files} files with {table.pending_records} rows are announced "
                    f"for {table.name} and not in it: Icefloe commits them first",
                )

    def _judge_lost_offsets(self, report: MigrationReport) -> None:
        has_offsets = any(g.source_offsets or g.control_offsets for g in report.groups)
        known = [table.name for table in report.tables if report.group in table.floors]
        if known and not has_offsets:
            report.unsafe(
                "offsets_lost",
                f"{', '.join(known)} hold commits of this connector, but its groups have no "
                "offsets: they expired or were deleted; set the source offsets before the start",
            )

    # ------------------------------------------------------------ where to start

    def _place(self, report: MigrationReport, source: list[TopicPartition]) -> None:
        marks = self._admin.watermarks(source)
        fallback = self._config.fallback_group_id
        names = [report.group] if fallback is None else [report.group, fallback]
        is_latest = self._config.auto_offset_reset == "latest"
        for tp in source:
            first, end = marks[tp]
            found = [
                (group.source_offsets[tp], f"group {name}")
                for name in names
                if (group := report.used(name)) and tp in group.source_offsets
            ]
            reset = (end, "latest") if is_latest else (first, "earliest")
            offset, why = report.starts[tp] = found[0] if found else reset
            if offset < first:
                report.unsafe(
                    "source_data_lost",
                    f"{tp.topic}-{tp.partition}: records [{offset}, {first}) are gone by retention",
                )
            elif offset > end:
                report.unsafe(
                    "source_log_reset",
                    f"{tp.topic}-{tp.partition}: {why} stands at {offset}, the log ends at {end}",
                )


def _amount(records: Iterable[ControlRecord], floor: Mapping[int, int]) -> tuple[int, int]:
    """Files and rows of the announcements that the floor does not cover."""
    files = rows = 0
    for record in records:
        payload = record.event.payload if record.event is not None else None
        if isinstance(payload, DataWritten) and record.offset >= floor.get(record.partition, 0):
            data = payload.data_files or ()
            files += len(data) + len(payload.delete_files or ())
            rows += sum(file.record_count for file in data)
    return files, rows

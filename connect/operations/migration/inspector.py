"""Migration check: the state that another sink left, and where Icefloe would start.

Rules of this file:
- A check changes nothing. State that it cannot read is an error, never a finding.
- A finding says what was found, why that is not safe, and what to do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.operations.migration.migration_report import MigrationReport, SinkGroup
from connect.operations.migration.table_inspection import TableInspection
from connect.protocol.control_topic import ControlRecord, read_to_end
from connect.protocol.start_offsets import first_offsets
from control_schemas.events import DataWritten


class Inspector:
    """Reads one connector's groups, control topic and tables.

    Args:
        config: the connector, placeholders resolved.
        admin: the cluster.
        reader: for the control topic; the caller closes it.
        catalog: of the tables.
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
        """Read and assess the state.

        Args:
            partitions: source partitions that the connector would read.

        Raises:
            IcefloeError: broker or catalog do not answer.
        """
        report = MigrationReport(self._config.name, self._config.connect_group_id)
        source = sorted(partitions)
        control = self._admin.partitions(self._config.control_topic)
        marks = self._admin.watermarks(control)
        report.control_topic = {tp.partition: marks[tp] for tp in control}
        report.groups = [g for g in self._groups(source, control) if g.is_used]
        self._judge_groups(report)
        self._judge_control_topic(report, control)
        waiting = self._waiting(report, marks)
        TableInspection(self._config, self._catalog, report).add_tables(waiting)
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
            committed = self._admin.committed(coordinator, control)
            yield SinkGroup(
                name,
                {
                    tp: at
                    for tp, at in self._admin.committed(name, source).items()
                    if at is not None
                },
                {tp.partition: at for tp, at in committed.items() if at is not None},
                (*self._admin.members(name), *self._admin.members(coordinator)),
            )

    def _judge_groups(self, report: MigrationReport) -> None:
        for group in report.groups:
            if group.members:
                report.unsafe(
                    "group_in_use",
                    f"{len(group.members)} members are in group {group.name} or its -coord, first "
                    f"{group.members[0]}: stop the connector there; a worker that was killed "
                    "leaves when its session times out",
                )
        own = report.used(report.group)
        old = report.used(f"cg-control-{report.connector}")
        if old is not None and old.name != report.group:
            report.unsafe(
                "offsets_elsewhere",
                f"group {old.name} of the older io.tabular sink holds offsets, but this JSON "
                f"continues with {report.group}: keep that sink's connector.class, or set "
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
                    f"{other.name} has other source offsets than {report.group}; those of "
                    f"{report.group} are used",
                )

    # ------------------------------------------------------------ control topic

    def _judge_control_topic(self, report: MigrationReport, control: list[TopicPartition]) -> None:
        own = report.used(report.group)
        topic = self._config.control_topic
        if not control:
            if own is not None and own.source_offsets:
                report.unsafe(
                    "control_topic_missing",
                    f"there are source offsets, but no control topic {topic}: set "
                    "iceberg.control.topic to the topic that the other sink used",
                )
            return
        if own is not None and own.source_offsets and not own.control_offsets:
            report.note(
                "no_control_offsets",
                f"group {own.name}-coord has none: the control topic is read from its beginning",
            )
        for partition, offset in sorted((own.control_offsets if own else {}).items()):
            log_start, end = report.control_topic.get(partition, (0, 0))
            if offset < log_start:
                report.unsafe(
                    "control_log_lost",
                    f"control events {topic}-{partition} [{offset}, {log_start}) are gone by "
                    "retention; files announced in them are in no table",
                )
            elif offset > end:
                report.unsafe(
                    "control_log_reset",
                    f"group {report.group}-coord has offset {offset} of {topic}-{partition}, which "
                    f"ends at {end}: the topic was deleted and created again",
                )
        ends = self._admin.ends(control)
        behind = [tp for tp, at in self._admin.high_watermarks(control).items() if at > ends[tp]]
        if behind:
            report.note(
                "open_transaction",
                f"a transaction is open in {topic}, partitions {[tp.partition for tp in behind]}: "
                "the broker aborts that of a killed task within a minute; check again then",
            )

    def _waiting(
        self, report: MigrationReport, marks: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[str, list[ControlRecord]]:
        """Return announcements at or above the group's control offsets, by table."""
        own = report.used(report.group)
        control_offsets = own.control_offsets if own is not None else {}
        starts = {
            tp: min(max(control_offsets.get(tp.partition, log_start), log_start), end)
            for tp, (log_start, end) in marks.items()
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
                f"{problems['malformed']} control events cannot be read; they are skipped",
            )
        return dict(out)

    # ------------------------------------------------------------ where to start

    def _place(self, report: MigrationReport, source: list[TopicPartition]) -> None:
        marks = self._admin.watermarks(source)
        fallback = self._config.fallback_group_id
        names = [report.group] if fallback is None else [report.group, fallback]
        groups = [group for name in names if (group := report.used(name))]
        starts = self._starts(marks, is_new=not any(group.source_offsets for group in groups))
        for tp in source:
            log_start, end = marks[tp]
            announced = [
                (group.source_offsets[tp], f"group {name}")
                for name in names
                if (group := report.used(name)) and tp in group.source_offsets
            ]
            offset, why = report.starts[tp] = announced[0] if announced else starts[tp]
            if offset < log_start:
                report.unsafe(
                    "source_data_lost",
                    f"{tp.topic}-{tp.partition}: records [{offset}, {log_start}) are gone by "
                    "retention",
                )
            elif offset > end:
                report.unsafe(
                    "source_log_reset",
                    f"{tp.topic}-{tp.partition}: {why} has offset {offset}, the log ends at {end}",
                )

    def _starts(
        self, marks: Mapping[TopicPartition, tuple[int, int]], *, is_new: bool
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Return where partitions without a committed offset start, and by which setting."""
        start = self._config.start
        fixed: dict[TopicPartition, int] = {}
        if is_new and start.timestamp_ms is not None:
            fixed = self._admin.offsets_at(list(marks), start.timestamp_ms)
        offsets = first_offsets(
            start, marks, fixed=fixed, admin=self._admin, now_ms=self._clock.now_ms()
        )
        sources = dict.fromkeys(fixed, "icefloe.start.timestamp")
        sources |= dict.fromkeys(start.offsets, "icefloe.start.offsets")
        return {tp: (offset, sources.get(tp, start.reset)) for tp, offset in offsets.items()}

"""Compares the offsets, the control topic and the tables of a connector."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table.refs import MAIN_BRANCH

from connect.clock import Clock
from connect.errors import CommitRefused, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.operations.audit.announced_ranges import AnnouncedSums
from connect.operations.audit.audit_report import AuditReport
from connect.operations.audit.table_audit import TableAudit
from connect.operations.connector_clients import ConnectorClients
from connect.protocol.control_topic import read_to_end


def audit(direct: ConnectorClients, clock: Clock) -> AuditReport:
    """Verify that every record is in a table, a dead letter or counted as dropped.

    The audit covers records whose announcements are still in the control topic. The connector may
    run during the audit: offsets are read before the control topic and the tables, so that newer
    records are not checked.

    Args:
        direct: the connector, its cluster and its catalog.
        clock: for bounded waits.

    Raises:
        IcefloeError: offsets, control topic or a table cannot be read.
    """
    config, admin = direct.config, direct.admin
    out = AuditReport(config.name)
    control = admin.partitions(config.control_topic)
    if not control:
        raise RetriableError(
            f"control topic {config.control_topic} does not exist", code="topic_missing"
        )
    committed = admin.committed(config.connect_group_id, direct.partitions)
    passed = admin.committed(config.control_group_id, control)
    marks = admin.watermarks(control)
    log_starts = {tp.partition: log_start for tp, (log_start, _) in marks.items()}
    # transformations that split records and routes to several tables make several rows of a record
    is_one_row = not config.raw.get("transforms") and (
        len(config.tables) == 1 or config.dynamic_enabled
    )
    announced = AnnouncedSums(
        out,
        config.connect_group_id,
        log_starts,
        is_one_row=is_one_row,
        is_row_level=config.is_row_level,
        dead_letter_table=config.errors.dead_letter_table,
    )
    announced.take(
        read_to_end(
            direct.reader,
            {tp: log_start for tp, (log_start, _) in marks.items()},
            {tp: end for tp, (_, end) in marks.items()},
            clock,
        )
    )
    _check_sources(out, admin, committed, announced.lost_ends)
    announced.check_rounds()
    for name in sorted({*config.tables, *announced.tables}):
        table_audit = TableAudit(
            out,
            config.offsets_property,
            config.table(name).commit_branch or MAIN_BRANCH,
            log_starts,
            {tp.partition: end for tp, (_, end) in marks.items()},
            {tp.partition: at for tp, at in passed.items() if at is not None},
            announced.ranges_of,
        )
        try:
            table = direct.catalog.load(tuple(name.split(".")))
        except CommitRefused as e:
            if e.code != "table_missing":
                raise
            rows = sum(a.rows for a in announced.tables[name])
            if rows:
                out.differs(
                    "table_missing",
                    f"{rows} rows were announced for the table, but it does not exist",
                    table=name,
                )
            continue
        out.tables.append(table_audit.check(name, table, announced.tables[name]))
    if any(log_starts.values()):
        out.notes.append(
            "retention has removed the beginning of the control topic: older announcements are not "
            "verified"
        )
    return out


def _check_sources(
    out: AuditReport,
    admin: KafkaAdmin,
    committed: dict[TopicPartition, int | None],
    lost_ends: Mapping[TopicPartition, int],
) -> None:
    """Check that no committed offset is above the last range, and that lost records are gone."""
    marks = admin.watermarks(list(committed))
    for tp, end in sorted(lost_ends.items()):
        if tp in marks and marks[tp][0] < end:
            out.differs(
                "loss_differs",
                f"source offsets up to {end} were announced as lost, but the log starts at "
                f"{marks[tp][0]}",
                topic=tp.topic,
                partition=tp.partition,
                end_offset=end,
            )
    for tp, at in sorted(committed.items()):
        source_sum = out.sources.get(tp)
        end = marks[tp][1]
        if source_sum is None:
            if at is not None and at > marks[tp][0]:
                out.notes.append(
                    f"{tp.topic}-{tp.partition}: no retained announcement covers the records "
                    f"before {at}"
                )
            continue
        source_sum.unread = max(0, end - source_sum.to_offset)
        if at is not None and at > source_sum.to_offset:
            out.differs(
                "source_gap",
                f"the group's committed offset is {at}, but no task announced source offsets "
                f"[{source_sum.to_offset}, {at})",
                topic=tp.topic,
                partition=tp.partition,
                start_offset=source_sum.to_offset,
                end_offset=at,
            )

"""Reads offsets, control topic and tables of a connector, and compares them."""

from __future__ import annotations

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
    """Prove that every record is in a table, a dead letter or dropped.

    The audit covers the records that the control topic still has announcements for. The connector
    may keep running: offsets are read first, then the control topic and the tables, so that
    later records are not judged.

    Args:
        direct: the connector, its cluster and its catalog.
        clock: for bounded waits.

    Raises:
        IcefloeError: something cannot be read.
    """
    config, admin = direct.config, direct.admin
    out = AuditReport(config.name)
    count = admin.topics().get(config.control_topic)
    if not count:
        raise RetriableError(
            f"control topic {config.control_topic} does not exist", code="topic_missing"
        )
    control = [TopicPartition(config.control_topic, number) for number in range(count)]
    committed = admin.committed(config.connect_group_id, direct.partitions)
    passed = admin.committed(config.control_group_id, control)
    marks = admin.watermarks(control)
    log_starts = {tp.partition: first for tp, (first, _) in marks.items()}
    # a record that is exploded, or goes to several tables, leaves more rows than one
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
            {tp: first for tp, (first, _) in marks.items()},
            {tp: end for tp, (_, end) in marks.items()},
            clock,
        )
    )
    _check_sources(out, admin, committed)
    announced.check_rounds()
    for name in sorted({*config.tables, *announced.tables}):
        one = TableAudit(
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
                    f"{rows} rows were announced for it, it is not there",
                    table=name,
                )
            continue
        out.tables.append(one.check(name, table, announced.tables[name]))
    if any(log_starts.values()):
        out.notes.append(
            "the control topic's beginning is gone by retention: what was announced before is not "
            "proved"
        )
    return out


def _check_sources(
    out: AuditReport, admin: KafkaAdmin, committed: dict[TopicPartition, int | None]
) -> None:
    """Where each partition's ranges end, the group must stand."""
    marks = admin.watermarks(list(committed))
    for tp, at in sorted(committed.items()):
        known = out.sources.get(tp)
        end = marks[tp][1]
        if known is None:
            if at is not None and at > marks[tp][0]:
                out.notes.append(
                    f"{tp.topic}-{tp.partition}: nothing that is retained says what became of the "
                    f"records before {at}"
                )
            continue
        known.unread = max(0, end - known.to_offset)
        if at is not None and at > known.to_offset:
            out.differs(
                "source_gap",
                f"the group is at {at}, but source offsets [{known.to_offset}, {at}) were "
                "announced by no task",
                topic=tp.topic,
                partition=tp.partition,
                start_offset=known.to_offset,
                end_offset=at,
            )

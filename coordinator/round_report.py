"""What a coordinator process reports of an ended round: its metrics, its log line, its event."""

from __future__ import annotations

from typing import Any

import structlog

from connect.metrics import process_metrics
from coordinator.kernel.effects import RoundEnded, TableCommitted, TableFailed

TABLES_LOGGED_MAX = 20

log = structlog.get_logger("coordinator")


def count_round(connector: str, ended: RoundEnded) -> None:
    """Count a round and the commits of its tables in the metrics of this process."""
    process_metrics.counter("rounds", connector=connector).inc()
    if ended.is_partial:
        process_metrics.counter("rounds_partial", connector=connector).inc()
    for outcome in ended.outcomes:
        _count_commit(connector, outcome)
    if ended.valid_through_us is not None:
        process_metrics.gauge("valid_through_timestamp_seconds", connector=connector).set(
            ended.valid_through_us / 1e6
        )
    duration_ms = ended.ended_ms - ended.started_ms
    process_metrics.gauge("round_duration_ms", connector=connector).set(duration_ms)
    process_metrics.durations("round_duration_seconds", connector=connector).observe(
        duration_ms / 1000
    )


def log_round(connector: str, ended: RoundEnded) -> None:
    """Log a round; one without files at DEBUG, because idle connectors end many of those."""
    written = [o for o in ended.outcomes if isinstance(o, TableCommitted) and o.files]
    failed = [o for o in ended.outcomes if isinstance(o, TableFailed)]
    write = log.info if written or failed or ended.is_partial else log.debug
    write(
        "round committed",
        connector=connector,
        commit_id=str(ended.commit_id),
        tables=len(written),
        tables_failed=len(failed),
        rows=sum(outcome.records for outcome in written),
        files=sum(outcome.files for outcome in written),
        duration_ms=ended.ended_ms - ended.started_ms,
        partial=ended.is_partial,
        table_names=[str(outcome.table) for outcome in written[:TABLES_LOGGED_MAX]],
    )


def round_event(connector: str, ended: RoundEnded) -> dict[str, Any]:
    """Return a round as the node gets it, for views and lineage."""
    read: dict[str, int] = {}
    for part in ended.ranges:
        if part.records_read:
            read[part.topic] = read.get(part.topic, 0) + part.records_read
    return {
        "event": "round",
        "connector": connector,
        "commit_id": str(ended.commit_id),
        "partial": ended.is_partial,
        "valid_through_us": ended.valid_through_us,
        "duration_ms": ended.ended_ms - ended.started_ms,
        "records": sum(read.values()),
        "topics": sorted(read),
        "topic_records": read,
        "tables": [_table_of(outcome) for outcome in ended.outcomes],
    }


def _count_commit(connector: str, outcome: TableCommitted | TableFailed) -> None:
    where = {"connector": connector, "table": str(outcome.table)}
    code = "committed" if isinstance(outcome, TableCommitted) else outcome.code
    process_metrics.counter("table_commits", outcome=code, **where).inc()
    if isinstance(outcome, TableCommitted) and outcome.snapshot_id is not None:
        process_metrics.counter("records_committed", **where).inc(outcome.records)
        process_metrics.counter("files_committed", **where).inc(outcome.files)
        process_metrics.gauge("commit_duration_ms", **where).set(outcome.duration_ms)
        process_metrics.durations("commit_duration_seconds", connector=connector).observe(
            outcome.duration_ms / 1000
        )


def _table_of(outcome: TableCommitted | TableFailed) -> dict[str, Any]:
    table = str(outcome.table)
    if isinstance(outcome, TableFailed):
        return {"table": table, "code": outcome.code, "message": outcome.message}
    return {
        "table": table,
        "snapshot_id": outcome.snapshot_id,
        "files": outcome.files,
        "records": outcome.records,
        "bytes": outcome.size_bytes,
        "duration_ms": outcome.duration_ms,
    }

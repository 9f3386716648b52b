"""Source offsets that kafka-delta-ingest has stored in a Delta table.

Rules of this file:
- While kafka-delta-ingest runs, its rows and offsets would move after they were read: a start is
  refused. Its group shows that, and offsets that moved between two reads of the table.
- kafka-delta-ingest stores the last offset that is in the table as version of the transaction
  identifier ``<app_id>-<partition>``, in the commit of the rows.

Source:
    kafka-delta-ingest (c6d42de) ``src/delta_helpers.rs``: ``build_actions``, ``create_txn_action``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from connect.errors import CommitRefused, ConfigError
from connect.gateways.delta.delta_model import DeltaStore
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger

_log = logger("ingest")


def continued_offsets(
    store: DeltaStore, table: str, app_id: str, partitions: Collection[int]
) -> dict[int, int]:
    """Return the next offset of each partition from which kafka-delta-ingest has rows in a table.

    Args:
        store: of the table.
        table: ``namespace.table``; it may not exist.
        app_id: of the job.
        partitions: of the topic.

    Raises:
        CommitRefused, RetriableError: as ``DeltaTables.load``, but for a table that does not exist.
    """
    try:
        version = store.load(tuple(table.split(".")))
    except CommitRefused as e:
        if e.code == "table_missing":
            return {}
        raise
    last = {p: version.transaction(f"{app_id}-{p}") for p in partitions}
    return {p: offset + 1 for p, offset in sorted(last.items()) if offset is not None}


def refuse_running_daemon(admin: KafkaAdmin, group: str, topic: str) -> None:
    """Check that no process of kafka-delta-ingest reads the topic.

    Args:
        admin: of the cluster.
        group: consumer group of kafka-delta-ingest.
        topic: of the job.

    Raises:
        ConfigError: ``daemon_running``.
        RetriableError: the broker is unavailable.
    """
    try:
        readers = admin.readers(group, topic)
    except ConfigError as error:  # the login may not describe the group
        _log.warning("cannot check whether kafka-delta-ingest still runs", error=str(error))
        return
    if readers:
        raise _running(f"members of the consumer group {group!r} read it: {', '.join(readers)}")


def refuse_moved_offsets(before: Mapping[int, int], after: Mapping[int, int]) -> None:
    """Check that the offsets in the table did not move between two reads of it.

    Raises:
        ConfigError: ``daemon_running``.
    """
    if moved := sorted(p for p in after if before.get(p) != after[p]):
        partitions = ", ".join(map(str, moved))
        raise _running(f"its offsets in the table moved meanwhile (partitions {partitions})")


def _running(evidence: str) -> ConfigError:
    return ConfigError(
        f"kafka-delta-ingest still runs for this topic: {evidence}. Every row would be in the "
        "table twice. Stop its processes and start again; if they belong to another table, set "
        "--ignore_running_daemon",
        code="daemon_running",
    )

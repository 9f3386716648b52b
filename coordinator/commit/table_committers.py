"""Opens the committer of a connector's tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.catalog.log_stores import open_delta_tables, open_parquet_tables
from connect.gateways.delta.delta_model import DeltaFile
from connect.gateways.parquet.parquet_commit import PublishedFile
from connect.gateways.parquet.parquet_tables import CompletedTables
from connect.metrics import process_metrics
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.multi_table_commit import JointCommitter
from coordinator.commit.rules.commit_rules import TableCommitter, failed
from coordinator.commit.rules.table_descriptions import TableDescriptions
from coordinator.commit.table_logs.delta_files import delta_file, held_before
from coordinator.commit.table_logs.delta_row_changes import DeltaRowChanges
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.commit.table_logs.parquet_files import parquet_file
from coordinator.control_log_check import ControlLogCheck
from coordinator.kernel.effects import CommitOutcome, TableCommit
from coordinator.maintenance.due_work import DueWork

OnEvent = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class CommitterSettings:
    """What the committer of a connector's tables depends on.

    Attributes:
        config: the connector, placeholders resolved.
        control: the control topic.
        control_topic_id: remembered in each table; None if it is not known.
        has_history: False when the connector's control group has no committed offsets yet.
        describes_tables: report ``table_described``, for lineage events of the node.
    """

    config: ConnectorConfig
    control: ControlLogCheck
    control_topic_id: str | None = None
    has_history: bool = True
    describes_tables: bool = False


@dataclass(frozen=True, slots=True)
class NoTables:
    """The committer of a connector whose rows go to topics only.

    Its rounds have no files. They end with CommitComplete and a valid-through time, which says up
    to when the rows are in the topics. Files that another writer announces are refused.
    """

    def commit(self, commit: TableCommit) -> CommitOutcome:
        """Refuse the files of a table."""
        error = CommitRefused(
            f"files were announced for {commit.table}, but the connector has no tables",
            code="table_not_configured",
            table=str(commit.table),
        )
        return failed(commit, error, is_retriable=False)

    def close(self) -> None:
        """Do nothing."""


def open_committer(
    settings: CommitterSettings,
    clock: WaitingClock,
    on_event: OnEvent,
    closing: contextlib.ExitStack,
) -> tuple[TableCommitter, JointCommitter | None]:
    """Open the committer for the connector's table format.

    Args:
        settings: what it depends on.
        clock: time, identities, waiting.
        on_event: receives ``maintenance_limits`` now, ``maintenance_due`` and ``table_described``
            after commits.
        closing: closes its clients; the caller closes the committer before.

    Returns:
        The committer, and that of requests for several tables if the connector has them.

    Raises:
        ConfigError, RetriableError, CommitRefused: as ``open_catalog``.
    """
    config, observe = settings.config, process_metrics.catalog_requests("coordinator")
    if not config.has_tables:
        return NoTables(), None
    descriptions = None
    if settings.describes_tables:
        descriptions = TableDescriptions.reporting(config, on_event)
    if not config.is_iceberg:
        committer = log_committer(
            config,
            clock,
            observe,
            control_topic_id=settings.control_topic_id,
            control=settings.control,
            descriptions=descriptions,
        )
        return committer, None
    catalog = open_catalog(
        config.catalog_name, config.catalog_properties, config.locations, observe
    )
    closing.callback(catalog.close)
    tables = Committer(
        catalog,
        config,
        clock,
        control_topic_id=settings.control_topic_id,
        control=settings.control,
        has_history=settings.has_history,
        due=DueWork.reporting(config, on_event),
        descriptions=descriptions,
    )
    return tables, JointCommitter(tables, catalog) if config.multi_table_commit else None


def log_committer(
    config: ConnectorConfig,
    clock: WaitingClock,
    observe: Callable[[str, str, int], None],
    **more: Any,
) -> TableCommitter:
    """Return the committer of a connector whose tables have no catalog.

    Args:
        config: the connector.
        clock: time, identities, waiting.
        observe: called after each operation on a log with its name, its outcome and its
            milliseconds.
        more: further arguments of ``LogCommitter``.

    Raises:
        ConfigError, RetriableError, CommitRefused: as ``open_catalog``.
    """
    properties, locations = config.catalog_properties, config.locations
    if config.table_format == "delta":
        store = open_delta_tables(properties, locations, observe)
        more["prove"] = partial(held_before, are_verified_later=config.is_row_level)
        if config.is_row_level:
            more["row_changes"] = partial(DeltaRowChanges.of, config, clock)
        return LogCommitter[DeltaFile](store, delta_file, config, clock, **more)
    folders = CompletedTables(open_parquet_tables(properties, locations, observe))
    return LogCommitter[PublishedFile](folders, parquet_file, config, clock, **more)

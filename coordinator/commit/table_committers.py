"""Opens the committer of a connector's tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.gateways.catalog.catalog import open_catalog
from connect.metrics import process_metrics
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.multi_table_commit import JointCommitter
from coordinator.commit.no_tables import NoTables
from coordinator.commit.rules.commit_rules import TableCommitter
from coordinator.commit.rules.table_descriptions import TableDescriptions
from coordinator.commit.table_logs.log_formats import log_committer
from coordinator.control_log_check import ControlLogCheck
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

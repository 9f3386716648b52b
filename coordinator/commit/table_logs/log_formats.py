"""Committers of the formats whose tables have a log of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.gateways.catalog.log_stores import open_delta_tables, open_parquet_tables
from connect.gateways.delta.delta_model import DeltaFile
from connect.gateways.parquet.parquet_commit import PublishedFile
from connect.gateways.parquet.parquet_tables import CompletedTables
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.rules.commit_rules import TableCommitter
from coordinator.commit.table_logs.delta_files import delta_file, held_before
from coordinator.commit.table_logs.delta_row_changes import DeltaRowChanges
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.commit.table_logs.parquet_files import parquet_file


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

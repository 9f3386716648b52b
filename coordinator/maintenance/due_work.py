"""Reports which work of the maintenance process is due, by table.

Rules of this file:
- A report is sent after a commit whose table has due work, and once after the last work is done.
- Reporting never fails a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Self

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from connect.config.connector import ConnectorConfig
from control_schemas.events import ContentFile
from coordinator.maintenance.file_counters import FileCounters, due


class DueWork:
    """The tables of one connector. Thread-safe.

    Args:
        config: the connector.
        report: called with the name of a table and its due work.
    """

    def __init__(
        self, config: ConnectorConfig, report: Callable[[str, Mapping[str, int]], None]
    ) -> None:
        self._config = config
        self._report = report
        self._lock = threading.Lock()
        self._counters: dict[str, FileCounters] = {}
        self._reported: set[str] = set()

    @classmethod
    def reporting(
        cls, config: ConnectorConfig, on_event: Callable[[str, Mapping[str, Any]], None]
    ) -> Self:
        """Report the limits of the configuration now, and due work later.

        Args:
            config: the connector.
            on_event: called with ``maintenance_limits`` and ``maintenance_due``.
        """
        on_event("maintenance_limits", {"limits": limits(config)})
        return cls(
            config, lambda table, work: on_event("maintenance_due", {"table": table, "work": work})
        )

    def committed(
        self,
        table: str,
        files: Iterable[ContentFile],
        metadata: TableMetadata,
        manifests: int | None,
    ) -> None:
        """Count a commit, and report what is due after it.

        Args:
            table: its name.
            files: data files that the commit added.
            metadata: the table after the commit.
            manifests: number in the new snapshot; None where it is not known.
        """
        config, settings = self._config.maintenance, self._config.table(table)
        if config is None or not settings.is_maintained:
            return
        with self._lock:
            counters = self._counters.setdefault(table, FileCounters())
            counters.committed(
                files,
                metadata,
                branch=settings.commit_branch or MAIN_BRANCH,
                manifests=manifests,
                target_bytes=config.target_file_size_bytes,
            )
            due_counts = due(counters, config)
            if not due_counts and table in self._reported:
                return
            if due_counts:
                self._reported.discard(table)
            else:
                self._reported.add(table)
        self._report(table, due_counts)


def limits(config: ConnectorConfig) -> dict[str, Any] | None:
    """Return what the node needs to plan maintenance; None if none is enabled.

    Returns:
        JSON: the fields of ``MaintenanceConfig``, and the configured ``tables``.
    """
    settings = config.maintenance
    if settings is None:
        return None
    tables = map(config.qualified, config.tables)
    return {**asdict(settings), "tables": [t for t in tables if config.table(t).is_maintained]}

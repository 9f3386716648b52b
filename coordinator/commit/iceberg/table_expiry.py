"""Snapshots that the commits of one table remove, and the files that go with them.

Rules of this file:
- A commit removes snapshots under the precondition of its data: no request is sent for them alone.
- Files are deleted after the commit, on a thread of their own: no commit waits for it. The end of a
  session waits ``CLEANER_TIMEOUT_S`` at most. What is left then is found by the removal of orphan
  files.
- A failure of the expiry is logged and never fails a table.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

import structlog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, RetriableError
from connect.gateways.storage.avro_limits import ReadBudget
from connect.gateways.storage.object_store import delete_files, storage_errors
from connect.metrics import process_metrics
from coordinator.commit.iceberg.floor import FloorKeys
from coordinator.commit.rules.held_files import oldest_created_ms
from coordinator.maintenance.expired_files import expired_files
from coordinator.maintenance.snapshot_expiry import ExpiryPolicy, due

QUEUE_MAX: Final = 100
"""Commits whose files wait to be deleted; the files of more are left."""
CLEANER_TIMEOUT_S: Final = 3.0
"""A store may hang for minutes in one request; the next session of the coordinator must not."""

log = structlog.get_logger("coordinator")


@dataclass(slots=True)
class TableExpiry:
    """The expiry of one commit, over all its attempts.

    Attributes:
        policy: of the table.
        kept: snapshots that this coordinator may still have to recognize.
        kept_since_ms: snapshots since then are kept; None for no such bound.
        removed: snapshots that an attempt was to remove.
    """

    policy: ExpiryPolicy
    kept: frozenset[int]
    kept_since_ms: int | None
    removed: set[int] = field(default_factory=set)

    def due(self, table: Table, keys: FloorKeys, now_ms: int) -> tuple[int, ...]:
        """Return the snapshots to remove with the next attempt."""
        snapshots = due(
            table.metadata,
            self.policy,
            branch=keys.branch,
            now_ms=now_ms,
            moved_tag=keys.tag,
            kept=self.kept,
            kept_since_ms=self.kept_since_ms,
        )
        self.removed.update(snapshots)
        return snapshots


@dataclass(frozen=True, slots=True)
class _Removal:
    connector: str
    name: str
    before: TableMetadata
    removed: frozenset[int]
    after: Table


class ExpiredFileCleaner:
    """Chooses old snapshots of a connector's tables, and deletes their files on its own thread.

    Args:
        config: the connector.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._connector = config.name
        self._config = config.snapshot_expiry
        self._removals: queue.Queue[_Removal | None] = queue.Queue(QUEUE_MAX)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether commits of the connector remove snapshots."""
        return self._config is not None

    def expiry_of(
        self, table: Table, kept: Iterable[int], paths: Collection[str], now_ms: int
    ) -> TableExpiry | None:
        """Return the expiry of one commit; None where the connector removes no snapshots.

        Args:
            table: as it was loaded.
            kept: snapshots that this coordinator may still have to recognize.
            paths: of the files that are committed.
            now_ms: wall clock.
        """
        if self._config is None:
            return None
        policy = ExpiryPolicy.of(self._config, table.properties)
        return TableExpiry(policy, frozenset(kept), oldest_created_ms(paths, now_ms))

    def add(self, before: TableMetadata, expiry: TableExpiry | None, after: Table) -> None:
        """Delete, some time later, the files of the snapshots that a commit has removed."""
        if expiry is None or not expiry.removed:
            return
        left = {snapshot.snapshot_id for snapshot in after.metadata.snapshots}
        removed = frozenset(expiry.removed - left)
        if not removed:
            return
        name = ".".join(after.name())
        where = {"connector": self._connector, "table": name}
        process_metrics.counter("snapshots_expired", **where).inc(len(removed))
        self._start()
        try:
            self._removals.put_nowait(_Removal(self._connector, name, before, removed, after))
        except queue.Full:
            log.warning("files of expired snapshots left as orphans", **where)

    def _start(self) -> None:
        with self._lock:  # tables are committed by several threads
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"expiry-{self._connector}", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Stop after the request to the store that is under way, or after ``CLEANER_TIMEOUT_S``."""
        self._closing.set()
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._removals.put_nowait(None)
        self._thread.join(CLEANER_TIMEOUT_S)
        if self._thread.is_alive():
            log.warning(
                "files of expired snapshots left as orphans",
                connector=self._connector,
                error=f"the store did not answer within {CLEANER_TIMEOUT_S:g} s",
            )

    def _run(self) -> None:
        while (removal := self._removals.get()) is not None and not self._closing.is_set():
            try:
                _delete(removal, self._closing)
            except (RetriableError, CommitRefused, ValueError) as error:
                log.warning(
                    "files of expired snapshots left as orphans",
                    connector=removal.connector,
                    table=removal.name,
                    error=str(error),
                )


def _delete(removal: _Removal, closing: threading.Event) -> None:
    io = removal.after.io
    with storage_errors("reading manifests of expired snapshots"), ReadBudget().applied():
        expired = expired_files(removal.before, removal.removed, removal.after.metadata, io)
    deleted = delete_files(io, takewhile(lambda _: not closing.is_set(), expired.paths))
    where = {"connector": removal.connector, "table": removal.name}
    process_metrics.counter("expired_files_deleted", **where).inc(deleted)
    log.info(
        "snapshots expired",
        connector=removal.connector,
        table=removal.name,
        snapshots=len(removal.removed),
        files=deleted,
        is_complete=expired.is_complete,
    )

"""Loads tables while the tasks of a round read and write, so that commits begin with them.

Rules of this file:
- A table is loaded ahead if the round before committed to it. A round loads it once: the commit
  uses that load, or discards it and loads the table itself.
- A load that no commit used was one request too many. After it, the table is not loaded ahead in
  the next ``PAUSED_ROUNDS`` rounds: at most one load in ten is wasted.
- A load is used for ``AGE_MS_MAX``. In that time other clients may have changed the table. The
  committer sends a commit that is refused after such a change, and decides nothing else from it.
- A failed load is ignored: the commit loads the table again and reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog
from pyiceberg.table import Table

from connect.errors import IcefloeError
from connect.gateways.catalog.catalog import LoadedAhead
from coordinator.kernel.announcements import Identifier
from coordinator.kernel.effects import TableCommit

AGE_MS_MAX: Final = 2_000
INTERVAL_MS_MAX: Final = 10_000
"""With longer commit intervals a load ahead gains less than 2 % of the interval."""
PAUSED_ROUNDS: Final = 10
SNAPSHOTS_MAX: Final = 500
"""A table with more is not loaded ahead with its history: about 2 MB for each table."""
TABLES_MAX: Final = 64

log = structlog.get_logger("coordinator")


class AheadTables:
    """Chooses the tables that a round loads ahead. For one thread.

    Args:
        interval_ms: the commit interval of the connector.
    """

    def __init__(self, interval_ms: int) -> None:
        self._is_enabled = interval_ms <= INTERVAL_MS_MAX
        self._round: UUID | None = None
        self._committed: tuple[Identifier, ...] = ()

    def round_started(self, commit_id: UUID) -> tuple[Identifier, ...]:
        """Return the tables to load; none for a repeated StartCommit.

        Args:
            commit_id: of the round.
        """
        if commit_id == self._round:
            return ()
        chosen, self._round, self._committed = self._committed, commit_id, ()
        return chosen if self._is_enabled else ()

    def committing(self, commits: Sequence[TableCommit]) -> None:
        """Note the tables of a round."""
        self._committed = tuple(commit.table.identifier for commit in commits[:TABLES_MAX])


@dataclass(frozen=True, slots=True)
class AheadLoad:
    """A load, before its commit.

    Attributes:
        loaded: the table.
        has_history: whether it was loaded with its history.
        started_ms: monotonic, before the request.
    """

    loaded: LoadedAhead
    has_history: bool
    started_ms: int


@dataclass(slots=True)
class AheadSlot:
    """The load of one table that waits for its commit. Used under the table's lock.

    Attributes:
        snapshots: of the table after its last commit.
    """

    snapshots: int = 0
    _load: AheadLoad | None = None
    _paused: int = 0

    def load(self, load: Callable[[], LoadedAhead], now_ms: int, *, has_history: bool) -> None:
        """Load the table, unless loads ahead were wasted recently.

        Args:
            load: requests the table.
            now_ms: monotonic.
            has_history: whether it is loaded with its history.
        """
        if self._load is not None:
            self.wasted()
        if self._paused:
            self._paused -= 1
            return
        if has_history and self.snapshots > SNAPSHOTS_MAX:
            return
        try:
            self._load = AheadLoad(load(), has_history, now_ms)
        except IcefloeError as error:
            log.info("table could not be loaded ahead", code=error.code, error=str(error))

    def take(self, now_ms: int) -> AheadLoad | None:
        """Return the load once, if it is young enough."""
        taken, self._load = self._load, None
        if taken is not None and now_ms - taken.started_ms > AGE_MS_MAX:
            self.wasted()
            return None
        return taken

    def committed(self, table: Table, *, is_old: bool) -> None:
        """Note a commit.

        Args:
            table: after it.
            is_old: it began with a load that was too old.
        """
        self.snapshots = len(table.metadata.snapshots)
        if is_old:
            self.wasted()

    def wasted(self) -> None:
        """Note that a load was of no use, and pause."""
        self._load = None
        self._paused = PAUSED_ROUNDS

"""Commits the tables of one connector in processes of their own.

Rules of this file:
- A table belongs to one process for the whole session: what is known of it between rounds is there.
- The session ends with its first lost process, as if the coordinator had been killed: all of its
  processes are killed, and every commit under way has an unknown outcome. The next session reads
  the tables.
- ``close`` returns when every process has ended, so no commit is sent after it. A session closes
  before the next one starts.
"""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Mapping
from dataclasses import replace

import structlog

from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.metrics import process_metrics
from connect.redaction.secret_values import KNOWN
from coordinator.commit.table_committers import CommitterSettings, OnEvent
from coordinator.commit_processes.commit_process import (
    COMMIT_PROCESS_LOST,
    CommitProcess,
    CommitProcessSetup,
    OnLost,
)
from coordinator.commit_processes.messages import Opening, encoded
from coordinator.kernel.announcements import Identifier
from coordinator.kernel.effects import CommitOutcome, TableCommit

log = structlog.get_logger("coordinator")
_RUNNING = "commit_processes_running"


def process_count(config: ConnectorConfig, setup: CommitProcessSetup | None) -> int:
    """Return the number of processes for a connector; 0 commits in the coordinator's process.

    Tables that are committed in one request stay in one process. So does a single table.

    Args:
        config: the connector.
        setup: of the node; None for none.
    """
    if setup is None or not config.has_tables or config.multi_table_commit:
        return 0
    if config.names_tables_by_record:
        return setup.count
    tables = len({*config.tables, config.errors.dead_letter_table} - {None})
    return min(setup.count, tables) if tables > 1 else 0


def process_of(identifier: tuple[str, ...], count: int) -> int:
    """Return the index of the process that commits a table.

    Args:
        identifier: of the table.
        count: of processes.
    """
    return zlib.crc32("\0".join(identifier).encode()) % count


def report_unused(connector: str) -> None:
    """Report no number of processes of a connector: 0 would mean that they are starting again."""
    process_metrics.gauge(_RUNNING, connector=connector).drop()


class CommitProcesses:
    """The commit processes of one session; a ``TableCommitter``.

    ``start`` must be called on a thread that lives until ``close``.

    Args:
        settings: of the committer in each process.
        kafka: properties of a client of the control topic's cluster; None without a broker.
        setup: how the processes are started.
        count: of processes.
        on_event: receives their reports, from any thread.
        unanswered_ms_max: longest time without an outcome of a process that has commits.
    """

    def __init__(
        self,
        settings: CommitterSettings,
        kafka: Mapping[str, str] | None,
        setup: CommitProcessSetup,
        count: int,
        on_event: OnEvent,
        *,
        unanswered_ms_max: int,
    ) -> None:
        self._connector = settings.config.name
        self._opening = Opening(settings.with_admin(None), kafka, KNOWN.replacements())
        self._setup = replace(setup, count=count)
        self._on_event = on_event
        self._on_lost: OnLost = lambda _: None
        self._unanswered_ms_max = unanswered_ms_max
        self._processes: list[CommitProcess] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._error: RetriableError | None = None
        self._stopping = threading.Event()
        self._closed = threading.Event()

    @property
    def pids(self) -> list[int]:
        """Process ids, in the order of the processes."""
        return [process.pid for process in self._processes]

    def start(self, on_lost: OnLost = lambda _: None) -> None:
        """Start the processes; returns before they can commit.

        Args:
            on_lost: called once, from any thread, when the session must end, also while no commit
                is under way.

        Raises:
            RetriableError: ``commit_process_lost``: the system starts no process, or one is lost.
        """
        self._on_lost = on_lost
        opening = encoded(self._opening)
        name = f"commit-processes-{self._connector}"
        threading.Thread(target=self._watch, name=name, daemon=True).start()
        for number in range(1, self._setup.count + 1):
            process = CommitProcess(number, self._setup, self._on_event, self._give_up)
            self._processes.append(process)  # it is watched while it is sent what it needs
            process.open(self._setup, opening)
            self._report_running(len(self._processes))
            self._check()
        log.info("commit processes started", connector=self._connector, pids=self.pids)

    def commit(self, commit: TableCommit) -> CommitOutcome:
        """Have the table's process commit it.

        Raises:
            RetriableError: ``commit_process_lost``: a process of the session was lost. The outcome
                is unknown, and the session must end.
        """
        self._check()
        number = next(self._numbers)
        process = self._processes[process_of(commit.table.identifier, len(self._processes))]
        return process.commit(number, commit)

    def load_ahead(self, identifier: Identifier) -> None:
        """Have the table's process load the table; the outcome is not reported."""
        process = self._processes[process_of(identifier, len(self._processes))]
        process.load_ahead(identifier)

    def stop(self) -> None:
        """Limit the time of commits under way; a process that needs longer is given up."""
        self._stopping.set()

    def close(self) -> None:
        """Return when every process has ended; no commit may be under way."""
        for process in self._processes:
            process.finish()
        for process in self._processes:
            process.wait(self._setup.finish_ms_max / 1000)
        self._report_running(0)
        self._closed.set()

    def _watch(self) -> None:
        stopping_ms = 0
        while not self._closed.wait(self._setup.poll_ms / 1000):
            setup = self._setup
            for process in list(self._processes):
                process.check(setup.poll_ms, setup.silence_ms_max, self._unanswered_ms_max)
            stopping_ms += setup.poll_ms if self._stopping.is_set() else 0
            if stopping_ms >= setup.stop_ms_max:
                reason = f"commits did not end within {setup.stop_ms_max} ms after the stop"
                self._give_up(RetriableError(reason, code=COMMIT_PROCESS_LOST))

    def _report_running(self, count: int) -> None:
        process_metrics.gauge(_RUNNING, connector=self._connector).set(count)

    def _check(self) -> None:
        if (error := self._error) is not None:
            raise error

    def _give_up(self, error: RetriableError) -> None:
        with self._lock:
            is_first = self._error is None
            self._error = self._error or error
        if is_first:
            log.error("commit process lost", connector=self._connector, error=str(error))
            self._report_running(0)
        for process in list(self._processes):  # also one that was being started the first time
            process.kill(self._error)
        if is_first:
            self._on_lost(error)

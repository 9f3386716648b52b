"""The main function of a commit process.

Rules of this file:
- It ends at once when its coordinator is gone: its commits then are those of a killed coordinator.
- SIGTERM to the whole node does not end it. The coordinator drains, and needs it for its last
  commits.
- A commit without an outcome ends the process: the coordinator must not wait for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import structlog

from connect import logs
from connect.clock import SystemClock
from connect.errors import IcefloeError, trace_of
from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.metrics import process_metrics
from connect.processes.child_main import Serving, begin
from connect.processes.coordinator_names import COORDINATOR
from connect.processes.ipc import Channel
from connect.redaction.secret_values import KNOWN
from coordinator.commit.table_committers import open_committer
from coordinator.commit_processes.messages import Opening, decoded, outcome_message
from coordinator.kernel.announcements import Identifier
from coordinator.kernel.effects import TableCommit

LOST_STATUS = 70
NOT_OPENED_STATUS = 71

log = structlog.get_logger("coordinator")


def serve(channel: Channel | None) -> int:
    """Commit until the coordinator asks to finish; return the exit status.

    Args:
        channel: the connection to the coordinator; None if none started the process.

    Raises:
        ConfigError: no coordinator started the process.
    """
    serving = begin(COORDINATOR, channel)
    if serving is None:
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    status = LOST_STATUS
    try:
        status = _commit_all(serving)
    finally:
        if status == LOST_STATUS:
            if (error := sys.exc_info()[1]) is not None:
                _log_failure(error)
            os._exit(status)  # threads that commit must not continue without their coordinator
    return status


def _commit_all(serving: Serving) -> int:
    channel = serving.child.channel
    commits: TableCommits | None = None
    with contextlib.suppress(EOFError):
        for message in serving.commands:
            match message["op"]:
                case "open":
                    try:
                        opening = decoded(channel.payload_of(message), Opening)
                        commits = TableCommits(opening, channel)
                    except IcefloeError as error:
                        refusal = {"code": error.code, "message": str(error)}
                        channel.send({"event": "not_opened", **refusal})
                        return NOT_OPENED_STATUS
                    channel.send({"event": "opened"})
                    process_metrics.start_reporting(channel)
                case "commit" if commits is not None:
                    _set_levels(message["levels"])
                    commit = decoded(channel.payload_of(message), TableCommit)
                    commits.start(message["number"], commit)
                case "load_ahead" if commits is not None:
                    commits.load_ahead(tuple(message["table"]))
                case "finish" if commits is not None:
                    commits.close()
                    return 0
    return LOST_STATUS


class TableCommits:
    """The committer of this process, and its threads.

    Args:
        opening: what the coordinator sent.
        channel: to the coordinator.

    Raises:
        ConfigError, RetriableError, CommitRefused: as ``open_committer``.
    """

    def __init__(self, opening: Opening, channel: Channel) -> None:
        KNOWN.add_all(opening.secrets)
        self._channel = channel
        self._closing = contextlib.ExitStack()
        settings = opening.settings
        if opening.kafka is not None:
            admin = self._closing.enter_context(SharedAdmins().lend(opening.kafka))
            settings = settings.with_admin(admin)
        self._committer, _ = open_committer(settings, SystemClock(), self._report, self._closing)
        config = settings.config
        self._pool = ThreadPoolExecutor(
            max(1, config.commit_threads), thread_name_prefix=f"commit-{config.name}"
        )

    def start(self, number: int, commit: TableCommit) -> None:
        """Begin to commit a table; returns at once.

        Args:
            number: of the commit, for its outcome.
            commit: what is announced.
        """
        self._pool.submit(self._commit, number, commit).add_done_callback(_end_after_error)

    def load_ahead(self, identifier: Identifier) -> None:
        """Begin to load a table; returns at once."""
        self._pool.submit(self._committer.load_ahead, identifier)

    def close(self) -> None:
        """Close the committer and its clients, and send the last counts; no commit is under way."""
        self._pool.shutdown(wait=True)
        self._committer.close()
        self._closing.close()
        _, samples = process_metrics.PROCESS.snapshot()
        self._channel.send({"event": "metrics", "samples": samples})

    def _commit(self, number: int, commit: TableCommit) -> None:
        self._channel.send(outcome_message(number, self._committer.commit(commit)))

    def _report(self, kind: str, where: Mapping[str, Any]) -> None:
        if kind != "maintenance_limits":  # the coordinator has reported them
            self._channel.send({"event": "report", "kind": kind, "where": where})


def _set_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logs.set_level(name, level)


def _end_after_error(done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        _log_failure(error)
        os._exit(LOST_STATUS)


def _log_failure(error: BaseException) -> None:
    log.error("commit process failed", error=trace_of(error))

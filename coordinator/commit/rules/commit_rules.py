"""Rules of a table's commit that hold for every table format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Protocol, TypeVar

import structlog

from connect.config.connector import ConnectorConfig
from connect.errors import (
    CommitError,
    CommitRefused,
    CommitStateUnknown,
    Fenced,
    IcefloeError,
    RetriableError,
)
from connect.gateways.catalog.catalog_errors import THROTTLED, UNREADABLE
from control_schemas.events import DataWritten
from coordinator.kernel.effects import CommitOutcome, CoordinatorFenced, TableCommit, TableFailed

_RETRIABLE_REFUSALS = frozenset(
    {"unauthorized", "forbidden", THROTTLED, UNREADABLE, "manifest_invalid"}
)
_MESSAGE_CHARACTERS_MAX = 500

UNEXPECTED = "unexpected"
"""Code of a table's failure that no error of ours stands for."""

log = structlog.get_logger("coordinator")
T = TypeVar("T")


class TableCommitter(Protocol):
    """Commits to the tables of one connector, in one table format."""

    def commit(self, commit: TableCommit) -> CommitOutcome:
        """Bring everything announced for a table into it; any thread, any table."""
        ...

    def close(self) -> None:
        """End; no commit may be under way."""
        ...


def guarded(commit: TableCommit, work: Callable[[], T]) -> T | CommitOutcome:
    """What ``work`` returns, or the outcome that its error stands for.

    An error of any kind is about this table alone. Where it came after a commit was sent, the
    attempt is remembered as uncertain: its files stay, and the next round searches for it.
    """
    try:
        return work()
    except Fenced as error:
        return CoordinatorFenced(commit.table, commit.commit_id, str(error))
    except (CommitError, RetriableError) as error:
        error.at(table=str(commit.table), commit_id=str(commit.commit_id))
        is_final = isinstance(error, CommitRefused) and error.code not in _RETRIABLE_REFUSALS
        return failed(commit, error, is_retriable=not is_final)
    except IcefloeError as error:  # of this table alone
        return failed(commit, error, is_retriable=False)
    except Exception as error:  # the boundary of a table: its libraries raise anything
        log.exception("table failed", table=str(commit.table), code=UNEXPECTED)
        return failed(commit, _unexpected(error), is_retriable=True)


@cache
def _version() -> str:
    return version("icefloe")


def commit_summary(commit: TableCommit) -> dict[str, str]:
    """Return what every commit says of itself."""
    return {
        "kafka.connect.commit-id": str(commit.commit_id),
        "kafka.connect.task-id": commit.task_id,
        "engine-name": "icefloe",
        "engine-version": _version(),
    }


def announced_uuids(commit: TableCommit) -> set[object]:
    """Return the identities of the table for which files were written."""
    announced: set[object] = {commit.table.table_uuid}
    for envelope in commit.announcements:
        if isinstance(envelope.event.payload, DataWritten):
            announced.add(envelope.event.payload.table.table_uuid)
    return announced - {None}


def refuse_foreign_table(
    commit: TableCommit, floor: Mapping[int, int], config: ConnectorConfig
) -> None:
    """Raise when files are announced for a table that the connector does not write to.

    Any client that can write to the control topic can name any table. A table that the connector
    has committed to remains allowed after it was removed from the configuration: its announced
    files must still be committed.

    Raises:
        CommitRefused: ``table_not_configured``.
    """
    name = str(commit.table)
    has_written = bool(floor) and config.granted_tables is None
    if not has_written and not config.may_write(name):
        raise CommitRefused(
            f"files were announced for {name}, which connector {config.name} neither writes to by "
            "its configuration nor has written to; if they are its own, add the table to "
            "iceberg.tables, else drop them with icefloe tables skip",
            code="table_not_configured",
        )


def _unexpected(error: Exception) -> CommitStateUnknown:
    text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS_MAX]
    return CommitStateUnknown(
        f"the table cannot be committed, its files wait: {type(error).__name__}: {text}",
        code=UNEXPECTED,
    )


def failed(commit: TableCommit, error: IcefloeError, *, is_retriable: bool) -> TableFailed:
    """Return the outcome for an error."""
    present_uuid = error.coordinates.get("present_uuid")
    return TableFailed(
        commit.table, commit.commit_id, error.code, str(error), is_retriable, present_uuid
    )

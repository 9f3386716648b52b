"""What the log of a coordinator says of a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from structlog.testing import capture_logs

from control_schemas.events import TableReference
from coordinator.kernel.effects import RoundEnded, TableCommitted, TableFailed
from coordinator.round_report import log_round

ROUND = UUID(int=7)
TABLES = tuple(TableReference("iceberg", ("db",), name) for name in ("a", "b", "c"))


def logged(
    outcomes: Sequence[TableCommitted | TableFailed], *, is_partial: bool = False
) -> dict[str, Any]:
    """The one event that a round writes."""
    ended = RoundEnded(ROUND, 1_000, 1_250, is_partial, None, tuple(outcomes), ())
    with capture_logs() as events:
        log_round("orders", ended)
    [event] = events
    return dict(event)


def test_a_round_is_logged_with_tables_rows_files_and_time() -> None:
    """Tables without new files and failed ones are not among the committed."""
    event = logged(
        [
            TableCommitted(TABLES[0], ROUND, 1, files=2, records=30),
            TableCommitted(TABLES[1], ROUND, None),
            TableFailed(TABLES[2], ROUND, "table_missing", "gone", is_retriable=False),
        ]
    )
    assert event == {
        "event": "round committed",
        "log_level": "info",
        "connector": "orders",
        "commit_id": str(ROUND),
        "tables": 1,
        "tables_failed": 1,
        "rows": 30,
        "files": 2,
        "duration_ms": 250,
        "partial": False,
        "table_names": ["db.a"],
    }


def test_only_rounds_in_which_nothing_happened_are_debug() -> None:
    """Idle connectors end one in each interval."""
    failed = TableFailed(TABLES[2], ROUND, "table_missing", "gone", is_retriable=False)
    assert logged([])["log_level"] == "debug"
    assert logged([TableCommitted(TABLES[1], ROUND, None)])["log_level"] == "debug"
    assert logged([], is_partial=True)["log_level"] == "info"
    assert logged([failed])["log_level"] == "info"

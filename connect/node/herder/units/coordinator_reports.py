"""The reports of a connector's coordinator that this node has received."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROUNDS_KEPT = 50
TABLES_KEPT = 10_000


@dataclass(slots=True)
class CoordinatorReports:
    """Rounds, tables and alarms of one connector since this node has run its coordinator.

    Changed by the herder's thread; collections are replaced, so readers need no lock.

    Attributes:
        rounds: the last commit rounds.
        is_answered: every task has answered a round with the present layout and configuration.
        last_outcomes: the last outcome of each table.
        failed_tables: tables with files that are not committed, as last reported.
        retention_text: alarm about the retention of the control topic; None when there is none.
        stalls: restarts of the coordinator for lack of progress since the last round.
        completed_layout: number of the layout whose bounded run is complete; None while it is not.
        stall_text: description of the last of these restarts, until a round ends.
    """

    failed_tables: tuple[Mapping[str, Any], ...] = ()
    retention_text: str | None = None
    stalls: int = 0
    stall_text: str | None = None
    completed_layout: int | None = None
    is_answered: bool = False
    last_outcomes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rounds: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))

    def received_round(self, event: Mapping[str, Any], now_ms: int) -> None:
        """Add an ended round; ``now_ms`` is wall clock."""
        ended = {k: v for k, v in event.items() if k not in {"event", "connector"}}
        ended["ended_ms"] = now_ms
        self.rounds.append(ended)
        self.stalls = 0
        self.stall_text = None
        last = dict(self.last_outcomes)
        for table in ended.get("tables", ()):
            last.pop(table["table"], None)  # the table with the oldest outcome stays first
            last[table["table"]] = {
                **table,
                "state": "FAILED" if "code" in table else "COMMITTED",
                "commit_id": ended.get("commit_id"),
                "ended_ms": now_ms,
            }
        while len(last) > TABLES_KEPT:
            last.pop(next(iter(last)))
        self.last_outcomes = last

    def tables(self) -> list[Mapping[str, Any]]:
        """Return the last outcome of each table, and every failed table."""
        outcomes = dict(self.last_outcomes)
        for table in self.failed_tables:
            outcomes[table["table"]] = {**table, "state": "FAILED"}
        return [outcomes[name] for name in sorted(outcomes)]

    def clear_alarms(self) -> None:
        """Remove alarms and failed tables: the coordinator runs no more."""
        self.failed_tables = ()
        self.retention_text = None
        self.stalls = 0
        self.stall_text = None
        self.completed_layout = None

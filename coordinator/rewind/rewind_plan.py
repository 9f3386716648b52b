"""The plan of a rewind as the REST API shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table.snapshots import Snapshot

from connect.model.layout import TopicPartition
from connect.protocol.snapshot_ancestry import summary
from coordinator.rewind.rewind_request import RECORDS_GONE, TABLES_UNKNOWN
from coordinator.rewind.table_history import HISTORY_EXPIRED, OwnCommit, Rollback

ACCEPTABLE = frozenset({RECORDS_GONE, TABLES_UNKNOWN, HISTORY_EXPIRED})
"""Problems that an operator may accept."""


@dataclass(slots=True)
class RewindPlan:
    """What a rewind would do.

    Attributes:
        commit: the commit to go back to; None for the beginning.
        rollbacks: by table.
        positions: source offsets to set.
        before: the committed source offsets of these partitions.
        problems: code, message and table of what forbids the rewind.
        notes: what the operator should know, a sentence each.
        topics: the only topics whose source offsets move; None: all.
    """

    commit: OwnCommit | None
    rollbacks: dict[str, Rollback] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    before: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    problems: list[tuple[str, str, str | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    topics: frozenset[str] | None = None

    def moves(self, tp: TopicPartition) -> bool:
        """Return whether the source offset of a partition may move."""
        return self.topics is None or tp.topic in self.topics

    def refuse(self, code: str, message: str, table: str | None = None) -> None:
        """Note a problem that forbids the rewind, of a table or of the connector."""
        self.problems.append((code, message, table))

    def to_json(self, accepted: frozenset[str]) -> dict[str, Any]:
        """Return the form of the REST API."""
        commit = self.commit
        return {
            "commit": None
            if commit is None
            else {
                "table": commit.table,
                "snapshot_id": commit.snapshot_id,
                "committed_at": instant_text(commit.committed_ms),
                "control_offsets": {str(p): at for p, at in sorted(commit.offsets.items())},
            },
            "tables": [
                _table_json(name, rollback) for name, rollback in sorted(self.rollbacks.items())
            ],
            "source_offsets": [
                [tp.topic, tp.partition, self.before.get(tp), to]
                for tp, to in sorted(self.positions.items())
            ],
            "problems": [
                {
                    "code": code,
                    "message": message,
                    "table": table,
                    "accepted": code in accepted and code in ACCEPTABLE,
                    "acceptable": code in ACCEPTABLE,
                }
                for code, message, table in self.problems
            ],
            "says": self.notes,
        }


def _table_json(name: str, rollback: Rollback) -> dict[str, Any]:
    return {
        "table": name,
        "target_snapshot_id": rollback.target_id,
        "snapshots_removed": len(rollback.removed),
        "rows": _rows(rollback.head),
        "rows_after": _rows(rollback.target),
        "valid_through": rollback.valid_through,
    }


def _rows(snapshot: Snapshot | None) -> int | None:
    text = "0" if snapshot is None else summary(snapshot).get("total-records", "")
    return int(text) if text.isascii() and text.isdecimal() else None


def instant_text(timestamp_ms: int) -> str:
    """Return ``2026-01-02T03:04:05.678Z``."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"

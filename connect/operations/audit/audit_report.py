"""The result of an audit: sums and mismatches."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from connect.model.layout import TopicPartition
from control_schemas.events import RowCounts


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Two figures that must be equal and are not.

    Attributes:
        code: one of a bounded set.
        text: description with the figures.
        where: coordinates: topic, partition and offsets, or table and snapshot.
    """

    code: str
    text: str
    where: dict[str, Any]


@dataclass(slots=True)
class SourceSum:
    """Counts of one source partition, for records from ``from_offset`` to ``to_offset``.

    ``lost`` counts offsets whose records were deleted before they were read; the connector was
    configured to continue (``icefloe.fail-on-data-loss=false``).
    """

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    read: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    written: int = 0
    unread: int = 0
    lost: int = 0


@dataclass(slots=True)
class TableSum:
    """Rows of one table, counted in data files.

    Attributes:
        name: of the table.
        announced: rows that the audited snapshots should contain.
        committed: rows that those snapshots added.
        waiting: rows announced and not yet committed.
        unproved: rows of this connector's snapshots whose announcements are no longer retained, or
            arrived during the audit.
        others: rows that other writers added, less those they removed, compaction included.
        now: rows in the newest snapshot.
    """

    name: str
    announced: int = 0
    committed: int = 0
    waiting: int = 0
    unproved: int = 0
    others: int = 0
    now: int = 0


@dataclass(slots=True)
class AuditReport:
    """The audit of one connector.

    Attributes:
        connector: its name.
        sources: sums by topic and partition.
        tables: sums, sorted by table name.
        rows: the tasks' counts of kept, superseded and deleted rows.
        mismatches: in source order, then by table; the first is the most likely cause.
        notes: information for operators that is not a mismatch.
        changed_by_others: whether other writers added or removed rows.
    """

    connector: str
    sources: dict[TopicPartition, SourceSum] = field(default_factory=dict)
    tables: list[TableSum] = field(default_factory=list)
    rows: RowCounts = field(default_factory=RowCounts)
    mismatches: list[Mismatch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changed_by_others: bool = False

    @property
    def is_sound(self) -> bool:
        """Return whether there is no mismatch."""
        return not self.mismatches

    def differs(self, code: str, text: str, **where: Any) -> None:
        """Add a mismatch."""
        self.mismatches.append(Mismatch(code, text, where))

    def as_json(self) -> dict[str, Any]:
        """Return the audit as a JSON object."""
        return {
            "connector": self.connector,
            "sound": self.is_sound,
            "changed_by_others": self.changed_by_others,
            "sources": [asdict(self.sources[tp]) for tp in sorted(self.sources)],
            "rows": asdict(self.rows),
            "tables": [asdict(table) for table in self.tables],
            "mismatches": [asdict(mismatch) for mismatch in self.mismatches],
            "notes": list(self.notes),
        }

"""What an audit found: sums, and the places that do not add up."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from connect.model.layout import TopicPartition
from control_schemas.events import RowCounts


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One place that does not add up.

    Attributes:
        code: bounded.
        text: what is wrong, in numbers.
        where: coordinates: topic, partition and offsets, or table and snapshot.
    """

    code: str
    text: str
    where: dict[str, Any]


@dataclass(slots=True)
class SourceSum:
    """One source partition: its records from ``from_offset`` to ``to_offset``."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    read: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    written: int = 0
    unread: int = 0


@dataclass(slots=True)
class TableSum:
    """One table, in rows of data files.

    Attributes:
        name: of the table.
        announced: in announcements that the audited snapshots should hold.
        committed: added by those snapshots.
        waiting: announced, and not yet committed.
        unproved: added by snapshots of ours whose announcements are no longer retained, or came
            while the audit ran.
        others: added less removed by everybody else, compaction included.
        now: in the newest snapshot.
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
    """One connector.

    Attributes:
        connector: its name.
        sources: by topic and partition.
        tables: by name.
        rows: what became of the rows that records made, as far as tasks counted them.
        mismatches: in the order of the source, then by table; begin with the first.
        notes: what an operator should know and what is no mismatch.
        changed_by_others: whether others added or removed rows.
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
        """Whether everything that can be proved adds up."""
        return not self.mismatches

    def differs(self, code: str, text: str, **where: Any) -> None:
        """Add a mismatch."""
        self.mismatches.append(Mismatch(code, text, where))

    def as_json(self) -> dict[str, Any]:
        """The audit as a JSON object."""
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

"""State that another sink left of a connector, and whether Icefloe can start from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """One finding; ``is_unsafe``: Icefloe must not start in this state."""

    code: str
    text: str
    is_unsafe: bool


@dataclass(frozen=True, slots=True)
class SinkGroup:
    """One consumer group that a sink may have used for the connector.

    Attributes:
        name: of the group of the source offsets.
        source_offsets: next source offsets, of the connector's topics.
        control_offsets: control partition -> next control offset of ``<name>-coord``.
        members: members of either, by client and address.
    """

    name: str
    source_offsets: Mapping[TopicPartition, int]
    control_offsets: Mapping[int, int]
    members: tuple[str, ...]

    @property
    def is_used(self) -> bool:
        """Whether the group has offsets or members."""
        return bool(self.source_offsets or self.control_offsets or self.members)


@dataclass(frozen=True, slots=True)
class TableLeft:
    """One table.

    Attributes:
        name: of the table.
        exists: False if the table does not exist yet.
        floors: group -> control partition -> next control offset that is in the table.
        writer: engine of the newest snapshot of a sink, e.g. ``kafka-connect 4.3.1``.
        valid_through: valid-through time of that snapshot.
        pending_files: announced files that are not in the table.
        pending_records: rows in them.
    """

    name: str
    exists: bool
    floors: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    writer: str | None = None
    valid_through: str | None = None
    pending_files: int = 0
    pending_records: int = 0


@dataclass(slots=True)
class MigrationReport:
    """Everything that a migration check found.

    Attributes:
        connector: its name.
        group: the group that Icefloe continues with.
        groups: groups that have offsets or members.
        control_topic: control partition -> first and next control offset; empty without a topic.
        tables: by name.
        starts: source partition -> first offset to read, and where that offset comes from.
        findings: in the order of the checks.
    """

    connector: str
    group: str
    groups: list[SinkGroup] = field(default_factory=list)
    control_topic: dict[int, tuple[int, int]] = field(default_factory=dict)
    tables: list[TableLeft] = field(default_factory=list)
    starts: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    findings: list[MigrationFinding] = field(default_factory=list)

    @property
    def is_safe(self) -> bool:
        """Whether Icefloe may start in this state."""
        return not any(finding.is_unsafe for finding in self.findings)

    def used(self, name: str) -> SinkGroup | None:
        """Return the group of that name if it has offsets or members."""
        return next((group for group in self.groups if group.name == name), None)

    def unsafe(self, code: str, text: str) -> None:
        """Add a finding that forbids a start."""
        self.findings.append(MigrationFinding(code, text, is_unsafe=True))

    def note(self, code: str, text: str) -> None:
        """Add a finding for information."""
        self.findings.append(MigrationFinding(code, text, is_unsafe=False))

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "connector": self.connector,
            "group": self.group,
            "safe": self.is_safe,
            "groups": [
                {
                    "name": group.name,
                    "source_offsets": {
                        f"{tp.topic}-{tp.partition}": at for tp, at in group.source_offsets.items()
                    },
                    "control_offsets": {str(p): at for p, at in group.control_offsets.items()},
                    "members": list(group.members),
                }
                for group in self.groups
            ],
            "control_topic": {str(p): list(marks) for p, marks in self.control_topic.items()},
            "tables": [_table(table) for table in self.tables],
            "starts": {
                f"{tp.topic}-{tp.partition}": {"offset": at, "from": why}
                for tp, (at, why) in self.starts.items()
            },
            "findings": [
                {"code": f.code, "unsafe": f.is_unsafe, "text": f.text} for f in self.findings
            ],
        }


def _table(table: TableLeft) -> dict[str, Any]:
    floors = {group: {str(p): at for p, at in at.items()} for group, at in table.floors.items()}
    return {**asdict(table), "floors": floors}

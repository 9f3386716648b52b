"""What was found of a connector's past, and what it means for a start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """Something to know before the start; ``is_unsafe``: do not start as it is."""

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
        """Whether anything of it is there."""
        return bool(self.source_offsets or self.control_offsets or self.members)


@dataclass(frozen=True, slots=True)
class TableLeft:
    """One table.

    Attributes:
        name: of the table.
        exists: False where there is none yet.
        floors: group -> control partition -> next control offset that is in the table.
        writer: engine of the newest snapshot of a sink, e.g. ``kafka-connect 4.3.1``.
        valid_through: as that snapshot has it.
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
class Report:
    """Everything that was found.

    Attributes:
        connector: its name.
        group: the group that Icefloe goes on with.
        groups: groups that are used.
        control_topic: control partition -> first and next control offset; empty without a topic.
        tables: by name.
        starts: source partition -> where reading starts, and why there.
        findings: in the order in which they were made.
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
        """Whether Icefloe may start as things are."""
        return not any(finding.is_unsafe for finding in self.findings)

    def used(self, name: str) -> SinkGroup | None:
        """The group of that name, if anything of it is there."""
        return next((group for group in self.groups if group.name == name), None)

    def unsafe(self, code: str, text: str) -> None:
        """Add what forbids a start."""
        self.findings.append(MigrationFinding(code, text, is_unsafe=True))

    def note(self, code: str, text: str) -> None:
        """Add what is only to be known."""
        self.findings.append(MigrationFinding(code, text, is_unsafe=False))

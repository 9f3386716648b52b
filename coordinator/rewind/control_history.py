"""The control topic as a rewind reads it: where the sources stood at a commit, and what followed.

Rules of this file:
- A round closes between the answers of tasks. So the source position at a cut is the end of the
  last range announced below the cut, and the start of the first range above it. If an operator
  changed the offsets, the end holds for a cut before the change, the start for a cut after it.
- A position without such a range is unknown; it is never guessed.
- Announcements are kept as sums. Paths of files are kept, as hashes, only of tables whose next
  commit has to be compared with them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from connect.model.layout import TopicPartition
from connect.protocol.control_offsets import covers
from connect.protocol.control_topic import OWN_PARTITION, ControlRecord
from control_schemas.events import ContentFile, DataComplete, DataWritten


@dataclass(slots=True)
class AnnouncedTables:
    """The tables of all announcements, and the last cut that passes no source offset limit.

    Args:
        offset_limits: source positions that a cut must not be above.

    Attributes:
        names: of the tables.
    """

    offset_limits: Mapping[TopicPartition, int]
    names: set[str] = field(default_factory=set)
    _passed_at: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def control_offset_max(self) -> int | None:
        """A cut at or below this control offset passes none of ``offset_limits``; None: any cut."""
        return min(self._passed_at.values(), default=None)

    def take(self, record: ControlRecord) -> None:
        """Take an event of the connector; events of a partition come in order."""
        payload = record.event.payload if record.event is not None else None
        if isinstance(payload, DataWritten):
            self.names.add(str(payload.table))
        elif isinstance(payload, DataComplete) and record.partition == OWN_PARTITION:
            for announced in payload.assignments or ():
                tp = TopicPartition(announced.topic, announced.partition)
                if tp not in self.offset_limits or announced.offset is None:
                    continue
                if announced.offset <= self.offset_limits[tp]:
                    self._passed_at.pop(tp, None)
                else:
                    self._passed_at.setdefault(tp, record.offset)


@dataclass(frozen=True, slots=True)
class NextCommit:
    """The first commit above the cut to a table whose earlier announcements are not all retained.

    Attributes:
        offsets: control offsets that it stored.
    """

    offsets: Mapping[int, int]


@dataclass(slots=True)
class SourcePositions:
    """Where the source partitions stood at the cut.

    Attributes:
        starts_above: start of the first range above the cut; None where it follows a change of
            offsets by an operator.
    """

    starts_above: dict[TopicPartition, int | None] = field(default_factory=dict)
    _ends_below: dict[TopicPartition, int] = field(default_factory=dict)
    _moved: set[TopicPartition] = field(default_factory=set)
    _recreated: set[TopicPartition] = field(default_factory=set)
    _all_moved: bool = False

    def at(self, tp: TopicPartition) -> int | None:
        """Return where a partition stood; None when that is not known.

        A position in a topic that was deleted and created again above the cut means nothing.
        """
        if tp in self._recreated:
            return None
        below = self._ends_below.get(tp)
        return below if below is not None else self.starts_above.get(tp)

    def is_changed(self, tp: TopicPartition) -> bool:
        """Whether a partition was read, or its offset was set, above the cut."""
        return self._all_moved or tp in self.starts_above or tp in self._moved

    def take(self, record: ControlRecord, *, is_above: bool) -> None:
        """Take an event of Icefloe's control partition."""
        if record.headers.moved is not None:
            self._offsets_set({TopicPartition(*at) for at in record.headers.moved}, is_above)
        payload = record.event.payload if record.event is not None else None
        if not isinstance(payload, DataComplete):
            return
        if is_above:
            self._announced_above(record, payload)
            return
        for announced in payload.assignments or ():
            if announced.offset is not None:
                tp = TopicPartition(announced.topic, announced.partition)
                self._ends_below[tp] = announced.offset

    def _offsets_set(self, partitions: set[TopicPartition], is_above: bool) -> None:
        if is_above:
            self._moved |= partitions
            self._all_moved = self._all_moved or not partitions
            return
        for tp in partitions or set(self._ends_below):
            self._ends_below.pop(tp, None)

    def _announced_above(self, record: ControlRecord, completion: DataComplete) -> None:
        ranges = record.headers.ranges
        for lost in record.headers.lost:
            if lost.end_offset is None:
                self._recreated.add(TopicPartition(lost.topic, lost.partition))
        for r in ranges or ():
            tp = TopicPartition(r.topic, r.partition)
            is_moved = self._all_moved or tp in self._moved
            self.starts_above.setdefault(tp, None if is_moved else r.start_offset)
        if ranges is None:  # the Java sink announces no ranges
            for announced in completion.assignments or ():
                tp = TopicPartition(announced.topic, announced.partition)
                self.starts_above.setdefault(tp, None)


@dataclass(slots=True)
class ControlHistory:
    """What was announced below and above a cut.

    Args:
        cut: control partition -> control offset.
        floors: table -> control offsets of its newest commit at or below the cut.
        uuids: table -> its present UUID; announcements for another table of the name do not count.
        compared: table -> the commit whose files are compared with announcements above the cut.

    Attributes:
        announced: table -> number of files announced above the cut.
        stranded: table -> number of files announced below the cut and above the table's floor.
        paths: table of ``compared`` -> hashes of the paths announced above the cut.
        has_other_partitions: the connector announced above the cut in a control partition that is
            not Icefloe's.
        dead_letters: records above the cut that became dead letters.
        positions: of the source partitions at the cut.
    """

    cut: Mapping[int, int]
    floors: Mapping[str, Mapping[int, int]]
    uuids: Mapping[str, UUID]
    compared: Mapping[str, NextCommit] = field(default_factory=dict)
    announced: Counter[str] = field(default_factory=Counter)
    stranded: Counter[str] = field(default_factory=Counter)
    paths: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    has_other_partitions: bool = False
    dead_letters: int = 0
    positions: SourcePositions = field(default_factory=SourcePositions)

    def take(self, record: ControlRecord) -> None:
        """Take an event of the connector; events of a partition come in order."""
        payload = record.event.payload if record.event is not None else None
        is_above = record.offset >= self.cut.get(record.partition, 0)
        if isinstance(payload, DataWritten):
            self._written(record, payload, is_above=is_above)
        if record.partition == OWN_PARTITION:
            self.positions.take(record, is_above=is_above)
            if is_above:
                ranges = record.headers.ranges or ()
                self.dead_letters += sum(r.records_dead_lettered for r in ranges)
        elif is_above and isinstance(payload, DataWritten | DataComplete):
            self.has_other_partitions = True

    def _written(self, record: ControlRecord, written: DataWritten, *, is_above: bool) -> None:
        name = str(written.table)
        if name not in self.uuids or written.table.table_uuid not in {None, self.uuids[name]}:
            return
        files: tuple[ContentFile, ...] = (
            *(written.data_files or ()),
            *(written.delete_files or ()),
        )
        at = {record.partition: record.offset + 1}
        if is_above:
            self.announced[name] += len(files)
            following = self.compared.get(name)
            if following is not None and covers(following.offsets, at):
                self.paths[name].update(hash(file.file_path) for file in files)
        elif not covers(self.floors.get(name, {}), at):
            self.stranded[name] += len(files)

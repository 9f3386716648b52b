"""What is announced and in no table yet, and up to where a round may commit it.

Rules of this file:
- An answer is what one task announced in one transaction: its DataWritten events and then its
  DataComplete, in one control partition. A round commits an answer whole or not at all: the
  deletes of a step must not meet the rows of the same step under an older sequence number.
- Answers of several tasks interleave. A round is closed at a control offset that crosses no answer,
  because control offsets of tables and group say of everything below them that it is committed.
- An answer is open until its DataComplete is read. A later answer of the same task, or an answer of
  a newer layout, proves that it ended: the fence of a transactional id lets no two of its
  transactions overlap. The end of the log, seen after the answer's events, proves the same.
- One table may be announced under two names: in a catalog that ignores case, or two names of one
  location. Its announcements are kept under the first name, so that one commit gets them all. Two
  commits would each raise the table's floor above the announcements of the other.
- Events without a task number (the Java sink's, older workers') are answers of one event each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

from control_schemas.events import DataComplete, DataWritten, TableReference
from coordinator.kernel.effects import Envelope

WAITING_ROUNDS_MAX = 100  # a task stops reading long before

Identifier = tuple[str, ...]
_Producer = tuple[int, int, int]  # control partition, layout, task


@dataclass(slots=True, eq=False)
class TaskAnswer:
    """One answer of a task, as far as it is read.

    Attributes:
        commit_id: what it answers.
        layout: of the task.
        task: its number.
        partition: control partition.
        first_offset: control offset of its first DataWritten event.
        last_offset: control offset of the newest one.
        over_at: control offset below which all of it lies; None until that is known.
        has_landed: a table holds some of it.
    """

    commit_id: UUID
    layout: int
    task: int
    partition: int
    first_offset: int
    last_offset: int
    over_at: int | None = None
    has_landed: bool = False


class Announcements:
    """Announcements of one connector that wait for their tables.

    Attributes:
        records: in their data files.
        size_bytes: of their events as they are in the control topic.
        by_table: everything kept, in control order per control partition.
        open: answers that are read in part.
    """

    def __init__(self) -> None:
        self.records = self.size_bytes = 0
        self.by_table: dict[Identifier, list[Envelope]] = {}
        self.open: dict[_Producer, TaskAnswer] = {}
        self._answers: dict[tuple[int, int], TaskAnswer] = {}  # by place of each kept event
        self._names: dict[UUID, Identifier] = {}  # of each table that was announced
        self._newest_layout = 0

    @property
    def is_empty(self) -> bool:
        """Whether every announcement that was read is in its table."""
        return not (self.by_table or self.open)

    def kept(self) -> Iterator[Envelope]:
        """Every kept announcement."""
        return chain.from_iterable(self.by_table.values())

    # ------------------------------------------------------------------ reading

    def name_of(self, table: TableReference) -> Identifier:
        """Return the name under which the announcements of a table are kept."""
        if table.table_uuid is None:
            return table.identifier
        return self._names.setdefault(table.table_uuid, table.identifier)

    def rename(self, table: TableReference) -> None:
        """Keep the announcements of a table under this name: it has no other one any more."""
        assert table.table_uuid is not None
        former = self._names[table.table_uuid]
        self._names[table.table_uuid] = table.identifier
        moved: list[Envelope] = []
        left: list[Envelope] = []
        for envelope in self.by_table.pop(former, ()):
            (moved if _table_uuid(envelope) == table.table_uuid else left).append(envelope)
        if left:
            self.by_table[former] = left
        if moved:
            kept = [*self.by_table.get(table.identifier, ()), *moved]
            self.by_table[table.identifier] = sorted(kept, key=lambda e: (e.partition, e.offset))

    def add(self, envelope: Envelope, identifier: Identifier) -> None:
        """Keep a DataWritten event."""
        self.by_table.setdefault(identifier, []).append(envelope)
        self._count(envelope, 1)
        payload, headers = envelope.event.payload, envelope.headers
        if headers.layout is None or headers.task is None:
            return
        assert isinstance(payload, DataWritten)
        producer = (envelope.partition, headers.layout, headers.task)
        self._see_layout(headers.layout, envelope.partition)
        answer = self.open.get(producer)
        if answer is None or answer.commit_id != payload.commit_id:
            answer = self.open[producer] = TaskAnswer(
                payload.commit_id,
                headers.layout,
                headers.task,
                envelope.partition,
                envelope.offset,
                envelope.offset,
            )
        answer.last_offset, answer.over_at = envelope.offset, None
        self._answers[envelope.partition, envelope.offset] = answer

    def complete(self, envelope: Envelope) -> None:
        """A DataComplete event: the answer that it ends is whole."""
        assert isinstance(envelope.event.payload, DataComplete)
        headers = envelope.headers
        if headers.layout is not None and headers.task is not None:
            self._see_layout(headers.layout, envelope.partition)
            self.open.pop((envelope.partition, headers.layout, headers.task), None)

    def see_ends(self, ends: Mapping[int, int], positions: Mapping[int, int]) -> None:
        """Answers end below the end of the log that is seen after their events.

        Args:
            ends: control partition -> end of the log, asked after everything kept was read.
            positions: control partition -> next control offset to be read.
        """
        for answer in self.open.values():
            if answer.over_at is None:
                answer.over_at = ends.get(answer.partition)
        self.advance(positions)

    def advance(self, positions: Mapping[int, int]) -> None:
        """The log is read up to these control offsets: answers that end below are whole."""
        for producer, answer in list(self.open.items()):
            if answer.over_at is not None and positions.get(answer.partition, 0) >= answer.over_at:
                del self.open[producer]

    def _see_layout(self, layout: int, partition: int) -> None:
        self._newest_layout = max(self._newest_layout, layout)
        if self.open:
            for producer in [p for p in self.open if p[0] == partition and p[1] < layout]:
                del self.open[producer]

    # ------------------------------------------------------------------ rounds

    def close_at(self, positions: Mapping[int, int]) -> dict[int, int]:
        """The highest control offsets, up to the positions, that cross no answer.

        Args:
            positions: control partition -> next control offset to be read.
        """
        out = dict(positions)
        for answer in self.open.values():
            out[answer.partition] = min(out[answer.partition], answer.first_offset)
        if self.open:
            answers = sorted(set(self._answers.values()), key=lambda a: a.last_offset, reverse=True)
            for answer in answers:
                if answer.first_offset < out[answer.partition] <= answer.last_offset:
                    out[answer.partition] = answer.first_offset
        return out

    def below(self, closed_at: Mapping[int, int]) -> dict[Identifier, tuple[Envelope, ...]]:
        """Per table what lies below these control offsets."""
        out = {}
        for identifier, envelopes in self.by_table.items():
            below = tuple(e for e in envelopes if e.offset < closed_at.get(e.partition, 0))
            if below:
                out[identifier] = below
        return out

    def whole(self, identifier: Identifier) -> tuple[Envelope, ...]:
        """What is kept for a table, of answers that are read whole."""
        still_open = set(self.open.values())
        return tuple(
            e
            for e in self.by_table.get(identifier, ())
            if self._answers.get((e.partition, e.offset)) not in still_open
        )

    def waiting(self, failed: Collection[Identifier] = ()) -> dict[UUID, tuple[int, ...]]:
        """Rounds with the tasks of the newest layout of whose answer no table holds anything.

        Args:
            failed: tables whose failures are their own. What is announced for them holds no task
                back, or they would stop the connector's other tables.
        """
        answers = {
            answer
            for identifier, envelopes in self.by_table.items()
            if identifier not in failed
            for e in envelopes
            if (answer := self._answers.get((e.partition, e.offset))) is not None
        }
        tasks: dict[UUID, set[int]] = {}
        for answer in sorted(answers, key=lambda a: a.first_offset):
            if not answer.has_landed and answer.layout == self._newest_layout:
                tasks.setdefault(answer.commit_id, set()).add(answer.task)
        return {i: tuple(sorted(tasks[i])) for i in list(tasks)[:WAITING_ROUNDS_MAX]}

    def skip(self, identifier: Identifier, present_uuid: UUID | None) -> tuple[Envelope, ...]:
        """Forget what is announced for a table, at the operator's request.

        Args:
            identifier: of the table.
            present_uuid: of the table that replaced it; its announcements are kept.

        Returns:
            The announcements that are kept no longer.
        """
        skipped = tuple(
            envelope
            for envelope in self.whole(identifier)
            if present_uuid is None or _table_uuid(envelope) != present_uuid
        )
        self.forget(identifier, skipped, has_landed=False)
        return skipped

    def _count(self, envelope: Envelope, factor: int) -> None:
        self.records += factor * envelope.records
        self.size_bytes += factor * envelope.size_bytes

    def forget(
        self, identifier: Identifier, envelopes: Iterable[Envelope], *, has_landed: bool
    ) -> None:
        """These need not be kept.

        Args:
            identifier: of their table.
            envelopes: what is kept no longer.
            has_landed: the table holds them; False where an operator gave them up.
        """
        gone = {(e.partition, e.offset): e for e in envelopes}
        for place, envelope in gone.items():
            self._count(envelope, -1)
            answer = self._answers.pop(place, None)
            if answer is not None:
                answer.has_landed |= has_landed
        left = [e for e in self.by_table.get(identifier, ()) if (e.partition, e.offset) not in gone]
        if left:
            self.by_table[identifier] = left
        else:
            self.by_table.pop(identifier, None)


def _table_uuid(envelope: Envelope) -> UUID | None:
    payload = envelope.event.payload
    return payload.table.table_uuid if isinstance(payload, DataWritten) else None

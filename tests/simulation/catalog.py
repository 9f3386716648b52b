"""A simulated catalog: compare-and-swap per table, answers that may be lost, foreign writers."""

from __future__ import annotations

from dataclasses import dataclass, field

Record = tuple[int, int]  # source partition, source offset


class ConflictError(Exception):
    """The branch moved: certainly not applied."""


class UnknownError(Exception):
    """No readable answer: perhaps applied."""


class MissingError(Exception):
    """The catalog does not find the table (now)."""


@dataclass(slots=True)
class Snapshot:
    """One snapshot; ``offsets`` is None for foreign ones."""

    id: int
    parent: int | None
    files: tuple[tuple[str, frozenset[Record]], ...]
    offsets: int | None
    valid_through_us: int | None
    covers: frozenset[tuple[str, int]] = frozenset()


@dataclass(slots=True)
class Table:
    """A table's metadata as far as the protocol looks at it."""

    name: str
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    head: int | None = None
    mirror: int | None = None
    tag: int | None = None
    is_missing: bool = False
    history: list[Snapshot] = field(default_factory=list)

    def ancestry(self) -> list[Snapshot]:
        """Snapshots from the head back, as far as they are not expired."""
        out = []
        current = self.head
        while current is not None and current in self.snapshots:
            snapshot = self.snapshots[current]
            out.append(snapshot)
            current = snapshot.parent
        return out

    def floor(self) -> int | None:
        """Highest control offset any of ancestry, tag and mirror carries."""
        found = [s.offsets for s in self.ancestry() if s.offsets is not None]
        if self.tag is not None and self.tag in self.snapshots:
            tagged = self.snapshots[self.tag].offsets
            if tagged is not None:
                found.append(tagged)
        if self.mirror is not None:
            found.append(self.mirror)
        return max(found) if found else None

    def commit(self, base: int | None, snapshot: Snapshot, *, mirror: int | None = None) -> None:
        """Conditional: the head must still be ``base``."""
        if self.is_missing:
            raise MissingError
        if self.head != base:
            raise ConflictError
        self.snapshots[snapshot.id] = snapshot
        self.history.append(snapshot)
        self.head = snapshot.id
        if mirror is not None:
            self.mirror = mirror
            self.tag = snapshot.id

    def expire(self, *, with_tagged: bool) -> None:
        """Forget all snapshots but the head (and the tagged one unless the tag was removed)."""
        kept = {self.head, None if with_tagged else self.tag}
        self.snapshots = {i: s for i, s in self.snapshots.items() if i in kept}

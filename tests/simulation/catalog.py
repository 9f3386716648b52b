"""A simulated catalog: compare-and-swap per table, and what others do to tables.

Rules of this file:
- A table and its snapshots have the attributes of PyIceberg's metadata that
  ``coordinator.commit.iceberg.floor`` reads, so that the production code judges them.
- ``added`` and ``visible`` of a snapshot are sets of records as bits of an integer, known even
  after expiry. Only the checkers read them, no actor.
"""

from __future__ import annotations

from functools import cache

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from coordinator.commit.iceberg.floor import VALID_THROUGH_PROPERTY, FloorKeys

SUMMARY, MIRROR, TAG, TOPIC_ID = "offsets", "mirror", "icefloe-c", "topic-id"
VALID_THROUGH_MIRROR = "valid-through"
RESET_MIRROR = "valid-through-reset"


_BRANCH, _TAG = SnapshotRefType.BRANCH, SnapshotRefType.TAG
Base = tuple[int | None, int]  # the branch's snapshot, the table's last sequence number


CATALOG_AWAY = "catalog_unavailable"


class ConflictError(Exception):
    """A requirement failed: certainly not applied."""


class UnknownError(Exception):
    """No readable answer: perhaps applied."""


class Summary:
    """A snapshot's summary."""

    __slots__ = ("additional_properties",)

    def __init__(self, properties: dict[str, object]) -> None:
        self.additional_properties = properties


class Snapshot:
    """One snapshot; ``offsets`` are the connector's highest up to it."""

    __slots__ = (
        "added",
        "offsets",
        "parent_snapshot_id",
        "sequence_number",
        "snapshot_id",
        "summary",
        "valid_through_us",
        "visible",
    )

    def __init__(self, snapshot_id: int, parent: Snapshot | None, summary: Summary) -> None:
        self.snapshot_id = snapshot_id
        self.summary = summary
        self.sequence_number = 0
        self.parent_snapshot_id: int | None = None
        self.added = self.visible = 0
        self.offsets: dict[int, int] = {}
        self.valid_through_us: int | None = None
        if parent is not None:
            self.parent_snapshot_id = parent.snapshot_id
            self.added, self.visible = parent.added, parent.visible
            self.offsets = parent.offsets


class Ref:
    """A branch or a tag."""

    __slots__ = ("snapshot_id", "snapshot_ref_type")

    def __init__(self, snapshot_id: int, kind: SnapshotRefType) -> None:
        self.snapshot_id = snapshot_id
        self.snapshot_ref_type = kind


@cache
def _keys(branch: str, *, has_history: bool) -> FloorKeys:
    return FloorKeys(
        SUMMARY, MIRROR, VALID_THROUGH_MIRROR, RESET_MIRROR, TAG, branch, has_history=has_history
    )


class Table:
    """A table's metadata as far as the protocol reads it.

    Args:
        name: of the table.
        uuid: changes when the table is replaced.
        branch: the branch the connector commits to.
        is_upsert: records are changes of keys, not rows of their own.
    """

    def __init__(self, name: str, uuid: int, branch: str, *, is_upsert: bool = False) -> None:
        self.name = name
        self.uuid = uuid
        self.branch = branch
        self.is_upsert = is_upsert
        self.keys = _keys(branch, has_history=True)
        self.fresh_keys = _keys(branch, has_history=False)
        self.last_sequence_number = 0
        self.claimed_us = 0  # the highest VTTS that a reader could see in the branch
        self.refs: dict[str, Ref] = {}
        self.by_id: dict[int, Snapshot] = {}
        self.properties: dict[str, str] = {}
        self.is_missing = False
        self.is_expired = False  # snapshots are gone: an ancestry may end early

    @property
    def snapshots(self) -> list[Snapshot]:
        """Every kept snapshot."""
        return list(self.by_id.values())

    @property
    def current_snapshot_id(self) -> int | None:
        """Head of the main branch."""
        main = self.refs.get(MAIN_BRANCH)
        return None if main is None else main.snapshot_id

    @property
    def head_id(self) -> int | None:
        """What ``assert-ref-snapshot-id`` compares: the branch's snapshot."""
        ref = self.refs.get(self.branch)
        return None if ref is None else ref.snapshot_id

    @property
    def base(self) -> Base:
        """What a commit is made on, as it is now."""
        ref = self.refs.get(self.branch)
        return None if ref is None else ref.snapshot_id, self.last_sequence_number

    @property
    def head(self) -> Snapshot | None:
        """Where the next commit is put: the branch's head, or main's for a branch to be made."""
        ref = self.refs.get(self.branch) or self.refs.get(MAIN_BRANCH)
        return None if ref is None else self.by_id[ref.snapshot_id]

    @property
    def added(self) -> int:
        """All records that were ever added to the branch."""
        ref = self.refs.get(self.branch)
        return 0 if ref is None else self.by_id[ref.snapshot_id].added

    def require(self, uuid: int, base: Base, snapshot_id: int) -> None:
        """The conditions of a commit.

        Catalogs refuse a snapshot whose sequence number is not above the table's last one, which
        no rollback takes back.

        Raises:
            ConflictError: one does not hold.
        """
        head_id, last_sequence_number = base
        if self.is_missing or self.uuid != uuid or self.head_id != head_id:
            raise ConflictError
        if last_sequence_number < self.last_sequence_number:
            raise ConflictError
        if snapshot_id in self.by_id:
            raise ConflictError

    def put(self, snapshot: Snapshot) -> None:
        """Make it the branch's head."""
        self.last_sequence_number += 1
        snapshot.sequence_number = self.last_sequence_number
        self.by_id[snapshot.snapshot_id] = snapshot
        self.refs[self.branch] = Ref(snapshot.snapshot_id, _BRANCH)

    def put_own(self, snapshot: Snapshot, mirror: str, topic_id: int | None) -> None:
        """A commit of the connector: tag and properties move with the branch."""
        self.put(snapshot)
        self.refs[TAG] = Ref(snapshot.snapshot_id, _TAG)
        self.properties[MIRROR] = mirror
        if topic_id is not None:
            self.properties[TOPIC_ID] = str(topic_id)
        if snapshot.valid_through_us is not None:
            self.properties[VALID_THROUGH_MIRROR] = snapshot.valid_through_us  # type: ignore[assignment] # compared as it is
            self.claimed_us = snapshot.valid_through_us

    # ------------------------------------------------------------------ others

    def put_foreign(self, snapshot_id: int) -> None:
        """Another writer appends or compacts."""
        self.put(Snapshot(snapshot_id, self.head, Summary({})))

    def expire(self, *, with_tag: bool, with_mirror: bool) -> None:
        """Expire every snapshot without a reference."""
        if with_tag:
            self.refs.pop(TAG, None)
        if with_mirror:
            self.properties.pop(MIRROR, None)
            self.properties.pop(VALID_THROUGH_MIRROR, None)
            self.claimed_us = 0
        kept = {ref.snapshot_id for ref in self.refs.values()}
        if len(kept) < len(self.by_id):
            self.is_expired = True
            self.by_id = {i: s for i, s in self.by_id.items() if i in kept}

    def older(self, steps: int) -> Snapshot | None:
        """An ancestor of the head, as far as they are kept."""
        found = None if self.head_id is None else self.by_id[self.head_id]
        for _ in range(steps):
            if found is None or found.parent_snapshot_id is None:
                return None
            found = self.by_id.get(found.parent_snapshot_id)
        return found

    def point(self, snapshot: Snapshot) -> None:
        """An operator sets the branch to a snapshot."""
        self.refs[self.branch] = Ref(snapshot.snapshot_id, _BRANCH)

    def replace(self, uuid: int) -> None:
        """Drop the table and create another one with the same name."""
        self.uuid = uuid
        self.refs, self.by_id, self.properties = {}, {}, {}
        self.last_sequence_number = self.claimed_us = 0
        self.is_missing = self.is_expired = False


def own_summary(offsets: str, valid_through_us: int | None) -> Summary:
    """The properties of a commit of ours that ``coordinator.commit.iceberg.floor`` reads."""
    properties: dict[str, object] = {SUMMARY: offsets}
    if valid_through_us is not None:
        properties[VALID_THROUGH_PROPERTY] = valid_through_us
    return Summary(properties)

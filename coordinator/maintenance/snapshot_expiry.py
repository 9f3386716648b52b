"""Which snapshots of a table may be removed.

Rules of this file:
- ``due`` is pure: metadata and policy in, snapshot ids out.
- Iceberg's own rules decide (``RemoveSnapshots``): a branch keeps its newest snapshots by count and
  by age, every tag and branch keeps the snapshot it names, an unreferenced snapshot is kept until
  it is too old. References are never removed.
- In each branch the newest snapshot with control offsets of a sink is kept, for each sink: a sink
  without a tag of its own (the Java sink) finds its floor only there.
- A snapshot that this coordinator may still have to recognize is kept.
- While maintenance works on a table, the snapshot that it reads and all later ones are kept.

Source:
    Apache Iceberg ``RemoveSnapshots.internalApply``; differs by keeping floors and references.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from connect.config.connector import SnapshotExpiryConfig
from connect.protocol.maintenance_tag import protects_history

MAX_AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
MIN_KEPT_PROPERTY: Final = "history.expire.min-snapshots-to-keep"
MAX_AGE_MS: Final = 5 * 24 * 3_600_000
"""Iceberg's default of ``history.expire.max-snapshot-age-ms``."""
MIN_KEPT: Final = 1
"""Iceberg's default of ``history.expire.min-snapshots-to-keep``."""

_OFFSETS_PREFIX: Final = "kafka.connect.offsets."


BATCH: Final = 10
"""Removing reads the manifest list next to the removed ones: seldom is cheaper."""
REMOVED_MAX: Final = 500
"""Snapshots that one commit removes: the rest waits for the next one."""
_NUMBER: Final = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class ExpiryPolicy:
    """How long snapshots are kept.

    Attributes:
        max_age_ms: a snapshot may be removed when it is older; ``history.expire.*`` of a branch
            replaces it for that branch.
        min_kept: a branch keeps at least this many snapshots.
        batch: a commit removes snapshots only when it can remove at least this many.
    """

    max_age_ms: int = MAX_AGE_MS
    min_kept: int = MIN_KEPT
    batch: int = BATCH

    @classmethod
    def of(cls, config: SnapshotExpiryConfig, properties: Mapping[str, str]) -> ExpiryPolicy:
        """Return the policy of a table: its own properties replace the connector's keys.

        A property that is no number has no effect: it must not stop the table's commits.
        """
        age_ms = _number(properties.get(MAX_AGE_PROPERTY), config.max_age_ms, MAX_AGE_MS)
        kept = _number(properties.get(MIN_KEPT_PROPERTY), config.min_snapshots_to_keep, MIN_KEPT)
        return cls(age_ms, max(kept, 1))


def due(
    metadata: TableMetadata,
    policy: ExpiryPolicy,
    *,
    branch: str,
    now_ms: int,
    moved_tag: str | None = None,
    kept: Collection[int] = (),
    kept_since_ms: int | None = None,
) -> tuple[int, ...]:
    """Return the snapshots that a commit to a branch may remove, oldest first.

    Args:
        metadata: the table as the commit loaded it.
        policy: how long snapshots are kept.
        branch: gets one snapshot more by the commit.
        now_ms: wall clock.
        moved_tag: a tag that the commit moves to its snapshot.
        kept: snapshots to keep against the policy.
        kept_since_ms: snapshots of that time and later are kept: they tell whether a file that was
            announced since then is in the table already.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    retained = set(kept) & by_id.keys()
    referenced: set[int] = set()
    refs = _refs(metadata, branch)
    in_use = {
        ref.snapshot_id
        for name, ref in refs.items()
        if ref is not None and protects_history(name, now_ms)
    }
    for name, ref in refs.items():
        chain = list(_ancestry(None if ref is None else ref.snapshot_id, by_id))
        referenced.update(snapshot.snapshot_id for snapshot in chain)
        if ref is not None and ref.snapshot_ref_type == SnapshotRefType.TAG:
            if name != moved_tag:
                retained.add(ref.snapshot_id)
            continue
        retained |= _of_branch(chain, ref, policy, now_ms, is_growing=name == branch)
        retained |= _with_floors(chain) | _since(chain, in_use)
        if name != branch and chain:
            retained.add(chain[0].snapshot_id)
    limit_ms = now_ms - policy.max_age_ms
    removable = [
        snapshot
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in retained
        and (snapshot.snapshot_id in referenced or snapshot.timestamp_ms < limit_ms)
        and (kept_since_ms is None or snapshot.timestamp_ms < kept_since_ms)
    ]
    if len(removable) < max(policy.batch, 1):
        return ()
    ordered = sorted(removable, key=lambda s: (s.sequence_number or 0, s.timestamp_ms))
    return tuple(snapshot.snapshot_id for snapshot in ordered[:REMOVED_MAX])


def _number(text: str | None, configured: int | None, default: int) -> int:
    if text is not None and _NUMBER.fullmatch(text):
        return int(text)
    return default if configured is None else configured


def _refs(metadata: TableMetadata, branch: str) -> dict[str, SnapshotRef | None]:
    """Every reference; a branch that the commit creates has none yet."""
    refs: dict[str, SnapshotRef | None] = dict(metadata.refs)
    if MAIN_BRANCH not in refs and metadata.current_snapshot_id is not None:
        refs[MAIN_BRANCH] = SnapshotRef.model_validate(
            {"snapshot-id": metadata.current_snapshot_id, "type": SnapshotRefType.BRANCH}
        )
    refs.setdefault(branch, None)
    return refs


def _of_branch(
    chain: list[Snapshot],
    ref: SnapshotRef | None,
    policy: ExpiryPolicy,
    now_ms: int,
    *,
    is_growing: bool,
) -> set[int]:
    """What a branch keeps by count and age; the snapshot that is being added counts."""
    own_kept = ref.min_snapshots_to_keep if ref is not None else None
    own_age_ms = ref.max_snapshot_age_ms if ref is not None else None
    least = policy.min_kept if own_kept is None else own_kept
    limit_ms = now_ms - (policy.max_age_ms if own_age_ms is None else own_age_ms)
    kept: set[int] = set()
    for snapshot in chain:
        if len(kept) + is_growing >= least and snapshot.timestamp_ms < limit_ms:
            break
        kept.add(snapshot.snapshot_id)
    return kept


def _since(chain: list[Snapshot], in_use: Collection[int]) -> set[int]:
    """The snapshots from the oldest one in use on; none if none of them is in use."""
    ids = [snapshot.snapshot_id for snapshot in chain]
    indexes = [index for index, snapshot_id in enumerate(ids) if snapshot_id in in_use]
    return set(ids[: max(indexes, default=-1) + 1])


def _with_floors(chain: list[Snapshot]) -> set[int]:
    """The newest snapshot of each sink's control offsets."""
    newest: dict[str, int] = {}
    for snapshot in chain:
        for key in _summary(snapshot):
            if key.startswith(_OFFSETS_PREFIX):
                newest.setdefault(key, snapshot.snapshot_id)
    return set(newest.values())


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _ancestry(head_id: int | None, by_id: Mapping[int, Snapshot]) -> Iterator[Snapshot]:
    left = len(by_id)
    while head_id is not None and left and (snapshot := by_id.get(head_id)) is not None:
        left -= 1
        yield snapshot
        head_id = snapshot.parent_snapshot_id

"""The snapshots of a table's branch, as far as they have not expired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

WRITE_MODE: Final = "icefloe.write-mode"
"""Snapshot property of a commit with copy-on-write."""
ANNOUNCED_RECORDS: Final = "icefloe.announced-records"
"""Rows of the announced data files of such a commit; its new files have fewer or more rows."""
REWIND_PROPERTY = "icefloe.rewind"
"""Identity of the rewind whose snapshot ends the branch of a table; see decision 0037."""


def ancestry(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """Yield the branch's snapshots, newest first, as far as they have not expired."""
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    ref = metadata.refs.get(branch)
    snapshot = None if ref is None else by_id.pop(ref.snapshot_id, None)
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else by_id.pop(parent, None)


def summary(snapshot: Snapshot) -> Mapping[str, str]:
    """Return a snapshot's properties."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def is_cut_off(oldest: Snapshot, metadata: TableMetadata) -> bool:
    """Return whether snapshots older than this one have expired."""
    parent = oldest.parent_snapshot_id
    if parent is None:  # some expiries remove the parent id; the sequence number remains
        return (oldest.sequence_number or 0) > 1
    return all(s.snapshot_id != parent for s in metadata.snapshots)


def engine(marks: Mapping[str, str]) -> str:
    """Return the name of the sink that made a snapshot, by its properties."""
    if "kafka.connect.vtts" in marks:
        return "io.tabular"
    return f"{marks.get('engine-name', 'Java sink')} {marks.get('engine-version', '')}".strip()

"""How many files of a table wait for compaction.

Rules of this file:
- Counted are the files of the coordinator's own commits. What others added, and what was added
  before this coordinator began, is estimated from the summaries of snapshots. No table is listed.
- A snapshot that replaced data files without changing rows is a compaction, by any engine. The
  count of small files starts again after it. Files that were committed while the maintenance
  process worked still wait: its compactions name the snapshot that they read.
- Delete files are counted by Iceberg: the newest summary has their number.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from connect.config.connector import MaintenanceConfig
from connect.protocol.maintenance_tag import READ_PROPERTY
from connect.protocol.snapshot_ancestry import ancestry, summary
from control_schemas.events import ContentFile

TARGET_PROPERTY: Final = "write.target-file-size-bytes"
TARGET_BYTES: Final = 512 * 2**20
"""Iceberg's default of ``write.target-file-size-bytes``."""
SMALL_RATIO: Final = 0.75
"""Below this part of the target a file is small: Iceberg's default of ``min-file-size-bytes``."""
PARTITIONS_MAX: Final = 1_000
_NUMBER: Final = re.compile("[0-9]{1,18}")


@dataclass(slots=True)
class FileCounters:
    """What is known of one table's files.

    Attributes:
        small_files: own small data files since the last compaction, by partition.
        other_small_files: an estimate for one partition, of files that are not counted there.
        delete_files: in the newest snapshot.
        manifests: in the newest snapshot.
    """

    small_files: dict[str, int] = field(default_factory=dict)
    other_small_files: int = 0
    delete_files: int = 0
    manifests: int = 0
    _head_id: int | None = None

    def committed(
        self,
        files: Iterable[ContentFile],
        metadata: TableMetadata,
        *,
        branch: str,
        manifests: int | None,
        target_bytes: int | None,
    ) -> None:
        """Count a commit of this coordinator.

        Args:
            files: data files that it added.
            metadata: the table after it.
            branch: the branch that was committed to.
            manifests: number in the new snapshot; None where it is not known.
            target_bytes: size of compacted files; None leaves it to the table.
        """
        small_bytes = SMALL_RATIO * (target_bytes or _target(metadata.properties))
        head: Snapshot | None = None
        earlier: list[Snapshot] = []
        snapshots = ancestry(metadata, branch)
        for snapshot in snapshots:
            if snapshot.snapshot_id == self._head_id:
                break
            if head is None:
                head = snapshot
                continue
            earlier.append(snapshot)
            if _is_compaction(snapshot):
                self.small_files.clear()
                self.other_small_files = 0
                earlier += _since_read(snapshot, snapshots)
                break
        self.other_small_files += sum(_added(snapshot, small_bytes) for snapshot in earlier)
        for partition in _small(files, small_bytes):
            self.small_files[partition] = self.small_files.get(partition, 0) + 1
        if len(self.small_files) > PARTITIONS_MAX:
            counts = self.small_files.items()
            self.small_files = dict(heapq.nlargest(PARTITIONS_MAX, counts, key=itemgetter(1)))
        if head is not None:
            self._head_id = head.snapshot_id
            self.delete_files = _number(summary(head), "total-delete-files")
        if manifests is not None:
            self.manifests = manifests

    @property
    def small_files_max(self) -> int:
        """Small files of the partition that has most of them, as an estimate."""
        return self.other_small_files + max(self.small_files.values(), default=0)


def due(counters: FileCounters, config: MaintenanceConfig) -> dict[str, int]:
    """Return the work that is due, the most urgent first, and the number of files that cause it."""
    thresholds: tuple[tuple[str, int, int | None], ...] = (
        ("delete-files", counters.delete_files, config.min_delete_files),
        ("small-files", counters.small_files_max, config.min_input_files),
        ("manifests", counters.manifests, config.min_manifests),
    )
    return {
        work: count for work, count, least in thresholds if least is not None and count >= least
    }


def _small(files: Iterable[ContentFile], small_bytes: float) -> Iterator[str]:
    for file in files:
        if file.file_size_in_bytes < small_bytes:
            yield f"{file.spec_id} {file.partition}"


def _is_compaction(snapshot: Snapshot) -> bool:
    properties = snapshot.summary
    is_replace = properties is not None and properties.operation == Operation.REPLACE
    return is_replace and _number(summary(snapshot), "deleted-data-files") > 0


def _since_read(compaction: Snapshot, parents: Iterable[Snapshot]) -> list[Snapshot]:
    """Return the snapshots between the one that a compaction read and itself, if it names it."""
    read = summary(compaction).get(READ_PROPERTY)
    newer: list[Snapshot] = []
    for snapshot in parents if read is not None else ():
        if str(snapshot.snapshot_id) == read:
            return newer
        newer.append(snapshot)
    return []


def _added(snapshot: Snapshot, small_bytes: float) -> int:
    """Small files that a snapshot added to one partition, on average."""
    properties = summary(snapshot)
    files = _number(properties, "added-data-files")
    if not files or _is_compaction(snapshot):
        return 0
    if _number(properties, "added-files-size") >= small_bytes * files:
        return 0
    return -(-files // max(1, _number(properties, "changed-partition-count")))


def _target(properties: Mapping[str, str]) -> int:
    return _number(properties, TARGET_PROPERTY) or TARGET_BYTES


def _number(properties: Mapping[str, str], name: str) -> int:
    """Return a number; 0 where it is missing or no number, which others may write."""
    text = properties.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else 0

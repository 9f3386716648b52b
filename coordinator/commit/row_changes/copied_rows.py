"""Removes rows by copies of their data files: copy-on-write.

Rules of this file:
- A copy has the partition, the sequence number and the sort order of its source. So older equality
  delete files of the table still apply to it, and only those.
- A copy leaves out the rows that a deletion vector or a position delete file marks. The vector is
  removed with the source.
- A position delete file stays as long as it may name a data file that is in the table. It applies
  to no copy, because it names its data files by their paths.
- Where the table has row ids, rows of the table keep theirs in the copy. Rows of the round have
  none yet: they inherit from the copy.

Source:
    Iceberg specification, "Row Lineage", "Scan Planning"; Iceberg 1.12.0
    ``MergingSnapshotProducer``, which removes vectors with their data files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from connect.gateways.catalog import table_properties
from connect.metrics import process_metrics
from coordinator.commit.metadata.head_files import HeadFile
from coordinator.commit.metadata.row_lineage import lineage_of
from coordinator.commit.row_changes.former_deletes import (
    FormerDeletes,
    FormerPositions,
    FormerVectors,
    place_in_file,
)
from coordinator.commit.row_changes.row_change import RowChange
from coordinator.row_deletes.deleted_keys import IN_TABLE
from coordinator.row_deletes.file_copies import FileCopies
from coordinator.row_deletes.round_deletes import SourceFile
from coordinator.row_deletes.row_state import RowState


@dataclass(slots=True)
class CopyWriter:
    """The copies of one round.

    Attributes:
        copies: of all attempts.
        vectors: of the table.
        positions: position delete files of the table.
        has_lineage: whether the table has row ids.
    """

    copies: FileCopies
    vectors: FormerVectors
    positions: FormerPositions
    has_lineage: bool

    def apply(self, change: RowChange) -> None:
        """Replace the files with deleted rows; see ``RowWriter``."""
        former = FormerDeletes.of(change.head)
        files = change.files
        new = [each.source for each in change.new]
        old = [(each, files.source(each.file, IN_TABLE)) for each in change.head.data_files]
        affected = self.copies.affected([*new, *(source for _, source in old)])
        by_path = {each.file.file_path: each for each, _ in old}
        deletes = {
            source.path: [] if source.path in former.vectors else former.positions_of(each)
            for source in affected
            if (each := by_path.get(source.path)) is not None
        }
        states = self._states(change, former, affected, by_path, deletes)
        copies = self.copies.made_of(
            [replace(source, state=states[source.path]) for source in affected]
        )
        for file, source in change.new:
            if source.path not in copies:
                change.add_announced(file)
            elif (copy := files.described(file, copies[source.path])) is not None:
                change.add(copy)
        for each, source in old:
            if source.path not in copies:
                continue
            change.remove(each)
            if source.path in former.vectors:
                change.remove(former.vectors[source.path])
            if (copy := files.described(each.file, copies[source.path])) is not None:
                change.add(copy, each.entry.sequence_number)
        for delete in self._without_data(change, deletes):
            change.remove(delete)

    def count(self, labels: Mapping[str, str]) -> None:
        """Count the copies."""
        files = sum(copy.path is not None for copy in self.copies.copies.values())
        process_metrics.counter("copy_on_write_files", **labels).inc(files)
        process_metrics.counter("copy_on_write_bytes", **labels).inc(self.copies.bytes_read)

    def _states(
        self,
        change: RowChange,
        former: FormerDeletes,
        affected: Sequence[SourceFile],
        by_path: Mapping[str, HeadFile],
        deletes: Mapping[str, Sequence[HeadFile]],
    ) -> dict[str, RowState]:
        """Return what the table knows about the rows of sources, by their path."""
        marked = [source.path for source in affected if source.path in former.vectors]
        known = self.vectors.of(change.files, [former.vectors[path] for path in marked])
        self.positions.of(change.files, chain.from_iterable(deletes.values()))
        out = {}
        for source in affected:
            path, each = source.path, by_path.get(source.path)
            lineage = None
            if each is not None and self.has_lineage:
                lineage = lineage_of(each.entry)
            deleted = None
            if path in former.vectors:
                deleted = known[place_in_file(former.vectors[path])]
            elif deletes.get(path):
                deleted = self.positions.of_file(change.files, deletes[path], path) or None
            out[path] = RowState(lineage, deleted)
        return out

    def _without_data(
        self, change: RowChange, deletes: Mapping[str, Sequence[HeadFile]]
    ) -> Iterator[HeadFile]:
        """Yield position delete files that name no data file any more.

        Args:
            change: of which the removed data files are known.
            deletes: position delete files by the path of a removed data file.
        """
        candidates = {
            delete.file.file_path: delete for of_path in deletes.values() for delete in of_path
        }
        if not candidates:
            return
        known = self.positions.of(change.files, candidates.values())
        live = {each.file.file_path for each in change.head.data_files} - deletes.keys()
        for path, delete in candidates.items():
            named = known[path].keys()
            is_known = named <= deletes.keys() or change.head.has_all_data(delete.file.spec_id)
            if is_known and live.isdisjoint(named):
                yield delete


def writer_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of copies for a table's properties."""
    return {
        "compression": table_properties.codec(properties),
        "compression_level": table_properties.level(properties),
        "store_schema": False,
        "store_decimal_as_integer": True,
        "version": "2.6",
    }

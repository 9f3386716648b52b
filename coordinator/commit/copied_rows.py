"""Removes rows by copies of their data files: copy-on-write.

Rules of this file:
- A copy has the partition, the sequence number and the sort order of its source. So older equality
  delete files of the table still apply to it, and only those.
- A copy leaves out the rows that a deletion vector marks. The vector is removed with the source.
- Where the table has row ids, rows of the table keep theirs in the copy. Rows of the round have
  none yet: they inherit from the copy.

Source:
    Iceberg specification, "Row Lineage"; Iceberg 1.12.0 ``MergingSnapshotProducer``, which removes
    vectors with their data files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connect.gateways.catalog import table_properties
from connect.metrics import process_metrics
from coordinator.commit.former_deletes import FormerDeletes, FormerVectors, place_in_file
from coordinator.commit.head_files import HeadFile
from coordinator.commit.row_change import RowChange
from coordinator.commit.row_lineage import lineage_of
from coordinator.row_deletes.deleted_keys import IN_TABLE
from coordinator.row_deletes.file_copies import FileCopies
from coordinator.row_deletes.limits import NotResolved
from coordinator.row_deletes.round_deletes import SourceFile
from coordinator.row_deletes.row_state import RowState


@dataclass(slots=True)
class CopyWriter:
    """The copies of one round.

    Attributes:
        copies: of all attempts.
        vectors: of the table.
        has_lineage: whether the table has row ids.
    """

    copies: FileCopies
    vectors: FormerVectors
    has_lineage: bool

    def apply(self, change: RowChange) -> None:
        """Replace the files with deleted rows; see ``RowWriter``."""
        former = FormerDeletes.of(change.head)
        if former.positions:
            raise NotResolved("position_deletes", "the table has position deletes")
        files = change.files
        new = [each.source for each in change.new]
        old = [(each, files.source(each.file, IN_TABLE)) for each in change.head.data_files]
        affected = self.copies.affected([*new, *(source for _, source in old)])
        by_path = {each.file.file_path: each for each, _ in old}
        copies = self.copies.made_of(self._with_states(change, former, affected, by_path))
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

    def count(self, labels: Mapping[str, str]) -> None:
        """Count the copies."""
        files = sum(copy.path is not None for copy in self.copies.copies.values())
        process_metrics.counter("copy_on_write_files", **labels).inc(files)
        process_metrics.counter("copy_on_write_bytes", **labels).inc(self.copies.bytes_read)

    def _with_states(
        self,
        change: RowChange,
        former: FormerDeletes,
        affected: Sequence[SourceFile],
        by_path: Mapping[str, HeadFile],
    ) -> list[SourceFile]:
        """Return sources with what the table knows about their rows."""
        marked = [source.path for source in affected if source.path in former.vectors]
        known = self.vectors.of(change.files, [former.vectors[path] for path in marked])
        out = []
        for source in affected:
            each, vector = by_path.get(source.path), former.vectors.get(source.path)
            lineage = None
            if each is not None and self.has_lineage:
                lineage = lineage_of(each.entry)
            deleted = None if vector is None else known[place_in_file(vector)]
            out.append(replace(source, state=RowState(lineage, deleted)))
        return out


def writer_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of copies for a table's properties."""
    return {
        "compression": table_properties.codec(properties),
        "compression_level": table_properties.level(properties),
        "store_schema": False,
        "store_decimal_as_integer": True,
        "version": "2.6",
    }

"""Removes rows by copies of their data files: copy-on-write.

Rules of this file:
- A copy has the partition, the sequence number and the sort order of its source. So older delete
  files of the table still apply to it, and only those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFileContent

from connect.gateways.catalog import table_properties
from connect.metrics import process_metrics
from coordinator.commit.row_change import RowChange
from coordinator.row_deletes.deleted_keys import IN_TABLE
from coordinator.row_deletes.file_copies import FileCopies
from coordinator.row_deletes.limits import NotResolved


@dataclass(slots=True)
class CopyWriter:
    """The copies of one round."""

    copies: FileCopies

    def apply(self, change: RowChange) -> None:
        """Replace the files with deleted rows; see ``RowWriter``."""
        if any(
            each.file.content != DataFileContent.EQUALITY_DELETES
            for each in change.head.delete_files
        ):
            raise NotResolved("position_deletes", "the table has position deletes")
        files = change.files
        old = [(each, files.source(each.file, IN_TABLE)) for each in change.head.data_files]
        copies = self.copies.of(
            [*(new.source for new in change.new), *(source for _, source in old)]
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
            if (copy := files.described(each.file, copies[source.path])) is not None:
                change.add(copy, each.entry.sequence_number)

    def count(self, labels: Mapping[str, str]) -> None:
        """Count the copies."""
        files = sum(copy.path is not None for copy in self.copies.copies.values())
        process_metrics.counter("copy_on_write_files", **labels).inc(files)
        process_metrics.counter("copy_on_write_bytes", **labels).inc(self.copies.bytes_read)


def writer_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of copies for a table's properties."""
    return {
        "compression": table_properties.codec(properties),
        "compression_level": table_properties.level(properties),
        "store_schema": False,
        "store_decimal_as_integer": True,
        "version": "2.6",
    }

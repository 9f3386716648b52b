"""Row ids of a table's files, read with fastavro as the specification says."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

_DATA = 0
_DELETED = 2


def records_of(table: Table, path: str) -> list[dict[str, Any]]:
    """The records of an Avro file."""
    with table.io.new_input(path).open() as file:
        return list(fastavro.reader(io.BytesIO(file.read())))


def next_row_id(table: Table) -> int | None:
    """The next row id, as the metadata file has it."""
    with table.io.new_input(table.metadata_location).open() as file:
        return json.loads(file.read())["next-row-id"]


def entry_paths(table: Table, snapshot: Snapshot, status: int | None = None) -> list[str]:
    """Paths of a snapshot's live entries, or of those with a status."""
    return [
        entry["data_file"]["file_path"]
        for manifest in records_of(table, snapshot.manifest_list)
        for entry in records_of(table, manifest["manifest_path"])
        if (entry["status"] != _DELETED if status is None else entry["status"] == status)
    ]


def lineage_of(table: Table, branch: str = "main") -> dict[str, tuple[int, int]]:
    """First row id and row count of each data file of a branch, by path.

    Raises:
        AssertionError: a data manifest has no first row id, or a delete manifest has one.
    """
    head = table.snapshot_by_name(branch)
    assert head is not None
    out: dict[str, tuple[int, int]] = {}
    for manifest in records_of(table, head.manifest_list):
        row_id = manifest["first_row_id"]
        assert (row_id is None) == (manifest["content"] != _DATA), manifest
        for entry in records_of(table, manifest["manifest_path"]):
            file = entry["data_file"]
            if entry["status"] == _DELETED or manifest["content"] != _DATA:
                assert file.get("first_row_id") is None or entry["status"] == _DELETED
                continue
            first = file.get("first_row_id")  # of version 2 it has none
            if first is None:
                first, row_id = row_id, row_id + file["record_count"]
            assert file["file_path"] not in out
            out[file["file_path"]] = (first, file["record_count"])
    return out

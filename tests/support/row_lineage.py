"""Row ids of a table's files, read with fastavro as the specification says."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

_DATA = 0
_DELETED = 2
_FIELD_ID = b"PARQUET:field_id"
_FILES_MAX = 500
_ROW_ID = 2_147_483_540
_SEQUENCE_NUMBER = 2_147_483_539
T = TypeVar("T")
NONE_DELETED: Mapping[str, Collection[int]] = {}


class _FilesOnce:
    """Keeps what was read of files, which never change; of a bounded number."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Any] = {}

    def read(self, table: Table, key: tuple[str, ...], decode: Callable[[bytes], T]) -> T:
        """Read the file that a key begins with, and decode it."""
        if key not in self._known:
            if len(self._known) >= _FILES_MAX:
                self._known.clear()
            with table.io.new_input(key[0]).open() as file:
                self._known[key] = decode(file.read())
        known: T = self._known[key]
        return known


_files = _FilesOnce()


def records_of(table: Table, path: str) -> list[dict[str, Any]]:
    """The records of an Avro file."""
    return _files.read(table, (path,), lambda raw: list(fastavro.reader(io.BytesIO(raw))))


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


class RowIdentity(NamedTuple):
    """Row id of a row, and the sequence number of the commit that changed it last."""

    row_id: int
    sequence_number: int


def columns_of(content: bytes, field_ids: Sequence[int]) -> list[list[Any]]:
    """Values of columns of a Parquet file by field id; nulls if the file lacks one."""
    rows = pq.read_table(pa.BufferReader(content))
    by_id = {
        int(column.metadata[_FIELD_ID]): rows[column.name].to_pylist()
        for column in rows.schema
        if _FIELD_ID in (column.metadata or {})
    }
    return [by_id.get(field_id, [None] * rows.num_rows) for field_id in field_ids]


def identities_of(
    table: Table, deleted: Mapping[str, Collection[int]] = NONE_DELETED
) -> list[tuple[tuple[Any, ...], RowIdentity]]:
    """Values of each row, and its identity, as the specification says.

    Args:
        table: in which no equality delete applies.
        deleted: positions of deleted rows by data file.
    """
    head = table.current_snapshot()
    assert head is not None
    first_ids = lineage_of(table)
    field_ids = [*(each.field_id for each in table.schema().fields), _ROW_ID, _SEQUENCE_NUMBER]
    out = []
    for manifest in records_of(table, head.manifest_list):
        for entry in records_of(table, manifest["manifest_path"]):
            if entry["status"] == _DELETED or manifest["content"] != _DATA:
                continue
            path, number = entry["data_file"]["file_path"], entry["sequence_number"]
            number = manifest["sequence_number"] if number is None else number
            *columns, row_ids, numbers = _files.read(
                table, (path, *map(str, field_ids)), partial(columns_of, field_ids=field_ids)
            )
            for place, values in enumerate(zip(*columns, strict=True)):
                if place in deleted.get(path, ()):
                    continue
                own, own_number = row_ids[place], numbers[place]
                identity = RowIdentity(
                    first_ids[path][0] + place if own is None else own,
                    number if own_number is None else own_number,
                )
                out.append((values, identity))
    return out


@dataclass
class IdentityModel:
    """What the identities of a table's rows should be; rows that stay are the same objects.

    Attributes:
        rows: at the last check.
        identities: by the values of a row.
        used: row ids that any row has had.
        sequence_number: of the snapshot at the last check.
    """

    rows: Sequence[Mapping[str, Any]] = ()
    identities: dict[tuple[Any, ...], Counter[RowIdentity]] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    sequence_number: int = 0

    def check(
        self,
        table: Table,
        rows: Sequence[Mapping[str, Any]],
        deleted: Mapping[str, Collection[int]] = NONE_DELETED,
    ) -> None:
        """Rows that were there keep their identity; others have a new one."""
        now: dict[tuple[Any, ...], Counter[RowIdentity]] = defaultdict(Counter)
        for values, identity in identities_of(table, deleted):
            now[values][identity] += 1
        names = [each.name for each in table.schema().fields]
        known = set(map(id, self.rows))
        stayed = {tuple(r.get(name) for name in names) for r in rows if id(r) in known}
        changed: Counter[RowIdentity] = Counter()
        for values, identities in now.items():
            before = self.identities[values] if values in stayed else Counter()
            assert before <= identities, (values, before, identities)
            changed += identities - before
        assert all(identity.sequence_number > self.sequence_number for identity in changed)
        new_ids = {identity.row_id for identity in changed}
        assert len(new_ids) == changed.total()
        assert not new_ids & self.used
        self.used |= new_ids
        assert max(self.used, default=-1) < (next_row_id(table) or 0)
        self.rows, self.identities = list(rows), dict(now)
        self.sequence_number = table.metadata.last_sequence_number

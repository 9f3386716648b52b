"""A connector for the simulation of rewinds: its control topic, tasks, coordinator and tables.

Rules of this file:
- A commit without an answer may land at any later time, if the branch is still where it was.
- All chance comes from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from connect.errors import CommitRefused
from connect.model.layout import TopicPartition
from connect.protocol.control_offsets import offsets_text
from connect.protocol.control_topic import ControlRecord
from connect.protocol.snapshot_ancestry import ancestry
from control_schemas.events import (
    CommitComplete,
    ContentFile,
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    FileContent,
    SourceRange,
    TableReference,
    TopicPartitionOffset,
)
from coordinator.commit.iceberg.floor import floor_keys, table_state
from tests.support.tables import connector

TABLES = ("db.a", "db.b", "db.c")
SOURCES = (TopicPartition("t", 0), TopicPartition("t", 1))
COMMIT = UUID(int=1)

Row = tuple[int, int]  # source partition and offset


class ModelSnapshot(Snapshot):
    """A snapshot whose files are known by path."""

    files: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()

    def manifests(self, io: object) -> Any:
        """Return one manifest with the added files."""
        del io
        entries = [
            SimpleNamespace(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.snapshot_id,
                data_file=SimpleNamespace(file_path=path),
            )
            for path in self.added
        ]
        return [
            SimpleNamespace(
                added_snapshot_id=self.snapshot_id, fetch_manifest_entry=lambda _: entries
            )
        ]


class ModelTable:
    """A table: its metadata, as far as it is read."""

    def __init__(self, number: int) -> None:
        self.table_uuid = UUID(int=100 + number)
        self.refs: dict[str, SnapshotRef] = {}
        self.by_id: dict[int, ModelSnapshot] = {}
        self.properties: dict[str, str] = {}
        self.sequence = 0
        self.io = None

    @property
    def metadata(self) -> ModelTable:
        """Return itself."""
        return self

    @property
    def snapshots(self) -> list[ModelSnapshot]:
        """Every kept snapshot."""
        return list(self.by_id.values())

    @property
    def current_snapshot_id(self) -> int | None:
        """Head of the main branch."""
        ref = self.refs.get("main")
        return None if ref is None else ref.snapshot_id

    @property
    def head(self) -> ModelSnapshot | None:
        """The branch's snapshot."""
        head_id = self.current_snapshot_id
        return None if head_id is None else self.by_id[head_id]


class Violation(AssertionError):  # noqa: N818 - as in the other simulation
    """A promise was broken."""


class ModelConnector:
    """One connector with two source partitions and three tables.

    Args:
        seed: of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.config = connector("c", TABLES)
        self.log: list[ControlRecord] = []
        self.log_start = 0
        self.ends = dict.fromkeys(SOURCES, 0)
        self.committed = dict.fromkeys(SOURCES, 0)
        self.group_offset = 0
        self.tables = {name: ModelTable(n) for n, name in enumerate(TABLES)}
        self.keys = {name: floor_keys(self.config, name) for name in TABLES}
        self.rows: dict[str, frozenset[Row]] = {}
        self.foreign: dict[str, set[str]] = {name: set() for name in TABLES}
        self.failing: set[str] = set()
        self.late: list[Callable[[], None]] = []
        self.recorded: dict[str, Any] | None = None
        self.is_running = True
        self.now_ms = 1_000
        self.ids = 0

    # ------------------------------------------------------------ Kafka and tasks

    def append(self, payload: Any, headers: EventHeaders | None = None) -> None:
        """Write an event."""
        event = Event(COMMIT, 0, self.config.connect_group_id, payload)
        self.log.append(ControlRecord(0, len(self.log), event, headers or EventHeaders()))

    def produce(self) -> None:
        """Write records to a source partition."""
        self.ends[self.chance.choice(SOURCES)] += self.chance.randint(1, 4)

    def answer(self) -> None:
        """One task reads, writes a file for each table, and announces them in one transaction."""
        if not self.is_running:
            return
        tp = self.chance.choice(SOURCES)
        start = self.committed[tp]
        end = self.chance.randint(start, self.ends[tp]) if self.ends[tp] > start else start
        for number, name in enumerate(TABLES):
            rows = [
                (tp.partition, at) for at in range(start, end) if (tp.partition + at) % 3 == number
            ]
            if rows:
                path = f"{name}/{self.new_id()}"
                self.rows[path] = frozenset(rows)
                uuid = self.tables[name].table_uuid
                reference = TableReference("", ("db",), name[3:], uuid)
                file = ContentFile(FileContent.DATA, path, "PARQUET", 0, (), len(rows), 1)
                self.append(DataWritten(COMMIT, reference, (file,), ()))
        ranges = (SourceRange(tp.topic, tp.partition, start, end, 0, 0, 0, 0, None),)
        places = (TopicPartitionOffset(tp.topic, tp.partition, end, None),)
        self.append(DataComplete(COMMIT, places), EventHeaders(layout=1, ranges=ranges))
        self.committed[tp] = end

    def restart(self) -> None:
        """Tasks start again: any next range is accepted, and the offsets are the same."""
        if self.is_running:
            self.append(CommitComplete(COMMIT, None), EventHeaders(moved=()))

    def retain(self) -> None:
        """Retention deletes events that are committed."""
        if self.group_offset > self.log_start and not self.recorded:
            self.log_start = self.chance.randint(self.log_start, self.group_offset)

    # ------------------------------------------------------------ coordinator and catalog

    def new_id(self) -> int:
        """A fresh identity."""
        self.ids += 1
        return self.ids

    def round(self) -> None:
        """Commit everything announced; a table may fail, an answer may be lost."""
        if not self.is_running:
            return
        close = kept = len(self.log)
        for name, table in self.tables.items():
            try:
                state = table_state(table, self.keys[name])  # type: ignore[arg-type] # has what is read of metadata
            except CommitRefused as e:
                raise Violation(f"{name} cannot be committed to: {e.code}") from e
            floor = state.floor.get(0, 0)
            paths = set()
            first = None
            for record in self.log[max(self.group_offset, floor) : close]:
                assert record.event is not None
                payload = record.event.payload
                if isinstance(payload, DataWritten) and str(payload.table) == name:
                    paths |= {file.file_path for file in payload.data_files or ()}
                    first = record.offset if first is None else first
            if not paths:
                continue
            assert first is not None
            if name in self.failing:
                kept = min(kept, first)
            elif not self.chance.randrange(8):
                self.late.append(self.commit(name, frozenset(paths), close))
                kept = min(kept, first)
            else:
                self.commit(name, frozenset(paths), close)()
        self.group_offset = max(self.group_offset, kept)
        self.append(CommitComplete(COMMIT, None))

    def commit(self, name: str, paths: frozenset[str], close: int) -> Callable[[], None]:
        """Return a conditional commit of files."""
        table = self.tables[name]
        base = table.head
        files = (base.files if base else frozenset()) | paths
        made = self.snapshot(name, base, files, paths, offset=close)

        def land() -> None:
            if table.head is base:
                self.put(name, made, offset=close)

        return land

    def snapshot(
        self,
        name: str,
        parent: ModelSnapshot | None,
        files: frozenset[str],
        added: frozenset[str],
        *,
        offset: int | None,
        operation: Operation = Operation.APPEND,
        **marks: str,
    ) -> ModelSnapshot:
        """A snapshot on top of another one."""
        if offset is not None:
            marks[self.keys[name].summary] = offsets_text({0: offset})
        return ModelSnapshot(
            snapshot_id=self.new_id(),
            parent_snapshot_id=None if parent is None else parent.snapshot_id,
            sequence_number=0,
            timestamp_ms=self.now_ms,
            manifest_list="-",
            summary=Summary(operation=operation, **marks),
            files=files,
            added=added,
        )

    def put(self, name: str, made: ModelSnapshot, *, offset: int | None) -> None:
        """The catalog applies a commit; a rewind's parent must still be there."""
        table, keys = self.tables[name], self.keys[name]
        table.sequence += 1
        numbered = made.model_copy(update={"sequence_number": table.sequence})
        table.by_id[made.snapshot_id] = numbered
        table.refs["main"] = ref_to(made, SnapshotRefType.BRANCH)
        if offset is not None:
            table.refs[keys.tag] = ref_to(made, SnapshotRefType.TAG)
            table.properties[keys.mirror] = offsets_text({0: offset})

    def land_late(self) -> None:
        """A commit without an answer lands, or is refused."""
        if self.late:
            self.late.pop(self.chance.randrange(len(self.late)))()

    def fail(self) -> None:
        """A table begins or ceases to fail."""
        self.failing ^= {self.chance.choice(TABLES)}

    def expire(self) -> None:
        """Old snapshots expire, as far as no reference needs them."""
        name = self.chance.choice(TABLES)
        table = self.tables[name]
        if self.keys[name].mirror not in table.properties:
            return  # without a commit of the connector, the cut history is a lost floor
        kept = {ref.snapshot_id for ref in table.refs.values()}
        if self.chance.randrange(2):  # by Iceberg's rules: these branches keep everything
            for name, ref in table.refs.items():
                if ref.snapshot_ref_type is SnapshotRefType.BRANCH and name != "main":
                    kept |= {s.snapshot_id for s in ancestry(table, name)}  # type: ignore[arg-type] # as above
        for snapshot_id in list(table.by_id)[: self.chance.randrange(4)]:
            if snapshot_id not in kept:
                del table.by_id[snapshot_id]

    def write_foreign(self) -> None:
        """Another writer appends rows, or compacts."""
        name = self.chance.choice(TABLES)
        head = self.tables[name].head
        files = head.files if head else frozenset()
        if self.chance.randrange(4):
            made = self.snapshot(
                name, head, files, frozenset(), offset=None, operation=Operation.REPLACE
            )
        else:
            path = f"foreign/{self.new_id()}"
            self.foreign[name].add(path)
            made = self.snapshot(name, head, files | {path}, frozenset({path}), offset=None)
        self.put(name, made, offset=None)

    def check(self) -> None:
        """Each record must be in its table once, and the rows of others too."""
        for number, (name, table) in enumerate(self.tables.items()):
            files = table.head.files if table.head else frozenset()
            rows = sorted(row for path in files for row in self.rows.get(path, ()))
            wanted = sorted(
                (tp.partition, at)
                for tp, end in self.ends.items()
                for at in range(end)
                if (tp.partition + at) % 3 == number
            )
            if rows != wanted:
                twice = sorted({row for row in rows if rows.count(row) > 1})
                raise Violation(f"{name}: lost {sorted(set(wanted) - set(rows))}, twice {twice}")
            if not self.foreign[name] <= files:
                raise Violation(f"{name}: rows of another writer are lost")


def ref_to(snapshot: Snapshot, kind: SnapshotRefType) -> SnapshotRef:
    return SnapshotRef(snapshot_id=snapshot.snapshot_id, snapshot_ref_type=kind)

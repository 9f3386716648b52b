"""Tables whose rows are replaced and deleted by key, and a model of their rows."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyroaring import BitMap64

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.log_stores import open_delta_tables
from connect.gateways.catalog_properties import client_config
from connect.gateways.delta.delta_model import DeltaStore
from connect.gateways.delta.delta_storage import storage_options
from connect.metrics import process_metrics
from control_schemas.events import ContentFile, FileContent, PartitionField
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.table_logs.delta_files import delta_file, held_before
from coordinator.commit.table_logs.delta_row_changes import DeltaRowChanges
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.kernel.effects import TableCommit, TableCommitted
from coordinator.row_deletes.limits import DEFAULT_LIMITS, RowLimits
from tests.support.delta_tables import TABLE, delta_connector
from tests.support.row_lineage import IdentityModel, lineage_of, records_of
from tests.support.stack import unique_name
from tests.support.table_harness import TableHarness
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    partition_of,
    reference,
    table_commit,
    written_file,
)

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "value", LongType(), required=False),
)
UPSERT = {
    "iceberg__tables__upsert_mode_enabled": "true",
    "iceberg__tables__write_mode": "copy-on-write",
}
COPIES_NOT_USED = "icefloe.copy-on-write.not-used"
VECTORS_NOT_USED = "icefloe.deletion-vectors.not-used"
Row = dict[str, Any]
SEEDS = int(os.environ.get("COPY_ON_WRITE_SEEDS", "2"))
_numbers = itertools.count(1)
T = TypeVar("T", bound="Upserts")


def delete_file(table: Table, rows: Sequence[Row], names: Sequence[str]) -> ContentFile:
    """Write the keys of rows as an equality delete file that applies to all partitions."""
    schema = table.schema()
    fields = [schema.find_field(name) for name in names]
    arrow = schema_to_pyarrow(Schema(*fields))
    data = pa.Table.from_pylist([{n: r[n] for n in names} for r in rows], schema=arrow)
    path = f"{table.location()}/data/{next(_numbers):08d}-{uuid4()}-deletes.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(data, out, store_schema=False)
    free = next(s.spec_id for s in table.specs().values() if not s.fields)
    return ContentFile(
        content=FileContent.EQUALITY_DELETES,
        file_path=path,
        file_format="PARQUET",
        spec_id=free,
        partition=(),
        record_count=len(rows),
        file_size_in_bytes=len(table.io.new_input(path)),
        equality_ids=tuple(f.field_id for f in fields),
    )


def position_deletes(
    t: Upserts | TableHarness,
    marked: Mapping[str, Collection[int]],
    partition: tuple[PartitionField, ...] = (),
) -> ContentFile:
    """Write a position delete file of the table's first partition spec."""
    paths = sorted(path for path, rows in marked.items() for _ in rows)
    rows = [each for path in sorted(marked) for each in sorted(marked[path])]
    number = {"PARQUET:field_id": "2147483546"}, {"PARQUET:field_id": "2147483545"}
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), nullable=False, metadata=number[0]),
            pa.field("pos", pa.int64(), nullable=False, metadata=number[1]),
        ]
    )
    path = f"{t.table.location()}/data/{uuid4()}-deletes.parquet"
    with t.table.io.new_output(path).create() as out:
        pq.write_table(pa.table([paths, rows], schema=schema), out, store_schema=False)
    return ContentFile(
        content=FileContent.POSITION_DELETES,
        file_path=path,
        file_format="PARQUET",
        spec_id=0,
        partition=partition,
        record_count=len(rows),
        file_size_in_bytes=len(t.table.io.new_input(path)),
        lower_bounds={2147483546: paths[0].encode()},
        upper_bounds={2147483546: paths[-1].encode()},
    )


class Upserts:
    """One connector's table with copy-on-write, and what its rows should be.

    Args:
        catalog: where the table is.
        spec: of the table.
        keys: names of the key columns.
        settings: of the connector, in addition.
    """

    properties: ClassVar[dict[str, str]] = {}
    defaults: ClassVar[dict[str, str]] = UPSERT

    def __init__(
        self,
        catalog: CatalogGateway,
        spec: PartitionSpec | None = None,
        keys: Sequence[str] = ("id",),
        **settings: str,
    ) -> None:
        self.catalog = catalog
        self.name: tuple[str, ...] = ("db", unique_name(f"cow-{uuid4().hex[:8]}"))
        self.table = catalog.create(
            self.name, SCHEMA, spec or PartitionSpec(), properties=self.properties
        )
        if spec is not None:
            self.table = self._with_free_spec()
        self.keys = tuple(keys)
        self.settings = {**self.defaults, **settings}
        self.rows: list[Row] = []
        self.offset = 0
        self.clock = QuickClock()

    def _with_free_spec(self) -> Table:
        from connect.records.tables.delete_specs import unpartitioned_spec_added

        requirements, updates = unpartitioned_spec_added(self.table)
        return self.catalog.commit(self.table, requirements, updates)

    def committer(
        self,
        catalog: Any = None,
        made: type[Committer] = Committer,
        limits: RowLimits = DEFAULT_LIMITS,
        **settings: str,
    ) -> Committer:
        """A coordinator's committer."""
        config = connector("c", [".".join(self.name)], **{**self.settings, **settings})
        return made(catalog or self.catalog, config, self.clock, row_limits=limits)

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """The key of a row."""
        return tuple(row[name] for name in self.keys)

    def data_files(self, rows: Sequence[Row]) -> list[ContentFile]:
        """Write rows, each partition into its file."""
        table = self.reloaded()
        parts: dict[Any, list[Row]] = {}
        for row in rows:
            values = partition_of(table, row) if table.spec().fields else ()
            parts.setdefault(values, []).append(row)
        return [written_file(table, each, partition=values) for values, each in parts.items()]

    def round(self, *steps: tuple[Sequence[Row], Sequence[Row]], **more: Any) -> TableCommit:
        """Announce steps of rows to upsert, and rows to delete; apply them to the model."""
        table = self.reloaded()
        envelopes = []
        for upserted, deleted in steps:
            changed = [*upserted, *deleted]
            gone = set(map(self.key, changed))
            self.rows = [r for r in self.rows if self.key(r) not in gone] + list(upserted)
            deletes = [delete_file(table, changed, self.keys)] if changed else []
            envelopes.append(
                announced(
                    reference(table),
                    self.data_files(upserted),
                    deletes,
                    offset=self.offset,
                    batch=self.offset,
                )
            )
            self.offset += 1
        return table_commit(envelopes, **more)

    def foreign(self, rows: Sequence[Row]) -> None:
        """Another writer appends rows."""
        table = self.catalog._client().load_table(self.name)
        arrow = schema_to_pyarrow(table.schema())
        table.append(pa.Table.from_pylist(list(rows), schema=arrow))

    def reloaded(self) -> Table:
        """The table as it is now."""
        return self.catalog.load(self.name)

    def check(self) -> None:
        """The table has the rows of the model, and no delete file."""
        table = self.reloaded()
        names = [f.name for f in table.schema().fields]
        found = table.scan().to_arrow().to_pylist()
        assert counted(found, names) == counted(self.rows, names)
        head = table.current_snapshot()
        manifests = [] if head is None else head.manifests(table.io)
        deletes = [m for m in manifests if m.content == ManifestContent.DELETES]
        assert not [m for m in deletes if m.has_added_files() or m.has_existing_files()]
        if head is not None:
            assert head.summary["total-records"] == str(len(found))
            assert head.summary["total-data-files"] == str(len(live_paths(table)))

    def stored_files(self, suffix: str = "parquet") -> set[str]:
        """Files in the table's data folder."""
        folder = Path(self.table.location().removeprefix("file://")) / "data"
        return {f"file://{path}" for path in folder.rglob(f"*.{suffix}")}


def counted(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset."""
    return Counter(tuple(row.get(name) for name in names) for row in rows)


def live_paths(table: Table) -> set[str]:
    """Data files of the current snapshot."""
    return {task.file.file_path for task in table.scan().plan_files()}


def metric(name: str, labels: tuple[str, ...]) -> float:
    """Value of a metric of this process."""
    samples = process_metrics.PROCESS.snapshot()[1]
    return sum(s[-1] for s in samples if name in s and all(v in str(s) for v in labels))


def row(key: int | None, value: int, region: str | None = "eu") -> Row:
    """A row of the table."""
    return {"id": key, "region": region, "value": value}


def committed(outcome: object) -> TableCommitted:
    """The outcome, which is a commit."""
    assert isinstance(outcome, TableCommitted), outcome
    return outcome


class LineageUpserts(Upserts):
    """A table of format version 3 with copy-on-write: rows have identities."""

    properties: ClassVar[dict[str, str]] = {"format-version": "3"}

    def __init__(self, *table: Any, **settings: str) -> None:
        super().__init__(*table, **settings)
        self.identities = IdentityModel()

    def foreign(self, rows: Sequence[Row]) -> None:
        """Another connector appends rows: PyIceberg does not write the format version."""
        files = self.data_files(rows)
        event = announced(reference(self.table), files, offset=next(_numbers))
        config = connector("d", [".".join(self.name)])
        committed(Committer(self.catalog, config, self.clock).commit(table_commit([event])))

    def check(self) -> None:
        """The table has the rows of the model with their identities, and no delete file."""
        super().check()
        table = self.reloaded()
        if table.current_snapshot() is not None:
            self.identities.check(table, self.rows)


class VectorUpserts(LineageUpserts):
    """A table of format version 3 with deletion vectors, the default of its connectors."""

    defaults: ClassVar[dict[str, str]] = {"iceberg__tables__upsert_mode_enabled": "true"}
    seen: Mapping[str, tuple[int, int]] = {}

    def check(self) -> None:
        """The table has the rows of the model, and one right vector for each changed file."""
        table = self.reloaded()
        names = [f.name for f in table.schema().fields]
        found = table.scan().to_arrow().to_pylist()
        assert counted(found, names) == counted(self.rows, names)
        head = table.current_snapshot()
        if head is None:
            return
        vectors = vectors_of(table)
        lineage = lineage_of(table)
        marked = 0
        for path, positions in vectors.items():
            marked += len(positions)
            assert 0 < len(positions) < lineage[path][1]
            assert positions.max() < lineage[path][1]
        summary = head.summary
        assert summary["total-delete-files"] == str(len(vectors))
        assert summary["total-position-deletes"] == str(marked)
        assert summary["total-equality-deletes"] == "0"
        assert summary["total-records"] == str(len(found) + marked)
        assert summary["total-data-files"] == str(len(lineage))
        size = sum(f["content_size_in_bytes"] for f in vector_files(table).values())
        assert int(summary["total-files-size"]) == size + sum(
            task.file.file_size_in_bytes for task in table.scan().plan_files()
        )
        assert all(lineage[path] == ids for path, ids in self.seen.items() if path in lineage)
        self.seen = {**self.seen, **lineage}
        ranges = sorted(lineage.values())
        assert all(a + n <= b for (a, n), (b, _) in pairwise(ranges))
        self.identities.check(table, self.rows, vectors)


class MixedUpserts(VectorUpserts):
    """A table of format version 3 with copy-on-write, of which every second committer has vectors.

    A copy of a file with a vector has no vector. A copy may get one later.
    """

    defaults: ClassVar[dict[str, str]] = UPSERT
    _committers = 0

    def committer(self, *made: Any, **settings: Any) -> Committer:
        """A committer; every second one can copy nothing."""
        self._committers += 1
        if self._committers % 2:
            settings = {"iceberg__tables__copy_on_write_max_bytes": "1", **settings}
        return super().committer(*made, **settings)


class MarkedUpserts(Upserts):
    """A table of format version 2 with copy-on-write; another writer deletes rows by position."""

    def __init__(self, *table: Any, **settings: str) -> None:
        super().__init__(*table, **settings)
        self.marked: dict[str, set[int]] = {}

    def foreign(self, rows: Sequence[Row]) -> None:
        """Another writer deletes up to two rows of one partition, and appends rows."""
        self.mark_some(random.Random(self.offset))
        super().foreign(rows)

    def mark_some(self, rng: random.Random) -> None:
        """Another writer deletes some rows by position; they leave the model."""
        table = self.reloaded()
        live = []
        for path in sorted(live_paths(table)):
            with table.io.new_input(path).open() as stream:
                content = pq.read_table(stream).to_pylist()
            gone = self.marked.get(path, set())
            live += [(r, path, n) for n, r in enumerate(content) if n not in gone]
        if not live:
            return
        live.sort(key=lambda each: each[0]["value"])
        partition = partition_of(table, rng.choice(live)[0], spec_id=0)
        same = [each for each in live if partition_of(table, each[0], spec_id=0) == partition]
        marked: dict[str, set[int]] = {}
        for values, path, place in rng.sample(same, min(len(same), rng.randrange(1, 3))):
            marked.setdefault(path, set()).add(place)
            if values in self.rows:  # else the round under way replaces it
                self.rows.remove(values)
        self.mark(marked, partition)

    def mark(
        self, marked: Mapping[str, set[int]], partition: tuple[PartitionField, ...] = ()
    ) -> None:
        """Another writer commits a position delete file."""
        self.add_deletes(position_deletes(self, marked, partition))
        for path, places in marked.items():
            self.marked[path] = self.marked.get(path, set()) | places

    def add_deletes(self, *deletes: ContentFile) -> None:
        """Another writer commits delete files."""
        event = announced(reference(self.table), [], deletes, offset=next(_numbers))
        other = connector("p", [".".join(self.name)])
        committed(Committer(self.catalog, other, self.clock).commit(table_commit([event])))

    def check(self) -> None:
        """The table has the rows of the model; position deletes are of data files that it has."""
        table = self.reloaded()
        names = [f.name for f in table.schema().fields]
        assert counted(table.scan().to_arrow().to_pylist(), names) == counted(self.rows, names)
        head = table.current_snapshot()
        if head is None:
            return
        assert head.summary["total-equality-deletes"] == "0"
        if table.specs()[0].fields:  # commits do not read all manifests
            return
        live = live_paths(table)
        assert not [
            path for path in delete_paths(table) if live.isdisjoint(named_files(table, path))
        ]


def delete_paths(table: Table) -> list[str]:
    """Delete files of the current snapshot."""
    return [
        entry["data_file"]["file_path"]
        for manifest in records_of(table, table.current_snapshot().manifest_list)
        for entry in records_of(table, manifest["manifest_path"])
        if entry["status"] != 2 and manifest["content"] == 1
    ]


def named_files(table: Table, path: str) -> set[str]:
    """The data files that a position delete file names."""
    with table.io.new_input(path).open() as stream:
        return set(pq.read_table(stream, columns=["file_path"])["file_path"].to_pylist())


MODES: Mapping[str, type[Upserts]] = {
    "copies": Upserts,
    "lineage_copies": LineageUpserts,
    "vectors": VectorUpserts,
}
"""Tables of each way to remove rows."""


def head_of(t: Upserts) -> dict[str, str]:
    """The properties of the newest snapshot."""
    summary = t.reloaded().current_snapshot().summary
    return {"operation": summary.operation.value, **summary.additional_properties}


@contextlib.contextmanager
def opened(tables: type[T], properties: dict[str, str]) -> Iterator[T]:
    """Make a table in a catalog, without partitions."""
    gateway = open_catalog("iceberg", properties)
    yield tables(gateway)
    gateway.close()


class SlowClock(QuickClock):
    """A clock on which everything takes a minute, or ``step_ms``, as long as it is slow."""

    is_slow = True
    step_ms = DEFAULT_LIMITS.duration_ms_max

    def monotonic_ms(self) -> int:
        """Milliseconds, a step later each time."""
        if self.is_slow:
            self.slept_ms.append(self.step_ms)
        return super().monotonic_ms()


def vector_files(table: Table, snapshot: Snapshot | None = None) -> dict[str, dict[str, Any]]:
    """Entries of a snapshot's deletion vectors by data file, read with fastavro."""
    out = {}
    listed = snapshot or table.current_snapshot()
    for manifest in records_of(table, listed.manifest_list):
        for entry in records_of(table, manifest["manifest_path"]):
            file = entry["data_file"]
            if file["file_format"] != "PUFFIN" or entry["status"] == 2:
                continue
            assert (manifest["content"], file["content"]) == (1, 1)
            assert file["referenced_data_file"] not in out
            out[file["referenced_data_file"]] = file
    return out


def vectors_of(table: Table, snapshot: Snapshot | None = None) -> dict[str, BitMap64]:
    """Deletion vectors of a snapshot by data file, as PyIceberg reads their Puffin files."""
    out = {}
    for path, file in vector_files(table, snapshot).items():
        with table.io.new_input(file["file_path"]).open() as stream:
            content = stream.read()
        assert len(content) == file["file_size_in_bytes"]
        puffin = PuffinFile(content)
        [blob] = [b for b in puffin.footer.blobs if b.offset == file["content_offset"]]
        assert blob.length == file["content_size_in_bytes"]
        assert blob.properties["referenced-data-file"] == path
        assert blob.properties["cardinality"] == str(file["record_count"])
        [vector] = [
            v for v in deletion_vectors_from_puffin_file(puffin) if v.referenced_data_file == path
        ]
        out[path] = BitMap64(vector.to_vector().to_pylist())
        assert len(out[path]) == file["record_count"]
    return out


class DeltaUpserts(Upserts):
    """A Delta table of one connector, and what its rows should be.

    Args:
        location: of the connector's tables.
        spec: of the table.
        keys: names of the key columns.
        settings: of the connector, in addition.
    """

    def __init__(
        self,
        location: str,
        spec: PartitionSpec | None = None,
        keys: Sequence[str] = ("id",),
        **settings: str,
    ) -> None:
        raw = {"iceberg.tables.upsert-mode-enabled": "true", **settings}
        self.config = delta_connector(location, raw)
        self.catalog = open_catalog("delta", self.config.catalog_properties)
        self.name = tuple(TABLE.split("."))
        self.table = self.catalog.create(self.name, SCHEMA, spec or PartitionSpec())
        self.keys = tuple(keys)
        self.rows = []
        self.offset = 0
        self.clock = QuickClock()

    def store(self) -> DeltaStore:
        """The tables as a coordinator opens them."""
        config = self.config
        return open_delta_tables(config.catalog_properties, config.locations, lambda *_: None)

    def log_committer(self, store: Any = None) -> LogCommitter:
        """A coordinator's committer."""
        changes = partial(DeltaRowChanges.of, self.config, self.clock)
        return LogCommitter(
            store or self.store(),
            delta_file,
            self.config,
            self.clock,
            row_changes=changes,
            prove=partial(held_before, are_verified_later=True),
        )

    def foreign(self, rows: Sequence[Row]) -> None:
        """Another writer appends rows."""
        schema = pa.schema([("id", pa.int32()), ("region", pa.string()), ("value", pa.int64())])
        write_deltalake(self.now(), pa.Table.from_pylist(list(rows), schema), mode="append")

    def now(self) -> DeltaTable:
        """The table as delta-rs reads it."""
        client = client_config(self.config.catalog_properties).properties
        options = storage_options(client, self.table.location())
        return DeltaTable(self.table.location(), storage_options=options)

    def check(self) -> None:
        """The table has the rows of the model, as delta-rs reads it."""
        names = [f.name for f in self.reloaded().schema().fields]
        found = self.now().to_pyarrow_table().to_pylist()
        assert counted(found, names) == counted(self.rows, names)

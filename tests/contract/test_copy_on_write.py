"""Copy-on-write commits to Iceberg tables: rows, files, conflicts, unknown outcomes, bounds."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType

from connect import failpoints
from connect.errors import CommitConflict, CommitStateUnknown
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.metrics import process_metrics
from control_schemas.events import ContentFile, FileContent
from coordinator.commit.committer import Committer
from coordinator.copy_on_write import limits
from coordinator.kernel.effects import CoordinatorFenced, TableCommit, TableCommitted, TableFailed
from tests.support.running_stack import duckdb_rows
from tests.support.stack import unique_name
from tests.support.table_harness import Racing
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
Row = dict[str, Any]
SEEDS = int(os.environ.get("COPY_ON_WRITE_SEEDS", "2"))
_numbers = itertools.count(1)


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


class Upserts:
    """One connector's table with copy-on-write, and what its rows should be.

    Args:
        catalog: where the table is.
        spec: of the table.
        keys: names of the key columns.
        settings: of the connector, in addition.
    """

    def __init__(
        self,
        catalog: CatalogGateway,
        spec: PartitionSpec | None = None,
        keys: Sequence[str] = ("id",),
        **settings: str,
    ) -> None:
        self.catalog = catalog
        self.name = ("db", unique_name(f"cow-{uuid4().hex[:8]}"))
        self.table = catalog.create(self.name, SCHEMA, spec or PartitionSpec())
        if spec is not None:
            self.table = self._with_free_spec()
        self.keys = tuple(keys)
        self.settings = {**UPSERT, **settings}
        self.rows: list[Row] = []
        self.offset = 0
        self.clock = QuickClock()

    def _with_free_spec(self) -> Table:
        from connect.records.tables.delete_specs import unpartitioned_spec_added

        requirements, updates = unpartitioned_spec_added(self.table)
        return self.catalog.commit(self.table, requirements, updates)

    def committer(self, catalog: Any = None, **settings: str) -> Committer:
        """A coordinator's committer."""
        config = connector("c", [".".join(self.name)], **{**self.settings, **settings})
        return Committer(catalog or self.catalog, config, self.clock)

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
        assert not [m for m in manifests if m.content == ManifestContent.DELETES]
        if head is not None:
            assert head.summary["total-records"] == str(len(found))
            assert head.summary["total-data-files"] == str(len(live_paths(table)))

    def stored_files(self) -> set[str]:
        """Parquet files in the table's folder."""
        folder = Path(self.table.location().removeprefix("file://")) / "data"
        return {f"file://{path}" for path in folder.rglob("*.parquet")}


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


@pytest.fixture
def upserts(sql_catalog_properties: dict[str, str]) -> Iterable[Upserts]:
    """An unpartitioned table in a local folder."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    yield Upserts(gateway)
    gateway.close()


def test_a_round_replaces_rows_in_one_snapshot_without_delete_files(
    catalog: CatalogGateway,
) -> None:
    """On every backend: only files with superseded rows are written again."""
    t = Upserts(catalog)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(7, 70)], []))))
    before = live_paths(t.reloaded())
    outcome = committed(committer.commit(t.round(([row(1, 11)], [row(7, 0)]))))
    t.check()
    table = t.reloaded()
    assert len(table.metadata.snapshots) == 3
    head = table.current_snapshot()
    assert outcome.snapshot_id == head.snapshot_id
    assert head.summary.operation.value == "overwrite"
    summary = head.summary.additional_properties
    assert summary["deleted-data-files"] == "2"
    assert summary["deleted-records"] == "3"
    assert summary["added-records"] == "2"
    assert summary["icefloe.write-mode"] == "copy-on-write"
    assert summary["kafka.connect.offsets.control-iceberg.connect-c"] == '{"0":3}'
    assert not before & live_paths(table)


def test_untouched_files_stay(upserts: Upserts) -> None:
    """A round of new keys is an append; deletes of unknown keys change no file."""
    t, committer = upserts, upserts.committer()
    committed(committer.commit(t.round(([row(1, 10)], []))))
    first = live_paths(t.reloaded())
    committed(committer.commit(t.round(([row(5, 50)], []))))
    committed(committer.commit(t.round(([], [row(9, 0)]))))
    t.check()
    table = t.reloaded()
    assert first < live_paths(table)
    operations = [s.summary.operation.value for s in table.metadata.snapshots]
    assert operations == ["append"] * 3


def test_files_of_the_round_are_deleted_when_it_is_committed(upserts: Upserts) -> None:
    """Only what snapshots list stays in the store."""
    t, committer = upserts, upserts.committer()
    listed: set[str] = set()
    for n in range(3):
        steps = [([row(1, n), row(2, n)], []), ([row(1, n + 10)], []), ([row(1, n + 20)], [])]
        committed(committer.commit(t.round(*steps)))
        listed |= live_paths(t.reloaded())
    t.check()
    assert t.stored_files() == listed


def test_steps_apply_in_their_order(upserts: Upserts) -> None:
    """A delete reaches rows of earlier steps of the round, and none of its own or later ones."""
    t, committer = upserts, upserts.committer()
    steps = [([row(1, 1), row(2, 2)], []), ([row(1, 3)], [row(2, 0)]), ([row(2, 4)], [])]
    committed(committer.commit(t.round(*steps)))
    t.check()
    assert sorted(r["value"] for r in t.rows) == [3, 4]


def test_null_keys_are_equal(sql_catalog_properties: dict[str, str]) -> None:
    """In one and in several key columns."""
    for keys in (("id",), ("id", "region")):
        t = Upserts(open_catalog("iceberg", sql_catalog_properties), keys=keys)
        committer = t.committer()
        rows = [row(None, 1), row(1, 2, None), row(None, 3, None), row(1, 4)]
        committed(committer.commit(t.round((rows if len(keys) == 2 else rows[:2], []))))
        committed(committer.commit(t.round(([row(None, 5), row(1, 6, None)], []))))
        t.check()
        t.catalog.close()


def test_a_key_moves_to_another_partition(sql_catalog_properties: dict[str, str]) -> None:
    """Deletes under a spec without partitions reach all partitions."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = Upserts(open_catalog("iceberg", sql_catalog_properties), spec)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 1, "eu"), row(2, 2, "us"), row(3, 3, None)], []))))
    committed(committer.commit(t.round(([row(1, 4, "us"), row(3, 5, "eu")], []))))
    t.check()
    folders = {path.split("/data/")[1].split("/")[0] for path in live_paths(t.reloaded())}
    assert folders
    t.catalog.close()


def test_deletes_of_a_partition_reach_no_other(sql_catalog_properties: dict[str, str]) -> None:
    """As equality deletes do: the key column alone does not decide."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = Upserts(open_catalog("iceberg", sql_catalog_properties), spec)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 1, "eu")], []))))
    t.foreign([row(1, 2, "us")])
    t.rows.append(row(1, 2, "us"))
    table = t.reloaded()
    scoped = dataclasses.replace(
        delete_file(table, [row(1, 0)], ["id"]),
        spec_id=table.spec().spec_id,
        partition=partition_of(table, row(1, 0, "eu")),
    )
    commit = table_commit([announced(reference(table), [], [scoped], offset=t.offset, batch=9)])
    committed(committer.commit(commit))
    t.rows.remove(row(1, 1, "eu"))
    t.check()
    t.catalog.close()


def test_old_files_keep_their_schema(upserts: Upserts) -> None:
    """Keys are compared in the table's present types; new columns are null in old rows."""
    t, committer = upserts, upserts.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    table = t.catalog._client().load_table(t.name)
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.add_column("day", DateType())
        update.rename_column("region", "area")
    t.rows = [{"id": r["id"], "area": r["region"], "value": r["value"]} for r in t.rows]
    new = {"id": 2, "area": "us", "value": 21, "day": date(2026, 1, 2)}
    committed(committer.commit(t.round(([new], []))))
    t.check()
    big = {"id": 2**40, "area": "us", "value": 1, "day": None}
    committed(committer.commit(t.round(([big, {**new, "id": 1}], []))))
    t.check()


def test_rows_of_another_writer_are_replaced_too(upserts: Upserts) -> None:
    """Also rows that it adds between the attempts of a commit."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    racing = Racing(
        t.catalog, [lambda: t.foreign([row(1, 90), row(8, 80)]), lambda: t.foreign([row(1, 91)])]
    )
    outcome = committed(t.committer(racing).commit(t.round(([row(1, 11)], []))))
    t.rows.append(row(8, 80))
    t.check()
    assert outcome.snapshot_id == t.reloaded().current_snapshot().snapshot_id


def test_copies_are_made_once_over_all_attempts(upserts: Upserts) -> None:
    """A file that is still in the table is not copied again after a conflict."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    before = t.stored_files()
    racing = Racing(t.catalog, [lambda: t.foreign([row(8, 80)])] * 3)
    commit = t.round(([row(1, 11)], []))
    t.rows += [row(8, 80)] * 3
    committed(t.committer(racing).commit(commit))
    t.check()
    copies = t.stored_files() - before
    assert len(copies) == 1 + 1 + 3  # copy, new row, rows of the other writer


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_unanswered_commit_is_looked_up(upserts: Upserts, *, is_applied: bool) -> None:
    """Whether it was applied or not, the rows are there once, and nothing listed is deleted."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))

    class Unanswered(Racing):
        left = 1

        def commit(self, *change: object, **options: object) -> Table:
            if not self.left:
                return super().commit(*change, **options)
            self.left -= 1
            if is_applied:
                super().commit(*change, **options)
            raise CommitStateUnknown("no answer")

    committed(t.committer(Unanswered(t.catalog, [])).commit(t.round(([row(1, 11)], []))))
    t.check()
    committed(t.committer().commit(t.round(([row(2, 21)], []))))
    t.check()


def test_a_commit_that_lands_late_is_not_made_again(upserts: Upserts) -> None:
    """The first attempt is applied after the committer gave up; the next round finds it."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    late: list[Callable[[], object]] = []

    class Late(Racing):
        is_away = True

        def commit(self, *change: object, **options: object) -> Table:
            if not late:
                late.append(lambda: Racing.commit(self, *change, **options))
                raise CommitStateUnknown("no answer")
            return super().commit(*change, **options)

        def load(self, *args: Any, **more: Any) -> Table:
            if late and self.is_away:
                raise CommitStateUnknown("away")
            return t.catalog.load(*args, **more)

    catalog = Late(t.catalog, [])
    committer = t.committer(catalog)
    commit = t.round(([row(1, 11)], []))
    assert isinstance(committer.commit(commit), TableFailed)
    late[0]()
    catalog.is_away = False
    committed(committer.commit(commit))
    t.check()
    committed(committer.commit(t.round(([row(1, 12)], []))))
    t.check()


@pytest.mark.parametrize("point", ["D1", "C8", "C9", "C10", "C11", "C12"])
def test_a_kill_between_any_two_steps_loses_nothing(
    upserts: Upserts, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor with the same announcements brings the rows in once."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    commit = t.round(([row(1, 11), row(3, 30)], []), ([row(3, 31)], [row(2, 0)]))

    class Killed(BaseException):
        pass

    def hit(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", hit)
        patch.setattr(failpoints, "hit_in_flight", hit)
        with pytest.raises(Killed):
            t.committer().commit(commit)
    committed(t.committer().commit(commit))
    t.check()


def test_a_failed_commit_leaves_no_copies(upserts: Upserts) -> None:
    """If every attempt was refused, the copies are deleted; the files of the round stay."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))

    class Refusing(Racing):
        def commit(self, *_: object, **__: object) -> Table:
            raise CommitConflict("no")

    commit = t.round(([row(1, 11)], []))
    before = t.stored_files()
    assert isinstance(t.committer(Refusing(t.catalog, [])).commit(commit), TableFailed)
    assert t.stored_files() == before
    committed(t.committer().commit(commit))
    t.check()


def test_a_second_coordinator_fences_the_first(upserts: Upserts) -> None:
    """As with appends."""
    t = upserts
    zombie = t.committer()
    committed(zombie.commit(t.round(([row(1, 10)], []))))
    commit = t.round(([row(1, 11)], []))
    committed(t.committer().commit(commit))
    assert isinstance(zombie.commit(commit), CoordinatorFenced)
    t.check()


def test_a_repeated_announcement_changes_nothing(upserts: Upserts) -> None:
    """Of files that are in the table, were copied, or were superseded in their round."""
    t, committer = upserts, upserts.committer()
    first = t.round(([row(1, 10), row(2, 20)], []), ([row(1, 11)], []), ([row(1, 12)], []))
    committed(committer.commit(first))
    committed(committer.commit(t.round(([row(2, 22)], []))))

    def repeated(envelope: Any) -> TableCommit:
        t.offset += 1
        return table_commit([dataclasses.replace(envelope, offset=t.offset)])

    for envelope in first.announcements:
        committed(committer.commit(repeated(envelope)))
        t.check()
    for envelope in first.announcements:  # a successor does not remember the files
        outcome = t.committer().commit(repeated(envelope))
        if isinstance(outcome, TableFailed):
            assert (outcome.code, outcome.is_retriable) == ("announced_file_missing", False)
        t.check()


def test_too_many_bytes_use_delete_files(upserts: Upserts) -> None:
    """The commit is made as without copy-on-write, counted, and named in its snapshot."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    limited = t.committer(iceberg__tables__copy_on_write_max_bytes="10")
    committed(limited.commit(t.round(([row(1, 11)], []))))
    assert metric("copy_on_write_fallbacks", ("c", ".".join(t.name), "bytes")) == 1
    table = t.reloaded()
    summary = table.current_snapshot().summary.additional_properties
    assert summary["icefloe.copy-on-write.not-used"] == "bytes"
    assert summary["total-equality-deletes"] == "1"
    # later copies keep their sequence number: the delete file still applies to them
    committed(t.committer().commit(t.round(([row(2, 21)], []))))
    assert rows_with_deletes(t.reloaded()) == counted(t.rows, ["id", "region", "value"])


def test_a_time_limit_uses_delete_files(upserts: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow store does not hold up the rounds of the connector."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10)], []))))
    monkeypatch.setattr(limits, "DURATION_MS_MAX", -1)
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    summary = t.reloaded().current_snapshot().summary.additional_properties
    assert summary["icefloe.copy-on-write.not-used"] == "time"


def rows_with_deletes(table: Table) -> Counter[tuple[Any, ...]]:
    """Rows of a table with equality deletes by ``id``, as the specification says."""
    head = table.current_snapshot()
    deleted: list[tuple[int, Any]] = []
    rows = []
    for manifest in head.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            with table.io.new_input(entry.data_file.file_path).open() as stream:
                content = pq.read_table(stream).to_pylist()
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                deleted += [(entry.sequence_number, each["id"]) for each in content]
            else:
                rows += [(entry.sequence_number, each) for each in content]
    kept = [
        each
        for number, each in rows
        if not any(each["id"] == key and number < at for at, key in deleted)
    ]
    return counted(kept, ["id", "region", "value"])


SPECS = {
    "none": None,
    "key": PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket")),
    "other": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
}


class Unreliable(Racing):
    """A catalog that refuses commits, or does not answer them, applied or not."""

    def __init__(self, inner: CatalogGateway, rng: random.Random) -> None:
        super().__init__(inner, [])
        self.rng = rng

    def commit(self, *change: object, **options: object) -> Table:
        """Commit, perhaps, and answer, perhaps."""
        fate = self.rng.random()
        if fate < 0.15:
            raise CommitConflict("refused")
        if fate < 0.3:
            raise CommitStateUnknown("not applied")
        after = super().commit(*change, **options)
        if fate < 0.45:
            raise CommitStateUnknown("applied")
        return after


def some_row(rng: random.Random) -> Row:
    """A row with one of a few keys."""
    key = rng.choice([None, *range(12)])
    return row(key, rng.randrange(10**6), rng.choice([None, "eu", "us"]))


def some_step(rng: random.Random, t: Upserts) -> tuple[list[Row], list[Row]]:
    """Rows to upsert, with different keys, and rows to delete."""
    by_key = {t.key(r): r for r in (some_row(rng) for _ in range(rng.randrange(5)))}
    gone = [r for r in (some_row(rng) for _ in range(rng.randrange(3))) if t.key(r) not in by_key]
    return list(by_key.values()), gone


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_histories(sql_catalog_properties: dict[str, str], spec: str, seed: int) -> None:
    """The table equals the model after every round, with conflicts and lost answers between."""
    rng = random.Random(f"{spec}-{seed}")
    keys = ("id",) if seed % 2 else ("id", "region")
    t = Upserts(open_catalog("iceberg", sql_catalog_properties), SPECS[spec], keys)
    catalog = Unreliable(t.catalog, rng)
    committer = t.committer(catalog)
    for _ in range(6):
        if rng.random() < 0.4:
            more = [some_row(rng) for _ in range(3)]
            t.foreign(more)
            t.rows += more
        if rng.random() < 0.2:
            committer = t.committer(catalog)
        commit = t.round(*(some_step(rng, t) for _ in range(rng.randrange(1, 4))))
        outcomes = (committer.commit(commit) for _ in range(20))
        assert any(isinstance(outcome, TableCommitted) for outcome in outcomes)
        t.check()
    if t.rows:
        read = duckdb_rows(t.reloaded(), "coalesce(id, -1)", "coalesce(region, '')", "value")
        assert read == sorted(
            (-1 if r["id"] is None else r["id"], r["region"] or "", r["value"]) for r in t.rows
        )
    t.catalog.close()

"""Commits with deletion vectors: rows, entries, counters, conflicts, unknown outcomes, bounds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform

from connect.errors import CommitConflict, CommitStateUnknown
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from control_schemas.events import ContentFile, FileContent
from coordinator.commit import head_files, row_lineage
from coordinator.commit.committer import Committer
from coordinator.kernel.effects import CoordinatorFenced, TableCommit, TableFailed
from coordinator.maintenance.snapshot_expiry import BATCH
from tests.support.row_lineage import entry_paths, lineage_of
from tests.support.running_stack import duckdb_rows
from tests.support.simulated_kill import killed_at
from tests.support.stack import RestCatalog
from tests.support.table_harness import EXPIRING, Racing, stale_numbers
from tests.support.tables import (
    announced,
    connector,
    partition_of,
    reference,
    table_commit,
)
from tests.support.upserts import (
    Upserts,
    VectorUpserts,
    committed,
    delete_file,
    metric,
    row,
    vector_files,
    vectors_of,
)

NOT_USED = "icefloe.deletion-vectors.not-used"


@pytest.fixture
def upserts(sql_catalog_properties: dict[str, str]) -> Iterable[VectorUpserts]:
    """An unpartitioned table in a local folder."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    yield VectorUpserts(gateway)
    gateway.close()


def head_of(t: Upserts) -> dict[str, str]:
    """The properties of the newest snapshot."""
    summary = t.reloaded().current_snapshot().summary
    return {"operation": summary.operation.value, **summary.additional_properties}


def test_a_round_marks_rows_in_one_snapshot(catalog: CatalogGateway) -> None:
    """On every backend: the data files stay, and each file with superseded rows has a vector."""
    t = VectorUpserts(catalog)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(7, 70), row(8, 80)], []))))
    first = set(t.seen) | {task.file.file_path for task in t.reloaded().scan().plan_files()}
    outcome = committed(committer.commit(t.round(([row(1, 11)], [row(7, 0)]))))
    t.check()
    table = t.reloaded()
    assert not stale_numbers(table)
    assert len(table.metadata.snapshots) == 3
    assert outcome.snapshot_id == table.current_snapshot().snapshot_id
    summary = head_of(t)
    wanted = {
        "operation": "overwrite",
        "added-data-files": "1",
        "added-records": "1",
        "added-delete-files": "2",
        "added-dvs": "2",
        "added-position-deletes": "2",
        "changed-partition-count": "1",
        "icefloe.write-mode": "deletion-vectors",
        "icefloe.announced-records": "1",
        "kafka.connect.offsets.control-iceberg.connect-c": '{"0":3}',
    }
    assert {key: summary.get(key) for key in wanted} == wanted
    assert set(vectors_of(table)) == first
    [puffin] = {file["file_path"] for file in vector_files(table).values()}
    assert puffin.startswith(f"{table.location()}/data/")


def test_a_file_has_one_vector(upserts: VectorUpserts) -> None:
    """The next vector holds the rows of the former one, which is removed."""
    t, committer = upserts, upserts.committer()
    committed(committer.commit(t.round(([row(n, n) for n in range(10)], []))))
    for n in range(1, 4):
        committed(committer.commit(t.round(([], [row(n, 0)]))))
        t.check()
        [vector] = vectors_of(t.reloaded()).values()
        assert list(vector) == list(range(1, n + 1))
    summary = head_of(t)
    wanted = {
        "operation": "delete",
        "added-dvs": "1",
        "removed-dvs": "1",
        "added-position-deletes": "3",
        "removed-position-deletes": "2",
        "total-position-deletes": "3",
        "total-delete-files": "1",
    }
    assert {key: summary.get(key) for key in wanted} == wanted
    table = t.reloaded()
    assert len(entry_paths(table, table.current_snapshot(), status=2)) == 1


def test_unknown_keys_and_keys_of_the_past_change_no_file(upserts: VectorUpserts) -> None:
    """A round of new keys is an append; so is a second delete of one key."""
    t, committer = upserts, upserts.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(5, 50)], []))))
    committed(committer.commit(t.round(([row(6, 60)], [row(9, 0)]))))
    assert {head_of(t)["operation"]} == {"append"}
    committed(committer.commit(t.round(([], [row(1, 0)]))))
    before = vector_files(t.reloaded())
    committed(committer.commit(t.round(([], [row(1, 0)]))))
    t.check()
    assert head_of(t)["operation"] == "append"
    assert vector_files(t.reloaded()) == before


def test_a_file_without_rows_is_removed(upserts: VectorUpserts) -> None:
    """With its vector; an announced file whose rows were all superseded is not added."""
    t, committer = upserts, upserts.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(3, 30)], [row(1, 0)]))))
    committed(committer.commit(t.round(([row(4, 40)], [row(2, 0)]), ([row(4, 41)], []))))
    t.check()
    summary = head_of(t)
    wanted = {"deleted-data-files": "1", "removed-dvs": "1", "added-data-files": "1"}
    assert {key: summary.get(key) for key in wanted} == wanted
    assert "added-dvs" not in summary
    assert summary["icefloe.announced-records"] == "2"
    assert not vectors_of(t.reloaded())


def test_steps_apply_in_their_order(upserts: VectorUpserts) -> None:
    """A delete reaches rows of earlier steps of the round, and none of its own or later ones."""
    t, committer = upserts, upserts.committer()
    steps = [([row(1, 1), row(2, 2)], []), ([row(1, 3)], [row(2, 0)]), ([row(2, 4)], [])]
    committed(committer.commit(t.round(*steps)))
    t.check()
    assert sorted(r["value"] for r in t.rows) == [3, 4]
    again = [([row(1, 5), row(9, 9)], []), ([row(1, 6)], []), ([row(1, 7), row(8, 8)], [])]
    committed(committer.commit(t.round(*again)))
    t.check()
    assert head_of(t)["added-dvs"] == "1"  # of a file of the round


@pytest.mark.parametrize("keys", [("id",), ("id", "region")])
@pytest.mark.parametrize("kind", ["plain", "key", "other"])
def test_partitions_and_null_keys(
    sql_catalog_properties: dict[str, str], keys: tuple[str, ...], kind: str
) -> None:
    """Entries have the partition and the spec of their data file."""
    spec = {
        "plain": None,
        "key": PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket")),
        "other": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
    }[kind]
    t = VectorUpserts(open_catalog("iceberg", sql_catalog_properties), spec, keys)
    committer = t.committer()
    rows = [row(n, n, region) for n in (None, 1, 2) for region in ("eu", "us", None)]
    committed(committer.commit(t.round((rows if len(keys) == 2 else rows[::3], []))))
    t.foreign([row(5, 5, "eu"), row(5, 5, "us"), row(6, 6, "eu")])
    t.rows += [row(5, 5, "eu"), row(5, 5, "us"), row(6, 6, "eu")]
    committed(committer.commit(t.round(([row(None, 9), row(1, 9, None)], [row(5, 0, "eu")]))))
    t.check()
    table = t.reloaded()
    files = {task.file.file_path: task.file for task in table.scan().plan_files()}
    for path, file in vector_files(table).items():
        data_file = files[path]
        assert list(file["partition"].values()) == list(data_file.partition)
    t.catalog.close()


@pytest.mark.parametrize("kind", ["value", "bucket"])
def test_manifests_without_partitions_of_the_keys_are_not_read(
    sql_catalog_properties: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Null is a partition of its own; a delete without a partition reaches all specs."""
    regions = ["eu", None, "us", "zz"]
    spec = {
        "value": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
        "bucket": PartitionSpec(PartitionField(2, 1000, BucketTransform(64), "part")),
    }[kind]
    t = VectorUpserts(open_catalog("iceberg", sql_catalog_properties), spec, ("id", "region"))
    committer = t.committer()
    for region in regions:
        committed(committer.commit(t.round(([row(n, n, region) for n in range(3)], []))))
    read: list[str] = []

    def live_entries(manifest: ManifestFile, *more: Any) -> Any:
        read.append(manifest.manifest_path)
        return row_lineage.live_entries(manifest, *more)

    monkeypatch.setattr(head_files, "live_entries", live_entries)
    for region in regions:
        read.clear()
        committed(committer.commit(t.round(([], [row(1, 0, region)]))))
        t.check()
        assert len(read) == 1
    read.clear()
    gone = [row(2, 0, region) for region in ("us", "eu")]
    committed(committer.commit(t.round(([], gone))))
    t.check()
    assert len(read) == 4  # data and vectors of two partitions
    t.catalog.close()


def test_deletes_of_a_partition_reach_no_other(sql_catalog_properties: dict[str, str]) -> None:
    """As equality deletes do: the key column alone does not decide."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = VectorUpserts(open_catalog("iceberg", sql_catalog_properties), spec)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 1, "eu"), row(2, 1, "eu")], []))))
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


def test_merged_manifests_keep_vectors(sql_catalog_properties: dict[str, str]) -> None:
    """Each commit merges; a successor reads what its predecessor wrote."""

    class Merging(VectorUpserts):
        properties = {**VectorUpserts.properties, "commit.manifest.min-count-to-merge": "2"}  # noqa: RUF012 - never changed

    t = Merging(open_catalog("iceberg", sql_catalog_properties))
    committer = t.committer()
    for n in range(8):
        if n % 3 == 2:
            committer = t.committer()
        rows = [row(key, n) for key in (n, n + 1, 100 + n)]
        committed(committer.commit(t.round((rows, [row(n + 98, 0)]))))
        t.check()
    table = t.reloaded()
    contents = [m.content for m in table.current_snapshot().manifests(table.io)]
    assert contents.count(1) <= 2
    t.catalog.close()


def test_rows_of_another_writer_are_marked_too(upserts: VectorUpserts) -> None:
    """Also rows that it adds, and vectors that it changes, between the attempts of a commit."""
    t = upserts
    committed(t.committer().commit(t.round(([row(n, 10) for n in range(5)], []))))

    def marks_another_row() -> None:
        deletes = [delete_file(t.reloaded(), [row(4, 0)], ["id"])]
        event = announced(reference(t.table), [], deletes, offset=0, batch=1)
        other = connector("e", [".".join(t.name)], **t.settings)
        committed(Committer(t.catalog, other, t.clock).commit(table_commit([event])))

    racing = Racing(t.catalog, [lambda: t.foreign([row(1, 90), row(8, 80)]), marks_another_row])
    outcome = committed(t.committer(racing).commit(t.round(([row(1, 11)], []))))
    t.rows = [r for r in t.rows if r["id"] != 4] + [row(8, 80)]
    t.check()
    assert outcome.snapshot_id == t.reloaded().current_snapshot().snapshot_id
    puffins = {file["file_path"] for file in vector_files(t.reloaded()).values()}
    marked_by_other = entry_paths(t.reloaded(), t.reloaded().current_snapshot(), status=2)
    assert t.stored_files("puffin") == puffins | set(marked_by_other)


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_unanswered_commit_is_searched_for(upserts: VectorUpserts, *, is_applied: bool) -> None:
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


def test_a_commit_that_lands_late_is_not_made_again(upserts: VectorUpserts) -> None:
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
    upserts: VectorUpserts, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor with the same announcements brings the rows in once."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20), row(4, 40)], []))))
    commit = t.round(([row(1, 11), row(3, 30)], []), ([row(3, 31)], [row(2, 0)]))

    with killed_at(point, monkeypatch):
        t.committer().commit(commit)
    committed(t.committer().commit(commit))
    t.check()


def test_a_failed_commit_leaves_no_vectors(upserts: VectorUpserts) -> None:
    """If every attempt was refused, the Puffin files are deleted; the files of the round stay."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))

    class Refusing(Racing):
        def commit(self, *_: object, **__: object) -> Table:
            raise CommitConflict("no")

    commit = t.round(([row(1, 11)], []))
    before = t.stored_files("*")
    assert isinstance(t.committer(Refusing(t.catalog, [])).commit(commit), TableFailed)
    assert t.stored_files("*") == before
    committed(t.committer().commit(commit))
    t.check()


def test_attempts_share_a_puffin_file(upserts: VectorUpserts) -> None:
    """While the vectors are the same; a file is searched once."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    racing = Racing(t.catalog, [lambda: t.foreign([row(8, 80)])] * 3)
    t.rows += [row(8, 80)] * 3
    committed(t.committer(racing).commit(t.round(([row(1, 11)], []))))
    t.check()
    assert len(t.stored_files("puffin")) == 1


def test_a_second_coordinator_fences_the_first(upserts: VectorUpserts) -> None:
    """As with appends."""
    t = upserts
    zombie = t.committer()
    committed(zombie.commit(t.round(([row(1, 10)], []))))
    commit = t.round(([row(1, 11)], []))
    committed(t.committer().commit(commit))
    assert isinstance(zombie.commit(commit), CoordinatorFenced)
    t.check()


def test_files_of_the_round_are_deleted_when_it_is_committed(upserts: VectorUpserts) -> None:
    """Only what snapshots list stays in the store."""
    t, committer = upserts, upserts.committer()
    for n in range(3):
        steps = [([row(1, n), row(2, n)], []), ([row(1, n + 10)], []), ([row(1, n + 20)], [])]
        committed(committer.commit(t.round(*steps)))
    t.check()
    assert t.stored_files("*") == listed_in_snapshots(t.reloaded())


def listed_in_snapshots(table: Table) -> set[str]:
    """Files that any snapshot reads."""
    return {path for s in table.metadata.snapshots for path in entry_paths(table, s)}


def test_a_repeated_announcement_changes_nothing(upserts: VectorUpserts) -> None:
    """Of files that are in the table, were removed from it, or were superseded in their round."""
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


def test_expired_snapshots_take_puffin_files_with_them(upserts: VectorUpserts) -> None:
    """The store has the files of kept snapshots, and no others."""
    t = upserts
    committer = t.committer(**EXPIRING)
    committed(committer.commit(t.round(([row(n, 0) for n in range(100, 140)], []))))
    committed(committer.commit(t.round(([row(1, 1), row(2, 2)], []), ([row(1, 3)], [row(139, 0)]))))
    files = vector_files(t.reloaded()).values()
    [shared] = {file["file_path"] for file in files}
    assert len(files) == 2  # one of these vectors is replaced
    for n in range(BATCH + 4):
        committed(committer.commit(t.round(([row(3, n)], [row(100 + n, 0)]))))
    t.check()
    table = t.reloaded()
    assert len(table.metadata.snapshots) < BATCH
    kept = listed_in_snapshots(table)
    assert shared in kept
    while t.stored_files("*") - kept:  # another thread deletes them; the test has a timeout
        time.sleep(0.05)
    committer.close()
    assert t.stored_files("*") == kept
    t.check()


def test_equality_deletes_of_the_table_still_apply(upserts: VectorUpserts) -> None:
    """A commit beyond a limit uses them; it is counted, and named in its snapshot."""
    t = upserts
    committed(t.committer().commit(t.round(([row(n, 10) for n in range(4)], []))))
    limited = t.committer(iceberg__tables__deletion_vectors_max_bytes="1")
    committed(limited.commit(t.round(([row(1, 11)], []))))
    assert metric("deletion_vector_fallbacks", ("c", ".".join(t.name), "bytes")) == 1
    assert head_of(t)[NOT_USED] == "bytes"
    assert head_of(t)["total-equality-deletes"] == "1"
    committed(t.committer().commit(t.round(([row(1, 12), row(2, 21)], []))))
    table = t.reloaded()
    assert NOT_USED not in head_of(t)
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)
    assert [list(vector) for vector in vectors_of(table).values()] == [[1, 2]]
    assert head_of(t)["deleted-data-files"] == "1"  # that of the first new row
    assert not stale_numbers(table)


def test_equality_deletes_can_be_kept(upserts: VectorUpserts) -> None:
    """By a setting of the connector; tables of version 2 get them in any case."""
    t = upserts
    disabled = t.committer(iceberg__tables__deletion_vectors_enabled="false")
    committed(disabled.commit(t.round(([row(1, 10)], []))))
    committed(disabled.commit(t.round(([row(1, 11)], []))))
    assert head_of(t)["total-equality-deletes"] == "2"
    assert not [key for key in head_of(t) if key.startswith("icefloe.deletion")]
    assert not vectors_of(t.reloaded())


def test_copy_on_write_of_version_3_uses_vectors(upserts: VectorUpserts) -> None:
    """The snapshot says so."""
    t = upserts
    committer = t.committer(iceberg__tables__write_mode="copy-on-write")
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(1, 11)], []))))
    t.check()
    assert head_of(t)["icefloe.copy-on-write.not-used"] == "format_version"
    assert head_of(t)["icefloe.write-mode"] == "deletion-vectors"


def test_a_table_that_is_upgraded_gets_vectors(rest_catalog: RestCatalog) -> None:
    """Equality deletes of version 2 stay, and apply to the rows before them."""
    t = Upserts(open_catalog("iceberg", rest_catalog.properties))
    t.settings = VectorUpserts.defaults
    committer = t.committer()
    committed(committer.commit(t.round(([row(n, 10) for n in range(4)], []))))
    committed(committer.commit(t.round(([row(1, 11)], []))))
    assert head_of(t)["total-equality-deletes"] == "5"
    table = t.reloaded()
    t.catalog.commit(table, [], [UpgradeFormatVersionUpdate(format_version=3)])
    committed(committer.commit(t.round(([row(1, 12), row(2, 22)], []))))
    table = t.reloaded()
    assert head_of(t)["icefloe.write-mode"] == "deletion-vectors"
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)
    lineage = lineage_of(table)
    assert sum(count for _, count in lineage.values()) == 6
    t.catalog.close()


def position_deletes(t: Upserts, marked: dict[str, list[int]]) -> ContentFile:
    """Write a position delete file."""
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
        partition=(),
        record_count=len(rows),
        file_size_in_bytes=len(t.table.io.new_input(path)),
        lower_bounds={2147483546: paths[0].encode()},
        upper_bounds={2147483546: paths[-1].encode()},
    )


@pytest.mark.parametrize("is_of_one_file", [True, False])
def test_position_deletes_are_merged_into_the_first_vector(
    rest_catalog: RestCatalog, *, is_of_one_file: bool
) -> None:
    """Readers ignore them for a file with a vector; those of one file are removed."""
    t = Upserts(open_catalog("iceberg", rest_catalog.properties))
    t.settings = VectorUpserts.defaults
    committer = t.committer()
    rounds = [t.round(([row(n, 10) for n in keys], [])) for keys in (range(5), range(5, 9))]
    for each in rounds:
        committed(committer.commit(each))
    [first], [second] = (
        [file.file_path for file in each.announcements[0].event.payload.data_files]
        for each in rounds
    )
    marked = {first: [0]} if is_of_one_file else {first: [0], second: [0]}
    deletes = [position_deletes(t, marked)]
    event = announced(reference(t.table), [], deletes, offset=t.offset, batch=t.offset)
    t.offset += 1
    committed(committer.commit(table_commit([event])))
    t.rows = [r for r in t.rows if r["id"] not in ({0} if is_of_one_file else {0, 5})]
    t.catalog.commit(t.reloaded(), [], [UpgradeFormatVersionUpdate(format_version=3)])
    committed(committer.commit(t.round(([row(1, 12)], []))))
    table = t.reloaded()
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)
    assert {path: list(v) for path, v in vectors_of(table).items()} == {first: [0, 1]}
    assert head_of(t)["total-position-deletes"] == ("2" if is_of_one_file else "4")
    assert ("removed-position-delete-files" in head_of(t)) == is_of_one_file
    t.catalog.close()

"""Commits with deletion vectors: rows, entries, counters, bounds."""

from __future__ import annotations

import time

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from coordinator.maintenance.snapshot_expiry import BATCH
from tests.support.row_lineage import entry_paths, lineage_of
from tests.support.running_stack import duckdb_rows
from tests.support.stack import RestCatalog
from tests.support.table_harness import EXPIRING, ReadPaths, stale_numbers
from tests.support.tables import announced, reference, table_commit
from tests.support.upserts import (
    VECTORS_NOT_USED,
    Upserts,
    VectorUpserts,
    committed,
    head_of,
    metric,
    position_deletes,
    row,
    vector_files,
    vectors_of,
)


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


def test_a_file_has_one_vector(vectors: VectorUpserts) -> None:
    """The next vector holds the rows of the former one, which is removed."""
    t, committer = vectors, vectors.committer()
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


def test_unknown_keys_and_keys_of_the_past_change_no_file(vectors: VectorUpserts) -> None:
    """A round of new keys is an append; so is a second delete of one key."""
    t, committer = vectors, vectors.committer()
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


def test_a_file_without_rows_is_removed(vectors: VectorUpserts) -> None:
    """With its vector; an announced file whose rows were all superseded is not added."""
    t, committer = vectors, vectors.committer()
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
    sql_catalog_properties: dict[str, str], kind: str
) -> None:
    """Null is a partition of its own; a delete without a partition reaches all specs."""
    regions = ["eu", None, "us", "zz"]
    spec = {
        "value": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
        "bucket": PartitionSpec(PartitionField(2, 1000, BucketTransform(64), "part")),
    }[kind]
    t = VectorUpserts(open_catalog("iceberg", sql_catalog_properties), spec, ("id", "region"))
    reading = ReadPaths(t.catalog)
    committer = t.committer(reading)
    for region in regions:
        committed(committer.commit(t.round(([row(n, n, region) for n in range(3)], []))))
    for region in regions:
        reading.paths.clear()
        committed(committer.commit(t.round(([], [row(1, 0, region)]))))
        assert len(reading.manifests) == 1
        t.check()
    reading.paths.clear()
    gone = [row(2, 0, region) for region in ("us", "eu")]
    committed(committer.commit(t.round(([], gone))))
    assert len(reading.manifests) == 4  # data and vectors of two partitions
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


def listed_in_snapshots(table: Table) -> set[str]:
    """Files that any snapshot reads."""
    return {path for s in table.metadata.snapshots for path in entry_paths(table, s)}


def test_expired_snapshots_take_puffin_files_with_them(vectors: VectorUpserts) -> None:
    """The store has the files of kept snapshots, and no others."""
    t = vectors
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


def test_equality_deletes_of_the_table_still_apply(vectors: VectorUpserts) -> None:
    """A commit beyond a limit uses them; it is counted, and named in its snapshot."""
    t = vectors
    committed(t.committer().commit(t.round(([row(n, 10) for n in range(4)], []))))
    limited = t.committer(iceberg__tables__deletion_vectors_max_bytes="1")
    committed(limited.commit(t.round(([row(1, 11)], []))))
    assert metric("deletion_vector_fallbacks", ("c", ".".join(t.name), "bytes")) == 1
    assert head_of(t)[VECTORS_NOT_USED] == "bytes"
    assert head_of(t)["total-equality-deletes"] == "1"
    committed(t.committer().commit(t.round(([row(1, 12), row(2, 21)], []))))
    table = t.reloaded()
    assert VECTORS_NOT_USED not in head_of(t)
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)
    assert [list(vector) for vector in vectors_of(table).values()] == [[1, 2]]
    assert head_of(t)["deleted-data-files"] == "1"  # that of the first new row
    assert not stale_numbers(table)


def test_equality_deletes_can_be_kept(vectors: VectorUpserts) -> None:
    """By a setting of the connector; tables of version 2 get them in any case."""
    t = vectors
    disabled = t.committer(iceberg__tables__deletion_vectors_enabled="false")
    committed(disabled.commit(t.round(([row(1, 10)], []))))
    committed(disabled.commit(t.round(([row(1, 11)], []))))
    assert head_of(t)["total-equality-deletes"] == "2"
    assert not [key for key in head_of(t) if key.startswith("icefloe.deletion")]
    assert not vectors_of(t.reloaded())


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

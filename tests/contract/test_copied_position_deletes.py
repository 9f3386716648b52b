"""Copy-on-write in tables whose rows another writer deletes by position."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from control_schemas.events import FileContent
from coordinator.row_deletes.limits import RowLimits
from tests.support.running_stack import duckdb_rows
from tests.support.simulated_kill import killed_at
from tests.support.table_harness import Racing, Unanswered
from tests.support.tables import partition_of
from tests.support.upserts import (
    COPIES_NOT_USED,
    MarkedUpserts,
    Row,
    committed,
    delete_file,
    delete_paths,
    head_of,
    opened,
    position_deletes,
    row,
)


@pytest.fixture
def marked(sql_catalog_properties: dict[str, str]) -> Iterator[MarkedUpserts]:
    """A table in a local folder."""
    with opened(MarkedUpserts, sql_catalog_properties) as made:
        yield made


def added(t: MarkedUpserts, *rows: Row) -> list[str]:
    """Commit rows; return the paths of their files."""
    commit = t.round((rows, []))
    committed(t.committer().commit(commit))
    return [f.file_path for f in commit.announcements[0].event.payload.data_files]


def deleted(t: MarkedUpserts, *keys: int) -> None:
    """Take rows that another writer deletes out of the model."""
    t.rows = [r for r in t.rows if r["id"] not in keys]


def rows_by_duckdb(t: MarkedUpserts) -> list[tuple[object, ...]]:
    """Keys and values, as another reader of position deletes reads them."""
    return duckdb_rows(t.reloaded(), "id", "value")


def test_a_copy_leaves_out_the_rows_of_position_deletes(catalog: CatalogGateway) -> None:
    """On every backend: delete files of the source alone are removed with it, and counted."""
    t = MarkedUpserts(catalog)
    [path] = added(t, *(row(n, n) for n in range(6)))
    added(t, row(7, 7))
    t.mark({path: {0, 5}})
    t.mark({path: {3}})
    deleted(t, 0, 3, 5)
    t.check()
    committed(t.committer().commit(t.round(([row(1, 11)], [row(5, 0)]))))
    t.check()
    assert COPIES_NOT_USED not in head_of(t)
    wanted = {
        "icefloe.write-mode": "copy-on-write",
        "deleted-data-files": "1",
        "deleted-records": "6",
        "added-records": "3",
        "removed-position-delete-files": "2",
        "removed-position-deletes": "3",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-records": str(len(t.rows)),
    }
    assert {key: head_of(t).get(key) for key in wanted} == wanted


def test_a_delete_file_stays_while_the_table_has_a_file_that_it_names(
    marked: MarkedUpserts,
) -> None:
    """It does not apply to copies; the last copy removes it."""
    t = marked
    [first] = added(t, row(1, 1), row(2, 2), row(3, 3))
    [second] = added(t, row(4, 4), row(5, 5), row(6, 6))
    t.mark({first: {0}, second: {0}})
    deleted(t, 1, 4)
    [deletes] = delete_paths(t.reloaded())
    committed(t.committer().commit(t.round(([row(2, 22)], []))))
    t.check()
    assert delete_paths(t.reloaded()) == [deletes]
    assert rows_by_duckdb(t) == sorted((r["id"], r["value"]) for r in t.rows)
    committed(t.committer().commit(t.round(([row(2, 23)], []))))
    assert delete_paths(t.reloaded()) == [deletes]
    committed(t.committer().commit(t.round(([row(5, 55)], []))))
    t.check()
    assert delete_paths(t.reloaded()) == []


def test_deletes_of_a_partition_whose_other_files_are_not_read(
    sql_catalog_properties: dict[str, str],
) -> None:
    """A delete file is removed only if its data files are certainly gone."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = MarkedUpserts(open_catalog("iceberg", sql_catalog_properties), spec, ("id", "region"))
    paths = [added(t, row(n, n), row(n + 10, n))[0] for n in (1, 2)]
    added(t, row(5, 5, "us"))
    partition = partition_of(t.reloaded(), row(0, 0), spec_id=0)
    t.mark({path: {0} for path in paths}, partition)
    deleted(t, 1, 2)
    committed(t.committer().commit(t.round(([row(11, 111)], []))))
    t.check()
    assert len(delete_paths(t.reloaded())) == 1
    committed(t.committer().commit(t.round(([row(12, 112)], []))))
    t.check()
    assert len(delete_paths(t.reloaded())) == 1
    t.mark({added(t, row(8, 8), row(18, 8))[0]: {0}}, partition)
    deleted(t, 8)
    committed(t.committer().commit(t.round(([], [row(18, 0)]))))
    t.check()
    assert len(delete_paths(t.reloaded())) == 1
    t.catalog.close()


def test_a_copy_is_made_again_if_more_rows_were_deleted_meanwhile(marked: MarkedUpserts) -> None:
    """Between two attempts of a commit, also without any position delete before."""
    t = marked
    [path] = added(t, *(row(n, n) for n in range(6)))
    others = [lambda: t.mark({path: {3}}), lambda: t.mark({path: {4}})]
    committed(t.committer(Racing(t.catalog, others)).commit(t.round(([row(0, 9)], []))))
    deleted(t, 3, 4)
    t.check()
    assert delete_paths(t.reloaded()) == []


def test_a_file_whose_rows_are_all_deleted_is_removed(marked: MarkedUpserts) -> None:
    """By position before, and by the round."""
    t = marked
    [path] = added(t, row(1, 1), row(2, 2))
    added(t, row(3, 3))
    t.mark({path: {1}})
    deleted(t, 2)
    committed(t.committer().commit(t.round(([], [row(1, 0)]))))
    t.check()
    assert head_of(t)["operation"] == "delete"
    assert delete_paths(t.reloaded()) == []


def test_older_position_deletes_do_not_apply(marked: MarkedUpserts) -> None:
    """Those with a lower sequence number than their data file, as readers see it."""
    t = marked
    commit = t.round(([row(1, 1), row(2, 2)], []))
    [file] = commit.announcements[0].event.payload.data_files
    t.mark({file.file_path: {1}})
    committed(t.committer().commit(commit))
    t.check()
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    assert sorted(rows_by_duckdb(t)) == [(1, 11), (2, 2)]
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"


def test_equality_deletes_of_the_table_still_apply_to_copies(marked: MarkedUpserts) -> None:
    """Of a writer in merge-on-read mode, which may write both kinds in one commit."""
    t = marked
    [path] = added(t, *(row(n, n) for n in range(5)))
    keys = t.round(([], [row(4, 0)])).announcements[0].event.payload.delete_files
    t.add_deletes(*keys, position_deletes(t, {path: [0]}))
    deleted(t, 0)
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    assert head_of(t)["total-position-deletes"] == "0"
    assert head_of(t)["total-equality-deletes"] == "1"
    found = duckdb_rows(t.reloaded(), "id", "value")
    assert found == sorted((r["id"], r["value"]) for r in t.rows)


@pytest.mark.parametrize("limit", ["bytes", "memory"])
def test_position_deletes_beyond_a_limit_use_delete_files(
    marked: MarkedUpserts, limit: str
) -> None:
    """Nothing is read of them."""
    t = marked
    [path] = added(t, row(1, 1), row(2, 2))
    t.mark({path: {1}})
    deleted(t, 2)
    committer = (
        t.committer(iceberg__tables__copy_on_write_max_bytes="10")
        if limit == "bytes"
        else t.committer(limits=RowLimits(vector_bytes_max=10))
    )
    committed(committer.commit(t.round(([row(1, 11)], []))))
    assert head_of(t)[COPIES_NOT_USED] == ("bytes" if limit == "bytes" else "vectors")
    assert rows_by_duckdb(t) == [(1, 11)]


@pytest.mark.parametrize("kind", ["format", "columns"])
def test_position_deletes_that_are_not_read_use_delete_files(
    marked: MarkedUpserts, kind: str
) -> None:
    """Those of another format, or without the columns of the specification."""
    t = marked
    [path] = added(t, row(1, 1), row(2, 2))
    if kind == "format":
        deletes = dataclasses.replace(position_deletes(t, {path: [1]}), file_format="ORC")
    else:
        keys = delete_file(t.reloaded(), [row(2, 0)], ["id"])
        deletes = dataclasses.replace(keys, content=FileContent.POSITION_DELETES, equality_ids=None)
    t.add_deletes(deletes)
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    assert head_of(t)[COPIES_NOT_USED] == "position_deletes"
    assert head_of(t)["total-equality-deletes"] == "1"


def test_files_with_deletes_that_have_no_changed_key_stay(marked: MarkedUpserts) -> None:
    """Nothing is read of their deletes, and nothing is copied."""
    t = marked
    [path] = added(t, row(1, 1), row(2, 2))
    t.mark({path: {0}})
    deleted(t, 1)
    committed(t.committer().commit(t.round(([row(5, 5)], [row(9, 0)]))))
    t.check()
    assert head_of(t)["operation"] == "append"
    assert len(delete_paths(t.reloaded())) == 1


@pytest.mark.parametrize("point", ["D1", "C8", "C9", "C10", "C11", "C12"])
def test_a_kill_between_any_two_steps_loses_nothing(
    marked: MarkedUpserts, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor applies the same deletes; another writer may add some before."""
    t = marked
    [path] = added(t, *(row(n, n) for n in range(1, 7)))
    t.mark({path: {2, 3}})
    deleted(t, 3, 4)
    commit = t.round(([row(1, 11), row(3, 30)], []), ([row(3, 31)], [row(2, 0)]))
    with killed_at(point, monkeypatch):
        t.committer().commit(commit)
    if point in {"D1", "C8"}:  # certainly not committed: the data file is still in the table
        t.mark({path: {4}})
        deleted(t, 5)
    committed(t.committer().commit(commit))
    t.check()
    assert delete_paths(t.reloaded()) == []


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_unanswered_commit_is_searched_for(marked: MarkedUpserts, *, is_applied: bool) -> None:
    """Whether it was applied or not, deleted rows stay deleted."""
    t = marked
    [path] = added(t, row(1, 1), row(2, 2), row(3, 3))
    t.mark({path: {2}})
    deleted(t, 3)
    unanswered = Unanswered(t.catalog, is_applied=is_applied)
    committed(t.committer(unanswered).commit(t.round(([row(1, 11)], []))))
    t.check()
    committed(t.committer().commit(t.round(([row(2, 21)], []))))
    t.check()
    assert delete_paths(t.reloaded()) == []

"""Commits that remove rows, by copies and by deletion vectors: what holds for all of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from connect.gateways.catalog.catalog import open_catalog
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import CoordinatorFenced, TableCommit, TableFailed
from tests.support.row_lineage import entry_paths
from tests.support.simulated_kill import killed_at
from tests.support.table_harness import Late, Racing, Refusing, Unanswered
from tests.support.tables import announced, connector, partition_of, reference, table_commit
from tests.support.upserts import (
    MODES,
    Upserts,
    committed,
    delete_file,
    head_of,
    row,
)


def test_steps_apply_in_their_order(changes: Upserts) -> None:
    """A delete reaches rows of earlier steps of the round, and none of its own or later ones."""
    t, committer = changes, changes.committer()
    steps = [([row(1, 1), row(2, 2)], []), ([row(1, 3)], [row(2, 0)]), ([row(2, 4)], [])]
    committed(committer.commit(t.round(*steps)))
    t.check()
    assert sorted(r["value"] for r in t.rows) == [3, 4]
    again = [([row(1, 5), row(9, 9)], []), ([row(1, 6)], []), ([row(1, 7), row(8, 8)], [])]
    committed(committer.commit(t.round(*again)))
    t.check()
    assert sorted(r["value"] for r in t.rows) == [4, 7, 8, 9]


def test_unknown_keys_change_no_file(changes: Upserts) -> None:
    """A round of new keys is an append; deletes of unknown keys remove nothing."""
    t, committer = changes, changes.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(5, 50)], []))))
    committed(committer.commit(t.round(([row(6, 60)], [row(9, 0)]))))
    t.check()
    operations = [s.summary.operation.value for s in t.reloaded().metadata.snapshots]
    assert operations == ["append"] * 3


@pytest.mark.parametrize("mode", MODES)
def test_deletes_of_a_partition_reach_no_other(
    sql_catalog_properties: dict[str, str], mode: str
) -> None:
    """As equality deletes do: the key column alone does not decide."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = MODES[mode](open_catalog("iceberg", sql_catalog_properties), spec)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 1, "eu"), row(2, 1, "eu")], []))))
    us = row(1, 2, "us")
    t.foreign([us])
    t.rows.append(us)
    t.check()
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


def test_rows_of_another_writer_are_removed_too(changes: Upserts) -> None:
    """Also rows that it adds, and rows that it removes, between the attempts of a commit."""
    t = changes
    committed(t.committer().commit(t.round(([row(n, 10) for n in range(5)], []))))
    t.check()

    def removes_another_row() -> None:
        deletes = [delete_file(t.reloaded(), [row(4, 0)], ["id"])]
        event = announced(reference(t.table), [], deletes, offset=0, batch=1)
        other = connector("e", [".".join(t.name)], **t.settings)
        committed(Committer(t.catalog, other, t.clock).commit(table_commit([event])))

    racing = Racing(t.catalog, [lambda: t.foreign([row(1, 90), row(8, 80)]), removes_another_row])
    outcome = committed(t.committer(racing).commit(t.round(([row(1, 11)], []))))
    t.rows = [r for r in t.rows if r["id"] != 4] + [row(8, 80)]
    t.check()
    assert outcome.snapshot_id == t.reloaded().current_snapshot().snapshot_id
    listed = {path for s in t.reloaded().metadata.snapshots for path in files_of(t, s)}
    assert t.stored_files("*") == listed


def files_of(t: Upserts, snapshot: Any) -> set[str]:
    """Files of a snapshot, and those that it replaced."""
    removed = entry_paths(t.reloaded(), snapshot, status=2)
    return {*entry_paths(t.reloaded(), snapshot), *removed}


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_unanswered_commit_is_searched_for(changes: Upserts, *, is_applied: bool) -> None:
    """Whether it was applied or not, the rows are there once, and nothing listed is deleted."""
    t = changes
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    t.check()
    unanswered = Unanswered(t.catalog, is_applied=is_applied)
    committed(t.committer(unanswered).commit(t.round(([row(1, 11)], []))))
    t.check()
    committed(t.committer().commit(t.round(([row(2, 21)], []))))
    t.check()


def test_a_commit_that_lands_late_is_not_made_again(changes: Upserts) -> None:
    """The first attempt is applied after the committer gave up; the next round finds it."""
    t = changes
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    t.check()
    catalog = Late(t.catalog)
    committer = t.committer(catalog)
    commit = t.round(([row(1, 11)], []))
    assert isinstance(committer.commit(commit), TableFailed)
    catalog.land()
    committed(committer.commit(commit))
    t.check()
    committed(committer.commit(t.round(([row(1, 12)], []))))
    t.check()


@pytest.mark.parametrize("point", ["D1", "C8", "C9", "C10", "C11", "C12"])
def test_a_kill_between_any_two_steps_loses_nothing(
    changes: Upserts, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor with the same announcements brings the rows in once."""
    t = changes
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20), row(4, 40)], []))))
    t.check()
    commit = t.round(([row(1, 11), row(3, 30)], []), ([row(3, 31)], [row(2, 0)]))

    with killed_at(point, monkeypatch):
        t.committer().commit(commit)
    committed(t.committer().commit(commit))
    t.check()


def test_a_failed_commit_leaves_no_files(changes: Upserts) -> None:
    """If every attempt was refused, what it wrote is deleted; the files of the round stay."""
    t = changes
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    commit = t.round(([row(1, 11)], []))
    before = t.stored_files("*")
    assert isinstance(t.committer(Refusing(t.catalog)).commit(commit), TableFailed)
    assert t.stored_files("*") == before
    committed(t.committer().commit(commit))
    t.check()


def test_files_are_written_once_over_all_attempts(changes: Upserts) -> None:
    """After a conflict, a copy or a vector of a file that is still in the table is used again."""
    t = changes
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    before = t.stored_files("*")
    racing = Racing(t.catalog, [lambda: t.foreign([row(8, 80)])] * 3)
    commit = t.round(([row(1, 11)], []))
    t.rows += [row(8, 80)] * 3
    committed(t.committer(racing).commit(commit))
    t.check()
    assert len(t.stored_files("*") - before) == 1 + 1 + 3  # new row, its effect, other writer


def test_a_second_coordinator_fences_the_first(changes: Upserts) -> None:
    """As with appends."""
    t = changes
    zombie = t.committer()
    committed(zombie.commit(t.round(([row(1, 10)], []))))
    commit = t.round(([row(1, 11)], []))
    committed(t.committer().commit(commit))
    assert isinstance(zombie.commit(commit), CoordinatorFenced)
    t.check()


def test_files_of_the_round_are_deleted_when_it_is_committed(changes: Upserts) -> None:
    """Only what snapshots list stays in the store."""
    t, committer = changes, changes.committer()
    for n in range(3):
        steps = [([row(1, n), row(2, n)], []), ([row(1, n + 10)], []), ([row(1, n + 20)], [])]
        committed(committer.commit(t.round(*steps)))
    t.check()
    table = t.reloaded()
    listed = {path for s in table.metadata.snapshots for path in entry_paths(table, s)}
    assert t.stored_files("*") == listed


def test_a_repeated_announcement_changes_nothing(changes: Upserts) -> None:
    """Of files that are in the table, were replaced, or were superseded in their round."""
    t, committer = changes, changes.committer()
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


def test_the_snapshot_names_the_way(changes: Upserts) -> None:
    """Readers of summaries, and the audit, see how rows were removed."""
    t, committer = changes, changes.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(1, 11)], []))))
    t.check()
    summary = head_of(t)
    is_copied = t.settings.get("iceberg__tables__write_mode") == "copy-on-write"
    assert summary["icefloe.write-mode"] == ("copy-on-write" if is_copied else "deletion-vectors")
    assert summary["icefloe.announced-records"] == "1"
    assert not [name for name in summary if name.endswith("not-used")]

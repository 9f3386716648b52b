"""Announcements that come again, or name tables of others: no row twice, no foreign table."""

from __future__ import annotations

from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from pyiceberg.table.update import (
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from connect.clock import SystemClock
from control_schemas.events import ContentFile
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.rules.held_files import (
    COMMITTED_MAX,
    FRESH_MS,
    UNPROVED_MS,
    CommittedFiles,
    HeldFiles,
    created_ms,
)
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.table_harness import Racing, TableHarness, paths_of
from tests.support.tables import QuickClock, announced, made_up_file, reference, table_commit


def _commit(
    committer: Committer, harness: TableHarness, files: list[ContentFile], offset: int
) -> object:
    event = announced(reference(harness.table), files, offset=offset)
    return committer.commit(table_commit([event]))


def _held(committer: Committer, harness: TableHarness) -> HeldFiles:
    return committer._memories[harness.table.name()].held_files


def test_a_repeated_announcement_commits_no_file_twice(harness: TableHarness) -> None:
    """Also if another connector sends it."""
    committer, files = harness.committer(), harness.files(2)
    assert isinstance(_commit(committer, harness, files, 0), TableCommitted)
    other = TableHarness(harness.catalog, harness.table, "d")
    for number, again in enumerate((committer, harness.committer(), other.committer()), 1):
        outcome = _commit(again, harness, files, number * 10)
        assert outcome == TableCommitted(outcome.table, outcome.commit_id, None)
    more = [*files, *harness.files(1)]
    outcome = _commit(other.committer(), harness, more, 90)
    assert isinstance(outcome, TableCommitted)
    assert outcome.files == 1
    assert len(paths_of(harness.reloaded())) == len(set(paths_of(harness.reloaded()))) == 3


def test_another_connector_commits_the_files_meanwhile(harness: TableHarness) -> None:
    """Between the load and the commit of this one: the files are searched again."""
    files = harness.files(2)
    other = TableHarness(harness.catalog, harness.table, "d").committer()
    racing = TableHarness(
        Racing(harness.catalog, [lambda: _commit(other, harness, files[:1], 0)]), harness.table
    )
    outcome = _commit(racing.committer(), harness, files, 7)
    assert isinstance(outcome, TableCommitted)
    assert outcome.files == 1
    assert sorted(paths_of(harness.reloaded())) == sorted(file.file_path for file in files)


def test_files_without_a_time_in_their_name_are_committed_once(harness: TableHarness) -> None:
    """Files of the Java sink; the whole table is searched."""
    folder = f"{harness.table.location()}/data"
    files = [
        made_up_file(harness.table, file_path=f"{folder}/00001-7-{uuid4()}-00001.parquet")
        for _ in range(2)
    ]
    assert isinstance(_commit(harness.committer(), harness, files, 0), TableCommitted)
    committer = harness.committer()
    assert isinstance(_commit(committer, harness, harness.files(1), 1), TableCommitted)
    outcome = _commit(committer, harness, files, 9)
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None


def test_merged_manifests_are_searched(harness: TableHarness) -> None:
    """A file that was committed long ago is found in a merged manifest."""
    harness.change(
        SetPropertiesUpdate(updates={"commit.manifest.min-count-to-merge": "2"}),
    )
    committer, files = harness.committer(), harness.files(1)
    assert isinstance(_commit(committer, harness, files, 0), TableCommitted)
    for offset in range(1, 5):
        assert isinstance(_commit(committer, harness, harness.files(1), offset), TableCommitted)
    outcome = _commit(harness.committer(), harness, files, 9)
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert len(paths_of(harness.reloaded())) == 5


def test_new_files_cost_no_reads(harness: TableHarness) -> None:
    """A coordinator that is alone at its table reads no manifest for them."""
    committer = harness.committer()
    for offset in range(5):
        assert isinstance(_commit(committer, harness, harness.files(2), offset), TableCommitted)
    assert not _held(committer, harness)._read
    other = TableHarness(harness.catalog, harness.table, "d").committer()
    assert isinstance(_commit(other, harness, harness.files(1), 0), TableCommitted)
    assert isinstance(_commit(committer, harness, harness.files(2), 9), TableCommitted)
    assert len(_held(committer, harness)._read) == 1  # the other's manifest, once


def test_the_list_of_committed_files_is_bounded() -> None:
    """Only the newest commits are kept; older ones are read from the table."""
    held = HeldFiles(CommittedFiles(since_ms=0))
    for round_number in range(1, 4):
        held.committed((f"{round_number}-{n}" for n in range(COMMITTED_MAX // 2)), 1, round_number)
    assert len(held.own._paths) == COMMITTED_MAX
    assert held.own.since_ms == 1


def _compacted(harness: TableHarness) -> None:
    """Another client writes all rows again and removes the history, the files with it."""
    table = harness.catalog._client().load_table(harness.table.name())
    old = paths_of(table)
    table.overwrite(pa.table({"id": [1], "name": ["a"]}))
    head = table.current_snapshot()
    gone = [s.snapshot_id for s in table.snapshots() if s != head]
    tags = [SetSnapshotRefUpdate(ref_name="icefloe-c", type="tag", snapshot_id=head.snapshot_id)]
    harness.change(*tags, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}))
    for path in old:
        table.io.delete(path)


def _named(harness: TableHarness, created_ms: int) -> ContentFile:
    """An empty file that was written at a time."""
    name = f"{UUID(int=created_ms << 80 | 7 << 76 | 0b10 << 62)}-00001.parquet"
    path = f"{harness.table.location()}/data/{name}"
    return made_up_file(harness.table, file_path=path)


def test_a_repetition_after_compaction_and_expiry_is_left_out(harness: TableHarness) -> None:
    """This process has committed the file: no manifest need tell."""
    committer, files = harness.committer(), harness.files(1)
    assert isinstance(_commit(committer, harness, files, 0), TableCommitted)
    _compacted(harness)
    kept = paths_of(harness.reloaded())
    outcome = _commit(committer, harness, files, 9)
    assert outcome == TableCommitted(outcome.table, outcome.commit_id, None)
    assert paths_of(harness.reloaded()) == kept


def test_a_repetition_is_refused_after_a_restart(harness: TableHarness) -> None:
    """The file is gone; if it is not, and old, its history is."""
    now_ms = SystemClock().now_ms()
    old, late = (_named(harness, now_ms - age_ms) for age_ms in (UNPROVED_MS + 1_000, 0))
    assert isinstance(_commit(harness.committer(), harness, [old, late], 0), TableCommitted)
    _compacted(harness)
    kept = paths_of(harness.reloaded())
    outcome = _commit(harness.committer(), harness, [late], 9)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("announced_file_missing", False)
    harness.table.io.new_output(old.file_path).create().close()
    outcome = _commit(harness.committer(), harness, [old], 9)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("file_history_expired", False)
    assert paths_of(harness.reloaded()) == kept


def test_a_file_that_waited_must_be_in_the_store(harness: TableHarness) -> None:
    """A cleanup may have deleted it meanwhile; a fresh one is not asked for."""
    clock = QuickClock()
    committer = harness.committer(clock=clock)
    assert isinstance(_commit(committer, harness, harness.files(1), 0), TableCommitted)
    gone = harness.files(2)
    _held(committer, harness).own.since_ms = 0  # long ago
    for file in gone:
        harness.table.io.delete(file.file_path)
    assert not _held(committer, harness).own.unverified([gone[0].file_path], clock.now_ms())
    clock.now_ms = lambda: SystemClock().now_ms() + FRESH_MS + 1_000  # type: ignore[method-assign]
    outcome = _commit(committer, harness, [gone[1]], 9)
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "announced_file_missing"


def test_a_table_of_others_is_not_written(harness: TableHarness) -> None:
    """Events for a table that the connector neither writes to nor wrote to are kept."""
    other_connector = harness.committer(settings={"iceberg__tables": "db.other"})
    outcome = _commit(other_connector, harness, harness.files(1), 0)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("table_not_configured", False)
    assert harness.reloaded().current_snapshot() is None


def test_a_removed_table_gets_its_announced_files(harness: TableHarness) -> None:
    """A table that the connector wrote to, after its removal from the configuration."""
    assert isinstance(_commit(harness.committer(), harness, harness.files(1), 0), TableCommitted)
    without = harness.committer(settings={"iceberg__tables": "db.other"})
    assert isinstance(_commit(without, harness, harness.files(1), 1), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 2


@pytest.mark.parametrize(
    ("name", "is_timed"),
    [
        ("0192f3c1-7b1e-7abc-8def-0123456789ab-00017.parquet", True),
        ("0192f3c1-7b1e-7abc-8def-0123456789ab.parquet", True),
        ("0192f3c1-7b1e-4abc-8def-0123456789ab-00017.parquet", False),
        ("00000-1-0192f3c1-7b1e-7abc-8def-0123456789ab-00001.parquet", False),
        ("0192f3c1-7b1e-7abc-8def-0123456789ab/00017.parquet", False),
    ],
)
def test_a_file_name_contains_its_creation_time(name: str, *, is_timed: bool) -> None:
    """Only names of workers; those of the Java sink do not."""
    assert created_ms(f"s3://b/t/data/{name}") == (0x0192F3C17B1E if is_timed else None)


def test_the_time_in_a_file_name_is_that_of_the_clock() -> None:
    """In milliseconds."""
    clock = QuickClock()
    before = clock.now_ms()
    timed_uuid = clock.new_timed_uuid()
    assert timed_uuid.version == 7
    assert before <= created_ms(f"x/{timed_uuid}-00001.parquet") <= clock.now_ms()

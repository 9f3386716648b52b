"""Snapshots that commits remove, over every catalog and store."""

from __future__ import annotations

import time
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommitted
from coordinator.maintenance.snapshot_expiry import BATCH
from tests.support.table_harness import EXPIRING, Racing, TableHarness, paths_of, stale_numbers

ROUNDS = 2 * BATCH + 4  # snapshots expire twice


def expiring(harness: TableHarness, **more: object) -> Committer:
    """A committer that keeps three snapshots."""
    return harness.committer(settings=EXPIRING, **more)


def written(table: Table, *, of_head: bool = False) -> set[str]:
    """Manifest lists and manifests that some snapshot needs, or that the newest one needs."""
    paths = set()
    for snapshot in table.metadata.snapshots[-1:] if of_head else table.metadata.snapshots:
        paths.add(snapshot.manifest_list)
        paths |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return paths


def test_the_number_of_snapshots_and_metadata_files_is_bounded(harness: TableHarness) -> None:
    """Data files stay in the table; old snapshots and files that only they need are deleted."""
    committer = expiring(harness)
    seen: set[str] = set()
    for n in range(ROUNDS):
        assert isinstance(committer.commit(harness.untimed_round(n)), TableCommitted)
        seen |= written(harness.reloaded(), of_head=True)
    table = harness.reloaded()
    # another thread deletes the files, and ``close`` may end it early; the test has a timeout
    while any(table.io.new_input(path).exists() for path in seen - written(table)):
        time.sleep(0.05)
    committer.close()
    assert len(table.metadata.snapshots) < 3 + BATCH
    assert len(paths_of(table)) == ROUNDS
    assert stale_numbers(table) == []
    needed = written(table)
    assert seen - needed
    for path in seen:
        assert table.io.new_input(path).exists() == (path in needed), path


def test_a_successor_finds_the_floor_after_an_expiry(harness: TableHarness) -> None:
    """Announcements that were committed before the kept snapshots are not committed again."""
    committer = expiring(harness)
    rounds = [harness.untimed_round(n) for n in range(ROUNDS)]
    for commit in rounds:
        assert isinstance(committer.commit(commit), TableCommitted)
    committer.close()
    for commit in (rounds[0], rounds[-1]):
        again = expiring(harness).commit(commit)
        assert again == TableCommitted(again.table, again.commit_id, None)
    assert len(paths_of(harness.reloaded())) == ROUNDS


def test_snapshots_since_the_oldest_announced_file_are_kept(harness: TableHarness) -> None:
    """Expiry keeps every snapshot that is newer than the oldest announced file."""
    committer = expiring(harness)
    for n in range(BATCH + 5):
        assert isinstance(committer.commit(harness.round(n)), TableCommitted)
    committer.close()
    assert len(harness.reloaded().metadata.snapshots) == BATCH + 5


def test_without_the_key_nothing_is_removed(harness: TableHarness) -> None:
    """Expiry is off by default."""
    committer = harness.committer()
    for n in range(BATCH + 5):
        assert isinstance(committer.commit(harness.untimed_round(n)), TableCommitted)
    committer.close()
    assert len(harness.reloaded().metadata.snapshots) == BATCH + 5


def test_the_property_of_a_table_keeps_its_snapshots(harness: TableHarness) -> None:
    """``history.expire.min-snapshots-to-keep`` of the table replaces the connector's key."""
    with harness.reloaded().transaction() as change:
        change.set_properties({"history.expire.min-snapshots-to-keep": "100"})
    committer = expiring(harness)
    for n in range(BATCH + 5):
        assert isinstance(committer.commit(harness.untimed_round(n)), TableCommitted)
    committer.close()
    assert len(harness.reloaded().metadata.snapshots) == BATCH + 5


def test_a_tag_of_another_client_keeps_its_snapshot(harness: TableHarness) -> None:
    """Its snapshot stays readable."""
    committer = expiring(harness)
    assert isinstance(committer.commit(harness.untimed_round(0, 2)), TableCommitted)
    tagged = harness.reloaded().metadata.current_snapshot_id
    harness.change(
        SetSnapshotRefUpdate.model_validate(
            {"ref-name": "audit", "type": SnapshotRefType.TAG, "snapshot-id": tagged}
        )
    )
    for n in range(1, ROUNDS):
        assert isinstance(committer.commit(harness.untimed_round(n)), TableCommitted)
    committer.close()
    table = harness.reloaded()
    assert len(table.metadata.snapshots) < 4 + BATCH
    snapshot = table.snapshot_by_id(tagged or 0)
    assert snapshot is not None
    assert sum(len(m.fetch_manifest_entry(table.io)) for m in snapshot.manifests(table.io)) == 2


def test_a_conflict_chooses_the_expired_snapshots_again(harness: TableHarness) -> None:
    """Another writer's snapshot counts as one of those that are kept."""
    committer = expiring(harness)
    for n in range(BATCH + 2):
        assert isinstance(committer.commit(harness.untimed_round(n)), TableCommitted)
    other = replace_name(harness)

    def foreign() -> None:
        assert isinstance(other.committer().commit(other.untimed_round(0)), TableCommitted)

    racing = Racing(harness.catalog, [foreign])
    contended = replace(harness, catalog=racing)
    successor = expiring(contended)
    outcome = successor.commit(harness.untimed_round(BATCH + 2))
    assert isinstance(outcome, TableCommitted)
    successor.close()
    committer.close()
    table = harness.reloaded()
    assert len(paths_of(table)) == BATCH + 4
    assert len(table.metadata.snapshots) <= 5


def replace_name(harness: TableHarness) -> TableHarness:
    """The same table, written by another connector."""
    return replace(harness, name="other")

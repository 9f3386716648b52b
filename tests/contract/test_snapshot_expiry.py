"""Snapshots that commits remove, over every catalog and store."""

from __future__ import annotations

import time
from dataclasses import replace
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from coordinator.commit.committer import Committer
from coordinator.kernel.effects import TableCommit, TableCommitted
from coordinator.maintenance.snapshot_expiry import BATCH
from tests.support.places import Place, Racing, paths_of, stale_numbers
from tests.support.tables import announced, made_up_file, reference, table_commit

PREFIX = "iceberg__maintenance__expire_snapshots__"
EXPIRING = {
    f"{PREFIX}enabled": "true",
    f"{PREFIX}max_age_ms": "0",
    f"{PREFIX}min_snapshots_to_keep": "3",
}
ROUNDS = 30


def expiring(place: Place, **more: object) -> Committer:
    """A committer that keeps three snapshots."""
    return place.committer(settings=EXPIRING, **more)


def round_of(place: Place, offset: int, count: int = 1) -> TableCommit:
    """Return a commit of files without a creation time in their names."""
    folder = f"{place.table.location()}/data"
    files = [
        made_up_file(place.table, file_path=f"{folder}/{uuid4().hex}.parquet") for _ in range(count)
    ]
    return table_commit([announced(reference(place.table), files, offset=offset)])


def written(table: Table) -> set[str]:
    """Manifest lists and manifests that some snapshot needs."""
    found = set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        found |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return found


def test_the_number_of_snapshots_and_metadata_files_is_bounded(place: Place) -> None:
    """Data files stay in the table; old snapshots and files that only they need are deleted."""
    committer = expiring(place)
    seen: set[str] = set()
    for n in range(ROUNDS):
        assert isinstance(committer.commit(round_of(place, n)), TableCommitted)
        seen |= written(place.now())
    table = place.now()
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


def test_a_successor_finds_the_floor_after_an_expiry(place: Place) -> None:
    """Announcements that were committed before the kept snapshots are not committed again."""
    committer = expiring(place)
    rounds = [round_of(place, n) for n in range(ROUNDS)]
    for commit in rounds:
        assert isinstance(committer.commit(commit), TableCommitted)
    committer.close()
    for commit in (rounds[0], rounds[-1]):
        again = expiring(place).commit(commit)
        assert again == TableCommitted(again.table, again.commit_id, None)
    assert len(paths_of(place.now())) == ROUNDS


def test_snapshots_since_the_oldest_announced_file_are_kept(place: Place) -> None:
    """Expiry keeps every snapshot that is newer than the oldest announced file."""
    committer = expiring(place)
    for n in range(BATCH + 5):
        assert isinstance(committer.commit(place.round(n)), TableCommitted)
    committer.close()
    assert len(place.now().metadata.snapshots) == BATCH + 5


def test_without_the_key_nothing_is_removed(place: Place) -> None:
    """Expiry is off by default."""
    committer = place.committer()
    for n in range(BATCH + 5):
        assert isinstance(committer.commit(round_of(place, n)), TableCommitted)
    committer.close()
    assert len(place.now().metadata.snapshots) == BATCH + 5


def test_the_property_of_a_table_keeps_its_snapshots(place: Place) -> None:
    """``history.expire.min-snapshots-to-keep`` of the table replaces the connector's key."""
    with place.now().transaction() as change:
        change.set_properties({"history.expire.min-snapshots-to-keep": "100"})
    committer = expiring(place)
    for n in range(BATCH + 5):
        assert isinstance(committer.commit(round_of(place, n)), TableCommitted)
    committer.close()
    assert len(place.now().metadata.snapshots) == BATCH + 5


def test_a_tag_of_another_client_keeps_its_snapshot(place: Place) -> None:
    """Its snapshot stays readable."""
    committer = expiring(place)
    assert isinstance(committer.commit(round_of(place, 0, 2)), TableCommitted)
    tagged = place.now().metadata.current_snapshot_id
    place.change(
        SetSnapshotRefUpdate.model_validate(
            {"ref-name": "audit", "type": SnapshotRefType.TAG, "snapshot-id": tagged}
        )
    )
    for n in range(1, ROUNDS):
        assert isinstance(committer.commit(round_of(place, n)), TableCommitted)
    committer.close()
    table = place.now()
    assert len(table.metadata.snapshots) < 4 + BATCH
    kept = table.snapshot_by_id(tagged or 0)
    assert kept is not None
    assert sum(len(m.fetch_manifest_entry(table.io)) for m in kept.manifests(table.io)) == 2


def test_a_conflict_chooses_the_expired_snapshots_again(place: Place) -> None:
    """Another writer's snapshot counts as one of those that are kept."""
    committer = expiring(place)
    for n in range(BATCH + 2):
        assert isinstance(committer.commit(round_of(place, n)), TableCommitted)
    other = replace_name(place)

    def foreign() -> None:
        assert isinstance(other.committer().commit(round_of(other, 0)), TableCommitted)

    racing = Racing(place.catalog, [foreign])
    beaten = replace(place, catalog=racing)
    successor = expiring(beaten)
    outcome = successor.commit(round_of(place, BATCH + 2))
    assert isinstance(outcome, TableCommitted)
    successor.close()
    committer.close()
    table = place.now()
    assert len(paths_of(table)) == BATCH + 4
    assert len(table.metadata.snapshots) <= 5


def replace_name(place: Place) -> Place:
    """The same table, written by another connector."""
    return replace(place, name="other")

"""What a table remembers of a connector, through expiry, rollback and deletion of its traces."""

from __future__ import annotations

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from coordinator.effects import TableCommitted, TableFailed
from tests.places import MIRROR, Place
from tests.tables import announced, reference, table_commit


def _expire(place: Place) -> None:
    """Expire everything but the head and what references hold."""
    metadata = place.now().metadata
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    gone = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in kept]
    place.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}))


def _bury(place: Place) -> None:
    """Foreign commits on top of ours, then expiry, so that our snapshot has no heirs."""
    other = Place(place.catalog, place.table, "d")
    committer = other.committer()
    for n in range(2):
        assert isinstance(committer.commit(place.round(n)), TableCommitted)


@pytest.mark.parametrize("left", ["tag", "mirror", "both", "nothing", "declared"])
def test_the_floor_outlives_expiry(place: Place, left: str) -> None:
    """Tag or mirror keep the floor; with neither the committer stops, until told otherwise."""
    old = announced(reference(place.table), place.files(), offset=3)
    assert isinstance(place.committer().commit(table_commit([old])), TableCommitted)
    _bury(place)
    if left in {"mirror", "nothing", "declared"}:
        place.change(RemoveSnapshotRefUpdate.model_validate({"ref-name": "icefloe-c"}))
    if left in {"tag", "nothing", "declared"}:
        place.change(RemovePropertiesUpdate(removals=[MIRROR]))
    _expire(place)
    outcome = place.committer().commit(table_commit([old]))
    if left in {"tag", "mirror", "both"}:
        assert outcome == TableCommitted(outcome.table, outcome.commit_id, None)
        return
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("floor_lost", False)
    if left == "nothing":
        fresh = place.committer(has_history=False).commit(table_commit([old]))
    else:  # the operator says that there is nothing
        place.change(SetPropertiesUpdate(updates={MIRROR: "{}"}))
        fresh = place.committer().commit(table_commit([old]))
    assert isinstance(fresh, TableCommitted)
    assert fresh.files == 1


def test_a_rollback_stops_the_connector(place: Place) -> None:
    """When main no longer holds what the tag holds, the operator decides."""
    committer = place.committer()
    for n in range(2):
        assert isinstance(committer.commit(place.round(n)), TableCommitted)
    first = min(place.now().metadata.snapshots, key=lambda s: s.sequence_number or 0)
    place.change(
        SetSnapshotRefUpdate.model_validate(
            {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": first.snapshot_id}
        )
    )
    outcome = committer.commit(place.round(2))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "table_rolled_back"
    place.change(RemoveSnapshotRefUpdate.model_validate({"ref-name": "icefloe-c"}))
    assert isinstance(committer.commit(place.round(2)), TableCommitted)

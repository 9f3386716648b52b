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
from coordinator.floor import FloorKeys, table_state
from coordinator.snapshots import instant_us
from tests.places import MIRROR, Place
from tests.tables import announced, reference, table_commit

OFFSETS = "kafka.connect.offsets.control-iceberg.connect-c"


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


def test_what_the_older_sink_left_is_understood(place: Place) -> None:
    """Its floor has the same name, its valid-through time another name and form."""
    keys = FloorKeys(summary=OFFSETS, mirror=MIRROR, tag="icefloe-c")
    table = place.now()
    table.append(
        table.schema().as_arrow().empty_table(),
        snapshot_properties={OFFSETS: '{"0":7,"2":9}', "kafka.connect.vtts": "1767323045678"},
    )
    state = table_state(place.now().metadata, keys)
    assert state.floor == {0: 7, 2: 9}
    assert instant_us(state.valid_through_text) == 1_767_323_045_678_000
    table.append(
        table.schema().as_arrow().empty_table(),
        snapshot_properties={OFFSETS: '{"0":8}', "kafka.connect.vtts": "9" * 30},
    )
    assert instant_us(table_state(place.now().metadata, keys).valid_through_text) is not None


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

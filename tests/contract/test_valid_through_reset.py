"""A valid-through time that was wrong, and the operator who takes it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from coordinator.commit.valid_through_reset import reset_claims
from coordinator.kernel.effects import TableCommitted
from tests.support.places import SCHEMA, Place, paths_of
from tests.support.tables import QuickClock, connector

POISONED_US = 4_102_444_800_000_000  # the year 2100
TRUE_US = 1_767_323_045_678_000
CLAIM = "kafka.connect.valid-through-ts"
MIRROR = "icefloe.valid-through.control-iceberg.connect-c"
REASON = "a record dated 2100"


@pytest.fixture
def place(sql_catalog_properties: dict[str, str]) -> Iterator[Place]:
    """A table on SQLite and a local folder, whose last claim is of the year 2100."""
    catalog = open_catalog("iceberg", sql_catalog_properties)
    made = Place(catalog, catalog.create(("db", "t"), SCHEMA))
    outcome = made.committer().commit(made.round(0, valid_through_us=POISONED_US))
    assert isinstance(outcome, TableCommitted)
    yield made
    catalog.close()


def claim(place: Place) -> str | None:
    """What the newest snapshot claims."""
    head = place.now().current_snapshot()
    assert head is not None
    assert head.summary is not None
    return head.summary.get(CLAIM)


def reset(place: Place, *tables: str, is_applied: bool = True) -> list[dict]:
    """What the operator asks for."""
    config = connector("c", ["db.t"])
    names = tables or ("db.t",)
    return reset_claims(place.catalog, config, names, REASON, QuickClock(), is_applied=is_applied)


def test_a_claim_stands_until_it_is_taken_back(place: Place) -> None:
    """Rounds below it claim nothing; after the reset they claim what is true."""
    committer = place.committer()
    assert isinstance(committer.commit(place.round(1, valid_through_us=TRUE_US)), TableCommitted)
    assert claim(place) is None
    [displayed] = reset(place, is_applied=False)
    assert displayed["claims"] == ["2100-01-01T00:00:00.000Z"]
    assert displayed["snapshot_id"] is None
    [done] = reset(place)
    head = place.now().current_snapshot()
    assert head is not None
    assert head.snapshot_id == done["snapshot_id"]
    assert head.summary is not None
    assert head.summary["icefloe.valid-through-reset"] == REASON
    assert place.now().properties[MIRROR] == ""
    outcome = place.committer().commit(place.round(2, valid_through_us=TRUE_US))
    assert isinstance(outcome, TableCommitted)
    assert claim(place) == "2026-01-02T03:04:05.678Z"
    assert len(paths_of(place.now())) == 3


def test_a_reset_keeps_the_floor_and_may_be_repeated(place: Place) -> None:
    """What was committed is not committed again; a second reset finds nothing to do."""
    reset(place)
    [again] = reset(place)
    assert (again["claims"], again["snapshot_id"]) == ([], None)
    outcome = place.committer().commit(place.round(0))
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert len(paths_of(place.now())) == 1


def test_another_connectors_claim_is_left_alone(place: Place) -> None:
    """A reset is about one connector, and about tables that it writes to."""
    other = Place(place.catalog, place.table, "d")
    outcome = other.committer().commit(other.round(0, valid_through_us=POISONED_US))
    assert isinstance(outcome, TableCommitted)
    reset(place)
    outcome = other.committer().commit(other.round(1, valid_through_us=TRUE_US))
    assert isinstance(outcome, TableCommitted)
    assert claim(place) is None
    [foreign] = reset(place, "db.foreign")
    assert foreign["code"] == "table_not_configured"


def test_a_table_that_is_gone_is_named(place: Place) -> None:
    """The others are reset; the answer says which was not."""
    catalog: CatalogGateway = place.catalog
    catalog.drop(("db", "t"))
    [gone] = reset(place)
    assert (gone["code"], gone["snapshot_id"]) == ("table_missing", None)


def test_a_table_with_a_lost_floor_and_no_claim_does_not_stop_the_reset(place: Place) -> None:
    """A table that only others wrote to, and whose snapshots expired, has nothing to reset."""
    other = Place(place.catalog, place.catalog.create(("db", "u"), SCHEMA), "d")
    committer = other.committer()
    for number in range(2):
        assert isinstance(committer.commit(other.round(number)), TableCommitted)
    metadata = other.now().metadata
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    gone = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in kept]
    other.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}))
    config = connector("c", ["db.t", "db.u"])
    [own, foreign] = reset_claims(
        place.catalog, config, ["db.t", "db.u"], REASON, QuickClock(), is_applied=True
    )
    assert own["snapshot_id"] is not None
    assert (foreign["code"], foreign["claims"], foreign["snapshot_id"]) == (None, [], None)

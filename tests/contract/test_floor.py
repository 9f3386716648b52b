"""What a table remembers of a connector, through expiry, rollback and deletion of its traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from connect.gateways.catalog.catalog import CatalogGateway
from coordinator.commit.iceberg.floor import FloorKeys, table_state
from coordinator.commit.iceberg.snapshots import instant_us
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.table_harness import MIRROR, TableHarness, paths_of
from tests.support.tables import announced, reference, table_commit

OFFSETS = "kafka.connect.offsets.control-iceberg.connect-c"


def _expire(harness: TableHarness) -> None:
    """Expire everything but the head and what references hold."""
    metadata = harness.reloaded().metadata
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    unreferenced = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in referenced]
    harness.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": unreferenced}))


def _bury(harness: TableHarness) -> None:
    """Foreign commits on top of ours, then expiry, so that our snapshot has no heirs."""
    other = TableHarness(harness.catalog, harness.table, "d")
    committer = other.committer()
    for n in range(2):
        assert isinstance(committer.commit(harness.round(n)), TableCommitted)


@pytest.mark.parametrize("left", ["tag", "mirror", "both", "nothing", "declared"])
def test_the_floor_survives_expiry(harness: TableHarness, left: str) -> None:
    """Tag or mirror keep it; without both the committer stops until an operator acts."""
    old = announced(reference(harness.table), harness.files(), offset=3)
    assert isinstance(harness.committer().commit(table_commit([old])), TableCommitted)
    _bury(harness)
    if left in {"mirror", "nothing", "declared"}:
        harness.change(RemoveSnapshotRefUpdate.model_validate({"ref-name": "icefloe-c"}))
    if left in {"tag", "nothing", "declared"}:
        harness.change(RemovePropertiesUpdate(removals=[MIRROR]))
    _expire(harness)
    outcome = harness.committer().commit(table_commit([old]))
    if left in {"tag", "mirror", "both"}:
        assert outcome == TableCommitted(outcome.table, outcome.commit_id, None)
        return
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("floor_lost", False)
    new = announced(reference(harness.table), harness.files(), offset=4)
    if left == "nothing":
        fresh = harness.committer(has_history=False).commit(table_commit([old, new]))
    else:  # the operator says that there is nothing
        harness.change(SetPropertiesUpdate(updates={MIRROR: "{}"}))
        fresh = harness.committer().commit(table_commit([old, new]))
    assert isinstance(fresh, TableCommitted)
    assert fresh.files == 1  # the old file is in the table already


def test_the_valid_through_time_survives_expiry(harness: TableHarness) -> None:
    """A claim lower than that of an expired snapshot is not made."""
    claimed_us, lower_us = 1_767_323_045_678_000, 1_767_323_045_677_000
    assert isinstance(
        harness.committer().commit(harness.round(0, valid_through_us=claimed_us)), TableCommitted
    )
    _bury(harness)
    harness.change(RemoveSnapshotRefUpdate.model_validate({"ref-name": "icefloe-c"}))
    _expire(harness)
    for offset, through_us, is_claimed in ((1, lower_us, False), (2, claimed_us, True)):
        commit = harness.round(offset, valid_through_us=through_us)
        assert isinstance(harness.committer().commit(commit), TableCommitted)
        summary = harness.reloaded().current_snapshot().summary
        assert ("kafka.connect.valid-through-ts" in summary.additional_properties) == is_claimed


class StaleCatalog:
    """A catalog gateway that returns old metadata for the first load of a table."""

    def __init__(self, catalog: CatalogGateway, old: Table) -> None:
        self._catalog = catalog
        self._old: Table | None = old

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """Return the old metadata once, then load from the catalog."""
        old, self._old = self._old, None
        return old or self._catalog.load(identifier, with_history=with_history)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


def test_a_commit_prepared_before_a_rollback_is_refused_after_it(harness: TableHarness) -> None:
    """The branch has its old snapshot, but the table's sequence number is higher."""
    assert isinstance(harness.committer().commit(harness.round(0)), TableCommitted)
    old = harness.reloaded()
    assert isinstance(harness.committer().commit(harness.round(1)), TableCommitted)
    head_id = old.metadata.current_snapshot_id
    to_old = {"ref-name": "main", "type": "branch", "snapshot-id": head_id}
    harness.change(SetSnapshotRefUpdate.model_validate(to_old))
    before = paths_of(harness.reloaded())
    frozen = replace(harness, catalog=cast("CatalogGateway", StaleCatalog(harness.catalog, old)))
    outcome = frozen.committer().commit(harness.round(2))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "table_rolled_back"
    assert paths_of(harness.reloaded()) == before


def test_state_of_the_older_sink_is_read(harness: TableHarness) -> None:
    """Its floor has the same name; its valid-through time has another name and form."""
    keys = FloorKeys(OFFSETS, MIRROR, "no-such-property", "no-such-property", tag="icefloe-c")
    table = harness.reloaded()
    table.append(
        table.schema().as_arrow().empty_table(),
        snapshot_properties={OFFSETS: '{"0":7,"2":9}', "kafka.connect.vtts": "1767323045678"},
    )
    state = table_state(harness.reloaded().metadata, keys)
    assert state.floor == {0: 7, 2: 9}
    assert [instant_us(t) for t in state.valid_through_texts] == [1_767_323_045_678_000]
    table.append(
        table.schema().as_arrow().empty_table(),
        snapshot_properties={OFFSETS: '{"0":8}', "kafka.connect.vtts": "9" * 30},
    )
    assert table_state(harness.reloaded().metadata, keys).valid_through_texts


def test_a_rollback_stops_the_connector(harness: TableHarness) -> None:
    """If main no longer contains the snapshot of the tag, an operator decides."""
    committer = harness.committer()
    for n in range(2):
        assert isinstance(committer.commit(harness.round(n)), TableCommitted)
    first = min(harness.reloaded().metadata.snapshots, key=lambda s: s.sequence_number or 0)
    harness.change(
        SetSnapshotRefUpdate.model_validate(
            {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": first.snapshot_id}
        )
    )
    outcome = committer.commit(harness.round(2))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "table_rolled_back"
    harness.change(RemoveSnapshotRefUpdate.model_validate({"ref-name": "icefloe-c"}))
    assert isinstance(committer.commit(harness.round(2)), TableCommitted)

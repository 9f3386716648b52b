"""A valid-through time that was wrong, and the operator who takes it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from coordinator.commit.operator_changes.valid_through_reset import reset_claims
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.table_harness import SCHEMA, TableHarness, paths_of
from tests.support.tables import QuickClock, connector

POISONED_US = 4_102_444_800_000_000  # the year 2100
TRUE_US = 1_767_323_045_678_000
CLAIM = "kafka.connect.valid-through-ts"
MIRROR = "icefloe.valid-through.control-iceberg.connect-c"
REASON = "a record dated 2100"


class Overtaken:
    """A catalog in which something else is committed just before the first commit."""

    def __init__(self, catalog: CatalogGateway, first: Callable[[], object]) -> None:
        self._catalog = catalog
        self._first = first
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit(self, *arguments: Any, **options: Any) -> Any:
        """Let the other commit be faster, once."""
        self.calls += 1
        if self.calls == 1:
            self._first()
        return self._catalog.commit(*arguments, **options)


@pytest.fixture
def harness(sql_catalog_properties: dict[str, str]) -> Iterator[TableHarness]:
    """A table on SQLite and a local folder, whose last claim is of the year 2100."""
    catalog = open_catalog("iceberg", sql_catalog_properties)
    harness = TableHarness(catalog, catalog.create(("db", "t"), SCHEMA))
    outcome = harness.committer().commit(harness.round(0, valid_through_us=POISONED_US))
    assert isinstance(outcome, TableCommitted)
    yield harness
    catalog.close()


def claim(harness: TableHarness) -> str | None:
    """What the newest snapshot claims."""
    head = harness.reloaded().current_snapshot()
    assert head is not None
    assert head.summary is not None
    return head.summary.get(CLAIM)


def reset(harness: TableHarness, *tables: str, end: int = 2, is_applied: bool = True) -> list[dict]:
    """What the operator asks for, while the control topic has this end offset."""
    config = connector("c", ["db.t"])
    return reset_claims(
        harness.catalog,
        config,
        tables or ("db.t",),
        REASON,
        QuickClock(),
        control_ends={0: end},
        is_applied=is_applied,
    )


def test_a_claim_stands_until_it_is_taken_back(harness: TableHarness) -> None:
    """Rounds below it claim nothing; after the reset they claim what is true."""
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(1, valid_through_us=TRUE_US)), TableCommitted)
    assert claim(harness) is None
    [displayed] = reset(harness, is_applied=False)
    assert displayed["claims"] == ["2100-01-01T00:00:00.000Z"]
    assert displayed["snapshot_id"] is None
    [done] = reset(harness)
    head = harness.reloaded().current_snapshot()
    assert head is not None
    assert head.snapshot_id == done["snapshot_id"]
    assert head.summary is not None
    assert head.summary["icefloe.valid-through-reset"] == REASON
    assert harness.reloaded().properties[MIRROR] == ""
    outcome = harness.committer().commit(harness.round(2, valid_through_us=TRUE_US))
    assert isinstance(outcome, TableCommitted)
    assert claim(harness) == "2026-01-02T03:04:05.678Z"
    assert len(paths_of(harness.reloaded())) == 3


def test_a_round_from_before_the_reset_claims_nothing(harness: TableHarness) -> None:
    """A coordinator that was frozen commits its files without its claim; a new round claims."""
    reset(harness, end=2)
    frozen = harness.committer()
    outcome = frozen.commit(harness.round(1, valid_through_us=POISONED_US))
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is not None
    assert claim(harness) is None
    assert harness.reloaded().properties[MIRROR] == ""
    assert isinstance(frozen.commit(harness.round(2, valid_through_us=TRUE_US)), TableCommitted)
    assert claim(harness) == "2026-01-02T03:04:05.678Z"


def test_a_commit_that_a_reset_overtakes_loses_its_claim(harness: TableHarness) -> None:
    """Its request conflicts with the reset; the next attempt is made for the new state."""
    catalog = Overtaken(harness.catalog, lambda: reset(harness, end=2))
    frozen = replace(harness, catalog=cast("CatalogGateway", catalog))
    outcome = frozen.committer().commit(harness.round(1, valid_through_us=POISONED_US))
    assert isinstance(outcome, TableCommitted)
    assert catalog.calls > 1
    assert claim(harness) is None
    assert len(paths_of(harness.reloaded())) == 2


def test_a_table_without_a_claim_is_reset_as_well(harness: TableHarness) -> None:
    """A commit with a claim may be under way; the reset overtakes it."""
    empty = TableHarness(harness.catalog, harness.catalog.create(("db", "u"), SCHEMA))
    config = connector("c", ["db.t", "db.u"])
    frozen = replace(
        empty,
        catalog=cast(
            "CatalogGateway",
            Overtaken(
                harness.catalog,
                lambda: reset_claims(
                    harness.catalog,
                    config,
                    ["db.u"],
                    REASON,
                    QuickClock(),
                    control_ends={0: 2},
                    is_applied=True,
                ),
            ),
        ),
    )
    outcome = frozen.committer().commit(empty.round(1, valid_through_us=POISONED_US))
    assert isinstance(outcome, TableCommitted)
    assert claim(empty) is None


def test_a_commit_during_the_reset_keeps_its_control_offsets(harness: TableHarness) -> None:
    """The floor never goes back: what was committed meanwhile is not committed again."""
    late = harness.round(5)
    committer = harness.committer()
    catalog = Overtaken(harness.catalog, lambda: committer.commit(late))
    interrupted = replace(harness, catalog=cast("CatalogGateway", catalog))
    [done] = reset(interrupted, end=9)
    assert (done["code"], catalog.calls) == (None, 2)
    assert harness.reloaded().current_snapshot().snapshot_id == done["snapshot_id"]
    before = paths_of(harness.reloaded())
    again = harness.committer().commit(late)
    assert isinstance(again, TableCommitted)
    assert again.snapshot_id is None
    assert paths_of(harness.reloaded()) == before


def test_a_reset_keeps_the_floor_and_may_be_repeated(harness: TableHarness) -> None:
    """What was committed is not committed again; a second reset finds nothing to do."""
    reset(harness)
    [again] = reset(harness)
    assert (again["claims"], again["snapshot_id"]) == ([], None)
    outcome = harness.committer().commit(harness.round(0))
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert len(paths_of(harness.reloaded())) == 1


def test_another_connectors_claim_is_left_alone(harness: TableHarness) -> None:
    """A reset is about one connector, and about tables that it writes to."""
    other = TableHarness(harness.catalog, harness.table, "d")
    outcome = other.committer().commit(other.round(0, valid_through_us=POISONED_US))
    assert isinstance(outcome, TableCommitted)
    reset(harness)
    outcome = other.committer().commit(other.round(1, valid_through_us=TRUE_US))
    assert isinstance(outcome, TableCommitted)
    assert claim(harness) is None
    [foreign] = reset(harness, "db.foreign")
    assert foreign["code"] == "table_not_configured"


def test_a_table_that_is_gone_is_named(harness: TableHarness) -> None:
    """The others are reset; the answer says which was not."""
    catalog: CatalogGateway = harness.catalog
    catalog.drop(("db", "t"))
    [result] = reset(harness)
    assert (result["code"], result["snapshot_id"]) == ("table_missing", None)


@pytest.fixture
def foreign(harness: TableHarness) -> TableHarness:
    """A table that only another connector wrote to, and whose old snapshots expired."""
    other = TableHarness(harness.catalog, harness.catalog.create(("db", "u"), SCHEMA), "d")
    committer = other.committer()
    for number in range(2):
        assert isinstance(committer.commit(other.round(number)), TableCommitted)
    metadata = other.reloaded().metadata
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    unreferenced = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in referenced]
    other.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": unreferenced}))
    return other


def reset_foreign(harness: TableHarness) -> dict[str, Any]:
    """Reset the claims of connector ``c`` in the table of the other connector."""
    [result] = reset_claims(
        harness.catalog,
        connector("c", ["db.t", "db.u"]),
        ["db.u"],
        REASON,
        QuickClock(),
        control_ends={0: 2},
        is_applied=True,
    )
    return result


def test_a_reset_leaves_a_lost_floor_lost(harness: TableHarness, foreign: TableHarness) -> None:
    """The snapshot of the reset has no control offsets; a second reset finds nothing to do."""
    done = reset_foreign(harness)
    assert (done["code"], done["claims"]) == (None, [])
    head = foreign.reloaded().current_snapshot()
    assert head is not None
    assert head.snapshot_id == done["snapshot_id"]
    restarted = TableHarness(harness.catalog, foreign.table, "c")
    outcome = restarted.committer().commit(restarted.round(0))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "floor_lost"
    assert reset_foreign(harness)["snapshot_id"] is None


def test_a_coordinator_that_never_completed_a_round_claims_nothing_after_a_reset(
    harness: TableHarness, foreign: TableHarness
) -> None:
    """It takes the floor of a table with expired snapshots for empty, and was frozen meanwhile."""
    catalog = Overtaken(harness.catalog, lambda: reset_foreign(harness))
    frozen = TableHarness(cast("CatalogGateway", catalog), foreign.table, "c")
    committer = frozen.committer(has_history=False)
    outcome = committer.commit(frozen.round(1, valid_through_us=POISONED_US))
    assert isinstance(outcome, TableCommitted)
    assert catalog.calls > 1
    assert claim(frozen) is None

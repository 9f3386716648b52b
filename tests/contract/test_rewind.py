"""Tables that go back to an earlier commit, over every catalog and store."""

from __future__ import annotations

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from connect.protocol.control_offsets import parse_offsets
from coordinator.commit.floor import floor_keys
from coordinator.commit.valid_through_reset import reset_claims
from coordinator.kernel.effects import TableCommitted
from coordinator.rewind.table_history import own_commits, rollback
from coordinator.rewind.table_rollback import TableRollback
from tests.support.places import Place, Racing, paths_of, stale_numbers
from tests.support.tables import QuickClock, connector

END = 40
CLAIMS_US = (1_767_323_045_678_000, 1_767_323_105_678_000)
LATER = "2026-01-02T03:05:05.678Z"
CLAIM = "kafka.connect.valid-through-ts"
CLAIM_MIRROR = "icefloe.valid-through.control-iceberg.connect-c"


def filled(place: Place, rounds: int = 3) -> list[int]:
    """Commit some rounds, each with a file at control offsets 0, 10, 20; their snapshots."""
    committer, made = place.committer(), []
    for number in range(rounds):
        claim_us = CLAIMS_US[min(number, 1)]
        outcome = committer.commit(place.round(10 * number, valid_through_us=claim_us))
        assert isinstance(outcome, TableCommitted)
        made.append(outcome.snapshot_id)
    return made


def name_of(place: Place) -> str:
    """The table's name."""
    return ".".join(place.table.name())


def rewind(
    place: Place,
    target: int | None,
    cut: dict[int, int] | None,
    *,
    catalog: object = None,
    rewind_id: str = "r",
) -> dict:
    """Take the table back; the answer."""
    work = TableRollback(
        catalog or place.catalog,
        connector("c", [name_of(place)]),
        QuickClock(),
        rewind_id,
        cut,
        {0: END},
        None,
        may_have_expired=False,
    )
    [done] = work.apply({name_of(place): target})
    return done


def test_a_table_goes_back_and_takes_no_old_announcement_again(place: Place) -> None:
    """Rows and claim are those of the commit, the floor is the present; the records come again."""
    first, *_ = filled(place)
    before = paths_of(place.now())
    done = rewind(place, first, {0: 1})
    assert done["code"] is None
    table = place.now()
    head = table.current_snapshot()
    assert head is not None
    assert (head.snapshot_id, head.parent_snapshot_id) == (done["snapshot_id"], first)
    assert head.summary is not None
    assert head.summary["total-data-files"] == "1"
    assert head.summary[CLAIM] == table.properties[CLAIM_MIRROR] == "2026-01-02T03:04:05.678Z"
    assert len(paths_of(table)) == 1
    assert len(table.metadata.snapshots) == 4, "what was removed can still be read by its id"
    committer = place.committer()
    for offset in (10, 20, END - 1):
        repeated = committer.commit(place.round(offset))
        assert isinstance(repeated, TableCommitted)
        assert repeated.snapshot_id is None
    for offset in (END, END + 1):
        assert isinstance(committer.commit(place.round(offset)), TableCommitted)
    assert len(paths_of(place.now())) == 3
    assert set(paths_of(place.now())) & set(before)
    assert stale_numbers(place.now()) == []
    place.now().scan().plan_files()


def test_a_repeated_rewind_finds_its_snapshot(place: Place) -> None:
    """After a crash the same rewind changes nothing; another one starts from there."""
    first, second, _ = filled(place)
    done = rewind(place, second, {0: 11})
    assert rewind(place, second, {0: 11})["snapshot_id"] == done["snapshot_id"]
    committer = place.committer()
    assert isinstance(committer.commit(place.round(END)), TableCommitted)
    assert rewind(place, second, {0: 11})["snapshot_id"] == done["snapshot_id"]
    assert rewind(place, first, {0: 1}, rewind_id="s")["code"] is None
    assert len(paths_of(place.now())) == 1


def test_a_table_is_emptied_and_filled_again(place: Place) -> None:
    """Back to the beginning there is no row, and a floor that filters all that was announced."""
    filled(place)
    assert rewind(place, None, None)["code"] is None
    table = place.now()
    assert paths_of(table) == []
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (head.parent_snapshot_id, head.summary["total-records"]) == (None, "0")
    committer = place.committer()
    assert isinstance(committer.commit(place.round(0)), TableCommitted)
    assert paths_of(place.now()) == []
    assert isinstance(committer.commit(place.round(END)), TableCommitted)
    assert len(paths_of(place.now())) == 1


def test_a_late_commit_of_the_connector_is_removed_too(place: Place) -> None:
    """A killed coordinator's commit lands between reading the table and changing it."""
    first, *_ = filled(place)
    late = place.committer()
    racing = Racing(place.catalog, [lambda: late.commit(place.round(30))])
    assert rewind(place, first, {0: 1}, catalog=racing)["code"] is None
    assert len(paths_of(place.now())) == 1


def test_a_round_from_before_the_rewind_claims_nothing(place: Place) -> None:
    """The table stores how far the control topic reached, also when a reset comes between."""
    first, *_ = filled(place)
    config = connector("c", [name_of(place)])

    def reset() -> None:
        [done] = reset_claims(
            place.catalog,
            config,
            [name_of(place)],
            "a record dated 2100",
            QuickClock(),
            control_ends={0: END + 10, 1: 3},
            is_applied=True,
        )
        assert done["snapshot_id"] is not None

    assert rewind(place, first, {0: 1}, catalog=Racing(place.catalog, [reset]))["code"] is None
    properties = place.now().properties
    assert parse_offsets(properties[config.valid_through_reset_property]) == {0: END + 10, 1: 3}
    committer = place.committer()
    for offset, claimed in ((END + 5, "2026-01-02T03:04:05.678Z"), (END + 10, LATER)):
        outcome = committer.commit(place.round(offset, valid_through_us=CLAIMS_US[1]))
        assert isinstance(outcome, TableCommitted)
        assert outcome.snapshot_id is not None
        assert place.now().properties[CLAIM_MIRROR] == claimed
    again = rewind(place, first, {0: 1}, rewind_id="s")
    assert again["code"] is None
    properties = place.now().properties
    assert parse_offsets(properties[config.valid_through_reset_property])[0] == END + 10


def test_a_rewind_without_a_reset_stores_the_end_of_the_control_topic(place: Place) -> None:
    """As a reset of the valid-through time does."""
    first, *_ = filled(place)
    rewind(place, first, {0: 1})
    key = connector("c", [name_of(place)]).valid_through_reset_property
    assert parse_offsets(place.now().properties[key]) == {0: END}


def test_a_commit_of_another_writer_refuses_the_rewind(place: Place) -> None:
    """Its rows would be lost: nothing is changed, and the snapshot is named."""
    first, *_ = filled(place)
    other = Place(place.catalog, place.table, "d")
    racing = Racing(place.catalog, [lambda: other.committer().commit(other.round(0))])
    done = rewind(place, first, {0: 1}, catalog=racing)
    assert done["code"] == "foreign_commit"
    head = place.now().current_snapshot()
    assert head is not None
    assert str(head.snapshot_id) in done["message"]
    assert len(paths_of(place.now())) == 4


def test_a_snapshot_that_expires_meanwhile_refuses_the_rewind(place: Place) -> None:
    """A commit with a parent that is gone would list files that expiry deletes."""
    first, *_ = filled(place)
    racing = Racing(
        place.catalog,
        [lambda: place.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [first]}))],
    )
    done = rewind(place, first, {0: 1}, catalog=racing)
    assert done["code"] in {"history_expired", "history_changed", "catalog_refused"}
    assert len(paths_of(place.now())) == 3


def test_a_branch_goes_back_alone(place: Place) -> None:
    """A connector that commits to a branch leaves the others as they are."""
    filled(place, 1)
    branch = {"iceberg__tables__default_commit_branch": "side"}
    config = connector("c", [name_of(place)], **branch)
    keys = floor_keys(config, name_of(place))
    committer = place.committer(settings=branch)
    made = [committer.commit(place.round(10 * n + 10)).snapshot_id for n in range(2)]
    metadata = place.now().metadata
    plan = rollback(metadata, keys, {0: 11})
    assert plan.target_id == made[0]
    work = TableRollback(
        place.catalog, config, QuickClock(), "r", {0: 11}, {0: END}, None, may_have_expired=False
    )
    [done] = work.apply({name_of(place): made[0]})
    assert done["code"] is None
    after = place.now().metadata
    assert after.refs["main"] == metadata.refs["main"]
    assert after.refs["side"].snapshot_id == done["snapshot_id"]
    assert after.refs["side"].snapshot_ref_type == SnapshotRefType.BRANCH
    assert [c.offsets for c in own_commits("t", after, keys)][:2] == [{0: END}, {0: 11}]


def test_a_compaction_does_not_refuse_a_rewind(place: Place) -> None:
    """A snapshot of another engine that keeps all rows leaves the branch with the others."""
    first, *_ = filled(place)
    head = place.now().current_snapshot()
    assert head is not None
    compaction = head.model_copy(
        update={
            "snapshot_id": 4711,
            "parent_snapshot_id": head.snapshot_id,
            "sequence_number": (head.sequence_number or 0) + 1,
            "summary": Summary(operation=Operation.REPLACE),
        }
    )
    move = {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": 4711}
    place.change(AddSnapshotUpdate(snapshot=compaction), SetSnapshotRefUpdate.model_validate(move))
    assert rewind(place, first, {0: 1})["code"] is None
    assert len(paths_of(place.now())) == 1

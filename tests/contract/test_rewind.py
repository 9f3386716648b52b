"""Tables that go back to an earlier commit, over every catalog and store."""

from __future__ import annotations

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from connect.protocol.control_offsets import parse_offsets
from coordinator.commit.floor import floor_keys
from coordinator.commit.valid_through_reset import reset_claims
from coordinator.kernel.effects import TableCommitted
from coordinator.maintenance.snapshot_expiry import ExpiryPolicy, due
from coordinator.rewind.kept_history import cancel, keep_history, release_history
from coordinator.rewind.recorded_rewind import RecordedRewind
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
    recorded = recorded_rewind(place, cut, rewind_id)
    [kept] = keep_history(place.catalog, recorded, {name_of(place): target})
    assert kept["code"] is None, kept
    return apply(place, recorded, target, catalog=catalog)


def recorded_rewind(
    place: Place, cut: dict[int, int] | None, rewind_id: str = "r"
) -> RecordedRewind:
    """A rewind of the table's connector."""
    return RecordedRewind(connector("c", [name_of(place)]), rewind_id, cut)


def apply(
    place: Place, recorded: RecordedRewind, target: int | None, *, catalog: object = None
) -> dict:
    """Take the table back; its history is kept already."""
    work = TableRollback(catalog or place.catalog, recorded, QuickClock(), {0: END}, None)
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
    recorded = RecordedRewind(config, "r", {0: 11})
    [kept] = keep_history(place.catalog, recorded, {name_of(place): made[0]})
    assert kept["code"] is None
    done = apply(place, recorded, made[0])
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


def test_expiry_keeps_what_an_unfinished_rewind_needs(place: Place) -> None:
    """The snapshot to go back to and those in between stay, by Iceberg's rules; then they go."""
    first, *_ = filled(place, 4)
    recorded, targets = recorded_rewind(place, {0: 1}), {name_of(place): first}
    policy = ExpiryPolicy(max_age_ms=1, min_kept=1, batch=1)
    late_ms = QuickClock().now_ms() + 10**9

    def expired() -> tuple[int, ...]:
        return due(place.now().metadata, policy, branch="main", now_ms=late_ms)

    assert first in expired()
    for _ in range(2):
        [kept] = keep_history(place.catalog, recorded, targets)
        assert kept["code"] is None
    assert expired() == ()
    refs = {recorded.branch, recorded.tag, "main"}
    named = {place.now().metadata.refs[name].snapshot_id for name in refs}
    others = {s.snapshot_id for s in place.now().metadata.snapshots} - named
    # as tools do that keep only what a branch or tag names
    place.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(others)}))
    assert apply(place, recorded, first)["code"] is None
    assert first not in expired()
    [released] = release_history(place.catalog, recorded, targets)
    assert released["code"] is None
    assert not {recorded.branch, recorded.tag} & place.now().metadata.refs.keys()
    place.now().scan().plan_files()
    assert len(paths_of(place.now())) == 1
    assert len(expired()) == 2


def test_a_cancelled_rewind_changes_no_table_any_more(place: Place) -> None:
    """A commit of it that is under way is refused, also when the branch was as it is now."""
    first, *_ = filled(place)
    recorded, targets = recorded_rewind(place, {0: 1}), {name_of(place): first}
    keep_history(place.catalog, recorded, targets)
    racing = Racing(place.catalog, [lambda: cancel(place.catalog, recorded, targets)])
    assert apply(place, recorded, first, catalog=racing)["code"] == "rewind_ended"
    assert len(paths_of(place.now())) == 3
    assert isinstance(place.committer().commit(place.round(30)), TableCommitted)
    assert len(paths_of(place.now())) == 4, "its announcements still count"


def test_a_table_that_was_taken_back_refuses_the_cancellation(place: Place) -> None:
    """Its rows would be lost: the rewind must be finished, and its history stays."""
    first, *_ = filled(place)
    rewind(place, first, {0: 1})
    recorded = recorded_rewind(place, {0: 1})
    [one] = cancel(place.catalog, recorded, [name_of(place)])
    assert one["code"] == "table_rewound"
    assert recorded.branch in place.now().metadata.refs


def test_a_history_that_is_gone_is_found_before_anything_is_changed(place: Place) -> None:
    """Snapshots expired between the plan and the first step: the rewind can be cancelled."""
    first, *_ = filled(place)
    place.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [first]}))
    recorded, targets = recorded_rewind(place, {0: 1}), {name_of(place): first}
    [kept] = keep_history(place.catalog, recorded, targets)
    assert kept["code"] == "history_expired"
    [one] = cancel(place.catalog, recorded, targets)
    assert one["code"] is None
    assert len(paths_of(place.now())) == 3

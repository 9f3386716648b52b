"""Tables that go back to an earlier commit, over every catalog and store."""

from __future__ import annotations

import dataclasses

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from connect.protocol.control_offsets import parse_offsets
from coordinator.commit.iceberg.floor import floor_keys
from coordinator.commit.operator_changes.valid_through_reset import reset_claims
from coordinator.kernel.effects import TableCommitted
from coordinator.maintenance.snapshot_expiry import ExpiryPolicy, due
from coordinator.rewind.kept_history import cancel, keep_history, release_history
from coordinator.rewind.recorded_rewind import RecordedRewind
from coordinator.rewind.table_history import own_commits, rollback
from coordinator.rewind.table_rollback import TableRollback
from tests.support.table_harness import Racing, TableHarness, paths_of, stale_numbers
from tests.support.tables import QuickClock, connector

END = 40
CLAIMS_US = (1_767_323_045_678_000, 1_767_323_105_678_000)
LATER = "2026-01-02T03:05:05.678Z"
CLAIM = "kafka.connect.valid-through-ts"
CLAIM_MIRROR = "icefloe.valid-through.control-iceberg.connect-c"


def filled(harness: TableHarness, rounds: int = 3) -> list[int]:
    """Commit some rounds, each with a file at control offsets 0, 10, 20; their snapshots."""
    committer, snapshots = harness.committer(), []
    for number in range(rounds):
        claim_us = CLAIMS_US[min(number, 1)]
        outcome = committer.commit(harness.round(10 * number, valid_through_us=claim_us))
        assert isinstance(outcome, TableCommitted)
        snapshots.append(outcome.snapshot_id)
    return snapshots


def name_of(harness: TableHarness) -> str:
    """The table's name."""
    return ".".join(harness.table.name())


def rewind(
    harness: TableHarness,
    target: int | None,
    cut: dict[int, int] | None,
    *,
    catalog: object = None,
    rewind_id: str = "r",
) -> dict:
    """Take the table back; the answer."""
    recorded = recorded_rewind(harness, cut, rewind_id)
    [result] = keep_history(harness.catalog, recorded, {name_of(harness): target})
    assert result["code"] is None, result
    return apply(harness, recorded, target, catalog=catalog)


def recorded_rewind(
    harness: TableHarness, cut: dict[int, int] | None, rewind_id: str = "r"
) -> RecordedRewind:
    """A rewind of the table's connector."""
    return RecordedRewind(connector("c", [name_of(harness)]), rewind_id, cut)


def apply(
    harness: TableHarness, recorded: RecordedRewind, target: int | None, *, catalog: object = None
) -> dict:
    """Take the table back; its history is kept already."""
    work = TableRollback(catalog or harness.catalog, recorded, QuickClock(), {0: END}, None)
    [done] = work.apply({name_of(harness): target})
    return done


def test_a_table_goes_back_and_takes_no_old_announcement_again(harness: TableHarness) -> None:
    """Rows and claim are those of the commit, the floor is the present; the records come again."""
    first, *_ = filled(harness)
    before = paths_of(harness.reloaded())
    done = rewind(harness, first, {0: 1})
    assert done["code"] is None
    table = harness.reloaded()
    head = table.current_snapshot()
    assert head is not None
    assert (head.snapshot_id, head.parent_snapshot_id) == (done["snapshot_id"], first)
    assert head.summary is not None
    assert head.summary["total-data-files"] == "1"
    assert head.summary[CLAIM] == table.properties[CLAIM_MIRROR] == "2026-01-02T03:04:05.678Z"
    assert len(paths_of(table)) == 1
    assert len(table.metadata.snapshots) == 4, "what was removed can still be read by its id"
    committer = harness.committer()
    for offset in (10, 20, END - 1):
        repeated = committer.commit(harness.round(offset))
        assert isinstance(repeated, TableCommitted)
        assert repeated.snapshot_id is None
    for offset in (END, END + 1):
        assert isinstance(committer.commit(harness.round(offset)), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 3
    assert set(paths_of(harness.reloaded())) & set(before)
    assert stale_numbers(harness.reloaded()) == []
    harness.reloaded().scan().plan_files()


def test_a_repeated_rewind_finds_its_snapshot(harness: TableHarness) -> None:
    """After a crash the same rewind changes nothing; another one starts from there."""
    first, second, _ = filled(harness)
    done = rewind(harness, second, {0: 11})
    assert rewind(harness, second, {0: 11})["snapshot_id"] == done["snapshot_id"]
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(END)), TableCommitted)
    assert rewind(harness, second, {0: 11})["snapshot_id"] == done["snapshot_id"]
    assert rewind(harness, first, {0: 1}, rewind_id="s")["code"] is None
    assert len(paths_of(harness.reloaded())) == 1


def test_a_table_is_emptied_and_filled_again(harness: TableHarness) -> None:
    """Back to the beginning there is no row, and a floor that filters all that was announced."""
    filled(harness)
    assert rewind(harness, None, None)["code"] is None
    table = harness.reloaded()
    assert paths_of(table) == []
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (head.parent_snapshot_id, head.summary["total-records"]) == (None, "0")
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    assert paths_of(harness.reloaded()) == []
    assert isinstance(committer.commit(harness.round(END)), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 1


def test_a_late_commit_of_the_connector_is_removed_too(harness: TableHarness) -> None:
    """A killed coordinator's commit lands between reading the table and changing it."""
    first, *_ = filled(harness)
    late = harness.committer()
    racing = Racing(harness.catalog, [lambda: late.commit(harness.round(30))])
    assert rewind(harness, first, {0: 1}, catalog=racing)["code"] is None
    assert len(paths_of(harness.reloaded())) == 1


def test_a_round_from_before_the_rewind_claims_nothing(harness: TableHarness) -> None:
    """The table stores how far the control topic reached, also when a reset comes between."""
    first, *_ = filled(harness)
    config = connector("c", [name_of(harness)])

    def reset() -> None:
        [done] = reset_claims(
            harness.catalog,
            config,
            [name_of(harness)],
            "a record dated 2100",
            QuickClock(),
            control_ends={0: END + 10, 1: 3},
            is_applied=True,
        )
        assert done["snapshot_id"] is not None

    assert rewind(harness, first, {0: 1}, catalog=Racing(harness.catalog, [reset]))["code"] is None
    properties = harness.reloaded().properties
    assert parse_offsets(properties[config.valid_through_reset_property]) == {0: END + 10, 1: 3}
    committer = harness.committer()
    for offset, claimed in ((END + 5, "2026-01-02T03:04:05.678Z"), (END + 10, LATER)):
        outcome = committer.commit(harness.round(offset, valid_through_us=CLAIMS_US[1]))
        assert isinstance(outcome, TableCommitted)
        assert outcome.snapshot_id is not None
        assert harness.reloaded().properties[CLAIM_MIRROR] == claimed
    again = rewind(harness, first, {0: 1}, rewind_id="s")
    assert again["code"] is None
    properties = harness.reloaded().properties
    assert parse_offsets(properties[config.valid_through_reset_property])[0] == END + 10


def test_a_rewind_without_a_reset_stores_the_end_of_the_control_topic(
    harness: TableHarness,
) -> None:
    """As a reset of the valid-through time does."""
    first, *_ = filled(harness)
    rewind(harness, first, {0: 1})
    key = connector("c", [name_of(harness)]).valid_through_reset_property
    assert parse_offsets(harness.reloaded().properties[key]) == {0: END}


def test_a_commit_of_another_writer_refuses_the_rewind(harness: TableHarness) -> None:
    """Its rows would be lost: nothing is changed, and the snapshot is named."""
    first, *_ = filled(harness)
    other = TableHarness(harness.catalog, harness.table, "d")
    racing = Racing(harness.catalog, [lambda: other.committer().commit(other.round(0))])
    done = rewind(harness, first, {0: 1}, catalog=racing)
    assert done["code"] == "foreign_commit"
    head = harness.reloaded().current_snapshot()
    assert head is not None
    assert str(head.snapshot_id) in done["message"]
    assert len(paths_of(harness.reloaded())) == 4


def test_a_snapshot_that_expires_meanwhile_refuses_the_rewind(harness: TableHarness) -> None:
    """A commit with a parent that is gone would list files that expiry deletes."""
    first, *_ = filled(harness)
    racing = Racing(
        harness.catalog,
        [lambda: harness.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [first]}))],
    )
    done = rewind(harness, first, {0: 1}, catalog=racing)
    assert done["code"] in {"history_expired", "history_changed", "catalog_refused"}
    assert len(paths_of(harness.reloaded())) == 3


def test_a_branch_goes_back_alone(harness: TableHarness) -> None:
    """A connector that commits to a branch leaves the others as they are."""
    filled(harness, 1)
    branch = {"iceberg__tables__default_commit_branch": "side"}
    config = connector("c", [name_of(harness)], **branch)
    keys = floor_keys(config, name_of(harness))
    committer = harness.committer(settings=branch)
    snapshots = [committer.commit(harness.round(10 * n + 10)).snapshot_id for n in range(2)]
    metadata = harness.reloaded().metadata
    plan = rollback(metadata, keys, {0: 11})
    assert plan.target_id == snapshots[0]
    recorded = RecordedRewind(config, "r", {0: 11})
    [result] = keep_history(harness.catalog, recorded, {name_of(harness): snapshots[0]})
    assert result["code"] is None
    done = apply(harness, recorded, snapshots[0])
    assert done["code"] is None
    after = harness.reloaded().metadata
    assert after.refs["main"] == metadata.refs["main"]
    assert after.refs["side"].snapshot_id == done["snapshot_id"]
    assert after.refs["side"].snapshot_ref_type == SnapshotRefType.BRANCH
    assert [c.offsets for c in own_commits("t", after, keys)][:2] == [{0: END}, {0: 11}]


def test_a_compaction_does_not_refuse_a_rewind(harness: TableHarness) -> None:
    """A snapshot of another engine that keeps all rows leaves the branch with the others."""
    first, *_ = filled(harness)
    head = harness.reloaded().current_snapshot()
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
    harness.change(
        AddSnapshotUpdate(snapshot=compaction), SetSnapshotRefUpdate.model_validate(move)
    )
    assert rewind(harness, first, {0: 1})["code"] is None
    assert len(paths_of(harness.reloaded())) == 1


def test_expiry_keeps_what_an_unfinished_rewind_needs(harness: TableHarness) -> None:
    """The snapshot to go back to and those in between stay, by Iceberg's rules; then they go."""
    first, *_ = filled(harness, 4)
    recorded, targets = recorded_rewind(harness, {0: 1}), {name_of(harness): first}
    policy = ExpiryPolicy(max_age_ms=1, min_kept=1, batch=1)
    late_ms = QuickClock().now_ms() + 10**9

    def expired() -> tuple[int, ...]:
        return due(harness.reloaded().metadata, policy, branch="main", now_ms=late_ms)

    assert first in expired()
    for _ in range(2):
        [result] = keep_history(harness.catalog, recorded, targets)
        assert result["code"] is None
    assert expired() == ()
    refs = {recorded.branch, recorded.tag, "main"}
    named = {harness.reloaded().metadata.refs[name].snapshot_id for name in refs}
    others = {s.snapshot_id for s in harness.reloaded().metadata.snapshots} - named
    # as tools do that keep only what a branch or tag names
    harness.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(others)}))
    assert apply(harness, recorded, first)["code"] is None
    assert first not in expired()
    [released] = release_history(harness.catalog, recorded, targets)
    assert released["code"] is None
    assert not {recorded.branch, recorded.tag} & harness.reloaded().metadata.refs.keys()
    harness.reloaded().scan().plan_files()
    assert len(paths_of(harness.reloaded())) == 1
    assert len(expired()) == 2


def test_only_its_own_first_step_lets_an_attempt_commit(harness: TableHarness) -> None:
    """A frozen process may keep the history again; another attempt still commits nothing."""
    first, *_ = filled(harness)
    recorded, targets = recorded_rewind(harness, {0: 1}), {name_of(harness): first}
    attempts = [dataclasses.replace(recorded, attempt=attempt) for attempt in ("1", "2")]
    keep_history(harness.catalog, attempts[0], targets)
    assert all(one["code"] is None for one in cancel(harness.catalog, recorded, targets))
    keep_history(harness.catalog, attempts[1], targets)
    assert apply(harness, attempts[0], first)["code"] == "rewind_ended"
    assert len(paths_of(harness.reloaded())) == 3
    assert apply(harness, attempts[1], first)["code"] is None
    release_history(harness.catalog, recorded, targets)
    assert not [ref for ref in harness.reloaded().metadata.refs if ref.startswith(recorded.branch)]


def test_a_cancelled_rewind_changes_no_table_any_more(harness: TableHarness) -> None:
    """A commit of it that is under way is refused, also when the branch was as it is now."""
    first, *_ = filled(harness)
    recorded, targets = recorded_rewind(harness, {0: 1}), {name_of(harness): first}
    keep_history(harness.catalog, recorded, targets)
    racing = Racing(harness.catalog, [lambda: cancel(harness.catalog, recorded, targets)])
    assert apply(harness, recorded, first, catalog=racing)["code"] == "rewind_ended"
    assert len(paths_of(harness.reloaded())) == 3
    assert isinstance(harness.committer().commit(harness.round(30)), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 4, "its announcements still count"


def test_a_table_that_was_taken_back_refuses_the_cancellation(harness: TableHarness) -> None:
    """Its rows would be lost: the rewind must be finished, and its history stays."""
    first, *_ = filled(harness)
    rewind(harness, first, {0: 1})
    recorded = recorded_rewind(harness, {0: 1})
    [result] = cancel(harness.catalog, recorded, [name_of(harness)])
    assert result["code"] == "table_rewound"
    assert recorded.branch in harness.reloaded().metadata.refs


def test_a_history_that_is_gone_is_found_before_anything_is_changed(harness: TableHarness) -> None:
    """Snapshots expired between the plan and the first step: the rewind can be cancelled."""
    first, *_ = filled(harness)
    harness.change(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [first]}))
    recorded, targets = recorded_rewind(harness, {0: 1}), {name_of(harness): first}
    [result] = keep_history(harness.catalog, recorded, targets)
    assert result["code"] == "history_expired"
    [cancelled] = cancel(harness.catalog, recorded, targets)
    assert cancelled["code"] is None
    assert len(paths_of(harness.reloaded())) == 3

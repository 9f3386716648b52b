"""The committer over every catalog and store: the same behaviour on each."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import LongType

from connect.errors import CommitConflict, CommitRefused
from control_schemas.events import FileContent
from coordinator.commit.committer import Committer
from coordinator.kernel.effects import CoordinatorFenced, TableCommit, TableCommitted, TableFailed
from tests.support.places import MIRROR, SCHEMA, Place, Racing, paths_of, stale_numbers
from tests.support.stack import unique_name
from tests.support.tables import QuickClock, announced, made_up_file, reference, table_commit


def test_a_commit_adds_one_snapshot_with_its_files(place: Place) -> None:
    """With the offsets, the ids, the tag and the mirror."""
    commit = place.round(4, 3, valid_through_us=1_767_323_045_678_999)
    outcome = place.committer(control_topic_id="topic-1").commit(commit)
    assert isinstance(outcome, TableCommitted)
    table = place.now()
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (outcome.snapshot_id, outcome.files, outcome.records) == (head.snapshot_id, 3, 30)
    assert head.summary.operation.value == "append"
    properties = head.summary.additional_properties
    assert properties["kafka.connect.offsets.control-iceberg.connect-c"] == '{"0":5}'
    assert properties["kafka.connect.commit-id"] == str(commit.commit_id)
    assert properties["kafka.connect.task-id"] == "c-0"
    assert properties["kafka.connect.valid-through-ts"] == "2026-01-02T03:04:05.678Z"
    assert properties["engine-name"] == "icefloe"
    assert properties["added-data-files"] == properties["total-data-files"] == "3"
    assert properties["added-records"] == properties["total-records"] == "30"
    assert table.properties["icefloe.offsets.control-iceberg.connect-c"] == '{"0":5}'
    assert table.properties["icefloe.topic-id.control-iceberg.connect-c"] == "topic-1"
    tag = table.metadata.refs["icefloe-c"]
    assert tag.snapshot_ref_type == SnapshotRefType.TAG
    assert tag.snapshot_id == head.snapshot_id
    assert len(paths_of(table)) == 3


def test_rounds_become_consecutive_snapshots(place: Place) -> None:
    """Totals add up, parents are linked, control offsets never decrease."""
    committer = place.committer()
    for n in range(4):
        assert isinstance(committer.commit(place.round(n * 10, 2)), TableCommitted)
    table = place.now()
    chain = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    assert [s.parent_snapshot_id for s in chain] == [None, *[s.snapshot_id for s in chain[:-1]]]
    assert chain[-1].summary is not None
    assert chain[-1].summary["total-data-files"] == "8"
    offsets = [
        json.loads(s.summary["kafka.connect.offsets.control-iceberg.connect-c"])["0"] for s in chain
    ]
    assert offsets == [1, 11, 21, 31]
    assert len(paths_of(table)) == 8


def test_announcements_below_the_floor_are_not_added_again(place: Place) -> None:
    """A successor gets the same announcements and adds only the new one."""
    old = announced(reference(place.table), place.files(), offset=3)
    new = announced(reference(place.table), place.files(), offset=4)
    assert isinstance(place.committer().commit(table_commit([old])), TableCommitted)
    again = place.committer().commit(table_commit([old]))
    assert again == TableCommitted(again.table, again.commit_id, None)
    outcome = place.committer().commit(table_commit([old, new]))
    assert isinstance(outcome, TableCommitted)
    assert outcome.files == 1
    assert len(paths_of(place.now())) == 2


def test_empty_files_and_empty_rounds_leave_no_snapshot(place: Place) -> None:
    """Files without rows are not added; a round without files adds no snapshot."""
    empty = announced(reference(place.table), place.files(records=0), offset=1)
    outcome = place.committer().commit(table_commit([empty]))
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert place.now().current_snapshot() is None


def test_commits_of_other_writers_are_kept(place: Place) -> None:
    """A commit of another connector makes ours start again, not fail."""
    ours, theirs = place.committer(), Place(place.catalog, place.table, "d").committer()
    for n in range(3):
        assert isinstance(ours.commit(place.round(n)), TableCommitted)
        assert isinstance(theirs.commit(place.round(n)), TableCommitted)
    table = place.now()
    assert len(paths_of(table)) == 6
    assert {"icefloe-c", "icefloe-d"} <= set(table.metadata.refs)
    assert table.current_snapshot().summary["total-data-files"] == "6"


def test_a_second_coordinator_fences_the_first(place: Place) -> None:
    """A zombie whose floor moved without it stops and adds nothing."""
    zombie = place.committer()
    assert isinstance(zombie.commit(place.round(0)), TableCommitted)
    assert isinstance(place.committer().commit(place.round(1)), TableCommitted)
    assert isinstance(zombie.commit(place.round(1)), CoordinatorFenced)
    assert len(paths_of(place.now())) == 2


def test_two_racing_committers_add_every_file_once(place: Place) -> None:
    """Same announcements: one adds them, the other stops or finds them."""
    first = place.round(0)
    second = place.round(1)
    start = threading.Barrier(2)
    outcomes: list[object] = []

    def run(committer: Committer) -> None:
        start.wait()
        outcomes.extend(committer.commit(c) for c in (first, second))

    threads = [threading.Thread(target=run, args=(place.committer(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths_of(place.now())) == 2
    assert any(isinstance(o, TableCommitted) and o.snapshot_id for o in outcomes)
    assert not [o for o in outcomes if isinstance(o, TableFailed)]


def test_a_replaced_table_is_not_written(place: Place) -> None:
    """Files for a dropped and recreated table wait for the operator."""
    committer = place.committer()
    assert isinstance(committer.commit(place.round(0)), TableCommitted)
    commit = place.round(1)
    place.catalog._client().drop_table(place.table.name())
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("table_missing", False)
    place.catalog.create(place.table.name(), SCHEMA)
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("table_replaced", False)
    assert place.now().current_snapshot() is None


def test_commits_to_a_branch_do_not_move_main(place: Place) -> None:
    """The first commit creates the branch."""
    committer = place.committer(settings={"iceberg__tables__default_commit_branch": "audit"})
    for n in range(2):
        assert isinstance(committer.commit(place.round(n)), TableCommitted)
    table = place.now()
    assert table.current_snapshot() is None
    head = table.snapshot_by_name("audit")
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-data-files"] == "2"
    place.change(RemoveSnapshotRefUpdate.model_validate({"ref-name": "audit"}))
    outcome = committer.commit(place.round(2))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "branch_missing"


def test_a_commit_to_main_restarts_a_commit_to_a_branch(place: Place) -> None:
    """Sequence numbers belong to the table."""
    other = Place(place.catalog, place.table, "d")
    assert isinstance(other.committer().commit(place.round(0)), TableCommitted)
    committer = place.committer(settings={"iceberg__tables__default_commit_branch": "audit"})
    assert isinstance(committer.commit(place.round(0)), TableCommitted)
    assert isinstance(other.committer().commit(place.round(1)), TableCommitted)
    assert isinstance(committer.commit(place.round(1)), TableCommitted)
    head = place.now().snapshot_by_name("audit")
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-data-files"] == "3"


def test_a_recreated_control_topic_is_detected(place: Place) -> None:
    """Control offsets of another topic have no meaning."""
    assert isinstance(place.committer(control_topic_id="a").commit(place.round(0)), TableCommitted)
    outcome = place.committer(control_topic_id="b").commit(place.round(1))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "control_log_reset"


def test_the_valid_through_time_never_decreases(place: Place) -> None:
    """A lower one is left out, as is that of a partial commit."""
    committer = place.committer()
    texts = []
    for n, through_us in enumerate((5_000_000, None, 3_000_000, 6_000_000)):
        committer.commit(place.round(n, valid_through_us=through_us))
        summary = place.now().current_snapshot().summary
        texts.append(summary.get("kafka.connect.valid-through-ts"))
    seconds = ["05", None, None, "06"]
    assert texts == [s and f"1970-01-01T00:00:{s}.000Z" for s in seconds]


def test_a_file_outside_the_table_is_refused(place: Place) -> None:
    """Control events cannot add files from outside the location of the table."""
    for path in (f"{place.table.location()}/../other/x.parquet", "s3://other/x.parquet"):
        file = made_up_file(place.table, file_path=path)
        commit = table_commit([announced(reference(place.table), [file], offset=0)])
        outcome = place.committer().commit(commit)
        assert isinstance(outcome, TableFailed)
        assert outcome.code == "file_outside_table"
    assert place.now().current_snapshot() is None


def test_a_file_announced_twice_is_added_once(place: Place) -> None:
    """The same path twice is one file; a different file with the same path is refused."""
    (file,) = place.files()
    twice = [announced(reference(place.table), [file], offset=n) for n in range(2)]
    outcome = place.committer().commit(table_commit(twice))
    assert isinstance(outcome, TableCommitted)
    assert outcome.files == 1
    other = made_up_file(place.table, file_path=file.file_path, records=11)
    torn = [announced(reference(place.table), [f], offset=n) for n, f in ((2, file), (3, other))]
    outcome = place.committer().commit(table_commit(torn))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "path_conflict"


def test_a_wrong_clock_is_an_error(place: Place) -> None:
    """A clock far behind the table commits nothing; a small difference moves no time back."""
    clock = QuickClock()
    committer = place.committer(clock=clock)
    assert isinstance(committer.commit(place.round(0)), TableCommitted)
    clock.offset_ms = -30_000
    assert isinstance(committer.commit(place.round(1)), TableCommitted)
    log = [entry.timestamp_ms for entry in place.now().metadata.snapshot_log]
    assert log == sorted(log)
    clock.offset_ms = -3_600_000
    outcome = committer.commit(place.round(2))
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("clock_off", True)


def test_row_level_batches_keep_their_order(place: Place) -> None:
    """Each batch has its own sequence number in one snapshot, also after a merge."""
    steps = []
    for batch in (2, 1, 3):
        (data,) = place.files()
        (delete,) = place.files(content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
        steps.append(
            announced(
                reference(place.table), [data], deletes=[delete], offset=10 + batch, batch=batch
            )
        )
    assert isinstance(place.committer().commit(table_commit(steps)), TableCommitted)
    head = place.now().current_snapshot()
    assert head is not None
    assert head.sequence_number == 3
    entries = [
        (m.content.value, e.sequence_number, e.file_sequence_number)
        for m in head.manifests(place.table.io)
        for e in m.fetch_manifest_entry(place.table.io)
    ]
    assert sorted(entries) == [(kind, n, 3) for kind in (0, 1) for n in (1, 2, 3)]
    assert head.summary is not None
    assert head.summary.operation.value == "overwrite"


@pytest.mark.parametrize("min_count", ["100", "2"])
@pytest.mark.parametrize("kind", ["append", "row-level"])
def test_a_repeated_commit_has_the_sequence_number_of_its_snapshot(
    place: Place, kind: str, min_count: str
) -> None:
    """Equality deletes committed between the attempts must not apply to the new rows."""
    place.table = place.catalog.create(
        ("db", unique_name(f"n-{uuid4().hex[:8]}")),
        SCHEMA,
        properties={"commit.manifest.min-count-to-merge": min_count},
    )
    theirs = Place(place.catalog, place.table, "d").committer()
    offsets = iter(range(100))

    def with_deletes(*, batch: int | None = None) -> TableCommit:
        deletes = place.files(content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
        given = announced(
            reference(place.table), place.files(), deletes, offset=next(offsets), batch=batch
        )
        return table_commit([given])

    assert isinstance(theirs.commit(with_deletes()), TableCommitted)
    racing = Racing(place.catalog, [lambda: theirs.commit(with_deletes())] * 2)
    ours = replace(place, catalog=racing).committer()
    commit = place.round(0) if kind == "append" else with_deletes(batch=7)
    outcome = ours.commit(commit)
    assert isinstance(outcome, TableCommitted)
    table = place.now()
    assert table.current_snapshot().sequence_number == 4
    assert stale_numbers(table) == []


def test_many_manifests_are_merged(place: Place) -> None:
    """Their number stays bounded; no file is lost or duplicated."""
    place.table = place.catalog.create(
        ("db", unique_name(f"m-{uuid4().hex[:8]}")),
        SCHEMA,
        properties={"commit.manifest.min-count-to-merge": "5"},
    )
    committer = place.committer()
    for n in range(13):
        deletes = place.files(content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
        commit = table_commit(
            [announced(reference(place.table), place.files(), deletes=deletes, offset=n)]
        )
        assert isinstance(committer.commit(commit), TableCommitted)
    table = place.now()
    assert len(table.current_snapshot().manifests(table.io)) <= 10
    assert len(paths_of(table)) == len(set(paths_of(table))) == 26


def test_the_gateway_reports_a_conflict(place: Place) -> None:
    """A requirement that no longer holds; a missing table is a refusal."""
    stale = place.now()
    assert isinstance(place.committer().commit(place.round(0)), TableCommitted)
    bad = AssertTableUUID(uuid=uuid4())
    with pytest.raises(CommitConflict):
        place.catalog.commit(stale, [bad], [RemovePropertiesUpdate(removals=[MIRROR])])
    with pytest.raises(CommitRefused) as refused:
        place.catalog.load(("db", "no-such-table"))
    assert refused.value.code == "table_missing"
    assert not place.catalog.exists(("nowhere", "no-such-table"))


def test_a_lost_race_for_creation_returns_the_existing_table(place: Place) -> None:
    """A lost race for creation ends with the table that exists."""
    again = place.catalog.create(place.table.name(), SCHEMA)
    assert again.metadata.table_uuid == place.table.metadata.table_uuid


def test_tables_are_committed_in_parallel(place: Place) -> None:
    """Threads share one committer and one gateway; every table gets all of its rounds."""
    tables = [
        place.catalog.create(("db", unique_name(f"p-{uuid4().hex[:8]}")), SCHEMA) for _ in range(6)
    ]
    places = [Place(place.catalog, table) for table in tables]
    config_tables = {"iceberg__tables": ",".join(".".join(t.name()) for t in tables)}
    committer = place.committer(settings=config_tables)

    def rounds(one: Place) -> list[object]:
        return [committer.commit(one.round(n)) for n in range(5)]

    with ThreadPoolExecutor(6) as pool:
        outcomes = [o for some in pool.map(rounds, places) for o in some]
    assert all(isinstance(o, TableCommitted) for o in outcomes), outcomes
    assert [len(paths_of(p.now())) for p in places] == [5] * 6


def test_old_metadata_files_are_deleted_if_the_table_enables_it(place: Place) -> None:
    """``write.metadata.delete-after-commit.enabled`` applies to our commits too."""
    wants = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
    }
    place.table = place.catalog.create(
        ("db", unique_name(f"x-{uuid4().hex[:8]}")), SCHEMA, properties=wants
    )
    committer = place.committer()
    seen = {place.table.metadata_location}
    for n in range(6):
        assert isinstance(committer.commit(place.round(n)), TableCommitted)
        seen.add(place.now().metadata_location)
    io = place.table.io
    assert len(seen) == 7
    left = [path for path in seen if io.new_input(path).exists()]
    assert len(left) == 3
    assert len(paths_of(place.now())) == 6


def test_retention_of_references_is_kept(place: Place) -> None:
    """A moved branch or tag keeps the retention that its owner set."""
    committer = place.committer()
    assert isinstance(committer.commit(place.round(0)), TableCommitted)
    head = place.now().current_snapshot()
    assert head is not None
    given = {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": head.snapshot_id}
    given |= {"min-snapshots-to-keep": 7, "max-snapshot-age-ms": 86_400_000}
    place.change(SetSnapshotRefUpdate.model_validate(given))
    assert isinstance(committer.commit(place.round(1)), TableCommitted)
    main = place.now().metadata.refs["main"]
    assert (main.min_snapshots_to_keep, main.max_snapshot_age_ms) == (7, 86_400_000)


def test_a_snapshot_has_the_schema_of_its_commit(place: Place) -> None:
    """A snapshot carries the schema that is current when it is committed."""
    committer = place.committer()
    assert isinstance(committer.commit(place.round(0)), TableCommitted)
    with place.now().update_schema() as update:
        update.add_column("more", LongType())
    place.table = place.now()
    event = announced(reference(place.table), place.files(columns=3), offset=1)
    assert isinstance(committer.commit(table_commit([event])), TableCommitted)
    table = place.now()
    assert table.current_snapshot().schema_id == table.metadata.current_schema_id

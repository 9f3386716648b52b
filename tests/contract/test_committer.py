"""The committer over every catalog and store: the same behaviour on each."""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from connect.errors import CommitConflict, CommitRefused, IcefloeError
from connect.gateways.catalog.catalog import open_catalog
from control_schemas.events import FileContent
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import CoordinatorFenced, TableCommit, TableCommitted, TableFailed
from tests.support.stack import RestCatalog, unique_name
from tests.support.table_harness import (
    MIRROR,
    SCHEMA,
    Racing,
    TableHarness,
    paths_of,
    stale_numbers,
)
from tests.support.tables import (
    QuickClock,
    announced,
    made_up_file,
    partition_of,
    reference,
    table_commit,
)

REFUSED = "catalog_refused"


@pytest.mark.parametrize("catalog_properties", ["sqlite", "rest", "postgres", "s3"], indirect=True)
def test_a_commit_adds_one_snapshot_with_its_files(harness: TableHarness) -> None:
    """With the offsets, the ids, the tag and the mirror."""
    commit = harness.round(4, 3, valid_through_us=1_767_323_045_678_999)
    outcome = harness.committer(control_topic_id="topic-1").commit(commit)
    assert isinstance(outcome, TableCommitted)
    table = harness.reloaded()
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


def test_rounds_become_consecutive_snapshots(harness: TableHarness) -> None:
    """Totals add up, parents are linked, control offsets never decrease."""
    committer = harness.committer()
    for n in range(4):
        assert isinstance(committer.commit(harness.round(n * 10, 2)), TableCommitted)
    table = harness.reloaded()
    chain = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    assert [s.parent_snapshot_id for s in chain] == [None, *[s.snapshot_id for s in chain[:-1]]]
    assert chain[-1].summary is not None
    assert chain[-1].summary["total-data-files"] == "8"
    offsets = [
        json.loads(s.summary["kafka.connect.offsets.control-iceberg.connect-c"])["0"] for s in chain
    ]
    assert offsets == [1, 11, 21, 31]
    assert len(paths_of(table)) == 8


def test_announcements_below_the_floor_are_not_added_again(harness: TableHarness) -> None:
    """A successor gets the same announcements and adds only the new one."""
    old = announced(reference(harness.table), harness.files(), offset=3)
    new = announced(reference(harness.table), harness.files(), offset=4)
    assert isinstance(harness.committer().commit(table_commit([old])), TableCommitted)
    again = harness.committer().commit(table_commit([old]))
    assert again == TableCommitted(again.table, again.commit_id, None)
    outcome = harness.committer().commit(table_commit([old, new]))
    assert isinstance(outcome, TableCommitted)
    assert outcome.files == 1
    assert len(paths_of(harness.reloaded())) == 2


def test_empty_files_and_empty_rounds_leave_no_snapshot(harness: TableHarness) -> None:
    """Files without rows are not added; a round without files adds no snapshot."""
    empty = announced(reference(harness.table), harness.files(records=0), offset=1)
    outcome = harness.committer().commit(table_commit([empty]))
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert harness.reloaded().current_snapshot() is None


def test_commits_of_other_writers_are_kept(harness: TableHarness) -> None:
    """A commit of another connector makes ours start again, not fail."""
    ours, theirs = (
        harness.committer(),
        TableHarness(harness.catalog, harness.table, "d").committer(),
    )
    for n in range(3):
        assert isinstance(ours.commit(harness.round(n)), TableCommitted)
        assert isinstance(theirs.commit(harness.round(n)), TableCommitted)
    table = harness.reloaded()
    assert len(paths_of(table)) == 6
    assert {"icefloe-c", "icefloe-d"} <= set(table.metadata.refs)
    assert table.current_snapshot().summary["total-data-files"] == "6"


def test_a_second_coordinator_fences_the_first(harness: TableHarness) -> None:
    """A zombie whose floor moved without it stops and adds nothing."""
    zombie = harness.committer()
    assert isinstance(zombie.commit(harness.round(0)), TableCommitted)
    assert isinstance(harness.committer().commit(harness.round(1)), TableCommitted)
    assert isinstance(zombie.commit(harness.round(1)), CoordinatorFenced)
    assert len(paths_of(harness.reloaded())) == 2


def test_two_racing_committers_add_every_file_once(harness: TableHarness) -> None:
    """Same announcements: one adds them, the other stops or finds them."""
    first = harness.round(0)
    second = harness.round(1)
    start = threading.Barrier(2)
    outcomes: list[object] = []

    def run(committer: Committer) -> None:
        start.wait()
        outcomes.extend(committer.commit(c) for c in (first, second))

    threads = [threading.Thread(target=run, args=(harness.committer(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths_of(harness.reloaded())) == 2
    assert any(isinstance(o, TableCommitted) and o.snapshot_id for o in outcomes)
    assert not [o for o in outcomes if isinstance(o, TableFailed)]


def test_a_replaced_table_is_not_written(harness: TableHarness) -> None:
    """Files for a dropped and recreated table wait for the operator."""
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    commit = harness.round(1)
    harness.catalog._client().drop_table(harness.table.name())
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("table_missing", False)
    harness.catalog.create(harness.table.name(), SCHEMA)
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("table_replaced", False)
    assert harness.reloaded().current_snapshot() is None


def test_commits_to_a_branch_do_not_move_main(harness: TableHarness) -> None:
    """The first commit creates the branch."""
    committer = harness.committer(settings={"iceberg__tables__default_commit_branch": "audit"})
    for n in range(2):
        assert isinstance(committer.commit(harness.round(n)), TableCommitted)
    table = harness.reloaded()
    assert table.current_snapshot() is None
    head = table.snapshot_by_name("audit")
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-data-files"] == "2"
    harness.change(RemoveSnapshotRefUpdate.model_validate({"ref-name": "audit"}))
    outcome = committer.commit(harness.round(2))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "branch_missing"


def test_a_commit_to_main_restarts_a_commit_to_a_branch(harness: TableHarness) -> None:
    """Sequence numbers belong to the table."""
    other = TableHarness(harness.catalog, harness.table, "d")
    assert isinstance(other.committer().commit(harness.round(0)), TableCommitted)
    committer = harness.committer(settings={"iceberg__tables__default_commit_branch": "audit"})
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    assert isinstance(other.committer().commit(harness.round(1)), TableCommitted)
    assert isinstance(committer.commit(harness.round(1)), TableCommitted)
    head = harness.reloaded().snapshot_by_name("audit")
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-data-files"] == "3"


def test_a_recreated_control_topic_is_detected(harness: TableHarness) -> None:
    """Control offsets of another topic have no meaning."""
    assert isinstance(
        harness.committer(control_topic_id="a").commit(harness.round(0)), TableCommitted
    )
    outcome = harness.committer(control_topic_id="b").commit(harness.round(1))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "control_log_reset"


def test_the_valid_through_time_never_decreases(harness: TableHarness) -> None:
    """A lower one is left out, as is that of a partial commit."""
    committer = harness.committer()
    texts = []
    for n, through_us in enumerate((5_000_000, None, 3_000_000, 6_000_000)):
        committer.commit(harness.round(n, valid_through_us=through_us))
        summary = harness.reloaded().current_snapshot().summary
        texts.append(summary.get("kafka.connect.valid-through-ts"))
    seconds = ["05", None, None, "06"]
    assert texts == [s and f"1970-01-01T00:00:{s}.000Z" for s in seconds]


def test_files_wait_while_their_partition_column_is_dropped(harness: TableHarness) -> None:
    """They are committed under their spec, whose source an earlier schema has."""
    name = (*harness.table.name()[:-1], unique_name("dropped"))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = harness.catalog.create(name, SCHEMA, spec)
    waiting = TableHarness(harness.catalog, table)
    parts = [partition_of(table, {"name": value}) for value in ("eu", None)]
    files = [made_up_file(table, partition=values) for values in parts]
    client = harness.catalog._client().load_table(name)
    with client.update_spec() as change:
        change.remove_field("name")
    with client.update_schema() as columns:
        columns.delete_column("name")
    commit = table_commit([announced(reference(table), files, offset=0)])
    outcome = waiting.committer().commit(commit)
    assert isinstance(outcome, TableCommitted), outcome
    assert sorted(paths_of(waiting.reloaded())) == sorted(f.file_path for f in files)
    assert isinstance(waiting.committer().commit(waiting.round(1)), TableCommitted)


class _Answering(Racing):
    """A catalog that notes the errors of commits."""

    codes: list[str]

    def commit(self, *change: object, **options: object) -> Table:
        """Commit; keep the code of an error."""
        try:
            return super().commit(*change, **options)
        except IcefloeError as error:
            self.codes.append(error.code)
            raise


@pytest.mark.parametrize(
    ("server", "code"),
    [
        ("iceberg-rest", "commit_conflict"),
        pytest.param("iceberg-rest-1.10", REFUSED, marks=pytest.mark.matrix),
    ],
)
def test_a_commit_to_another_branch_meanwhile_is_a_conflict(
    request: pytest.FixtureRequest, tmp_path: Path, server: str, code: str
) -> None:
    """Servers of Iceberg 1.10 answer 400 for the stale sequence number, newer ones 409."""
    if server == "iceberg-rest":
        rest: RestCatalog = request.getfixturevalue("rest_catalog")
    else:
        rest = RestCatalog(tmp_path, server=server)
        rest.start()
        request.addfinalizer(rest.stop)
    with contextlib.closing(open_catalog("iceberg", rest.properties)) as catalog:
        table = catalog.create(("db", unique_name("branches")), SCHEMA)
        first = TableHarness(catalog, table)
        assert isinstance(first.committer().commit(first.round(0)), TableCommitted)
        branch = {"iceberg__tables__default_commit_branch": "other"}
        other = TableHarness(catalog, table, "d")
        commits = [other.round(offset) for offset in range(2)]
        others = [partial(other.committer(settings=branch).commit, commit) for commit in commits]
        racing = _Answering(catalog, others)
        racing.codes = []
        outcome = TableHarness(racing, table).committer().commit(first.round(1))
        assert isinstance(outcome, TableCommitted), outcome
        assert (outcome.files, racing.codes) == (1, [code] * 2)


def test_a_refusal_of_an_unchanged_table_fails_it(harness: TableHarness) -> None:
    """And it is not repeated."""
    refusing = _Refusing(harness.catalog, [])
    outcome = TableHarness(refusing, harness.table).committer().commit(harness.round(0))
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == (REFUSED, False)
    assert refusing.count == 1


class _Refusing(Racing):
    """A catalog that refuses each commit."""

    count = 0

    def commit(self, *_: object, **__: object) -> Table:
        """Refuse."""
        self.count += 1
        raise CommitRefused("no", code=REFUSED)


def test_a_file_outside_the_table_is_refused(harness: TableHarness) -> None:
    """Control events cannot add files from outside the location of the table."""
    for path in (f"{harness.table.location()}/../other/x.parquet", "s3://other/x.parquet"):
        file = replace(made_up_file(harness.table), file_path=path)
        commit = table_commit([announced(reference(harness.table), [file], offset=0)])
        outcome = harness.committer().commit(commit)
        assert isinstance(outcome, TableFailed)
        assert outcome.code == "file_outside_table"
    assert harness.reloaded().current_snapshot() is None


def test_a_file_announced_twice_is_added_once(harness: TableHarness) -> None:
    """The same path twice is one file; a different file with the same path is refused."""
    (file,) = harness.files()
    twice = [announced(reference(harness.table), [file], offset=n) for n in range(2)]
    outcome = harness.committer().commit(table_commit(twice))
    assert isinstance(outcome, TableCommitted)
    assert outcome.files == 1
    other = made_up_file(harness.table, file_path=file.file_path, records=11)
    torn = [announced(reference(harness.table), [f], offset=n) for n, f in ((2, file), (3, other))]
    outcome = harness.committer().commit(table_commit(torn))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "path_conflict"


def test_a_wrong_clock_is_an_error(harness: TableHarness) -> None:
    """A clock far behind the table commits nothing; a small difference moves no time back."""
    clock = QuickClock()
    committer = harness.committer(clock=clock)
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    clock.offset_ms = -30_000
    assert isinstance(committer.commit(harness.round(1)), TableCommitted)
    log = [entry.timestamp_ms for entry in harness.reloaded().metadata.snapshot_log]
    assert log == sorted(log)
    clock.offset_ms = -3_600_000
    outcome = committer.commit(harness.round(2))
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("clock_off", True)


def test_row_level_batches_keep_their_order(harness: TableHarness) -> None:
    """Each batch has its own sequence number in one snapshot, also after a merge."""
    steps = []
    for batch in (2, 1, 3):
        (data,) = harness.files()
        (delete,) = harness.files(content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
        steps.append(
            announced(
                reference(harness.table), [data], deletes=[delete], offset=10 + batch, batch=batch
            )
        )
    assert isinstance(harness.committer().commit(table_commit(steps)), TableCommitted)
    head = harness.reloaded().current_snapshot()
    assert head is not None
    assert head.sequence_number == 3
    entries = [
        (m.content.value, e.sequence_number, e.file_sequence_number)
        for m in head.manifests(harness.table.io)
        for e in m.fetch_manifest_entry(harness.table.io)
    ]
    assert sorted(entries) == [(kind, n, 3) for kind in (0, 1) for n in (1, 2, 3)]
    assert head.summary is not None
    assert head.summary.operation.value == "overwrite"


@pytest.mark.parametrize("min_count", ["100", "2"])
@pytest.mark.parametrize("kind", ["append", "row-level"])
def test_a_repeated_commit_has_the_sequence_number_of_its_snapshot(
    harness: TableHarness, kind: str, min_count: str
) -> None:
    """Equality deletes committed between the attempts must not apply to the new rows."""
    harness.table = harness.catalog.create(
        ("db", unique_name(f"n-{uuid4().hex[:8]}")),
        SCHEMA,
        properties={"commit.manifest.min-count-to-merge": min_count},
    )
    theirs = TableHarness(harness.catalog, harness.table, "d").committer()
    offsets = iter(range(100))

    def with_deletes(*, batch: int | None = None) -> TableCommit:
        deletes = harness.files(content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
        given = announced(
            reference(harness.table), harness.files(), deletes, offset=next(offsets), batch=batch
        )
        return table_commit([given])

    assert isinstance(theirs.commit(with_deletes()), TableCommitted)
    racing = Racing(harness.catalog, [lambda: theirs.commit(with_deletes())] * 2)
    ours = replace(harness, catalog=racing).committer()
    commit = harness.round(0) if kind == "append" else with_deletes(batch=7)
    outcome = ours.commit(commit)
    assert isinstance(outcome, TableCommitted)
    table = harness.reloaded()
    assert table.current_snapshot().sequence_number == 4
    assert stale_numbers(table) == []


def test_many_manifests_are_merged(harness: TableHarness) -> None:
    """Their number stays bounded; no file is lost or duplicated."""
    harness.table = harness.catalog.create(
        ("db", unique_name(f"m-{uuid4().hex[:8]}")),
        SCHEMA,
        properties={"commit.manifest.min-count-to-merge": "5"},
    )
    committer = harness.committer()
    for n in range(13):
        deletes = harness.files(content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
        commit = table_commit(
            [announced(reference(harness.table), harness.files(), deletes=deletes, offset=n)]
        )
        assert isinstance(committer.commit(commit), TableCommitted)
    table = harness.reloaded()
    assert len(table.current_snapshot().manifests(table.io)) <= 10
    assert len(paths_of(table)) == len(set(paths_of(table))) == 26


def test_the_gateway_reports_a_conflict(harness: TableHarness) -> None:
    """A requirement that no longer holds; a missing table is a refusal."""
    stale = harness.reloaded()
    assert isinstance(harness.committer().commit(harness.round(0)), TableCommitted)
    bad = AssertTableUUID(uuid=uuid4())
    with pytest.raises(CommitConflict):
        harness.catalog.commit(stale, [bad], [RemovePropertiesUpdate(removals=[MIRROR])])
    with pytest.raises(CommitRefused) as refused:
        harness.catalog.load(("db", "no-such-table"))
    assert refused.value.code == "table_missing"
    assert not harness.catalog.exists(("nowhere", "no-such-table"))


def test_a_lost_race_for_creation_returns_the_existing_table(harness: TableHarness) -> None:
    """A lost race for creation ends with the table that exists."""
    again = harness.catalog.create(harness.table.name(), SCHEMA)
    assert again.metadata.table_uuid == harness.table.metadata.table_uuid


def test_tables_are_committed_in_parallel(harness: TableHarness) -> None:
    """Threads share one committer and one gateway; every table gets all of its rounds."""
    tables = [
        harness.catalog.create(("db", unique_name(f"p-{uuid4().hex[:8]}")), SCHEMA)
        for _ in range(6)
    ]
    harnesses = [TableHarness(harness.catalog, table) for table in tables]
    config_tables = {"iceberg__tables": ",".join(".".join(t.name()) for t in tables)}
    committer = harness.committer(settings=config_tables)

    def rounds(each: TableHarness) -> list[object]:
        return [committer.commit(each.round(n)) for n in range(5)]

    with ThreadPoolExecutor(6) as pool:
        outcomes = [o for some in pool.map(rounds, harnesses) for o in some]
    assert all(isinstance(o, TableCommitted) for o in outcomes), outcomes
    assert [len(paths_of(p.reloaded())) for p in harnesses] == [5] * 6


def test_old_metadata_files_are_deleted_if_the_table_enables_it(harness: TableHarness) -> None:
    """``write.metadata.delete-after-commit.enabled`` applies to our commits too."""
    wants = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
    }
    harness.table = harness.catalog.create(
        ("db", unique_name(f"x-{uuid4().hex[:8]}")), SCHEMA, properties=wants
    )
    committer = harness.committer()
    seen = {harness.table.metadata_location}
    for n in range(6):
        assert isinstance(committer.commit(harness.round(n)), TableCommitted)
        seen.add(harness.reloaded().metadata_location)
    io = harness.table.io
    assert len(seen) == 7
    left = [path for path in seen if io.new_input(path).exists()]
    assert len(left) == 3
    assert len(paths_of(harness.reloaded())) == 6


def test_retention_of_references_is_kept(harness: TableHarness) -> None:
    """A moved branch or tag keeps the retention that its owner set."""
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    head = harness.reloaded().current_snapshot()
    assert head is not None
    given = {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": head.snapshot_id}
    given |= {"min-snapshots-to-keep": 7, "max-snapshot-age-ms": 86_400_000}
    harness.change(SetSnapshotRefUpdate.model_validate(given))
    assert isinstance(committer.commit(harness.round(1)), TableCommitted)
    main = harness.reloaded().metadata.refs["main"]
    assert (main.min_snapshots_to_keep, main.max_snapshot_age_ms) == (7, 86_400_000)


def test_a_snapshot_has_the_schema_of_its_commit(harness: TableHarness) -> None:
    """A snapshot carries the schema that is current when it is committed."""
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    with harness.reloaded().update_schema() as update:
        update.add_column("more", LongType())
    harness.table = harness.reloaded()
    event = announced(reference(harness.table), harness.files(columns=3), offset=1)
    assert isinstance(committer.commit(table_commit([event])), TableCommitted)
    table = harness.reloaded()
    assert table.current_snapshot().schema_id == table.metadata.current_schema_id

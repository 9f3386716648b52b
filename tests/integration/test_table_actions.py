"""Tables before and after maintenance, read by independent readers."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform

from coordinator.commit.iceberg.floor import floor_keys
from coordinator.maintenance.snapshot_expiry import BATCH as EXPIRED_AT_ONCE
from coordinator.rewind.kept_history import keep_history, release_history
from coordinator.rewind.recorded_rewind import RecordedRewind
from coordinator.rewind.table_history import rollback
from coordinator.rewind.table_rollback import TableRollback
from tests.support.maintained_table import (
    ALL_BYTES,
    KEPT,
    KEYS,
    MAINTAINED,
    MaintainedTable,
    Row,
    maintained_tables,
)
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import RestCatalog
from tests.support.table_harness import MIRROR
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    reference,
    written_file,
)
from worker.maintenance.rewrite_plans import paths_in_turn
from worker.maintenance.table_actions import SUMMARY_PROPERTY
from worker.spark.session import Session

pytestmark = [*SPARK_MARKS, pytest.mark.java]
END = 1_000
"""Of the control topic, when a rewind is done."""
ROUNDS_OF_SUITE = 40
ROUNDS = int(os.environ.get("MAINTAINED_ROUNDS", str(ROUNDS_OF_SUITE)))
"""Commits of a stream: 720 are an hour with an interval of 5 s."""
AHEAD = 8
"""Commits from the time when maintenance is due to its end."""
LONG_S = 1_200


@pytest.fixture
def make(
    rest_catalog: RestCatalog, spark_session: Session
) -> Iterator[Callable[..., MaintainedTable]]:
    """Makes a table in the Java REST catalog."""
    with maintained_tables(rest_catalog, spark_session) as made:
        yield made


BUCKETS = SpecField(1, 1000, BucketTransform(3), "id_bucket")
PARTITIONED = (
    pytest.param(SpecField(1, 1000, IdentityTransform(), "id"), marks=pytest.mark.matrix),
    SpecField(1, 1000, BucketTransform(64), "id_bucket"),
    pytest.param(SpecField(2, 1000, TruncateTransform(1), "name_start"), marks=pytest.mark.matrix),
)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param((), id="unpartitioned"),
        pytest.param((BUCKETS,), id="buckets", marks=pytest.mark.matrix),
    ],
)
def test_an_upsert_table_is_readable_without_deletes(
    make: Callable[..., MaintainedTable], fields: tuple[SpecField, ...]
) -> None:
    """No delete file is left, readers agree row by row, and the floor is found by a successor."""
    table = make(*fields)
    table.commit(*((key, "first") for key in range(KEYS)))
    for turn in range(3):
        table.commit(*((key, f"turn {turn}") for key in range(turn, KEYS)), is_upsert=True)
    wanted = table.rows()
    assert wanted == [(0, "turn 0"), (1, "turn 1"), (2, "turn 2"), (3, "turn 2")]
    mirror = table.reloaded().properties[MIRROR]
    done = table.actions().apply_delete_files(ALL_BYTES)
    assert done.removed_delete_files
    assert table.summary()["total-delete-files"] == "0"
    assert table.summary()[SUMMARY_PROPERTY] == "delete-files"
    assert table.rows() == wanted
    # PyIceberg refuses tables with equality deletes
    assert sorted(map(tuple, table.reloaded().scan().to_pandas().values)) == wanted
    assert table.reloaded().properties[MIRROR] == mirror
    table.committer = table.new_committer()
    table.commit((3, "after"), is_upsert=True)
    assert table.rows() == [*wanted[:3], (3, "after")]


def test_files_without_deleted_rows_are_not_rewritten(make: Callable[..., MaintainedTable]) -> None:
    """A delete file that applies to no file is removed."""
    table = make()
    files = table.commit(*((key, "first") for key in range(6)))
    table.commit((1, "second"), is_upsert=True)
    wanted = table.rows()
    done = table.actions(files[0].file_size_in_bytes).apply_delete_files(ALL_BYTES)
    assert (done.rewritten_files, done.removed_delete_files) == (1, 1)
    assert table.summary()["total-delete-files"] == "0"
    assert table.rows() == wanted


def test_a_delete_committed_during_a_rewrite_applies_to_rewritten_rows(
    make: Callable[..., MaintainedTable],
) -> None:
    """The coordinator commits between the start of the rewrite and its commit."""
    table = make()
    for turn in range(3):
        table.commit(*((key, f"turn {turn}") for key in range(KEYS)), is_upsert=True)
    actions = table.actions()  # it rewrites the table as it is now
    table.commit((1, "meanwhile"), (9, "new"), is_upsert=True)
    actions.apply_delete_files(ALL_BYTES)
    wanted = [(0, "turn 2"), (1, "meanwhile"), (2, "turn 2"), (3, "turn 2"), (9, "new")]
    assert table.rows() == wanted
    table.actions().apply_delete_files(ALL_BYTES)
    assert table.rows() == wanted
    assert table.summary()["total-delete-files"] == "0"


def rewind(table: MaintainedTable, end: int) -> None:
    """Take the table back to the commit of control offsets, as ``icefloe rewind`` does."""
    name = ".".join(table.name)
    recorded = RecordedRewind(connector("c", [name]), uuid4().hex, {0: end})
    keys = floor_keys(recorded.config, name)
    target = rollback(table.reloaded().metadata, keys, recorded.cut).target_id
    work = TableRollback(table.catalog, recorded, QuickClock(), {0: END}, None)
    for step in (
        lambda: keep_history(table.catalog, recorded, {name: target}),
        lambda: work.apply({name: target}),
        lambda: release_history(table.catalog, recorded, [name]),
    ):
        [done] = step()
        assert done["code"] is None, done
    table.committer = table.new_committer()


@pytest.mark.matrix
def test_a_rewind_crosses_compactions(make: Callable[..., MaintainedTable]) -> None:
    """Back to commits before and after a compaction, with their rows; work and expiry follow."""
    table = make()
    seen: list[tuple[int, list[Row]]] = []

    def commit(text: str, *keys: int) -> None:
        table.commit(*((key, text) for key in keys), is_upsert=True)
        seen.append((table.end, table.rows()))

    commit("first", 0, 1, 2, 3)
    commit("second", 1)
    assert table.actions().apply_delete_files(ALL_BYTES).removed_delete_files
    commit("third", 2)
    table.actions().apply_delete_files(ALL_BYTES)
    commit("fourth", 0, 3)
    for end, wanted in (seen[2], seen[0]):
        rewind(table, end)
        assert table.rows() == wanted
    wanted = [(0, "first"), (1, "again"), (2, "first"), (3, "first")]
    table.commit((1, "again"), is_upsert=True, offset=END)
    table.committer = table.new_committer(**MAINTAINED)
    for turn in range(KEPT + EXPIRED_AT_ONCE):
        table.commit((3, f"turn {turn}"), is_upsert=True, offset=END + 1 + turn)
    table.committer.close()
    wanted[3] = (3, f"turn {KEPT + EXPIRED_AT_ONCE - 1}")
    assert table.rows() == wanted
    table.actions().apply_delete_files(ALL_BYTES)
    assert table.rows() == wanted


def test_work_from_before_a_rewind_is_not_committed(make: Callable[..., MaintainedTable]) -> None:
    """Neither rewritten files nor the removal of deletes: rows would be missing, or come back."""
    table = make()
    first = table.commit(*((key, "first") for key in range(KEYS)))
    end = table.end
    table.commit((1, "second"), is_upsert=True)
    actions = table.actions()
    rewind(table, end)
    wanted = [(key, "first") for key in range(KEYS)]
    done = actions.apply_delete_files(ALL_BYTES)
    assert (done.rewritten_files, done.lost_commits) == (0, 1)
    assert table.rows() == wanted
    table.commit((1, "third"), is_upsert=True, offset=END)
    end, wanted = table.end, table.rows()
    table.commit((7, "fourth"))
    # only the file with the deleted row is rewritten, so the delete is left for a separate commit
    size = first[0].file_size_in_bytes
    rewriting = table.actions(size)
    rewriting._rewrite(ALL_BYTES, {"delete-file-threshold": "1"})
    found = rewriting.unneeded_deletes()
    assert found is not None
    rewind(table, end)
    assert table.rows() == wanted
    with pytest.raises(Py4JJavaError, match="has left the branch"):
        rewriting.remove_deletes(found)
    assert table.rows() == wanted


def test_manifests_rewritten_from_before_a_rewind_change_no_row(
    make: Callable[..., MaintainedTable],
) -> None:
    """The manifests to replace are not those of the branch any more: the commit is refused."""
    table = make()
    for key in range(3):
        table.commit((key, "x"))
    end, wanted = table.end, table.rows()
    for key in range(3, 6):
        table.commit((key, "y"))
    actions = table.actions()
    rewind(table, end)
    with pytest.raises(Py4JJavaError, match="manifest"):
        actions.rewrite_manifests()
    assert table.rows() == wanted
    table.commit((9, "z"), offset=END)
    before = table.actions()
    rewind(table, END)
    with pytest.raises(Py4JJavaError, match="manifest"):
        before.rewrite_manifests()
    assert table.rows() == wanted


def test_compacted_files_are_not_committed_again(make: Callable[..., MaintainedTable]) -> None:
    """A repeated announcement of a file that a compaction replaced adds no row twice."""
    table = make()
    files = [table.commit((key, "once"))[0] for key in range(6)]
    done = table.actions().compact(ALL_BYTES)
    assert (done.rewritten_files, done.added_files) == (6, 1)
    wanted = table.rows()
    for number, committer in enumerate((table.committer, table.new_committer())):
        event = announced(reference(table.reloaded()), files[:2], offset=90 + number)
        outcome = table.announce(event, committer)
        assert outcome.snapshot_id is None
    assert table.rows() == wanted == [(key, "once") for key in range(6)]


def test_a_rewrite_is_limited_in_bytes(make: Callable[..., MaintainedTable]) -> None:
    """Some files are rewritten; the next run takes the others."""
    table = make()
    for key in range(8):
        table.commit((key, "x"))
    size = int(table.summary()["total-files-size"])
    assert table.actions().compact(size // 2).rewritten_files == 4
    assert table.actions().compact(size).rewritten_files == 5
    assert table.rows() == [(key, "x") for key in range(8)]


@pytest.mark.parametrize("field", PARTITIONED, ids=lambda field: str(field.transform))
def test_a_limited_rewrite_leaves_no_partition_out(
    make: Callable[..., MaintainedTable], field: SpecField
) -> None:
    """All partitions get files before each run; the snapshot decides which ones a run takes.

    That every partition has its turn is a matter of the snapshots' random ids:
    ``test_rewrite_plans`` counts it over many of them.
    """
    table = make(field)
    rows: list[Row] = []

    def files() -> dict[str, set[str]]:
        loaded, found = table.reloaded(), defaultdict(set)
        for task in loaded.scan().plan_files():
            path = loaded.spec().partition_to_path(task.file.partition, loaded.schema())
            found[path].add(task.file.file_path)
        return found

    for run in range(4):
        for turn in range(2):
            new: list[Row] = [(key, f"{key} {run} {turn}") for key in range(8)]
            table.commit(*new)
            rows += new
        before, summary, snapshot = files(), table.summary(), table.reloaded().current_snapshot()
        assert snapshot is not None
        size = int(summary["total-files-size"]) // int(summary["total-data-files"])
        done = table.actions().compact(4 * size)
        after = files()
        changed = {partition for partition in before if before[partition] != after[partition]}
        assert done.rewritten_files == 4
        counts = {partition: len(paths) for partition, paths in before.items()}
        assert len(counts) > 4
        assert changed
        assert changed <= set(paths_in_turn(counts, 4, snapshot.snapshot_id))
    assert table.rows() == sorted(rows)


def test_commits_of_many_partitions_are_not_counted_as_lost(
    make: Callable[..., MaintainedTable],
) -> None:
    """Of twelve groups of files, six commits are made, and Iceberg expects ten."""
    table = make(SpecField(1, 1000, IdentityTransform(), "id"))
    for turn in range(2):
        table.commit(*((key, f"turn {turn}") for key in range(12)))
    done = table.actions().compact(ALL_BYTES)
    assert (done.rewritten_files, done.added_files, done.lost_commits) == (24, 12, 0)


class Stream:
    """Upserts that are committed while another thread maintains the table.

    In production a run takes as long as a commit interval or two. These commits follow each other
    at once, so ``AHEAD`` of them may be made until a run has ended.

    Args:
        table: the table, whose committer reports due work.
        is_maintained: whether due work is done.
    """

    def __init__(self, table: MaintainedTable, *, is_maintained: bool) -> None:
        self.expected: dict[int, str] = {}
        self.figures: list[dict[str, int]] = []
        self._table = table
        self._changed = threading.Condition()
        self._left: int | None = None  # commits that may be made while a run is due; None: none is
        self._has_ended = False
        self._is_maintained = is_maintained
        self._queries = 0 if is_maintained and ROUNDS <= ROUNDS_OF_SUITE else 3
        settings = MAINTAINED if is_maintained else {}
        table.committer = table.new_committer(self._report, **settings)

    def _report(self, _: str, work: Mapping[str, int]) -> None:
        with self._changed:
            if work and self._left is None and self._is_maintained:
                self._left = AHEAD
                self._changed.notify_all()

    def run(self) -> None:
        """Commit all rounds, with figures at each tenth."""
        with ThreadPoolExecutor(1) as threads:
            maintaining = threads.submit(self._maintain)
            try:
                for turn in range(ROUNDS):
                    assert not maintaining.done()
                    self._await_turn()
                    row = (turn % 20, f"turn {turn}")
                    self._table.commit(row, is_upsert=True)
                    self.expected |= dict([row])
                    if (turn + 1) % (ROUNDS // 10) == 0:
                        self.figures.append(
                            {"commits": turn + 1, **self._table.figures(self._queries)}
                        )
            finally:
                with self._changed:
                    self._has_ended = True
                    self._changed.notify_all()
            maintaining.result(LONG_S)
        self._table.committer.close()

    def _await_turn(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left != 0, LONG_S)
            if self._left is not None:
                self._left -= 1

    def _maintain(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._left is not None or self._has_ended)
                if self._left is None:
                    return
            try:
                actions = self._table.actions()
                with actions.history_kept("c", QuickClock().now_ms()):
                    actions.apply_delete_files(ALL_BYTES)
            finally:
                with self._changed:
                    self._left = None
                    self._changed.notify_all()


@pytest.mark.parametrize(
    "is_maintained", [True, pytest.param(False, marks=pytest.mark.bench)], ids=["on", "off"]
)
def test_maintenance_bounds_the_files_of_an_upsert_stream(
    make: Callable[..., MaintainedTable], *, is_maintained: bool
) -> None:
    """The coordinator commits meanwhile: few snapshots and files, and every row."""
    table = make(BUCKETS)
    stream = Stream(table, is_maintained=is_maintained)
    stream.run()
    print(*stream.figures, sep="\n")
    assert table.rows() == sorted(stream.expected.items())
    most = {key: max(found[key] for found in stream.figures) for key in stream.figures[0]}
    if is_maintained:  # a run begins at 10 delete files, and leaves a data file for each bucket
        assert most["delete files"] <= 10 + AHEAD + 1
        assert most["data files"] <= 3 + 2 * (10 + AHEAD)  # files without deletes may stay
        assert most["manifests"] <= 2 * most["data files"]
        assert most["snapshots"] < KEPT + 2 * EXPIRED_AT_ONCE
    else:
        assert most["snapshots"] == most["data files"] == most["delete files"] == ROUNDS


def test_manifests_are_rewritten_into_one(make: Callable[..., MaintainedTable]) -> None:
    """The rows are unchanged."""
    table = make()
    for key in range(5):
        table.commit((key, "x"))
    wanted = table.rows()
    assert table.actions().rewrite_manifests().rewritten_manifests == 5
    snapshot = table.reloaded().current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.reloaded().io)) == 1
    assert table.rows() == wanted


def test_orphan_files_are_deleted_by_age(make: Callable[..., MaintainedTable]) -> None:
    """A file in no snapshot is deleted when it is old enough; files of the table stay."""
    table = make()
    table.commit((1, "x"))
    waiting = written_file(table.reloaded(), [{"id": 2, "name": "announced"}]).file_path
    older_ms = 1_000 * (Path(waiting.removeprefix("file://")).stat().st_mtime_ns // 10**9)
    assert table.actions().remove_orphan_files(older_ms - 60_000).orphan_files == 0
    assert table.reloaded().io.new_input(waiting).exists()
    assert table.actions().remove_orphan_files(older_ms + 60_000).orphan_files == 1
    assert not table.reloaded().io.new_input(waiting).exists()
    assert table.rows() == [(1, "x")]

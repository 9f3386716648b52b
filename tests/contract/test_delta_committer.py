"""The committer of Delta tables over real logs: once, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from connect import failpoints
from connect.errors import CommitConflict, CommitStateUnknown
from connect.gateways.delta.delta_model import DeltaStore, DeltaVersion
from coordinator.commit.table_logs.delta_files import delta_file, held_before
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.control_log_check import ControlLogCheck
from coordinator.kernel.effects import (
    CommitOutcome,
    CoordinatorFenced,
    TableCommit,
    TableCommitted,
    TableFailed,
)
from tests.support.delta_tables import DeltaRig, delta_duckdb, together
from tests.support.tables import QuickClock, announced, equality_delete, reference, table_commit

FLOOR = "icefloe/control-iceberg/connect-c/offset/0"
VALID_THROUGH = "icefloe/control-iceberg/connect-c/valid-through"


@pytest.fixture
def rig(tmp_path: Path) -> DeltaRig:
    """An empty local table."""
    return DeltaRig(str(tmp_path / "lake"))


def committer(rig: DeltaRig, store: DeltaStore | None = None, **more: Any) -> LogCommitter:
    """A coordinator's committer, as after its start."""
    more.setdefault("prove", held_before)
    return LogCommitter(store or rig.store(), delta_file, rig.config, QuickClock(), **more)


def committed(outcome: CommitOutcome) -> TableCommitted:
    """The outcome of a commit that succeeded."""
    assert isinstance(outcome, TableCommitted), outcome
    return outcome


def failed(outcome: CommitOutcome) -> TableFailed:
    """The outcome of a commit that failed."""
    assert isinstance(outcome, TableFailed), outcome
    return outcome


class Faulty:
    """A store whose commits fail: before they are sent, or after they are in the log.

    Args:
        inner: the real store.
        faults: ``before`` or ``after``, one for each commit.
    """

    def __init__(self, inner: DeltaStore, *faults: str) -> None:
        self._inner = inner
        self.faults = list(faults)
        self.appends = 0

    def load(self, identifier: Any) -> Any:
        """The table, with faults."""
        return _FaultyVersion(self._inner.load(identifier), self)


class _FaultyVersion:
    def __init__(self, inner: DeltaVersion, store: Faulty) -> None:
        self._inner, self._store = inner, store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, *change: Any) -> int:
        fault = self._store.faults.pop(0) if self._store.faults else ""
        self._store.appends += 1
        if fault == "before":
            raise CommitStateUnknown("no answer")
        version = self._inner.append(*change)
        if fault == "after":
            raise CommitStateUnknown("no answer")
        if fault == "conflict after":
            raise CommitConflict("the version exists")
        return version


def again(commit: TableCommit, offset: int) -> TableCommit:
    """The same announcement at a later control offset."""
    return table_commit([replace(commit.announcements[0], offset=offset)])


def test_a_repetition_after_a_compaction_is_left_out(rig: DeltaRig) -> None:
    """By the memory of the process, and after a restart by the log, also after a vacuum."""
    first, second = rig.timed_round(0), rig.timed_round(1)
    worker = committer(rig)
    committed(worker.commit(first))
    committed(worker.commit(second))
    rig.now().optimize.compact()
    for offset, each in enumerate((worker, committer(rig)), 5):
        assert committed(each.commit(again(first, offset))).snapshot_id is None
    rig.now().vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert committed(committer(rig).commit(again(first, 7))).snapshot_id is None
    assert rig.ids() == [0, 1, 2, 3]


def test_what_the_log_cannot_prove_is_refused(rig: DeltaRig) -> None:
    """A file whose time the log does not reach, and one that is not in the store."""
    first = rig.timed_round(0)
    committed(committer(rig).commit(first))
    rig.now().create_checkpoint()
    for version in (0, 1):
        Path(rig.location.removeprefix("file://"), f"_delta_log/{version:020}.json").unlink()
    outcome = failed(committer(rig).commit(again(first, 5)))
    assert (outcome.code, outcome.is_retriable) == ("file_history_expired", False)
    other = DeltaRig(str(Path(rig.location.removeprefix("file://")).parent / "other"))
    lost = other.round(0)
    Path(lost.announcements[0].event.payload.data_files[0].file_path[7:]).unlink()
    outcome = failed(committer(other).commit(lost))
    assert (outcome.code, outcome.is_retriable) == ("announced_file_missing", False)


def test_a_round_is_one_version_with_floor_and_vtts(rig: DeltaRig) -> None:
    """As transaction identifiers and in the commit's metadata; three readers see the rows."""
    commit = rig.round(4, 5, valid_through_us=1_767_323_045_678_999)
    outcome = committed(committer(rig, control_topic_id="topic-1").commit(commit))
    assert (outcome.snapshot_id, outcome.files, outcome.records) == (1, 2, 4)
    table = rig.now()
    assert table.version() == 1
    assert table.transaction_version(FLOOR) == 6
    assert table.transaction_version(VALID_THROUGH) == 1_767_323_045_678
    (entry,) = table.history(1)
    assert entry["kafka.connect.offsets.control-iceberg.connect-c"] == '{"0":6}'
    assert entry["kafka.connect.commit-id"] == str(commit.commit_id)
    assert entry["kafka.connect.valid-through-ts"] == "2026-01-02T03:04:05.678Z"
    assert entry["engine-name"] == "icefloe"
    assert rig.ids() == [0, 1, 2, 3]
    with delta_duckdb() as duck:
        rows = duck.execute(f"select id, name from delta_scan('{rig.location}') order by id")
        assert rows.fetchall() == [(n, f"n{n}") for n in range(4)]


def test_statistics_prune_files_without_losing_rows(rig: DeltaRig) -> None:
    """A filter reads the files that hold its rows."""
    worker = committer(rig)
    for offset in range(4):
        committed(worker.commit(rig.round(offset, rows=10)))
    actions = pa.table(rig.now().get_add_actions(flatten=True)).to_pylist()
    assert sorted((a["min.id"], a["max.id"], a["num_records"]) for a in actions) == [
        (first, first + 9, 10) for first in (0, 10, 20, 30)
    ]
    assert {a["null_count.name"] for a in actions} == {0}
    with delta_duckdb() as duck:
        query = f"select count(*) from delta_scan('{rig.location}') where id between 8 and 11"
        assert duck.execute(query).fetchone() == (4,)


def test_what_a_table_has_is_not_added_again(rig: DeltaRig) -> None:
    """By this coordinator, by the next one, and after a checkpoint without the log before it."""
    first, second = rig.round(4), rig.round(7)
    worker = committer(rig)
    assert committed(worker.commit(first)).snapshot_id == 1
    assert committed(worker.commit(first)).snapshot_id is None
    assert committed(worker.commit(second)).snapshot_id == 2
    again = replace(second, announcements=(*first.announcements, *second.announcements))
    assert committed(committer(rig).commit(again)).snapshot_id is None
    table = rig.now()
    table.create_checkpoint()
    for version in range(3):
        Path(rig.location.removeprefix("file://"), "_delta_log", f"{version:020}.json").unlink()
    assert committed(committer(rig).commit(again)).snapshot_id is None
    assert rig.ids() == [0, 1, 2, 3]


def test_a_file_that_is_announced_again_adds_no_rows(rig: DeltaRig) -> None:
    """At a later control offset, for example by another client: a path is in a table once."""
    first = rig.round(4, 5)
    worker = committer(rig)
    assert committed(worker.commit(first)).snapshot_id == 1
    repeated = [replace(e, offset=e.offset + 10) for e in first.announcements]
    committed(worker.commit(table_commit(repeated)))
    committed(committer(rig).commit(table_commit([replace(e, offset=30) for e in repeated[:1]])))
    assert rig.ids() == [0, 1, 2, 3]
    with delta_duckdb() as duck:
        query = f"select count(*) from delta_scan('{rig.location}')"
        assert duck.execute(query).fetchone() == (4,)


@pytest.mark.parametrize("faults", [["after"], ["conflict after"], ["before"], ["before", "after"]])
def test_an_unknown_outcome_is_found_in_the_log(rig: DeltaRig, faults: list[str]) -> None:
    """A commit that is there counts, with its version; one that is not is made."""
    store = Faulty(rig.store(), *faults)
    worker = committer(rig, store)
    outcome = committed(worker.commit(rig.round(1)))
    assert (outcome.snapshot_id, outcome.records) == (1, 2)
    assert store.appends == len(faults) + (faults[-1] == "before")
    assert committed(worker.commit(rig.round(2))).snapshot_id == 2
    assert rig.ids() == [0, 1, 2, 3]


def test_an_unknown_outcome_is_found_by_the_next_round(rig: DeltaRig) -> None:
    """Where the table could not be read after it."""
    store = Faulty(rig.store(), "after")
    worker = committer(rig, store)
    first = rig.round(1)
    broken = {"is": False}
    real = store.load

    def load(identifier: Any) -> Any:
        if broken["is"]:
            raise CommitStateUnknown("the store does not answer")
        broken["is"] = True
        return real(identifier)

    store.load = load  # type: ignore[method-assign]
    assert failed(worker.commit(first)).is_retriable
    store.load = real  # type: ignore[method-assign]
    second = rig.round(2)
    both = replace(second, announcements=(*first.announcements, *second.announcements))
    outcome = committed(worker.commit(both))
    assert (outcome.snapshot_id, outcome.records) == (2, 2)
    assert rig.ids() == [0, 1, 2, 3]


@pytest.mark.parametrize("point", ["C7", "C10", "C11", "C12"])
def test_an_error_at_any_point_loses_and_repeats_nothing(rig: DeltaRig, point: str) -> None:
    """The next round brings what is missing."""
    worker = committer(rig)
    first = rig.round(1)
    failpoints.configure(f"{point}=raise@1")
    try:
        worker.commit(first)
    finally:
        failpoints.configure("")
    second = rig.round(2)
    both = replace(second, announcements=(*first.announcements, *second.announcements))
    committed(worker.commit(both))
    assert rig.ids() == [0, 1, 2, 3]


def test_other_writers_do_not_stop_a_commit(rig: DeltaRig) -> None:
    """The round is committed after theirs."""
    store = rig.store()
    stale = store.load(("db", "events"))
    write_deltalake(rig.location, pa.table({"id": [100], "name": ["other"]}), mode="append")

    class Racing:
        """Returns an old version first."""

        def __init__(self) -> None:
            self.old = [stale]

        def load(self, identifier: Any) -> Any:
            return self.old.pop() if self.old else store.load(identifier)

    outcome = committed(committer(rig, Racing()).commit(rig.round(1)))
    assert outcome.snapshot_id == 2
    assert rig.ids() == [0, 1, 100]


def test_a_second_coordinator_fences_the_first(rig: DeltaRig) -> None:
    """The first stops; nothing is written twice."""
    old, new = committer(rig), committer(rig)
    committed(old.commit(rig.round(1)))
    committed(new.commit(rig.round(2)))
    late = rig.round(2)
    assert isinstance(old.commit(late), CoordinatorFenced)
    assert rig.ids() == [0, 1, 2, 3]


def test_coordinators_that_race_commit_a_round_once(rig: DeltaRig) -> None:
    """The others find the floor of the winner."""
    for offset in range(8):
        commit = rig.round(offset, rows=1)
        workers = [committer(rig) for _ in range(4)]
        outcomes = together(workers, commit)
        assert all(isinstance(o, TableCommitted | CoordinatorFenced) for o in outcomes)
    assert rig.ids() == list(range(8))


def test_a_table_in_the_place_of_another_is_refused(rig: DeltaRig, tmp_path: Path) -> None:
    """Files that were written for the old table are not added to the new one."""
    commit = rig.round(1)
    Path(rig.location.removeprefix("file://"), "_delta_log").rename(tmp_path / "away")
    rig.catalog.create(("db", "events"), rig.table.schema())
    assert failed(committer(rig).commit(commit)).code == "table_replaced"


def test_a_restored_log_is_refused(rig: DeltaRig) -> None:
    """A log that lost a commit of this coordinator needs an operator."""
    worker = committer(rig)
    committed(worker.commit(rig.round(1)))
    committed(worker.commit(rig.round(2)))
    Path(rig.location.removeprefix("file://"), "_delta_log", f"{2:020}.json").unlink()
    assert failed(worker.commit(rig.round(3))).code == "table_rolled_back"


def test_a_claim_does_not_go_back(rig: DeltaRig) -> None:
    """A lower VTTS is not stored."""
    worker = committer(rig)
    committed(worker.commit(rig.round(1, valid_through_us=5_000_000)))
    committed(worker.commit(rig.round(2, valid_through_us=4_000_000)))
    assert rig.now().transaction_version(VALID_THROUGH) == 5_000
    assert "kafka.connect.valid-through-ts" not in rig.now().history(1)[0]


def test_a_control_topic_in_the_place_of_another_stops_the_table(rig: DeltaRig) -> None:
    """Until the operator gives the old topic up; then its floors no longer count."""
    committed(committer(rig, control_topic_id="old").commit(rig.round(500)))
    commit = rig.round(3)
    refused = failed(committer(rig, control_topic_id="new").commit(commit))
    assert refused.code == "control_log_reset"
    given_up = ControlLogCheck(None, "control-iceberg", abandoned=frozenset({"old"}))
    worker = committer(rig, control_topic_id="new", control=given_up)
    committed(worker.commit(commit))
    committed(worker.commit(rig.round(4)))
    assert rig.now().transaction_version(FLOOR) == 5
    assert rig.ids() == [0, 1, 2, 3, 4, 5]


def test_delete_files_are_refused(rig: DeltaRig) -> None:
    """Rows of Delta tables are only added."""
    file = equality_delete(rig.table, 1)
    event = announced(reference(rig.table), [], [file], offset=1)
    assert failed(committer(rig).commit(table_commit([event]))).code == "delta_deletes"


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("delta.setTransactionRetentionDuration", "floor_may_expire"),
        ("delta.constraints.positive", "delta_unsupported"),
    ],
)
def test_tables_that_could_break_a_guarantee_are_refused(
    rig: DeltaRig, key: str, code: str
) -> None:
    """With the property that does it."""
    commit = rig.round(1)
    value = "interval 30 days" if "Duration" in key else "id > 0"
    log = Path(rig.location.removeprefix("file://"), "_delta_log", f"{0:020}.json")
    text = log.read_text("utf-8").replace(
        '"configuration":{}', f'"configuration":{{"{key}":"{value}"}}'
    )
    log.write_text(text, "utf-8")
    outcome = failed(committer(rig).commit(commit))
    assert outcome.code == code
    assert key in outcome.message


def test_files_for_a_replaced_schema_are_refused(rig: DeltaRig) -> None:
    """A column that has another type now would make the table unreadable."""
    commit = rig.round(1)
    write_deltalake(
        rig.location,
        pa.table({"id": ["text"], "name": ["other"]}),
        mode="overwrite",
        schema_mode="overwrite",
    )
    assert failed(committer(rig).commit(commit)).code == "schema_replaced"

"""The committer of Parquet folders over real files: readers see each row once, and only committed.

Readers are PyArrow's dataset and DuckDB with a glob; Spark reads in ``test_readers``.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from connect import failpoints
from connect.errors import CommitConflict, CommitRefused, RetriableError
from connect.gateways.parquet import parquet_log
from connect.records.tables.partition_spec import spec_for
from coordinator.kernel.effects import (
    CommitOutcome,
    CoordinatorFenced,
    TableCommitted,
    TableFailed,
)
from tests.support.delta_tables import together
from tests.support.parquet_folders import SCHEMA, ParquetRig, of_duckdb
from tests.support.tables import announced, equality_delete, reference, table_commit

FLOOR = "icefloe/control-iceberg/connect-c/offset/0"
COMMITS = "_icefloe/commits"


@pytest.fixture
def rig(tmp_path: Path) -> ParquetRig:
    """An empty local folder."""
    return ParquetRig(str(tmp_path / "lake"))


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No failpoint is left armed."""
    yield
    failpoints.configure("")


def committed(outcome: CommitOutcome) -> TableCommitted:
    """The outcome of a commit that succeeded."""
    assert isinstance(outcome, TableCommitted), outcome
    return outcome


def failed(outcome: CommitOutcome) -> TableFailed:
    """The outcome of a commit that failed."""
    assert isinstance(outcome, TableFailed), outcome
    return outcome


def log_file(rig: ParquetRig, number: int) -> Any:
    """A commit as it is stored."""
    return json.loads((rig.folder / COMMITS / f"{number:020}.json").read_text("utf-8"))


def test_a_round_is_one_commit_with_floor_and_vtts(rig: ParquetRig) -> None:
    """Readers see the rows after it, and nothing before; nothing is left staged."""
    commit = rig.round(4, 5, valid_through_us=1_767_323_045_678_999)
    assert rig.published() == []
    assert len(rig.staged()) == 2
    outcome = committed(rig.committer(control_topic_id="topic-1").commit(commit))
    assert (outcome.snapshot_id, outcome.files, outcome.records) == (1, 2, 4)
    stored = log_file(rig, 1)
    assert stored["transactions"][FLOOR] == 6
    assert stored["rows"] == 4
    assert stored["summary"]["kafka.connect.offsets.control-iceberg.connect-c"] == '{"0":6}'
    assert stored["summary"]["kafka.connect.commit-id"] == str(commit.commit_id)
    assert stored["summary"]["kafka.connect.valid-through-ts"] == "2026-01-02T03:04:05.678Z"
    assert sorted(file["path"] for file in stored["files"]) == rig.published()
    assert rig.staged() == []
    assert rig.ids() == [0, 1, 2, 3]
    assert of_duckdb(rig.folder, "id, name") == [(n, f"n{n}") for n in range(4)]


def test_what_a_folder_has_is_not_added_again(rig: ParquetRig) -> None:
    """By this coordinator, by the next one, and under a control offset above the floor."""
    first, second = rig.round(4), rig.round(7)
    worker = rig.committer()
    assert committed(worker.commit(first)).snapshot_id == 1
    assert committed(worker.commit(first)).snapshot_id is None
    assert committed(worker.commit(second)).snapshot_id == 2
    again = replace(second, announcements=(*first.announcements, *second.announcements))
    assert committed(rig.committer().commit(again)).snapshot_id is None
    repeated = announced(
        reference(rig.table), first.announcements[0].event.payload.data_files, offset=9
    )
    assert committed(rig.committer().commit(table_commit([repeated]))).snapshot_id == 3
    assert rig.ids() == [0, 1, 2, 3]


@pytest.mark.parametrize("point", ["C7", "C10", "P1", "P2", "P3", "P4", "C11", "C12"])
@pytest.mark.parametrize("is_new", [False, True])
def test_an_error_at_any_point_loses_and_repeats_nothing(
    rig: ParquetRig, point: str, *, is_new: bool
) -> None:
    """The same coordinator, or the next one, brings what is missing."""
    worker = rig.committer()
    first = rig.round(1, 2, 3)
    failpoints.configure(f"{point}=raise@1")
    worker.commit(first)
    failpoints.configure("")
    worker = rig.committer() if is_new else worker
    second = rig.round(4)
    both = replace(second, announcements=(*first.announcements, *second.announcements))
    committed(worker.commit(both))
    assert rig.ids() == list(range(8))
    assert rig.staged() == []


def test_an_unpublished_commit_is_published_before_the_next(rig: ParquetRig) -> None:
    """Also where the publication fails for a while: then no further commit is made."""
    first, second = rig.round(1), rig.round(2)
    both = replace(second, announcements=(*first.announcements, *second.announcements))
    failpoints.configure("P2=raise")
    assert failed(rig.committer().commit(first)).is_retriable
    assert failed(rig.committer().commit(both)).is_retriable
    assert not (rig.folder / COMMITS / f"{2:020}.json").exists()
    failpoints.configure("")
    assert committed(rig.committer().commit(both)).snapshot_id == 2
    assert rig.ids() == [0, 1, 2, 3]


def test_new_columns_do_not_overtake_an_unpublished_commit(rig: ParquetRig) -> None:
    """The process that adds them publishes it first."""
    failpoints.configure("P1=raise,P2=raise")
    failed(rig.committer().commit(rig.round(1)))
    failpoints.configure("")
    tables = rig.tables()
    version = tables.load(("db", "events"))
    column = NestedField(9, "more", StringType(), required=False)
    tables.add_columns(version, Schema(*version.schema.fields, column))
    assert rig.ids() == [0, 1]
    assert [field["name"] for field in log_file(rig, 2)["schema"]["fields"]][-1] == "more"


def test_a_second_coordinator_fences_the_first(rig: ParquetRig) -> None:
    """The first stops; nothing is written twice."""
    old, new = rig.committer(), rig.committer()
    committed(old.commit(rig.round(1)))
    committed(new.commit(rig.round(2)))
    late = rig.round(2)
    assert isinstance(old.commit(late), CoordinatorFenced)
    assert rig.ids() == [0, 1, 2, 3]


def test_a_coordinator_that_was_frozen_while_it_published_repeats_nothing(rig: ParquetRig) -> None:
    """Its successor has published, and users have deleted files, when it continues."""
    first, second = rig.round(1, 2, 3), rig.round(4)
    both = replace(second, announcements=(*first.announcements, *second.announcements))
    frozen, is_at_it, may_continue = rig.tables(), threading.Event(), threading.Event()
    store: Any = frozen.load(("db", "events")).log._store
    publish = store.publish

    def slow(staged: str, path: str, size_bytes: int) -> bool:
        if is_at_it.is_set():
            may_continue.wait()
        is_at_it.set()
        done: bool = publish(staged, path, size_bytes)
        return done

    store.publish = slow
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(rig.committer(frozen).commit, first)
        assert is_at_it.wait(timeout=60)
        committed(rig.committer().commit(both))
        assert rig.ids() == list(range(8))
        for path in rig.folder.glob("*.parquet"):
            path.unlink()
        may_continue.set()
        assert isinstance(late.result(timeout=60), TableCommitted | CoordinatorFenced)
    assert rig.published() == []


def test_coordinators_that_race_commit_a_round_once(rig: ParquetRig) -> None:
    """The others find the floor of the winner."""
    for offset in range(8):
        commit = rig.round(offset, rows=1)
        outcomes = together([rig.committer() for _ in range(4)], commit)
        assert all(isinstance(o, TableCommitted | CoordinatorFenced) for o in outcomes), outcomes
    assert rig.ids() == list(range(8))
    assert len(list((rig.folder / COMMITS).glob("*.json"))) == 9


def test_a_folder_in_the_place_of_another_is_refused(rig: ParquetRig, tmp_path: Path) -> None:
    """Files that were written for the old table are not added to the new one."""
    worker = rig.committer()
    committed(worker.commit(rig.round(1)))
    commit = rig.round(2)
    rig.folder.rename(tmp_path / "away")
    rig.catalog.create(("db", "events"), rig.table.schema())
    assert failed(worker.commit(commit)).code == "table_replaced"


def test_a_restored_log_is_refused(rig: ParquetRig) -> None:
    """A log that lost a commit of this coordinator needs an operator."""
    worker = rig.committer()
    committed(worker.commit(rig.round(1)))
    committed(worker.commit(rig.round(2)))
    for suffix in ("json", "published"):
        (rig.folder / COMMITS / f"{2:020}.{suffix}").unlink()
    assert failed(worker.commit(rig.round(3))).code == "table_rolled_back"


def test_a_start_lists_the_log_from_its_checkpoint(rig: ParquetRig) -> None:
    """Commits before it can be gone; a log that lacks it is refused, never begun again."""
    rig.checkpoint_commits = 3
    worker = rig.committer()
    rounds = [rig.round(offset) for offset in range(4)]
    for commit in rounds:
        committed(worker.commit(commit))
    assert json.loads((rig.folder / "_icefloe/checkpoint.json").read_text()) == {"number": 3}
    for number in range(3):
        (rig.folder / COMMITS / f"{number:020}.json").unlink()
    assert committed(rig.committer().commit(rounds[-1])).snapshot_id is None
    shutil.rmtree(rig.folder / COMMITS)
    assert failed(rig.committer().commit(rig.round(9))).code == "log_lost"


def test_a_repetition_after_a_compaction_adds_no_rows(rig: ParquetRig) -> None:
    """By the memory of the process; after a restart the file is neither staged nor published."""
    worker, commit = rig.committer(), rig.round(1)
    committed(worker.commit(commit))
    [path] = rig.folder.glob("*.parquet")
    path.rename(rig.folder / "compacted.parquet")
    for offset, each in ((5, worker), (6, rig.committer())):
        repeated = table_commit([replace(commit.announcements[0], offset=offset)])
        outcome = each.commit(repeated)
        if each is worker:
            assert committed(outcome).snapshot_id is None
        else:
            assert failed(outcome).code == "file_missing"
    assert [p.name for p in rig.folder.glob("*.parquet")] == ["compacted.parquet"]


def test_a_missing_file_stops_the_commit_before_and_after(rig: ParquetRig) -> None:
    """No commit refers to a file that is not there; an operator gives up one that was deleted."""
    commit = rig.round(1)
    [name] = rig.staged()
    kept = (rig.folder / "_icefloe/staged" / name).rename(rig.folder.parent / name)
    assert failed(rig.committer().commit(commit)).code == "file_missing"
    assert not (rig.folder / COMMITS / f"{1:020}.json").exists()
    kept.rename(rig.folder / "_icefloe/staged" / name)
    failpoints.configure("P1=raise,P2=raise")
    failed(rig.committer().commit(commit))
    failpoints.configure("")
    for path in (*rig.folder.glob("*.parquet"), rig.folder / "_icefloe/staged" / name):
        path.unlink()
    outcome = failed(rig.committer().commit(commit))
    assert (outcome.code, outcome.is_retriable) == ("file_missing", False)
    marker = f"{COMMITS}/{1:020}.published"
    assert marker in outcome.message
    (rig.folder / marker).touch()
    committed(rig.committer().commit(commit))
    assert rig.published() == []


def test_deleted_files_of_a_published_commit_stay_deleted(rig: ParquetRig) -> None:
    """Retention of an archive is not undone by the next coordinator."""
    first = rig.round(1)
    committed(rig.committer().commit(first))
    for path in rig.folder.glob("*.parquet"):
        path.unlink()
    committed(rig.committer().commit(first))
    committed(rig.committer().commit(rig.round(2)))
    assert rig.ids() == [2, 3]


def test_partitions_are_read_by_their_folders(tmp_path: Path) -> None:
    """Dates, days, text with special characters, null: with values and pruning in each reader."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "dt", DateType(), required=False),
        NestedField(3, "ts", TimestamptzType(), required=False),
        NestedField(4, "place", StringType(), required=False),
        NestedField(5, "ok", BooleanType(), required=False),
    )
    spec = spec_for(("dt", "day(ts)", "place", "ok"), schema)
    rig = ParquetRig(str(tmp_path / "lake"), schema=schema, spec=spec)
    day, places = dt.date(2026, 11, 24), ["a=b/c %41", "fr é'ü", "[x]*?{y}", None, "a+b c:d"]
    rows = [
        {
            "id": n,
            "dt": day + dt.timedelta(days=n % 2),
            "ts": dt.datetime(2026, 11, 24 + n % 2, 5, tzinfo=dt.UTC),
            "place": place,
            "ok": n % 2 == 0,
        }
        for n, place in enumerate(places)
    ]
    commit = table_commit([rig.announcement(rows, 1)])
    committed(rig.committer().commit(commit))
    folders = {path.rpartition("/")[0] for path in rig.published()}
    null = "__HIVE_DEFAULT_PARTITION__"
    assert f"dt=2026-11-25/ts_day=2026-11-25/place={null}/ok=false" in folders
    assert "dt=2026-11-24/ts_day=2026-11-24/place=a%3Db%2Fc %2541/ok=true" in folders
    expected = [(r["id"], r["dt"], r["place"], r["ok"]) for r in rows]
    assert of_duckdb(rig.folder, "id, dt, place, ok::boolean") == expected
    found = ds.dataset(str(rig.folder), format="parquet", partitioning="hive").to_table()
    assert sorted(found.column_names) == ["dt", "id", "ok", "place", "ts", "ts_day"]
    read = found.select(["id", "place", "dt"]).to_pylist()
    assert sorted((r["id"], r["place"], r["dt"]) for r in read) == [
        (r["id"], r["place"], str(r["dt"])) for r in rows
    ]
    with duckdb.connect() as duck:
        plan = duck.execute(
            f"explain analyze select id from read_parquet('{rig.folder}/**/*.parquet') "
            "where dt = date '2026-11-25'"
        ).fetchall()
    assert "Total Files Read: 2" in str(plan)


def test_a_value_that_no_folder_can_have_is_refused_by_the_worker(tmp_path: Path) -> None:
    """Not by the coordinator, after the commit."""
    rig = ParquetRig(str(tmp_path / "lake"), spec=spec_for(("name",), SCHEMA))
    with pytest.raises(RetriableError) as caught:
        rig.announcement([{"id": 1, "name": "x" * 300}], 1)
    assert caught.value.code == "table_not_writable"


def test_columns_are_added_and_nothing_else_changes(rig: ParquetRig) -> None:
    """Readers that unite schemas see the new column; a type change and a removal are refused."""
    committed(rig.committer().commit(rig.round(1)))
    with rig.catalog.load(("db", "events")).update_schema() as adding:
        adding.add_column("more", IntegerType())
    rig.table = rig.catalog.load(("db", "events"))
    rows = [{"id": 7, "name": "x", "more": 1}]
    committed(rig.committer().commit(table_commit([rig.announcement(rows, 5)])))
    assert of_duckdb(rig.folder, "id, more") == [(0, None), (1, None), (7, 1)]
    changes: list[Callable[[UpdateSchema], object]] = [
        lambda update: update.update_column("more", LongType()),
        lambda update: update.delete_column("more"),
    ]
    for change in changes:
        update = rig.catalog.load(("db", "events")).update_schema(allow_incompatible_changes=True)
        change(update)
        with pytest.raises(CommitRefused) as caught:
            update.commit()
        assert caught.value.code == "parquet_unsupported"


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        (("bucket(id, 4)",), "partitioned by columns"),
        (("ts",), "no text that every reader"),
        (("_dt",), "names begin with _"),
        (("id", "day(ts)", "ts_", "truncate(id, 2)"), "partitioned by columns"),
    ],
)
def test_partitions_that_readers_do_not_find_are_refused(
    tmp_path: Path, terms: tuple[str, ...], says: str
) -> None:
    """When the folder is created."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "ts", TimestamptzType(), required=False),
        NestedField(3, "_dt", DateType(), required=False),
        NestedField(4, "ts_", DateType(), required=False),
    )
    with pytest.raises(CommitRefused, match=says):
        ParquetRig(str(tmp_path / "lake"), schema=schema, spec=spec_for(terms, schema))


@pytest.mark.parametrize(
    ("folder", "says"), [("_delta_log", "Delta table"), ("_spark_metadata", "Spark file sink")]
)
def test_a_folder_of_another_format_is_refused(tmp_path: Path, folder: str, says: str) -> None:
    """Its engines would not see the files, or delete them."""
    log = tmp_path / "lake/db/events" / folder
    log.mkdir(parents=True)
    (log / "0").touch()
    with pytest.raises(CommitRefused, match=says):
        ParquetRig(str(tmp_path / "lake"))


@pytest.mark.parametrize(
    "path",
    [
        "data/x.parquet",
        "_icefloe/staged/../../x.parquet.staged",
        "_icefloe/staged/a/x.parquet.staged",
    ],
)
def test_announced_paths_that_no_worker_writes_are_refused(rig: ParquetRig, path: str) -> None:
    """Any client of the control topic can announce files."""
    [file] = rig.round(1).announcements[0].event.payload.data_files
    bad = announced(
        reference(rig.table), [replace(file, file_path=f"{rig.location}/{path}")], offset=2
    )
    assert failed(rig.committer().commit(table_commit([bad]))).code == "file_outside_table"


def test_a_file_of_another_partitioning_is_refused(tmp_path: Path) -> None:
    """The name of its folder would not be known."""
    rig = ParquetRig(str(tmp_path / "lake"), spec=spec_for(("dt",), SCHEMA))
    [file] = rig.round(1).announcements[0].event.payload.data_files
    bad = announced(reference(rig.table), [replace(file, partition=())], offset=2)
    assert failed(rig.committer().commit(table_commit([bad]))).code == "schema_replaced"


def test_delete_files_are_refused(rig: ParquetRig) -> None:
    """Rows are only added."""
    bad = announced(reference(rig.table), [], [equality_delete(rig.table, 1)], offset=2)
    assert failed(rig.committer().commit(table_commit([bad]))).code == "parquet_deletes"


def test_a_store_without_conditional_writes_is_refused(rig: ParquetRig) -> None:
    """Before the first commit, by a write that must be refused."""
    tables = rig.tables()
    version = tables.load(("db", "events"))

    class Careless:
        """Writes over existing files."""

        is_posix, parallel = False, 1

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def create(self, path: str, content: bytes) -> None:
            """Write a file."""
            store.replace(path, content)

    store = version.log._store
    log = parquet_log.ParquetLog(Careless())
    with pytest.raises(CommitRefused, match="conditional"):
        log.prove_conditions()
    with pytest.raises(CommitConflict):
        store.create(f"{COMMITS}/{0:020}.json", b"other")

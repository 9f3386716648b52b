"""Upserts and deletes of Delta tables: rows, actions of the log, conflicts, unknown outcomes."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from connect.errors import CommitConflict, CommitStateUnknown
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.delta_tables import delta_duckdb
from tests.support.simulated_kill import killed_at
from tests.support.tables import table_commit
from tests.support.upserts import DeltaUpserts, Row, SlowClock, committed, counted, row

SEEDS = int(os.environ.get("COPY_ON_WRITE_SEEDS", "2"))
REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


@pytest.fixture
def upserts(tmp_path: Path) -> DeltaUpserts:
    """A table without partitions in a local folder."""
    return DeltaUpserts(str(tmp_path / "lake"))


def log_of(t: DeltaUpserts) -> list[dict[str, Any]]:
    """Actions of the newest version."""
    table = t.now()
    folder = Path(t.table.location().removeprefix("file://"), "_delta_log")
    text = (folder / f"{table.version():020}.json").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def parquet_files(t: DeltaUpserts) -> set[str]:
    """Parquet files below the table's data folder."""
    root = Path(t.table.location().removeprefix("file://"))
    return {str(path.relative_to(root)) for path in root.rglob("data/**/*.parquet")}


def listed_files(t: DeltaUpserts) -> list[str]:
    """Paths of the newest version."""
    return pa.table(t.now().get_add_actions(flatten=True))["path"].to_pylist()


class Unreliable:
    """A store that refuses commits, or does not answer them, applied or not."""

    def __init__(self, t: DeltaUpserts, chance: Any) -> None:
        self.inner, self.chance = t.store(), chance

    def load(self, identifier: Any) -> Any:
        """The table, whose commits fail by chance."""
        return _UnreliableVersion(self.inner.load(identifier), self.chance)


class _UnreliableVersion:
    def __init__(self, inner: Any, chance: Any) -> None:
        self._inner, self._chance = inner, chance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def replace(self, *change: Any) -> int:
        chance = self._chance()
        if chance < 0.15:
            raise CommitConflict("refused")
        if chance < 0.3:
            raise CommitStateUnknown("not applied")
        version: int = self._inner.replace(*change)
        if chance < 0.45:
            raise CommitStateUnknown("applied")
        return version


def test_a_round_is_one_version_that_replaces_files(upserts: DeltaUpserts) -> None:
    """Files with superseded rows are removed, copies and new files added, floors stored."""
    t, committer = upserts, upserts.log_committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(7, 70)], []))))
    committed(committer.commit(t.round(([row(8, 80)], []))))
    outcome = committed(committer.commit(t.round(([row(1, 11)], [row(7, 0)]))))
    t.check()
    assert outcome.snapshot_id == t.now().version() == 4
    actions = log_of(t)
    kinds = [next(iter(action)) for action in actions]
    assert sorted(kinds) == ["add", "add", "commitInfo", "remove", "remove", "txn"]
    assert all(a["remove"]["dataChange"] for a in actions if "remove" in a)
    (transaction,) = [a["txn"] for a in actions if "txn" in a]
    assert transaction["version"] == 4
    stats = [json.loads(a["add"]["stats"]) for a in actions if "add" in a]
    assert {each["minValues"]["id"] for each in stats} == {1, 2}
    listed = set(listed_files(t))
    assert listed < parquet_files(t)
    assert not [path for path in parquet_files(t) if "deletes" in path]


def test_steps_null_keys_and_duckdb(tmp_path: Path) -> None:
    """As for Iceberg tables; DuckDB reads the same rows."""
    t = DeltaUpserts(str(tmp_path / "lake"), keys=("id", "region"))
    committer = t.log_committer()
    first = [row(None, 1), row(1, 2, None), row(None, 3, None), row(1, 4)]
    committed(committer.commit(t.round((first, []), ([row(1, 5)], [row(None, 0)]))))
    committed(committer.commit(t.round(([row(None, 6), row(1, 7, None)], []))))
    t.check()
    with delta_duckdb() as connection:
        query = f"select id, region, value from delta_scan('{t.table.location()}')"
        found = [
            dict(zip(("id", "region", "value"), each, strict=True))
            for each in connection.execute(query).fetchall()
        ]
    names = ["id", "region", "value"]
    assert counted(found, names) == counted(t.rows, names)


def test_a_key_moves_to_another_partition(tmp_path: Path) -> None:
    """A partition's value comes from the log; files of other writers lack the column."""
    t = DeltaUpserts(str(tmp_path / "lake"), REGION, keys=("id", "region"))
    committer = t.log_committer()
    odd = "a b/%\u00fc=1"
    committed(committer.commit(t.round(([row(1, 1, "eu"), row(2, 2, odd), row(3, 3, None)], []))))
    more = [row(1, 4, odd), row(5, 5, "eu")]
    t.foreign(more)
    t.rows += more
    committed(committer.commit(t.round(([row(1, 6, odd), row(2, 7, odd)], [row(5, 0, "eu")]))))
    t.check()
    by_id = DeltaUpserts(str(tmp_path / "other"), REGION)
    committer = by_id.log_committer()
    committed(committer.commit(by_id.round(([row(1, 1, "eu"), row(2, 2, odd)], []))))
    committed(committer.commit(by_id.round(([row(1, 3, odd), row(2, 4, "eu")], []))))
    by_id.check()


def test_an_empty_partition_value_is_null(tmp_path: Path) -> None:
    """Readers read an empty text as null, so a key with it is the key with null."""
    t = DeltaUpserts(str(tmp_path / "lake"), REGION, keys=("id", "region"))
    committer = t.log_committer()
    committed(committer.commit(t.round(([row(1, 1, "")], []))))
    committed(committer.commit(t.round(([row(1, 2, "")], []))))
    t.rows = [row(1, 2, None)]
    t.check()


def test_old_files_lack_new_columns(upserts: DeltaUpserts) -> None:
    """They are null there, before and after a copy; a new column may be a key column."""
    t = upserts
    committed(t.log_committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    kind = Schema([Field("kind", PrimitiveType("string"))])
    t.now().alter.add_columns(list(kind.fields))
    t.rows = [{**each, "kind": None} for each in t.rows]
    committed(t.log_committer().commit(t.round(([{**row(1, 11), "kind": "a"}], []))))
    t.check()
    t.keys = ("id", "kind")
    changed = [{**row(1, 12), "kind": "a"}, {**row(2, 22), "kind": None}]
    committed(t.log_committer().commit(t.round((changed, []))))
    t.check()
    assert sorted(each["value"] for each in t.rows) == [12, 22]


def test_every_character_of_a_path_can_be_removed(tmp_path: Path) -> None:
    """The library writes paths of removed files as those of added ones."""
    t = DeltaUpserts(str(tmp_path / "lake"), REGION)
    committer = t.log_committer()
    regions = [f"x{chr(code)}y" for code in (*range(32, 127), 0xFC, 0x20AC) if chr(code) != "/"]
    committed(
        committer.commit(t.round(([row(n, n, region) for n, region in enumerate(regions)], [])))
    )
    committed(committer.commit(t.round(([], [row(n, 0) for n in range(len(regions))]))))
    t.check()
    assert not t.rows


def test_int96_timestamps_of_spark_are_kept(upserts: DeltaUpserts) -> None:
    """A copy has the physical types of its source."""
    t = upserts
    committed(t.log_committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    (path,) = listed_files(t)
    file = Path(t.table.location().removeprefix("file://")) / path
    rows = pq.read_table(file)
    rows = rows.append_column("at", pa.array([0, 1], pa.timestamp("us", "UTC")))
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    committed(t.log_committer().commit(t.round(([row(1, 11)], []))))
    root = Path(t.table.location().removeprefix("file://"))
    schemas = [pq.ParquetFile(root / path).schema for path in listed_files(t)]
    physical = [each.column(3).physical_type for each in schemas if len(each) > 3]
    assert physical == ["INT96"]


@pytest.mark.parametrize("point", ["D1", "C10", "C11", "C12"])
def test_a_kill_between_any_two_steps_loses_nothing(
    upserts: DeltaUpserts, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor with the same announcements brings the rows in once."""
    t = upserts
    committed(t.log_committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    commit = t.round(([row(1, 11), row(3, 30)], []), ([row(3, 31)], [row(2, 0)]))

    with killed_at(point, monkeypatch):
        t.log_committer().commit(commit)
    committed(t.log_committer().commit(commit))
    t.check()


def test_copies_of_failed_attempts_are_deleted_later(upserts: DeltaUpserts) -> None:
    """When their version is taken; until then they may be in the log."""
    t = upserts
    committed(t.log_committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    chances: Iterator[float] = iter([0.2] * 100)
    committer = t.log_committer(Unreliable(t, lambda: next(chances, 1.0)))
    commit = t.round(([row(1, 11)], []))
    before = parquet_files(t)
    for _ in range(3):
        assert isinstance(committer.commit(commit), TableFailed)
    assert len(parquet_files(t) - before) == 3
    chances = iter(())
    committer._tables.chance = lambda: 1.0
    committed(committer.commit(commit))
    t.check()
    listed = set(listed_files(t))
    assert len(parquet_files(t) - before - listed) == 0


def test_a_repeated_announcement_deletes_no_newer_row(upserts: DeltaUpserts) -> None:
    """Its delete file is gone: the table fails until an operator skips it."""
    t = upserts
    first = t.round(([row(1, 10)], []))
    committed(t.log_committer().commit(first))
    committed(t.log_committer().commit(t.round(([row(1, 11), row(2, 20)], []))))
    repeated = replace(first.announcements[0], offset=t.offset)
    outcome = t.log_committer().commit(table_commit([repeated]))
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("announced_file_missing", False)
    t.check()


def test_a_repeated_announcement_deletes_no_file_of_the_table(upserts: DeltaUpserts) -> None:
    """Also together with new files, and by a coordinator that has not committed the file."""
    t = upserts
    first = t.round(([row(1, 10)], []))
    committed(t.log_committer().commit(first))
    envelope = first.announcements[0]
    data_only = replace(envelope.event.payload, delete_files=())
    event = replace(envelope.event, payload=data_only)
    for _ in range(2):
        new = t.round(([row(t.offset + 5, 20)], []))
        repeated = replace(envelope, event=event, offset=t.offset)
        t.offset += 1
        committed(t.log_committer().commit(table_commit([*new.announcements, repeated])))
        t.check()


def test_a_round_that_needs_more_time_is_committed_in_later_rounds(
    upserts: DeltaUpserts,
) -> None:
    """Finished copies are kept; what is announced meanwhile is committed after them."""
    t = upserts
    worker = t.log_committer()
    for number in range(8):
        committed(worker.commit(t.round(([row(number, 1), row(number + 100, 1)], []))))
    t.clock = SlowClock()
    t.clock.step_ms = 2_000
    worker = t.log_committer()
    worker._clock = t.clock
    before = parquet_files(t)
    first = t.round(([row(number, 2) for number in range(8)], []))
    outcome = worker.commit(first)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("copy_on_write_time", True)
    copies = parquet_files(t) - before
    assert len(copies) > 2
    more = t.round(([row(3, 3)], [row(4, 0)]))
    both = table_commit([*first.announcements, *more.announcements])
    outcomes = [worker.commit(both) for _ in range(6)]
    assert {o.code for o in outcomes if isinstance(o, TableFailed)} <= {"copy_on_write_time"}
    done = next(o for o in outcomes if isinstance(o, TableCommitted))
    assert (done.files, done.records) == (4, 9)
    t.check()
    assert len((parquet_files(t) - before) & copies) >= 2
    replaced = parquet_files(t) - before - set(listed_files(t))
    assert len(replaced) == 1  # the new file of the first part, by the second


def test_limits_fail_the_table(tmp_path: Path) -> None:
    """There are no delete files to use instead; with a higher limit the commit is made."""
    t = DeltaUpserts(str(tmp_path / "lake"), **{"iceberg.tables.copy-on-write-max-bytes": "10"})
    committed(t.log_committer().commit(t.round(([row(1, 10)], []))))
    commit = t.round(([row(1, 11)], []))
    outcome = t.log_committer().commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("copy_on_write_limit", False)
    again = DeltaUpserts(str(tmp_path / "lake"))
    committed(again.log_committer().commit(commit))
    t.check()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("delta.appendOnly", "only added"),
        ("delta.enableChangeDataFeed", "change data feed"),
    ],
)
def test_tables_whose_files_may_not_be_removed(upserts: DeltaUpserts, key: str, text: str) -> None:
    """Are refused when a round deletes rows."""
    t = upserts
    t.now().alter.set_table_properties({key: "true"})
    outcome = t.log_committer().commit(t.round(([row(1, 10)], [])))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "delta_unsupported"
    assert text in outcome.message


def test_tables_with_deletion_vectors_are_refused(tmp_path: Path) -> None:
    """A removed file is named with its deletion vector, which the library cannot write."""
    t = DeltaUpserts(str(tmp_path / "lake"))
    log = Path(t.table.location().removeprefix("file://"), "_delta_log", f"{1:020}.json")
    feature = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": feature,
        "writerFeatures": feature,
    }
    log.write_text(json.dumps({"protocol": protocol}) + "\n", "utf-8")
    outcome = t.log_committer().commit(t.round(([row(1, 10)], [])))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "delta_unsupported"
    assert "deletion vectors" in outcome.message


def some_step(rng: random.Random, t: DeltaUpserts) -> tuple[list[Row], list[Row]]:
    """Rows to upsert, with different keys, and rows to delete."""

    def some() -> Row:
        key = rng.choice([None, *range(12)])
        return row(key, rng.randrange(10**6), rng.choice([None, "eu", "us"]))

    by_key = {t.key(r): r for r in (some() for _ in range(rng.randrange(5)))}
    gone = [r for r in (some() for _ in range(rng.randrange(3))) if t.key(r) not in by_key]
    return list(by_key.values()), gone


@pytest.mark.parametrize("spec", [None, REGION], ids=["none", "region"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_histories(tmp_path: Path, spec: PartitionSpec | None, seed: int) -> None:
    """The table equals the model after every round, with conflicts and lost answers between."""
    rng = random.Random(f"{spec}-{seed}")
    t = DeltaUpserts(str(tmp_path / "lake"), spec, keys=("id",) if seed % 2 else ("id", "region"))
    committer = t.log_committer(Unreliable(t, rng.random))
    for _ in range(8):
        if rng.random() < 0.4:
            more = [row(rng.randrange(12), rng.randrange(10**6)) for _ in range(3)]
            t.foreign(more)
            t.rows += more
        if rng.random() < 0.2:
            committer = t.log_committer(Unreliable(t, rng.random))
        commit = t.round(*(some_step(rng, t) for _ in range(rng.randrange(1, 4))))
        outcomes = (committer.commit(commit) for _ in range(20))
        assert any(isinstance(outcome, TableCommitted) for outcome in outcomes)
        t.check()

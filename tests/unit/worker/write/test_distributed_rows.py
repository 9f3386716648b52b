"""Rows that one Spark task reads and another one writes: files, order, bounds and failures."""

from __future__ import annotations

import json
import random
import shutil
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from connect.errors import RetriableError
from connect.model.table_types import VariantType
from control_schemas.events import FileContent
from tests.differential.support import config, plan, rows_of, run_batches, run_distributed, source
from worker.batch import passed_rows
from worker.batch.descriptors import BatchResult, collect
from worker.batch.distribution import Distribution
from worker.batch.error_rows import DISK_FULL, NOT_WRITABLE
from worker.batch.passed_rows import PASSED
from worker.batch.pipeline_spec import ChangePlan, PipelineLimits, PipelineSpec, TablePlan
from worker.pipeline.passed_writing import write_passed
from worker.pipeline.pipeline import run

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "note", StringType(), required=False),
)
BY_KIND = {"iceberg.tables": None, "iceberg.tables.name-template": "db.t_${kind}"}
TASKS = 2
Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as of ``shutil``


@pytest.fixture(params=["files", "rows"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Where rows travel: in files of one machine, or through Spark."""
    if request.param == "rows":
        return None
    (tmp_path / "passed").mkdir()
    return str(tmp_path / "passed")


def batches(kinds: list[str], *, reader: int, notes: int = 20) -> list[pa.RecordBatch]:
    """Records of one reading task, in three Spark batches; ids tell the readers apart."""
    records = [
        json.dumps({"id": reader * 100_000 + n, "kind": kind, "note": "n" * notes}).encode()
        for n, kind in enumerate(kinds)
    ]
    step = -(-len(records) // 3)
    return [
        source(records[i : i + step], partition=reader, start=i)
        for i in range(0, len(records), step)
    ]


def tables(path: Path, count: int, spec: PartitionSpec | None = None) -> list[TablePlan]:
    """Tables by kind."""
    spec = PartitionSpec() if spec is None else spec
    return [plan(path, SCHEMA, name=f"db.t_{n}", spec=spec) for n in range(count)]


def ids(result: BatchResult, name: str) -> list[int]:
    """The ids of a table's rows."""
    return sorted(row["id"] for row in rows_of(result, name))


def test_a_table_has_one_file_for_any_number_of_readers(tmp_path: Path, folder: str | None) -> None:
    """With the rows and counts of a batch that is not distributed."""
    kinds = [str(n * 7 % 50) for n in range(3_000)]
    reads = [batches(kinds, reader=reader) for reader in range(4)]
    plans = tables(tmp_path, 50)
    plain = run_batches(config(**BY_KIND), plans, [each for given in reads for each in given])
    chosen = Distribution(TASKS, rows_max=1_000, folder=folder)
    result, _ = run_distributed(config(**BY_KIND), plans, reads, chosen)
    assert result.is_whole
    assert {name: len(files) for name, files in result.files.items()} == {
        f"db.t_{n}": 1 for n in range(50)
    }
    assert all(ids(result, p.name) == ids(plain, p.name) for p in plans)
    assert (result.progress, result.rows) == (plain.progress, plain.rows)


def test_rows_of_each_type_arrive_as_they_were(tmp_path: Path, folder: str | None) -> None:
    """Texts, nulls and the order of a reader's records; each file is read by its names."""
    records = [b'{"id":1,"kind":"0","note":null}', b'{"id":2,"kind":"0"}', b'{"kind":"0"}']
    reads = [[source(records)]]
    chosen = Distribution(TASKS, rows_max=100, folder=folder)
    result, _ = run_distributed(config(**BY_KIND), tables(tmp_path, 1), reads, chosen)
    assert rows_of(result, "db.t_0") == [
        {"id": 1, "kind": "0", "note": None},
        {"id": 2, "kind": "0", "note": None},
        {"id": None, "kind": "0", "note": None},
    ]


def test_values_of_every_type_arrive(tmp_path: Path, folder: str | None) -> None:
    """As in a batch that is not distributed; some types are Arrow's extensions."""
    kinds = [
        *(UUIDType(), FixedType(3), BinaryType(), DecimalType(9, 2), DateType(), TimeType()),
        *(TimestampType(), TimestamptzType(), TimestampNanoType(), BooleanType(), DoubleType()),
        *(UnknownType(), VariantType(), ListType(10, StringType(), element_required=False)),
        StructType(NestedField(11, "s", StringType(), required=False)),
        MapType(12, StringType(), 13, LongType(), value_required=False),
    ]
    values = [
        *("12345678-1234-1234-1234-123456789abc", "AQID", "AQ==", "1.25", "2026-01-02", "01:02:03"),
        *("2026-01-02T03:04:05", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789"),
        *(True, 0.5, None, {"v": [1, "x"]}, ["a", None], {"s": "t"}, {"m": 1}),
    ]
    named = [NestedField(20 + i, f"c{i}", kind, required=False) for i, kind in enumerate(kinds)]
    schema = Schema(*SCHEMA.fields, *named)
    columns = {f"c{i}": value for i, value in enumerate(values)}
    records = [
        json.dumps({"id": n, "kind": "0", **(columns if n % 3 else {})}).encode() for n in range(30)
    ]
    reads = [[source(records, partition=reader)] for reader in range(2)]
    plans = [plan(tmp_path, schema, name="db.t_0")]
    plain = run_batches(config(**BY_KIND), plans, reads[0] + reads[1])
    assert plain.rows.made == 60
    chosen = Distribution(TASKS, 100, folder=folder)
    result, _ = run_distributed(config(**BY_KIND), plans, reads, chosen)
    assert result.is_whole
    found, wanted = rows_of(result, "db.t_0"), rows_of(plain, "db.t_0")
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_a_table_that_is_large_without_notice_is_written_by_its_readers(
    tmp_path: Path, folder: str | None
) -> None:
    """They pass on a bounded number of rows; no row is lost at the bound."""
    kinds = ["0"] * 2_000 + ["1"] * 50
    reads = [batches(kinds, reader=reader) for reader in range(3)]
    chosen = Distribution(TASKS, rows_max=1_000, folder=folder)
    limits = PipelineLimits(block_rows=100)
    result, descriptors = run_distributed(
        config(**BY_KIND), tables(tmp_path, 2), reads, chosen, limits=limits
    )
    assert 3 * 900 < received_rows(descriptors) <= 3 * (1_000 + 50)  # whole blocks
    assert len(result.files["db.t_0"]) == 3 + 1
    assert len(result.files["db.t_1"]) == 1
    expected = [reader * 100_000 + n for reader in range(3) for n in range(2_000)]
    assert ids(result, "db.t_0") == expected


def received_rows(descriptors: pa.Table) -> int:
    """The rows that writing tasks received."""
    payloads = descriptors.filter(pc.equal(descriptors["kind"], "received"))["payload"]
    return sum(rows for payload in payloads.to_pylist() for _, rows in json.loads(payload))


def test_a_large_table_is_divided_by_partition_value(tmp_path: Path, folder: str | None) -> None:
    """So that it has one file for each value, and no single task writes it."""
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "note"))
    kinds = ["0"] * 900
    reads = []
    for reader in range(3):
        records = [
            json.dumps({"id": reader * 1_000 + n, "kind": kind, "note": f"p{n % 9}"}).encode()
            for n, kind in enumerate(kinds)
        ]
        reads.append([source(records, partition=reader)])
    chosen = Distribution(TASKS, 200, frozenset({"db.t_0"}), folder=folder)
    result, _ = run_distributed(config(**BY_KIND), tables(tmp_path, 1, spec), reads, chosen)
    files = result.files["db.t_0"]
    assert sorted(f.partition[0].value for f in files) == [f"p{n}" for n in range(9)]
    assert len({Path(f.file_path).name[:36] for f in files}) == TASKS
    assert ids(result, "db.t_0") == [r * 1_000 + n for r in range(3) for n in range(900)]


def test_a_full_disk_is_no_error_where_rows_are_only_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readers write their rows themselves."""
    (tmp_path / "passed").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 100, 0))
    reads = [batches([str(n % 5) for n in range(300)], reader=reader) for reader in range(2)]
    chosen = Distribution(TASKS, 1_000, folder=str(tmp_path / "passed"))
    result, _ = run_distributed(config(**BY_KIND), tables(tmp_path, 5), reads, chosen)
    assert result.is_whole
    assert {name: len(files) for name, files in result.files.items()} == {
        f"db.t_{n}": 2 for n in range(5)
    }
    assert sum(len(ids(result, f"db.t_{n}")) for n in range(5)) == 600


def test_a_file_that_cannot_be_written_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are on their way already stay there; the others are written by their reader."""
    (tmp_path / "passed").mkdir()
    write, calls = passed_rows._RowFile.write, [0]

    def failing(file: Any, rows: pa.Table) -> tuple[int, int]:
        calls[0] += 1
        if calls[0] == 4:  # of the second block, after rows for one of both tasks
            raise OSError("no space left on device")
        return write(file, rows)

    monkeypatch.setattr(passed_rows._RowFile, "write", failing)
    limits = PipelineLimits(block_rows=100, buffered_bytes_max=1)
    reads = [batches([str(n % 5) for n in range(300)], reader=0)]
    chosen = Distribution(TASKS, 1_000, folder=str(tmp_path / "passed"))
    result, descriptors = run_distributed(
        config(**BY_KIND), tables(tmp_path, 5), reads, chosen, limits=limits
    )
    assert result.is_whole
    assert 0 < received_rows(descriptors) < 300
    assert [row for n in range(5) for row in ids(result, f"db.t_{n}")] == [
        row for n in range(5) for row in range(n, 300, 5)
    ]


def test_rows_wait_in_bounded_memory(
    tmp_path: Path, folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are passed on in parts, each of which is small where Spark carries it."""
    monkeypatch.setattr(passed_rows, "_PART_BYTES", 20_000)
    kinds = [str(n % 7) for n in range(3_000)]
    reads = [batches(kinds, reader=reader, notes=200) for reader in range(2)]
    limits = PipelineLimits(block_rows=100, buffered_bytes_max=100_000)
    chosen = Distribution(TASKS, 10_000, folder=folder)
    connector, plans = config(**BY_KIND), tables(tmp_path, 7)
    spec = PipelineSpec(connector, tuple(plans), limits=limits, distribution=chosen)
    given = [each.select(list(spec.columns())) for each in reads[0]]
    parts = [b for b in run(spec)(iter(given)) if PASSED in b["kind"].to_pylist()]
    assert len(parts) >= 5
    if folder is None:
        sizes = [len(p) for b in parts for p in b["payload"].to_pylist()]
        assert max(sizes) < 2 * 20_000
    result, _ = run_distributed(connector, plans, reads, chosen, limits=limits)
    assert result.is_whole
    assert [len(files) for files in result.files.values()] == [1] * 7
    assert sum(len(ids(result, p.name)) for p in plans) == 6_000


# ------------------------------------------------------------------ row-level changes


def changes(path: Path, count: int) -> list[TablePlan]:
    """Tables whose rows are replaced by id."""
    change = ChangePlan((1,), PartitionSpec().model_dump_json())
    return [replace(each, changes=change) for each in tables(path, count)]


def replayed(result: BatchResult, name: str) -> dict[int, str]:
    """The rows that are left of a table: deletes apply to rows of earlier steps."""
    rows: dict[int, str] = {}
    for step in result.steps:
        files = step.get(name, ())
        deletes = [f for f in files if f.content is FileContent.EQUALITY_DELETES]
        for file in deletes:
            for key in pq.read_table(file.file_path.removeprefix("file://"))["id"].to_pylist():
                rows.pop(key, None)
        for file in (f for f in files if f.content is FileContent.DATA):
            table = pq.read_table(file.file_path.removeprefix("file://"))
            for key, note in zip(table["id"].to_pylist(), table["note"].to_pylist(), strict=True):
                assert key not in rows, "two rows of one key"
                rows[key] = note
    return rows


@pytest.mark.parametrize("kept", [frozenset[str](), frozenset({"db.t_0"})])
def test_the_newest_change_of_each_key_is_left(
    tmp_path: Path, folder: str | None, kept: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over many steps, parts and readers; slow and fast records of a block interleave."""
    monkeypatch.setattr(passed_rows, "_PART_BYTES", 3_000)
    rng = random.Random(7)
    keys = {"iceberg.tables.cdc-field": "op", **BY_KIND}
    wanted: dict[str, dict[int, str]] = {f"db.t_{n}": {} for n in range(4)}
    reads: list[list[pa.RecordBatch]] = []
    for reader in range(3):
        records = []
        for n in range(2_000):
            key, kind = rng.randrange(40) * 3 + reader, rng.randrange(4)
            is_delete = rng.random() < 0.3
            note = n if rng.random() < 0.1 else str(n)  # the record path makes a text of a number
            record = {"id": key, "kind": str(kind), "note": note, "op": "d" if is_delete else "u"}
            records.append(json.dumps(record).encode())
            rows = wanted[f"db.t_{kind}"]
            rows.pop(key, None)
            if not is_delete:
                rows[key] = str(n)
        reads.append(
            [source(records[i : i + 500], partition=reader, start=i) for i in range(0, 2_000, 500)]
        )
    limits = PipelineLimits(block_rows=250, buffered_bytes_max=10_000, changes_bytes_max=20_000)
    chosen = Distribution(TASKS, 1, kept, folder=folder)
    result, _ = run_distributed(config(**keys), changes(tmp_path, 4), reads, chosen, limits=limits)
    assert result.error is None
    assert result.is_whole
    assert len(result.steps) > 2
    assert {name: replayed(result, name) for name in wanted} == wanted
    rows = result.rows
    assert rows.made == 6_000
    data = [f for files in result.files.values() for f in files if f.content is FileContent.DATA]
    assert rows.kept == sum(f.record_count for f in data)


def test_key_columns_of_message_keys_are_passed_on(tmp_path: Path, folder: str | None) -> None:
    """The writing task never sees a message key."""
    change = ChangePlan((), PartitionSpec().model_dump_json())
    plans = [replace(each, changes=change) for each in tables(tmp_path, 2)]
    keys = {
        "iceberg.tables.upsert-mode-enabled": "true",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        **BY_KIND,
    }
    records = [
        json.dumps({"id": n % 5, "kind": str(n % 2), "note": str(n)}).encode() for n in range(20)
    ]
    batch = source(records, keys=[b'{"id":%d}' % (n % 5) for n in range(20)])
    chosen = Distribution(TASKS, 1, folder=folder)
    result, _ = run_distributed(config(**keys), plans, [[batch]], chosen)
    assert result.error is None
    assert replayed(result, "db.t_0") == {n % 5: str(n) for n in range(10, 20, 2)}
    assert replayed(result, "db.t_1") == {n % 5: str(n) for n in range(11, 20, 2)}


def test_changes_need_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They cannot be divided: the batch fails and says what to do."""
    (tmp_path / "passed").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 100, 0))
    keys = {"iceberg.tables.upsert-mode-enabled": "true", **BY_KIND}
    chosen = Distribution(TASKS, 1, folder=str(tmp_path / "passed"))
    reads = [batches(["0", "1"], reader=0)]
    result, _ = run_distributed(config(**keys), changes(tmp_path, 2), reads, chosen)
    assert isinstance(result.error, RetriableError)
    assert result.error.code == DISK_FULL
    assert "write-distribution-mode to none" in result.error.message
    assert not list(tmp_path.glob("db.*/data/*.parquet"))


# ------------------------------------------------------------------ failures


def test_rows_of_two_attempts_of_one_reader_are_not_whole(
    tmp_path: Path, folder: str | None
) -> None:
    """Spark may read again for a part of the writers; only equal attempts may be announced."""
    connector, plans = config(**BY_KIND), tables(tmp_path, 20)
    chosen = Distribution(TASKS, 1_000, folder=folder)
    spec = PipelineSpec(connector, tuple(plans), distribution=chosen)
    given = [
        each.select(list(spec.columns()))
        for each in batches([str(n % 20) for n in range(200)], reader=0)
    ]
    first, second = (pa.Table.from_batches(list(run(spec)(iter(given)))) for _ in range(2))

    def written(*attempts: pa.Table) -> BatchResult:
        return collect(
            pa.Table.from_batches(
                [
                    batch
                    for task, attempt in enumerate(attempts)
                    for batch in write_passed(spec)(
                        iter(attempt.filter(pc.equal(attempt["task"], task)).to_batches())
                    )
                ]
            )
        )

    assert written(first, first).is_whole
    assert written(second, second).is_whole
    assert not written(first, second).is_whole
    assert not written(second, first).is_whole
    assert not written(first).is_whole


def test_a_store_that_refuses_files_is_reported_by_the_writer(
    tmp_path: Path, folder: str | None
) -> None:
    """What other tasks wrote stays known, so that the driver can delete it."""
    plans = tables(tmp_path, 2)
    plans[1] = replace(plans[1], location=f"file://{tmp_path}/refused")
    (tmp_path / "refused").write_text("a file, where a folder should be")
    chosen = Distribution(TASKS, 1_000, frozenset({"db.t_0"}), folder=folder)
    reads = [batches(["0"] * 10 + ["1"] * 10, reader=0)]
    result, _ = run_distributed(config(**BY_KIND), plans, reads, chosen)
    assert result.error is not None
    assert result.error.code in {NOT_WRITABLE, "storage_unavailable"}
    assert result.error.coordinates["table"] == "db.t_1"
    assert list(result.files) == ["db.t_0"]


def test_a_batch_that_needs_a_table_passes_no_more_rows_on(
    tmp_path: Path, folder: str | None
) -> None:
    """It asks for the table; all files of the batch are known to the driver."""
    chosen = Distribution(TASKS, 1_000, folder=folder)
    reads = [batches(["0"] * 10 + ["new"] * 10, reader=0)]
    result, _ = run_distributed(config(**BY_KIND), tables(tmp_path, 1), reads, chosen)
    assert [request.table for request in result.table_requests] == ["db.t_new"]
    assert not result.is_usable


def test_dead_letters_and_counts_are_forwarded(tmp_path: Path, folder: str | None) -> None:
    """A refused record is counted once, with its bytes."""
    keys = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead", **BY_KIND}
    records = [b'{"id":1,"kind":"0"}', b"{", b'{"id":2,"kind":"0"}']
    chosen = Distribution(TASKS, 1_000, folder=folder)
    reads = [[source(records, partition=reader)] for reader in range(3)]
    result, _ = run_distributed(config(**keys), tables(tmp_path, 1), reads, chosen)
    assert [d.record.partition for d in result.dead_letters] == [0, 1, 2]
    assert {d.record.value for d in result.dead_letters} == {b"{"}
    assert [(p.read, p.dead_lettered, p.written) for p in result.progress.values()] == [
        (3, 1, 2)
    ] * 3
    assert len(result.files["db.t_0"]) == 1


def test_a_reader_that_fails_leaves_no_file(tmp_path: Path, folder: str | None) -> None:
    """Spark runs it again; what it passed on is never announced."""
    spec = PipelineSpec(
        config(**BY_KIND),
        tuple(tables(tmp_path, 1)),
        distribution=Distribution(TASKS, 1, frozenset({"db.t_0"}), folder=folder),
        limits=PipelineLimits(group_rows=5, block_rows=10),
    )

    def failing() -> Iterator[pa.RecordBatch]:
        yield from (each.select(list(spec.columns())) for each in batches(["0"] * 60, reader=0))
        assert list(tmp_path.glob("db.t_0/data/*.parquet"))
        raise OSError("the broker is gone")

    with pytest.raises(OSError, match="the broker is gone"):
        list(run(spec)(failing()))
    assert not list(tmp_path.glob("db.t_0/data/*.parquet"))

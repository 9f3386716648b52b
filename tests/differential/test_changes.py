"""Row-level changes: the files of a batch, applied in their order, give what replaying gives."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
)

from connect.errors import ConfigError
from connect.model.layout import TopicPartition
from control_schemas.events import FileContent
from tests.differential.examples import part
from tests.differential.support import (
    FIRST_MS,
    config,
    plan,
    run_batches,
    run_distributed,
    run_spark_tasks,
    source,
)
from worker.batch.descriptors import BatchResult, PartitionProgress
from worker.batch.distribution import Distribution
from worker.batch.pipeline_spec import ChangePlan, PipelineSpec, TablePlan
from worker.pipeline.pipeline import PipelineLimits
from worker.write.change_order import key_hashes

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=True),
)
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
PLAIN = PartitionSpec()
FREE = PartitionSpec(spec_id=1)
KEYED = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
}
CDC = {**KEYED, "iceberg.tables.cdc-field": "_cdc.op"}
BAD = "bad_json"
UPSERT = {**KEYED, "iceberg.tables.upsert-mode-enabled": "true"}
TOLERANT = {"errors.tolerance": "all"}
Key = tuple[Any, Any]
Line = tuple[bytes | None, bytes | None]


def keyed_plan(
    folder: Path, *ids: int, spec: PartitionSpec = PLAIN, deletes: PartitionSpec = FREE
) -> TablePlan:
    """A table whose key columns have these ids; none leaves them to the message key."""
    planned = plan(folder, SCHEMA, spec=spec)
    changes = ChangePlan(ids, deletes.model_dump_json())
    return TablePlan(**{**{n: getattr(planned, n) for n in planned.__slots__}, "changes": changes})


def history(seed: int, count: int, *, is_cdc: bool) -> tuple[list[Line], dict[Key, float]]:
    """Changes of few keys, well formed, and the rows that they leave."""
    rng = random.Random(seed)
    live: dict[Key, float] = {}
    lines: list[Line] = []
    for n in range(count):
        key = (rng.randrange(12), rng.choice(["eu", "us", None]))
        raw_key = json.dumps({"id": key[0], "region": key[1]}).encode()
        value: dict[str, Any] = {"id": key[0], "region": key[1], "amount": n + 0.5}
        chance = rng.random()
        if chance < 0.1:
            lines.append((raw_key, None))
            live.pop(key, None)
            continue
        if is_cdc and chance < 0.4:
            value = {**value, "_cdc": {"op": rng.choice(["D", "delete"])}}
            if rng.random() < 0.5:
                del value["amount"]  # only the key is needed to delete
            live.pop(key, None)
        else:
            if is_cdc:
                op = "U" if key in live else rng.choice(["I", "U", "c", None, "upd"])
                value["_cdc"] = {"op": op}
            live[key] = n + 0.5
        lines.append((raw_key, json.dumps(value).encode()))
    return lines, live


def applied(results: Iterable[BatchResult]) -> list[tuple[Any, Any, float]]:
    """Rows that live after all steps of all batches: deletes first, then the step's own rows."""
    live: list[tuple[Any, Any, float]] = []
    for result in results:
        assert result.error is None
        for step in result.steps:
            for files in step.values():
                for file in files:
                    if file.content is FileContent.EQUALITY_DELETES:
                        read = pq.read_table(file.file_path.removeprefix("file://")).to_pylist()
                        keys = {(r["id"], r["region"]) for r in read}
                        live = [row for row in live if row[:2] not in keys]
            for files in step.values():
                for file in files:
                    if file.content is FileContent.DATA:
                        read = pq.read_table(file.file_path.removeprefix("file://")).to_pylist()
                        live.extend((r["id"], r["region"], r["amount"]) for r in read)
    return sorted(live, key=repr)


@pytest.mark.parametrize("reference_only", [False, True])
@pytest.mark.parametrize("ids", [(1, 2), ()], ids=["id-columns", "message-key"])
@pytest.mark.parametrize("is_cdc", [True, False], ids=["cdc", "upsert"])
def test_row_level_histories_equal_a_replay(
    tmp_path: Path, is_cdc: bool, ids: tuple[int, ...], reference_only: bool
) -> None:
    """For any batches, blocks and steps."""
    connector = config(**(CDC if is_cdc else UPSERT))
    place = 4 * is_cdc + 2 * bool(ids) + reference_only
    for seed in part(range(12), place, of=6):
        lines, live = history(seed, 240, is_cdc=is_cdc)
        limits = PipelineLimits(
            block_rows=random.Random(seed).choice([7, 40, 1000]),
            changes_bytes_max=random.Random(seed).choice([1, 2_000, 10**9]),
        )
        results = []
        for start in range(0, len(lines), 80):
            some = lines[start : start + 80]
            batch = source([v for _, v in some], keys=[k for k, _ in some], start=start)
            plans = [keyed_plan(tmp_path / str(seed), *ids)]
            results.append(
                run_batches(connector, plans, [batch], limits=limits, reference_only=reference_only)
            )
        expected = sorted(((*key, amount) for key, amount in live.items()), key=repr)
        assert applied(results) == expected, seed
        for result in results:
            files = [f for each in result.files.values() for f in each]
            rows = sum(f.record_count for f in files if f.content is FileContent.DATA)
            written = sum(p.written for p in result.progress.values())
            assert result.rows.made == written == 80
            assert rows == result.rows.kept


SOURCES = tuple(TopicPartition(topic, number) for topic in ("t", "u") for number in (0, 1))


@dataclass
class Sources:
    """Changes of random keys in several partitions, and the rows that they leave.

    Args:
        seed: of the changes.
        shared: whether a key may be in several partitions.
    """

    seed: int
    shared: bool
    live: dict[Key, float] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def batch(self, count: int) -> dict[TopicPartition, pa.RecordBatch]:
        """Return the next records of each partition, and apply them in the order of their ranks."""
        rng = random.Random(f"{self.seed} {self.offsets}")
        ranked, batches = [], {}
        for place, tp in enumerate(SOURCES):
            start = self.offsets.get(tp, 0)
            newest, lines, stamps = 0, [], []
            for offset in range(start, start + rng.choice([0, 1, count])):
                number = rng.randrange(12) * (1 if self.shared else len(SOURCES))
                key = (number + (0 if self.shared else place), rng.choice(["eu", None]))
                stamps.append(FIRST_MS + rng.choice([0, 5, rng.randrange(40)]))
                newest = max(newest, stamps[-1])
                amount = place * 1e6 + offset
                value: bytes | None = None
                if rng.random() < 0.8:
                    row = {"id": key[0], "region": key[1], "amount": amount}
                    value = json.dumps(row).encode()
                raw_key = json.dumps({"id": key[0], "region": key[1]}).encode()
                lines.append((raw_key, value))
                ranked.append(((newest, place, offset), key, value, amount))
            self.offsets[tp] = start + len(lines)
            batches[tp] = source(
                [v for _, v in lines],
                keys=[k for k, _ in lines],
                topic=tp.topic,
                partition=tp.partition,
                start=start,
                stamps_ms=stamps,
            )
        for _, key, value, amount in sorted(ranked):
            self.live.pop(key, None)
            if value is not None:
                self.live[key] = amount
        return {tp: batch for tp, batch in batches.items() if batch.num_rows}

    def rows(self) -> list[tuple[Any, Any, float]]:
        """Return the rows that live."""
        return sorted(((*key, amount) for key, amount in self.live.items()), key=repr)


@pytest.mark.parametrize("shared", [True, False])
def test_a_key_in_several_partitions_has_its_newest_row(tmp_path: Path, shared: bool) -> None:
    """However partitions are spread over Spark tasks; a batch that shares keys is merged."""
    connector = config(**UPSERT, topics="t,u")
    repeated = 0
    for seed in range(14):
        rng = random.Random(seed)
        sources = Sources(seed, shared)
        plans = (keyed_plan(tmp_path / f"{seed}-{shared}", 1, 2),)
        limits = PipelineLimits(block_rows=rng.choice([3, 1000]))
        spec = PipelineSpec(connector, plans, limits=limits, sources=SOURCES)
        results = []
        for _ in range(2):
            batches = sources.batch(rng.choice([3, 30]))
            reads: list[list[pa.RecordBatch]] = [[], []]
            for batch in rng.sample(list(batches.values()), len(batches)):
                half = batch.num_rows // 2
                reads[rng.randrange(2)] += [batch.slice(0, half), batch.slice(half)]
            result = run_spark_tasks(replace(spec, reports_keys=True), reads)
            if result.shares_keys:
                repeated += 1
                result = run_spark_tasks(spec, [[*reads[1], *reads[0]]])
            results.append(result)
        assert applied(results) == sources.rows(), seed
    assert (repeated > 5) if shared else (repeated == 0)


def test_passed_changes_of_a_key_have_its_newest_row(tmp_path: Path) -> None:
    """One Spark task receives the changes of a table from all others."""
    connector = config(**UPSERT, topics="t,u")
    for seed in range(4):
        sources = Sources(seed, shared=True)
        plans = [keyed_plan(tmp_path / str(seed), 1, 2)]
        reads = [[batch] for batch in sources.batch(30).values()]
        random.Random(seed).shuffle(reads)
        distribution = Distribution(2, 1)
        result, _ = run_distributed(connector, plans, reads, distribution, sources=SOURCES)
        assert not result.shares_keys
        assert applied([result]) == sources.rows(), seed


def test_equal_keys_have_equal_hashes() -> None:
    """Also in slices, and next to null; other keys have others."""
    uuids = [UUID(int=n).bytes for n in range(50)]
    columns = [
        pa.array([None, *range(50)], pa.int32()),
        pa.array([None, *range(50)], pa.int64()),
        pa.array([None, *range(50)], pa.date32()),
        pa.array([None, *map(Decimal, range(50))], pa.decimal128(38, 20)),
        pa.array([None, *uuids], pa.binary(16)),
        pa.array([None, *("x" * n for n in range(50))], pa.string()),
        pa.array([None, *(b"\0" * n for n in range(50))], pa.large_binary()),
    ]
    for column in columns:
        hashes = key_hashes([column])
        assert len(set(hashes.tolist())) == len(column), column.type
        assert key_hashes([column.slice(7, 20)]).tolist() == hashes[7:27].tolist()
        assert (
            key_hashes([pa.concat_arrays([column.slice(9, 2)])]).tolist() == hashes[9:11].tolist()
        )
    both = key_hashes([columns[0], columns[5]])
    assert both.tolist() != key_hashes([columns[5], columns[0]]).tolist()
    flags = key_hashes([pa.array([True, False, None, True])]).tolist()
    assert flags[0] == flags[3]
    assert len(set(flags)) == 3


def test_an_insert_writes_no_delete_file(tmp_path: Path) -> None:
    """Upsert mode writes one."""
    lines: list[bytes | None] = [b'{"id":1,"amount":1.0,"_cdc":{"op":"I"}}']
    plans = [keyed_plan(tmp_path, 1)]
    by_cdc = run_batches(config(**CDC), plans, [source(lines)])
    assert [f.content for f in by_cdc.files["db.t1"]] == [FileContent.DATA]
    both = run_batches(
        config(**CDC, **{"iceberg.tables.upsert-mode-enabled": "true"}), plans, [source(lines)]
    )
    assert sorted(f.content for f in both.files["db.t1"]) == [
        FileContent.DATA,
        FileContent.EQUALITY_DELETES,
    ]


def test_delete_files_are_in_the_partition_of_the_key(tmp_path: Path) -> None:
    """If the key decides the partition; they name the key columns."""
    plans = [keyed_plan(tmp_path, 1, 2, spec=BY_REGION, deletes=BY_REGION)]
    lines: list[bytes | None] = [
        b'{"id":1,"region":"eu","amount":1.0}',
        b'{"id":1,"region":"us","amount":2.0}',
    ]
    result = run_batches(config(**UPSERT), plans, [source(lines)])
    deletes = [f for f in result.files["db.t1"] if f.content is FileContent.EQUALITY_DELETES]
    assert sorted(f.partition[0].value for f in deletes) == ["eu", "us"]
    assert {f.equality_ids for f in deletes} == {(1, 2)}
    assert {f.spec_id for f in deletes} == {BY_REGION.spec_id}


def test_a_tombstone_with_a_plain_key_deletes_by_the_only_key_column(tmp_path: Path) -> None:
    """A tombstone whose key is a plain value deletes by the only key column."""
    plans = [keyed_plan(tmp_path, 1)]
    result = run_batches(config(**UPSERT), plans, [source([None, None], keys=[b"7", None])])
    [file] = result.files["db.t1"]
    assert pq.read_table(file.file_path.removeprefix("file://")).to_pylist() == [{"id": 7}]
    assert result.progress[TopicPartition("t", 0)].dropped == 1


@pytest.mark.parametrize("reference_only", [False, True])
@pytest.mark.parametrize("is_upsert", [False, True])
@pytest.mark.parametrize(
    ("text", "operation"),
    [
        *((text, "D") for text in ("true", '"true"', '"TRUE"', '"d"', '"DELETE"')),
        *((text, "U") for text in ('"u"', '"Update"', '"replace"', '" UPSERT "')),
        *((text, "I") for text in ("false", '"false"', "null", '""', '"r"', '"c"', '"INSERT"')),
        *((text, None) for text in ('"x"', '"t"', '"truncate"', '"no"', "1", "0", "{}", '"+I"')),
    ],
)
def test_values_of_the_operation(
    tmp_path: Path, text: str, operation: str | None, is_upsert: bool, reference_only: bool
) -> None:
    """Known values change rows, and any other value is a record error, on both paths."""
    more = {"iceberg.tables.upsert-mode-enabled": str(is_upsert).lower()}
    line = f'{{"id":1,"amount":1.0,"_cdc":{{"op":{text}}}}}'.encode()
    result = run_batches(
        config(**{**CDC, **more, **TOLERANT}),
        [keyed_plan(tmp_path, 1)],
        [source([line], keys=[b'{"id":1}'])],
        reference_only=reference_only,
    )
    files = {file.content for file in result.files.get("db.t1", ())}
    written = {
        "D": {FileContent.EQUALITY_DELETES},
        "U": {FileContent.EQUALITY_DELETES, FileContent.DATA},
        "I": {FileContent.EQUALITY_DELETES, FileContent.DATA} if is_upsert else {FileContent.DATA},
        None: set(),
    }
    assert files == written[operation]
    assert [d.error.code for d in result.dead_letters] == ["cdc_field"] * (operation is None)


DYNAMIC = {
    **CDC,
    "iceberg.tables": None,
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "t",
}
INSERT = b'{"t":"db.t1","id":1,"amount":1.0,"_cdc":{"op":"I"}}'
DELETE = b'{"t":"db.t1","id":1,"_cdc":{"op":"D"}}'


@pytest.mark.parametrize("reference_only", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        ([DELETE, None], b'{"id":1}', "dropped"),
        ([DELETE, None], b'{"id":2}', "dead"),
        ([INSERT, None], b'{"id":1}', "dead"),
        ([b"{", None], b'{"id":1}', "dead"),
        ([INSERT, None], b'{"t":"db.t1","id":1}', "written"),
        ([None], b'{"id":1}', "dead"),
    ],
)
@pytest.mark.parametrize("block_rows", [1, 10])
def test_a_tombstone_without_a_table_is_never_lost(
    tmp_path: Path,
    case: tuple[list[bytes | None], bytes, str],
    reference_only: bool,
    block_rows: int,
) -> None:
    """It is dropped behind its own delete, and a dead letter behind any other record."""
    values, last_key, outcome = case
    batch = source(values, keys=[*([b'{"id":1}'] * (len(values) - 1)), last_key])
    result = run_batches(
        config(**DYNAMIC, **TOLERANT),
        [keyed_plan(tmp_path, 1)],
        [batch],
        limits=PipelineLimits(block_rows=block_rows),
        reference_only=reference_only,
    )
    letters = [(d.record.offset, d.error.code) for d in result.dead_letters if d.error.code != BAD]
    last = len(values) - 1
    assert letters == ([(last, "tombstone_unroutable")] if outcome == "dead" else [])
    assert result.progress[TopicPartition("t", 0)].dropped == (outcome == "dropped")


@pytest.mark.parametrize("reference_only", [False, True])
@pytest.mark.parametrize("tables", [("db.orders", "db.customers"), ("db.customers",)])
def test_a_tombstone_deletes_no_row_of_another_table_of_its_topic(
    tmp_path: Path, tables: tuple[str, ...], reference_only: bool
) -> None:
    """A topic may have the rows of several tables, also of those that the connector leaves out."""
    routes = {f"iceberg.table.{name}.route-regex": name.removeprefix("db.") for name in tables}
    keys = {"iceberg.tables": ",".join(tables), "iceberg.tables.route-field": "t", **routes}
    connector = config(**{**CDC, **TOLERANT, **keys, "iceberg.tables.unmatched": "dead-letter"})
    lines = [
        {"t": "orders", "id": 1, "amount": 1.0, "_cdc": {"op": "I"}},
        {"t": "customers", "id": 1, "amount": 1.0, "_cdc": {"op": "I"}},
        {"t": "orders", "id": 1, "_cdc": {"op": "D"}},
    ]
    values = [*(json.dumps(line).encode() for line in lines), None]
    plans = [replace(keyed_plan(tmp_path, 1), name=name) for name in tables]
    batch = source(values, keys=[b'{"id":1}'] * len(values))
    result = run_batches(connector, plans, [batch], reference_only=reference_only)
    written = {
        name: [file.content for file in files if file.content is FileContent.EQUALITY_DELETES]
        for name, files in result.files.items()
    }
    assert written.get("db.customers") == []
    assert not [d for d in result.dead_letters if d.record.offset == 3]


def test_a_tombstone_whose_predecessor_is_not_known_does_not_end_the_task(tmp_path: Path) -> None:
    """Its delete may be in the batch before. Behind an insert it ends the task."""
    plans, keys = [keyed_plan(tmp_path, 1)], [b'{"id":1}'] * 2
    result = run_batches(config(**DYNAMIC), plans, [source([None], keys=keys[:1])])
    assert result.progress[TopicPartition("t", 0)].dropped == 1
    failed = run_batches(config(**DYNAMIC), plans, [source([INSERT, None], keys=keys)])
    assert failed.error is not None
    assert failed.error.code == "tombstone_unroutable"


@pytest.mark.parametrize(
    ("more", "requested"),
    [({}, ["db.new"]), ({"absent": frozenset({"db.new"})}, [])],
)
def test_a_tombstone_for_a_table_that_is_not_loaded_asks_for_it(
    tmp_path: Path, more: Any, requested: list[str]
) -> None:
    """The table may exist since before a restart; the tombstone does not create it."""
    auto = {"iceberg.tables.auto-create-enabled": "true"}
    batch = source([None], keys=[b'{"t":"db.new","id":1}'])
    plans = [keyed_plan(tmp_path, 1)]
    result = run_batches(config(**DYNAMIC, **auto), plans, [batch], **more)
    assert [(r.table, r.schema_json) for r in result.table_requests] == [
        (name, None) for name in requested
    ]


@pytest.mark.parametrize(
    ("ids", "key", "value", "code"),
    [
        ((1, 2), b"7", None, "no_key"),
        ((1, 2), b'{"id":7}', None, "no_key"),
        ((), b"7", b'{"id":7,"amount":1.0}', "no_key"),
        ((), b'{"nothing":7}', b'{"id":7,"amount":1.0}', "no_key"),
        ((1,), b"7", b'{"amount":1.0,"_cdc":{"op":"D"}}', "no_key"),
        ((1,), b"7", b'{"id":1,"amount":null,"_cdc":{"op":"U"}}', "required_null"),
        ((1,), b"7", b'{"id":"x","amount":1,"_cdc":{"op":"D"}}', "bad_text"),
    ],
)
def test_a_change_without_a_key_is_refused_alone(
    tmp_path: Path, ids: tuple[int, ...], key: bytes, value: bytes | None, code: str
) -> None:
    """A change that does not say which row it means is refused, alone among good ones."""
    good, good_key = b'{"id":1,"region":"eu","amount":1.0}', b'{"id":1,"region":"eu"}'
    batch = source([good, value, good], keys=[good_key, key, good_key])
    if not ids:
        batch = source([value, value], keys=[key, key])
    for reference_only in (False, True):
        result = run_batches(
            config(**CDC, **TOLERANT),
            [keyed_plan(tmp_path, *ids)],
            [batch],
            reference_only=reference_only,
        )
        assert {letter.error.code for letter in result.dead_letters} == {code}
        assert len(result.dead_letters) == (1 if ids else 2)


def test_superseded_records_count_as_written(tmp_path: Path) -> None:
    """A newer record of their key replaces them at once."""
    lines: list[bytes | None] = [
        json.dumps({"id": n % 2, "amount": float(n)}).encode() for n in range(10)
    ]
    result = run_batches(config(**UPSERT), [keyed_plan(tmp_path, 1)], [source(lines)])
    counted = result.progress[TopicPartition("t", 0)]
    assert (counted.read, counted.written) == (10, 10)
    assert isinstance(counted, PartitionProgress)
    assert result.rows.superseded == 8


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("nope",), "no top-level column"),
        (("amount",), "floating"),
    ],
)
def test_columns_that_cannot_be_keys(names: tuple[str, ...], what: str) -> None:
    """Missing or floating-point id columns are named, with the key to set."""
    from connect.records.row_operations import key_columns

    with pytest.raises(ConfigError, match=what) as refused:
        key_columns(SCHEMA, names, table="db.t1")
    assert "iceberg.table.db.t1.id-columns" in str(refused.value)


PLACEHOLDER = "__debezium_unavailable_value"
LARGE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "raw", BinaryType(), required=False),
    NestedField(4, "names", ListType(5, StringType(), element_required=False), required=False),
)
RAW = b64encode(PLACEHOLDER.encode()).decode()
FORMS = {"text": PLACEHOLDER, "raw": RAW, "names": [PLACEHOLDER]}
OTHERS = {"text": PLACEHOLDER + "s", "raw": "eA==", "names": [PLACEHOLDER, "x"]}


def large_plan(folder: Path) -> TablePlan:
    return replace(plan(folder, LARGE), changes=ChangePlan((1,), FREE.model_dump_json()))


@pytest.mark.parametrize("reference_only", [False, True])
def test_values_that_the_source_did_not_send_are_counted(
    tmp_path: Path, reference_only: bool
) -> None:
    """By table and column, where the row is written: not of deletes and superseded rows."""
    lines = [
        *({"id": n, name: value} for n, (name, value) in enumerate(FORMS.items())),
        *({"id": 10 + n, name: value} for n, (name, value) in enumerate(OTHERS.items())),
        {"id": 20, "text": PLACEHOLDER},
        {"id": 20, "text": "whole"},
        {"id": 21, "text": PLACEHOLDER, "_cdc": {"op": "D"}},
        {"id": 22, "text": None, "names": []},
    ]
    connector = config(**{**UPSERT, **CDC})
    batch = source([json.dumps(line).encode() for line in lines])
    result = run_batches(connector, [large_plan(tmp_path)], [batch], reference_only=reference_only)
    assert result.error is None
    assert result.unavailable == {("db.t1", name): 1 for name in FORMS}


@pytest.mark.parametrize("reference_only", [False, True])
def test_values_that_the_source_did_not_send_are_refused_on_request(
    tmp_path: Path, reference_only: bool
) -> None:
    """The record is a dead letter, and the row keeps its value."""
    lines = [{"id": 1, name: value} for name, value in [*FORMS.items(), *OTHERS.items()]]
    keys = {"iceberg.tables.unavailable-value": "error"}
    connector = config(**UPSERT, **TOLERANT, **keys)
    batch = source([json.dumps(line).encode() for line in lines])
    result = run_batches(connector, [large_plan(tmp_path)], [batch], reference_only=reference_only)
    assert not result.unavailable
    letters = {d.record.offset: d.error for d in result.dead_letters}
    assert [letters[n].coordinates["column"] for n in sorted(letters)] == list(FORMS)
    assert {error.code for error in letters.values()} == {"unavailable_value"}
    assert "REPLICA IDENTITY FULL" in letters[0].message

"""Tables without key next to tables with keys: their rows are appended, on both paths."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from connect.model.layout import TopicPartition
from connect.records.row_operations import Keyless
from control_schemas.events import FileContent
from tests.differential.both_paths import both
from tests.differential.examples import part
from tests.differential.support import (
    JSON,
    config,
    plan,
    run_batches,
    run_distributed,
    source,
)
from worker.batch.descriptors import BatchResult
from worker.batch.distribution import Distribution
from worker.batch.pipeline_spec import ChangePlan, TablePlan
from worker.pipeline.pipeline import PipelineLimits

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "n", LongType(), required=True),
    NestedField(3, "op", StringType(), required=False),
)
TABLES = ("db.keyed", "db.free")
ROUTED = {
    "key.converter": JSON,
    "key.converter.schemas.enable": "false",
    "iceberg.tables": ",".join(TABLES),
    "iceberg.tables.route-field": "t",
    **{f"iceberg.table.{name}.route-regex": name for name in TABLES},
    "iceberg.tables.cdc-field": "op",
    "iceberg.tables.no-key": "append",
}
ALL_CHANGES = {"iceberg.tables.no-key-changes": "append"}
DEAD_LETTERS = {"errors.deadletterqueue.topic.name": "dead"}
Row = tuple[int, int, str | None]
Line = tuple[bytes | None, bytes | None]


def planned(folder: Path, name: str, keyless: Keyless, *ids: int) -> TablePlan:
    """Return the plan of a table; without ids, message keys name its key columns."""
    changes = ChangePlan(ids, '{"spec-id":1,"fields":[]}', keyless)
    return replace(plan(folder, SCHEMA, name=name), changes=changes)


class History:
    """Changes of both tables, and the rows and dead letters that they leave.

    Args:
        seed: of the random choices.
        is_upsert: whether inserts replace rows.
        appends: whether updates and deletes without key are appended.
    """

    def __init__(self, seed: int, *, is_upsert: bool, appends: bool) -> None:
        self.rng = random.Random(seed)
        self.is_upsert = is_upsert
        self.appends = appends
        self.lines: list[Line] = []
        self.rows: dict[str, list[tuple[Row, bool]]] = {name: [] for name in TABLES}
        self.refused: list[int] = []
        for n in range(200):
            self._add(n)

    def live(self) -> dict[str, Counter[Row]]:
        """Return the rows of each table."""
        return {name: Counter(row for row, _ in rows) for name, rows in self.rows.items()}

    def _add(self, n: int) -> None:
        name, number = self.rng.choice(TABLES), self.rng.randrange(4)
        has_key = name == "db.keyed" or self.rng.random() < 0.3
        rows = self.rows[name]
        is_live = any(row[0] == number and is_keyed for row, is_keyed in rows)
        op = self.rng.choice(["U", "D"] if is_live else ["U", "D", "c", "r", None])
        if not has_key:
            op = self.rng.choice(["U", "D", "c", "r", None])
        line = {"t": name, "id": number, "n": n, "op": op}
        key = json.dumps({"id": number}).encode() if has_key else None
        self.lines.append((key, json.dumps(line).encode()))
        if not has_key and not self.appends and op in {"U", "D"}:
            self.refused.append(n)
            return
        if has_key and (op in {"U", "D"} or self.is_upsert):
            rows[:] = [each for each in rows if each[0][0] != number]
        if not has_key or op != "D":
            rows.append(((number, n, op), has_key))


def applied(results: list[BatchResult]) -> dict[str, Counter[Row]]:
    """Return the rows after all steps of all batches: deletes first, then the step's own rows."""
    live: dict[str, list[Row]] = {name: [] for name in TABLES}
    for result in results:
        assert result.error is None
        for step in result.steps:
            for name, files in step.items():
                read = [(f, pq.read_table(f.file_path.removeprefix("file://"))) for f in files]
                deletes = [t for f, t in read if f.content is FileContent.EQUALITY_DELETES]
                gone = {number for table in deletes for number in table["id"].to_pylist()}
                live[name] = [row for row in live[name] if row[0] not in gone]
                for file, table in read:
                    if file.content is FileContent.DATA:
                        live[name] += [tuple(r.values()) for r in table.to_pylist()]
    return {name: Counter(rows) for name, rows in live.items()}


@pytest.mark.parametrize("reference_only", [False, True])
@pytest.mark.parametrize("appends", [True, False], ids=["append", "dead-letter"])
@pytest.mark.parametrize("is_upsert", [True, False], ids=["upsert", "cdc"])
def test_histories_without_keys_equal_a_replay(
    tmp_path: Path, is_upsert: bool, appends: bool, reference_only: bool
) -> None:
    """For any batches, blocks and steps, also where a table has records of both kinds."""
    upsert = {"iceberg.tables.upsert-mode-enabled": str(is_upsert).lower()}
    connector = config(**ROUTED, **upsert, **(ALL_CHANGES if appends else {}), **DEAD_LETTERS)
    keyless = Keyless.APPEND if appends else Keyless.APPEND_INSERTS
    plans = [planned(tmp_path, name, keyless) for name in TABLES]
    for seed in part(range(8), 4 * is_upsert + 2 * appends + reference_only, of=8):
        history, rng = History(seed, is_upsert=is_upsert, appends=appends), random.Random(seed)
        limits = PipelineLimits(
            block_rows=rng.choice([5, 40, 1000]), changes_bytes_max=rng.choice([1, 500, 10**9])
        )
        results, start = [], 0
        while start < len(history.lines):
            end = start + rng.choice([1, 30, 90])
            keys, values = zip(*history.lines[start:end], strict=True)
            batch = source(list(values), keys=list(keys), start=start)
            ran = run_batches(
                connector, plans, [batch], limits=limits, reference_only=reference_only
            )
            results.append(ran)
            start = end
        letters = [(d.record.offset, d.error.code) for r in results for d in r.dead_letters]
        assert sorted(letters) == [(n, "keyless_change") for n in history.refused]
        assert applied(results) == history.live()


def test_rows_without_key_are_passed_on(tmp_path: Path) -> None:
    """Rows that other Spark tasks write are appended there; no key is needed to pass them on."""
    history = History(5, is_upsert=True, appends=True)
    upsert = {"iceberg.tables.upsert-mode-enabled": "true"}
    plans = [planned(tmp_path, name, Keyless.APPEND) for name in TABLES]
    keys, values = zip(*history.lines, strict=True)
    result, _ = run_distributed(
        config(**ROUTED, **upsert, **ALL_CHANGES),
        plans,
        [[source(list(values), keys=list(keys))]],
        Distribution(task_count=2, rows_max=1000),
        limits=PipelineLimits(block_rows=9),
    )
    assert applied([result]) == history.live()


def test_a_change_without_key_and_dead_letters_ends_the_task(tmp_path: Path) -> None:
    """Without dead letters the change is an error, as no table and no topic could take it."""
    values = [b'{"t":"db.free","id":1,"n":1,"op":"c"}', b'{"t":"db.free","id":1,"n":2,"op":"d"}']
    plans = [planned(tmp_path, "db.free", Keyless.APPEND_INSERTS)]
    for reference_only in (False, True):
        result = run_batches(
            config(**ROUTED), plans, [source(values)], reference_only=reference_only
        )
        assert result.error is not None
        assert result.error.code == "keyless_change"


@pytest.mark.parametrize("is_refused", [True, False], ids=["error", "append"])
def test_only_the_records_of_a_table_without_key_are_refused(
    tmp_path: Path, is_refused: bool
) -> None:
    """By default these are errors, one by one; other tables get their rows."""
    values = [
        b'{"t":"db.free","id":1,"n":1,"op":"c"}',
        b'{"t":"db.keyed","id":1,"n":2,"op":"c"}',
        b'{"t":"db.free","id":1,"n":3,"op":"c"}',
    ]
    keyless = Keyless.REFUSE if is_refused else Keyless.APPEND_INSERTS
    plans = [planned(tmp_path, name, keyless) for name in TABLES]
    mode = {"iceberg.tables.no-key": "error"} if is_refused else {}
    batch = source(values, keys=[None, b'{"id":1}', None])
    connector = config(**{**ROUTED, **mode, "errors.tolerance": "all"})
    for reference_only in (False, True):
        result = run_batches(connector, plans, [batch], reference_only=reference_only)
        assert [d.error.code for d in result.dead_letters] == ["no_key"] * 2 * is_refused
        counted = result.progress[TopicPartition("t", 0)]
        assert counted.written == (1 if is_refused else 3)


def test_a_key_of_a_transformation_is_a_key(tmp_path: Path) -> None:
    """``ValueToKey`` names the row of a record that Kafka stores without key."""
    chain = {
        "transforms": "k",
        "transforms.k.type": "org.apache.kafka.connect.transforms.ValueToKey",
        "transforms.k.fields": "id",
    }
    values = [b'{"id":1,"n":%d,"op":"u"}' % n for n in range(4)]
    plans = [planned(tmp_path, "db.t1", Keyless.APPEND)]
    more = {**chain, "iceberg.tables.cdc-field": "op", "iceberg.tables.no-key": "append"}
    by_column, by_record = both(config(**more, **ALL_CHANGES), plans, [source(values)])
    assert by_column == by_record
    rows = [row for row in by_column["rows"]["db.t1"] if "'n': 3" in row]
    assert len(rows) == 1
    assert len(by_column["rows"]["db.t1"]) == 2  # the row, and the key that it replaces


def test_debezium_events_without_key_keep_their_operation(tmp_path: Path) -> None:
    """A delete is appended with the old row, and a table with id-columns ignores message keys."""
    cdc = StructType(NestedField(5, "op", StringType(), required=False))
    schema = Schema(*SCHEMA.fields[:2], NestedField(4, "_cdc", cdc, required=False))
    events: list[Any] = [
        {"op": op, "ts_ms": 1, "source": {"db": "d", "table": "t"}, "before": b, "after": a}
        for op, b, a in (
            ("r", None, {"id": 1, "n": 1}),
            ("u", {"id": 1, "n": 1}, {"id": 1, "n": 2}),
            ("d", {"id": 1, "n": 2}, None),
        )
    ]
    values = [json.dumps(event).encode() for event in events]
    more = {
        "transforms": "d",
        "transforms.d.type": "org.apache.iceberg.connect.transforms.DebeziumTransform",
        "iceberg.tables.cdc-field": "_cdc.op",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.no-key": "append",
    }
    for ids, kept in (((), ["I", "U", "D"]), ((1,), [])):
        keyless = Keyless.REFUSE if ids else Keyless.APPEND
        changes = ChangePlan(ids, '{"spec-id":1,"fields":[]}', keyless)
        plans = [replace(plan(tmp_path, schema), changes=changes)]
        by_column, by_record = both(config(**more, **ALL_CHANGES), plans, [source(values)])
        assert by_column == by_record
        found = [row for row in by_column["rows"]["db.t1"] if "_cdc" in row]
        assert sorted(found) == sorted(
            repr({"id": 1, "n": n, "_cdc": {"op": op}})
            for n, op in zip((1, 2, 2), kept, strict=False)
        )


def test_a_table_has_its_own_setting() -> None:
    """Keys of a table override those of the connector."""
    own = {
        "iceberg.table.db.keyed.no-key": "error",
        "iceberg.table.db.free.no-key-changes": "append",
    }
    connector = config(**ROUTED, **own)
    kinds = {name: Keyless.of(connector.table(name)) for name in (*TABLES, "db.other")}
    assert kinds == {
        "db.keyed": Keyless.REFUSE,
        "db.free": Keyless.APPEND,
        "db.other": Keyless.APPEND_INSERTS,
    }

"""Rows for outputs, as the pipeline makes them: which, in which order and form, and how many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from connect.errors import ConfigError, RetriableError
from tests.differential.support import config, plan, run_batches, source
from tests.support.pipeline_lines import ids
from worker.batch.descriptors import BatchResult
from worker.batch.error_rows import OUTPUT_COLUMN, OUTPUT_FULL
from worker.batch.pipeline_spec import PipelineLimits
from worker.task.tables.topic_rows import TopicRows

OUTPUT = "icefloe.output.alerts."
ALERTS = {"icefloe.outputs": "alerts", f"{OUTPUT}topic": "alerts"}
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
    NestedField(4, "at", TimestamptzType(), required=False),
    NestedField(5, "tags", ListType(6, StringType(), element_required=False), required=False),
    NestedField(
        7,
        "place",
        StructType(NestedField(8, "street no", LongType(), required=False)),
        required=False,
    ),
)


def record(number: int, **more: Any) -> bytes:
    """A record whose fields are those of the table."""
    value = {
        "id": number,
        "name": f'n"{number}',
        "amount": number / 2,
        "at": f"2026-01-01T00:00:{number % 60:02d}Z",
        "tags": [None, "x"][: number % 3],
        "place": {"street no": number} if number % 2 else None,
    }
    return json.dumps({**value, **more}).encode()


def sent(result: BatchResult, *topics: str) -> list[tuple[str, bytes | None, Any]]:
    """Topic, key and value of each message, in order."""
    topics = topics or ("alerts",)
    return [
        (m.topic, m.key, json.loads(m.value or b""))
        for chunk in result.messages
        for m in chunk.messages(topics)
    ]


def run(
    folder: Path, values: list[bytes | None], *, slow: bool = False, **more: str
) -> BatchResult:
    """Run a connector with an output over records."""
    connector = config(**ALERTS, **{k.replace("__", "."): v for k, v in more.items()})
    return run_batches(connector, [plan(folder, SCHEMA)], [source(values)], reference_only=slow)


@pytest.mark.parametrize("slow", [False, True])
def test_rows_for_which_the_condition_holds_are_sent_in_order(tmp_path: Path, slow: bool) -> None:
    """Also those that go record by record; all rows are in the table."""
    values: list[bytes | None] = [record(n) for n in range(50)]
    values[7] = record(7, amount="3.5")  # a text: the record path converts it
    values[9] = None
    conditions = {f"{OUTPUT}where": "amount >= `3` && name != `null`", f"{OUTPUT}key": "name"}
    result = run(tmp_path, values, slow=slow, **conditions)
    assert ids(result, "db.t1") == [n for n in range(50) if n != 9]
    numbers = [n for n in range(6, 50) if n != 9]
    expected = [
        {
            "id": n,
            "name": f'n"{n}',
            "amount": n / 2,
            "at": f"2026-01-01T00:00:{n:02d}.000000Z",
            "tags": [None, "x"][: n % 3],
            "place": {"street no": n} if n % 2 else None,
        }
        for n in numbers
    ]
    assert sent(result) == [("alerts", row["name"].encode(), row) for row in expected]
    (rows,) = [chunk.rows().to_pylist() for chunk in result.messages]
    origins = [(row["topic"], row["partition"], row["offset"], row["timestamp"]) for row in rows]
    assert origins == [("t", 0, n, 1_700_000_000_000 + n) for n in numbers]


def test_each_output_has_its_own_rows(tmp_path: Path) -> None:
    """One read, several topics: by table, condition, columns and key."""
    outputs = {
        "icefloe.outputs": "all,large",
        "icefloe.output.all.topic": "every",
        "icefloe.output.all.columns": "id",
        "icefloe.output.all.tables": "db.t2",
        "icefloe.output.large.topic": "large",
        "icefloe.output.large.where": "amount > `1`",
        "icefloe.output.large.columns": "amount, id",
        "icefloe.output.large.key": "place.street no",
        "iceberg.tables": "db.t1,db.t2",
    }
    tables = [plan(tmp_path, SCHEMA, name=name) for name in ("db.t1", "db.t2")]
    result = run_batches(config(**outputs), tables, [source([record(n) for n in range(4)])])
    found = sent(result, "every", "large")
    assert [row for topic, key, row in found if topic == "every" and key is None] == [
        {"id": n} for n in range(4)
    ]
    large = [(key, row) for topic, key, row in found if topic == "large"]
    assert large == [(b"3", {"amount": 1.5, "id": 3})] * 2  # once for each table


def test_rows_of_one_record_are_adjacent(tmp_path: Path) -> None:
    """A transformation made them of it."""
    explode = {
        "transforms": "e",
        "transforms.e.type": "Explode",
        "transforms.e.field": "name",
        f"{OUTPUT}columns": "id,name",
    }
    values: list[bytes | None] = [
        json.dumps({"id": n, "name": [f"{n}a", f"{n}b"]}).encode() for n in range(3)
    ]
    result = run(tmp_path, values, **explode)
    assert [row["name"] for _, _, row in sent(result)] == ["0a", "0b", "1a", "1b", "2a", "2b"]


@pytest.mark.parametrize("slow", [False, True])
def test_rows_without_a_table_are_only_sent(slow: bool) -> None:
    """They have the columns of the configuration; no file is written."""
    settings = {
        "icefloe.format": "topic",
        "icefloe.rows.columns": "id BIGINT, amount DECIMAL(9, 2), tags ARRAY<STRING>",
        "iceberg.tables": None,
        "iceberg.catalog.type": None,
        "iceberg.catalog.uri": None,
        "errors.tolerance": "all",
    }
    connector = config(**ALERTS, **settings)
    rows = TopicRows(connector)
    values: list[bytes | None] = [record(1), record(2, id="x"), None, record(3)]
    result = run_batches(connector, rows.spec().tables, [source(values)], reference_only=slow)
    assert [row for _, _, row in sent(result)] == [
        {"id": 1, "amount": 0.5, "tags": [None]},
        {"id": 3, "amount": 1.5, "tags": []},
    ]
    assert not result.files
    assert (result.rows.made, len(result.dead_letters)) == (2, 1)


def test_a_dead_letter_is_not_sent(tmp_path: Path) -> None:
    """Its record is in no table either."""
    values: list[bytes | None] = [record(1), record(2, amount="x"), b"no json", record(3)]
    result = run(tmp_path, values, errors__tolerance="all")
    assert len(result.dead_letters) == 2
    assert [row["id"] for _, _, row in sent(result)] == [1, 3]


def test_nothing_is_sent_while_a_table_is_missing() -> None:
    """The batch runs again when the driver has created it."""
    connector = config(**ALERTS, **{"iceberg.tables.auto-create-enabled": "true"})
    result = run_batches(connector, [], [source([record(1)])])
    assert result.table_requests
    assert not result.messages


def test_a_missing_column_is_an_error(tmp_path: Path) -> None:
    """It names the output, the column and the table."""
    for setting in ("columns", "key"):
        result = run(tmp_path, [record(1)], **{f"{OUTPUT}{setting}": "nope"})
        assert isinstance(result.error, ConfigError)
        assert result.error.code == OUTPUT_COLUMN
        assert "output alerts names column nope" in result.error.message
        assert not result.messages
        assert not list(tmp_path.rglob("*.parquet"))


def test_rows_beyond_the_bound_end_the_batch(tmp_path: Path) -> None:
    """A single record is never too much: the batch cannot be smaller."""
    values: list[bytes | None] = [record(n, name="x" * 5_000) for n in range(3)]
    small = PipelineLimits(output_bytes_max=4_000)
    tables = [plan(tmp_path, SCHEMA)]
    result = run_batches(config(**ALERTS), tables, [source(values)], limits=small)
    assert isinstance(result.error, RetriableError)
    assert result.error.code == OUTPUT_FULL
    assert not result.messages
    one = run_batches(config(**ALERTS), tables, [source(values[:1])], limits=small)
    assert len(sent(one)) == 1
    (chunk,) = one.messages
    assert (chunk.count, chunk.largest_row([0])[1]) == (1, chunk.largest)
    assert chunk.largest < chunk.size < chunk.largest + 100

"""Rows of records for Spark, and the reports about the records of a batch."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from connect.clock import SystemClock
from connect.errors import RecordError
from connect.validation.parse import parse
from control_schemas.events import RowCounts
from tests.differential.support import source
from tests.support.connector_json import aggregate_config
from worker.aggregate.event_rows import (
    TakenRows,
    event_ddl,
    event_schema,
    event_spec,
    result_of,
)
from worker.batch.blocks import blocks
from worker.batch.descriptors import collect, dead_letter_batches, rows_row, to_batch
from worker.batch.error_rows import error_row
from worker.batch.spark_types import spark_arrow
from worker.pipeline.pipeline import PipelineTask
from worker.write.table_writers import TableWriters

CONFIG = parse(aggregate_config())


def test_only_used_columns_are_decoded_and_the_time_is_required() -> None:
    """A record without an event time belongs to no window."""
    assert CONFIG.aggregation is not None
    schema = event_schema(CONFIG.aggregation)
    assert [(f.name, f.required) for f in schema.fields] == [
        ("ts", True),
        ("device", False),
        ("amount", False),
    ]
    assert event_ddl(schema) == "`ts` TIMESTAMP, `device` STRING, `amount` BIGINT"


def test_the_pipeline_has_one_table_and_no_routes() -> None:
    """Settings of tables cannot change where rows go."""
    assert CONFIG.aggregation is not None
    spec = event_spec(CONFIG, event_schema(CONFIG.aggregation))
    assert spec.config.tables == tuple(plan.name for plan in spec.tables)
    assert not spec.config.auto_create_enabled
    assert not spec.config.schema_case_insensitive


def test_rows_leave_with_the_types_of_spark() -> None:
    """In the order of the columns; each row once."""
    assert CONFIG.aggregation is not None
    schema = event_schema(CONFIG.aggregation)
    arrow = pa.schema([(f.name, spark_arrow(f.field_type)) for f in schema.fields])
    (plan,) = event_spec(CONFIG, schema).tables
    table = TableWriters((plan,), lambda: "")[plan.name]
    taken = TakenRows(arrow)
    rows = pa.table({"0": [1_000_000], "1": ["cam"], "2": [7]}).cast(
        pa.schema([("0", pa.timestamp("us", "UTC")), ("1", pa.large_string()), ("2", pa.int64())])
    )
    taken.add(table, rows)
    (batch,) = taken.taken()
    assert batch.schema == arrow
    assert batch.column("device").to_pylist() == ["cam"]
    assert list(taken.taken()) == []
    assert list(taken.finish()) == [rows_row(RowCounts(1))]


TIMES: dict[str, tuple[object, bool]] = {
    "last milliseconds of int64": (2**63 - 1, False),
    "last instant of a timestamp": (9_223_372_036_854_775, False),
    "first instant of a timestamp": (-9_223_372_036_854_775, False),
    "year 10000": (253_402_300_800_000, False),
    "year 10000 as text": ("+10000-01-01T00:00:00Z", False),
    "year 0": (-62_135_596_800_001, False),
    "last of 9999": (253_402_300_799_999, True),
    "year 9999 as text": ("9999-12-31T23:59:59.999999Z", True),
    "first of year 1": (-62_135_596_800_000, True),
    "now": (1_795_521_352_000, True),
}


@pytest.mark.parametrize("reference_only", [False, True])
def test_event_times_that_no_window_can_have_are_refused(*, reference_only: bool) -> None:
    """Spark's arithmetic of windows and its texts end before the ends of int64."""
    json_values = "org.apache.kafka.connect.json.JsonConverter"
    config = parse(
        aggregate_config(
            {
                "value.converter": json_values,
                "value.converter.schemas.enable": "false",
                "errors.tolerance": "all",
            }
        )
    )
    assert config.aggregation is not None
    schema = event_schema(config.aggregation)
    spec = replace(event_spec(config, schema), reference_only=reference_only)
    arrow = pa.schema([(f.name, spark_arrow(f.field_type)) for f in schema.fields])
    taken = TakenRows(arrow)
    task = PipelineTask(spec, SystemClock(), output=taken)
    values = [
        json.dumps({"ts": ts, "device": name, "amount": 1}).encode()
        for name, (ts, _) in TIMES.items()
    ]
    records = source(values).select(list(spec.columns()))
    for block in blocks(iter([records]), task.limits):
        task.take(block)
    devices = [name for batch in taken.taken() for name in batch.column("device").to_pylist()]
    assert sorted(devices) == sorted(name for name, (_, is_taken) in TIMES.items() if is_taken)
    result = collect(
        pa.Table.from_batches(
            [to_batch(list(task.finish())), *dead_letter_batches(task.dead_letters)]
        )
    )
    refused = {letter.record.offset: letter.error for letter in result.dead_letters}
    expected = {n for n, (_, is_taken) in enumerate(TIMES.values()) if not is_taken}
    assert refused.keys() == expected
    assert {(e.code, e.coordinates["column"]) for e in refused.values()} == {("out_of_range", "ts")}
    assert any("years 1 to 9999" in e.message for e in refused.values())


def test_a_part_that_was_computed_again_counts_once() -> None:
    """Spark computes a lost part again, which then reports again."""
    part = to_batch([rows_row(RowCounts(3))])
    other = to_batch([rows_row(RowCounts(4))])
    assert result_of([(0, (part,)), (1, (other,)), (0, (part,))]).rows == RowCounts(7)
    assert result_of([]).rows == RowCounts()


def test_an_error_ends_the_batch() -> None:
    """Also if other parts succeeded."""
    error = to_batch([error_row(RecordError("bad", code="bad"))])
    result = result_of([(0, (error,)), (1, (to_batch([rows_row(RowCounts(4))]),))])
    with pytest.raises(RecordError, match="bad"):
        raise result.error or AssertionError

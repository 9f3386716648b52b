"""Rows of records for Spark, and the reports about the records of a batch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connect.errors import RecordError
from connect.validation.parse import parse
from control_schemas.events import RowCounts
from tests.support.connector_json import aggregate_config
from worker.aggregate.event_rows import (
    TakenRows,
    event_ddl,
    event_schema,
    event_spec,
    result_of,
)
from worker.batch.descriptors import rows_row, to_batch
from worker.batch.error_rows import error_row
from worker.batch.spark_types import spark_arrow
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

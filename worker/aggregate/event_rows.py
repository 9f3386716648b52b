"""Records as rows of a streaming query: the body of ``mapInArrow`` before aggregates.

Rules of this file:
- Records are decoded, transformed and converted by the pipeline that writes tables, so that both
  give the same values and refuse the same records.
- Rows go to Spark. Counts, dead letters and errors go to the driver in an accumulator: a query with
  aggregates returns groups, and no rows about records.
- A part that Spark computes again reports again. The driver takes one report of each part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    NestedField,
)
from pyspark import TaskContext
from pyspark.accumulators import Accumulator

from connect.config.aggregation import Aggregation
from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, RecordError, RetriableError
from connect.records.transforms.sql.sql_columns import columns_schema, spark_type
from control_schemas.events import RowCounts, TableReference
from worker.batch.blocks import Block
from worker.batch.descriptors import (
    BatchResult,
    collect,
    dead_letter_batches,
    rows_row,
    to_batch,
)
from worker.batch.error_rows import error_row, is_reported
from worker.batch.pipeline_spec import PipelineSpec, TablePlan
from worker.batch.spark_types import spark_arrow
from worker.batch.task_access_policy import under_policy
from worker.pipeline.pipeline import TaskOpening
from worker.write.table_writer import TableWriter
from worker.write.upsert_writer import Marks

EVENTS: Final = "events"

Report = tuple[int, tuple[pa.RecordBatch, ...]]
"""Number of a part of the batch, and its descriptors."""


class Reports:
    """Adds the reports of the parts of one batch; Spark calls it an accumulator's parameter."""

    def zero(self, value: list[Report]) -> list[Report]:
        """Return no reports."""
        del value
        return []

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: list[Report], value2: list[Report]
    ) -> list[Report]:
        """Add reports."""
        return [*value1, *value2]


def event_schema(aggregation: Aggregation) -> Schema:
    """Return the columns that the aggregates use; a record must have an event time."""
    declared = {f.name: f for f in columns_schema(aggregation.columns).fields}
    fields = [declared[name] for name in aggregation.used_columns]
    return Schema(
        *(
            NestedField(number, f.name, f.field_type, required=f.name == aggregation.time_field)
            for number, f in enumerate(fields, 1)
        )
    )


def event_ddl(schema: Schema) -> str:
    """Return the schema of the rows in Spark."""
    return ", ".join(f"`{f.name}` {spark_type(f.field_type)}" for f in schema.fields)


def event_spec(config: ConnectorConfig, schema: Schema) -> PipelineSpec:
    """Return the spec of the pipeline that makes rows of records."""
    plan = TablePlan(
        name=EVENTS,
        reference=TableReference("", (), EVENTS, UUID(int=0)),
        schema_json=schema.model_dump_json(),
        spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        location="file:///events",  # no file is written to it
        properties={},
        io_properties={},
    )
    own = dataclasses.replace(
        config,
        tables=(EVENTS,),
        table_configs={},
        route_field=None,
        dynamic_enabled=False,
        auto_create_enabled=False,
        evolve_schema_enabled=False,
        schema_case_insensitive=False,
        topic_tables={},
        name_template=None,
        default_namespace=None,
        granted_tables=None,
    )
    return PipelineSpec(own, (plan,))


def event_rows(
    opening: TaskOpening, schema: Schema, reports: Accumulator[list[Report]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``df.mapInArrow(event_rows(..), event_ddl(schema))``.

    Args:
        opening: opens the pipeline of ``event_spec`` over ``df``: Kafka records, or the rows of
            a query.
        schema: as ``event_schema`` returns it.
        reports: receives the report of each part of a batch.
    """
    rows = pa.schema([(f.name, spark_arrow(f.field_type)) for f in schema.fields])
    return under_policy(partial(_run, opening, rows, reports))


def result_of(reports: list[Report]) -> BatchResult:
    """Return the result of a batch from the reports of its parts."""
    parts = dict(reversed(reports))  # the first report of each part
    descriptors = [batch for _, batches in sorted(parts.items()) for batch in batches]
    return collect(pa.Table.from_batches([*descriptors, to_batch([])]))


class TakenRows:
    """Takes the rows of the pipeline, in place of files.

    Args:
        schema: of the rows in Spark.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: list[pa.Table] = []
        self._count = 0

    def add(
        self,
        table: TableWriter,
        rows: pa.Table,
        marks: Marks | None = None,
        size: int | None = None,
    ) -> None:
        """Take rows, whose columns are in the order of the schema."""
        del table, marks, size
        self._count += rows.num_rows
        self._parts.append(rows)

    def pin(self, block_bytes: int) -> None:
        """Rows are passed on after each block, so nothing is kept."""

    def end_block(self, block: Block, first: int) -> None:
        """Rows are passed on by ``taken``."""

    def finish(self) -> Iterator[tuple[str, bytes]]:
        """Yield the descriptor of the count of the rows."""
        yield rows_row(RowCounts(self._count))

    def abort(self) -> None:
        """Forget rows that were not passed on."""
        self._parts.clear()

    def taken(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows since the last call, with Spark's types."""
        parts, self._parts = self._parts, []
        for part in parts:
            columns = [
                column.cast(f.type) if column.type != f.type else column
                for column, f in zip(part.columns, self._schema, strict=True)
            ]
            yield from pa.Table.from_arrays(columns, schema=self._schema).to_batches()


def _run(
    opening: TaskOpening,
    schema: pa.Schema,
    reports: Accumulator[list[Report]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    output = TakenRows(schema)
    task, taken = opening(batches, output)
    descriptors: list[pa.RecordBatch] = []
    try:
        for block in taken:
            task.take(block)
            yield from output.taken()
        descriptors = [to_batch(list(task.finish())), *dead_letter_batches(task.dead_letters)]
    except (RecordError, RetriableError, ConfigError) as error:
        if not is_reported(error):
            raise
        descriptors = [to_batch([error_row(error)])]
    context = TaskContext.get()
    assert context is not None, "only Spark runs the query"
    reports.add([(context.partitionId(), tuple(descriptors))])

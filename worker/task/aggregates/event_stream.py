"""The stream of rows of which a task makes event-time aggregates.

Rules of this file:
- The rows are those that tables would get: of the pipeline, or of the query of a ``Sql``
  transformation before it.
- The plan of a streaming query contains the static tables, so a batch has one state of them. A
  changed table ends the run between two batches, and the next run reads it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connect.config.aggregation import Aggregation
from connect.errors import ConfigError, IcefloeError
from worker.aggregate.event_rows import Report, event_ddl, event_rows, event_schema, event_spec
from worker.aggregate.window_query import streaming_session
from worker.pipeline.pipeline import of_records
from worker.spark.session import Session
from worker.spark.source_options import map_spark_error, source_options, stream_options
from worker.sql.query_opening import open_query_catalog, opened_query
from worker.sql.sql_batches import SparkQuery, sql_plan
from worker.sql.sql_write import queried
from worker.task.read_ledger import Offsets
from worker.task.source.source_rows import source_column
from worker.task.task_context import TaskSetup


@dataclass(frozen=True, slots=True)
class EventStream:
    """The rows of a task's records, or of a query over them.

    Args:
        setup: the task.
        session: the worker's Spark.
        spark: the session of the streaming query.
        aggregation: the aggregates.
        query: the connector's ``Sql`` transformation, if it has one.
        is_joined: whether the query joins static tables.
    """

    setup: TaskSetup
    session: Session
    spark: SparkSession
    aggregation: Aggregation
    query: SparkQuery | None = None
    is_joined: bool = False

    def rows(self, starts: Offsets, reports: Accumulator[list[Report]]) -> DataFrame:
        """Return the rows as a stream; its plan holds for all batches.

        Args:
            starts: next source offset of each partition.
            reports: receives the report of each part of a batch.
        """
        setup, config = self.setup, self.setup.config
        schema = event_schema(self.aggregation)
        spec = event_spec(config, schema)
        columns = spec.columns()
        options = source_options(
            setup.context.node,
            config.consumer_overrides,
            task=setup.transactional_id,
            has_headers="headers" in columns,
        )
        if len(starts) < self.session.cores:
            options["minPartitions"] = str(self.session.cores)
        records = (
            self.spark.readStream.format("kafka")
            .options(**options, **stream_options(starts, setup.bound.records))
            .load()
            .select(*(source_column(name, is_small=False) for name in columns))
        )
        if self.query is None:
            rows, opening = records, of_records(spec)
        else:
            rows, opening = self.query.rows(records, spec), queried(spec, self.query.split)
        return rows.mapInArrow(event_rows(opening, schema, reports), event_ddl(schema))

    def is_outdated(self, running: StreamingQuery, *, is_between: bool) -> bool:
        """Return whether a static table has changed; a batch that is under way is not ended.

        Args:
            running: the streaming query.
            is_between: whether it waits with the next batch.

        Raises:
            ConfigError, CommitRefused, RetriableError: as ``StaticTables.refresh``.
        """
        if self.query is None or not self.is_joined:
            return False
        if not is_between and running.status["isTriggerActive"]:
            return False
        return self.query.static_tables.refresh()

    def error(self, error: BaseException) -> IcefloeError:
        """Return an exception of Spark as an error, without Spark's text if a query ran."""
        return map_spark_error(error, is_query=self.query is not None)


def open_event_stream(
    setup: TaskSetup, session: Session, clients: contextlib.ExitStack
) -> EventStream:
    """Return the stream of a task; read the static tables of its query, and check the query.

    Args:
        setup: the task.
        session: the worker's Spark.
        clients: closes the catalog of static tables.

    Raises:
        ConfigError, CommitRefused, RetriableError: as ``opened_query``; ``sql_query``: the query
            lacks a column that the aggregates use.
    """
    config = setup.config
    aggregation = config.aggregation
    assert aggregation is not None
    spark = streaming_session(session.spark, aggregation)
    plan = sql_plan(config)
    if plan is None:
        return EventStream(setup, session, spark, aggregation)
    setup.context.waits_for("the static tables of its query")
    catalog = open_query_catalog(config, plan)
    clients.callback(catalog.close)
    query = opened_query(config, plan, catalog, spark)
    names = {item.name for item in query.split.items}
    for name in aggregation.used_columns:
        if name not in names:
            raise ConfigError(
                f"the query of Sql has no column {name}, which the aggregates use: select it, or "
                f"name an expression: <expression> AS {name}",
                code="sql_query",
            )
    return EventStream(setup, session, spark, aggregation, query, bool(plan.tables))

"""Runs queries of the ``Sql`` transformation in Spark, over records and a static table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from connect.clock import SystemClock
from connect.gateways.catalog.catalog import CatalogGateway
from connect.model.layout import TopicPartition
from tests.differential.support import config, plan, source
from worker.batch.descriptors import BatchResult, PartitionProgress, collect
from worker.batch.pipeline_spec import PipelineLimits, PipelineSpec
from worker.spark.session import Session
from worker.sql.sql_batches import SparkQuery, sql_plan
from worker.sql.static_tables import StaticTables

PLACES = pa.table({"device": ["d1", "d2", "d2", None], "city": ["Oslo", "Bern", "Rome", "None"]})
TABLE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "city", StringType(), required=False),
    NestedField(3, "n", IntegerType(), required=False),
)
COLUMNS = "id BIGINT, device STRING, n STRING"


class SteppedWallClock(SystemClock):
    """A clock whose monotonic time the test sets."""

    ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


class SqlHarness:
    """A catalog with a static table, and queries over it.

    Args:
        session: Spark's.
        folder: of files.
        catalog: where ``geo.places`` is.
    """

    def __init__(self, session: Session, folder: Path, catalog: CatalogGateway) -> None:
        self.session = session
        self.folder = folder
        self.clock = SteppedWallClock()
        self.places = self.static("geo.places", PLACES, catalog)
        self.catalog = catalog

    @staticmethod
    def static(name: str, rows: pa.Table, catalog: CatalogGateway) -> Any:
        fields = [
            NestedField(i, column, StringType(), required=False)
            for i, column in enumerate(rows.column_names, start=1)
        ]
        table = catalog.create(name.split("."), Schema(*fields))
        table.append(rows)
        return table

    def query(self, text: str, columns: str = COLUMNS, **more: str | None) -> SparkQuery:
        """A query, with its static tables read and its plan checked."""
        self.config = config(**{**self.keys(text, columns), **more})
        planned = sql_plan(self.config)
        assert planned is not None
        query = SparkQuery(
            self.session.spark, planned, StaticTables(planned, self.catalog, self.clock)
        )
        query.refresh()
        return query

    @staticmethod
    def keys(text: str, columns: str = COLUMNS) -> dict[str, str]:
        joined = {"transforms.q.table.places": "geo.places"} if " places " in text else {}
        return {
            "errors.tolerance": "all",
            "transforms": "q",
            "transforms.q.type": "Sql",
            "transforms.q.query": text,
            "transforms.q.columns": columns,
            **joined,
        }

    def run(
        self,
        query: SparkQuery,
        values: list[Any],
        schema: Schema | None = TABLE,
        *,
        reference_only: bool = False,
        block_rows: int = 65_536,
        of_rows: bool = False,
    ) -> BatchResult:
        """What becomes of records, given as JSON or bytes."""
        raw = [v if isinstance(v, bytes) or v is None else json.dumps(v).encode() for v in values]
        limits = PipelineLimits(block_rows=block_rows)
        tables = (plan(self.folder, schema),) if schema is not None else ()
        spec = PipelineSpec(self.config, tables, frozenset(), limits, reference_only)
        given = source(raw).select(list(spec.columns()))
        spark = self.session.of_rows if of_rows else self.session.spark
        records = spark.createDataFrame(pa.Table.from_batches([given])).coalesce(1)
        return collect(query.run(records, spec).toArrow())


def counts(result: BatchResult) -> PartitionProgress:
    """What became of the records of the one partition."""
    return result.progress[TopicPartition("t", 0)]

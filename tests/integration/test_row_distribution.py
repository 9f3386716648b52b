"""Rows that are distributed by table before they are written, in Spark, over real records."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import DataFrame

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.model.layout import TopicPartition
from control_schemas.events import FileContent
from tests.differential.support import config, rows_of
from tests.support.pauses import growing_pauses
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from worker.batch.descriptors import BatchResult
from worker.batch.distribution import TableShares
from worker.spark.batch_sizing import ReadSizes
from worker.spark.session import Session
from worker.spark.source_options import source_options
from worker.task.batches.batch_runner import PipelineRunner
from worker.task.batches.row_distribution import RowDistribution
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_reader import SourceReader
from worker.task.tables.task_tables import TaskTables

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
TABLES = 50
PARTITIONS = 4
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
)
BY_KIND = {"iceberg.tables": None, "iceberg.tables.name-template": "db.t_${kind}"}
HASH = {"iceberg.tables.write-distribution-mode": "hash"}
EACH = 500  # records of each partition
SMALL = 100  # records that one Spark task reads


class Distributing:
    """The batches of one task over a topic, without a coordinator."""

    def __init__(
        self, session: Session, kafka: dict[str, str], topic: str, catalog: CatalogGateway
    ) -> None:
        self.session = session
        self.kafka = kafka
        self.topic = topic
        self.catalog = catalog
        self.written: list[WrittenBatch] = []

    def produce(self, tables: int = TABLES) -> None:
        """Write records whose table is their number."""
        producer = Producer({**self.kafka, "linger.ms": 5, "log_level": 0})
        for partition in range(PARTITIONS):
            for n in range(EACH):
                record = {"id": partition * EACH + n, "kind": str(n % tables)}
                producer.produce(self.topic, json.dumps(record), partition=partition)
        producer.flush(120)

    def produce_shared(self) -> None:
        """Write the same keys to each partition; the first one has the newest records."""
        now_ms = SystemClock().now_ms()
        producer = Producer({**self.kafka, "linger.ms": 5, "log_level": 0})
        for partition in range(PARTITIONS):
            for n in range(EACH):
                record = {"id": n, "kind": str(partition)}
                at = now_ms - partition
                value = json.dumps(record)
                producer.produce(self.topic, value, partition=partition, timestamp=at)
        producer.flush(120)

    def run(self, connector: ConnectorConfig, distribution: RowDistribution | None) -> WrittenBatch:
        """Read all records as one batch of a streaming query."""
        tables = TaskTables(connector, self.catalog, SystemClock())
        parts = [TopicPartition(self.topic, n) for n in range(PARTITIONS)]
        runner = PipelineRunner(
            connector, tables, None, 0, None, distribution, sources=tuple(parts)
        )
        options = source_options(self.kafka, {}, task="distributing", has_headers=False)
        sizes = ReadSizes(small_records=SMALL)
        source = SourceBlocks(
            self.session, options, runner.columns, sizes, is_ordered=connector.is_row_level
        )
        reader = SourceReader(source, "distributing", commit_interval_ms=60_000)
        ranges = OffsetRanges(dict.fromkeys(parts, 0), dict.fromkeys(parts, EACH))
        written: list[WrittenBatch] = []

        def on_batch(rows: DataFrame, found: OffsetRanges) -> None:
            is_small = sizes.is_small(found.record_count_max)
            written.append(runner.run(rows, found, is_small=is_small))

        reader.read(ranges, on_batch, is_stopping=lambda: False)
        (batch,) = written
        assert batch.ranges.ends == ranges.ends
        return batch


@pytest.fixture
def distributing(
    spark_session: Session,
    kafka_properties: dict[str, str],
    topics: Topics,
    sql_catalog_properties: dict[str, str],
) -> Distributing:
    """A topic with four partitions, and an empty catalog."""
    catalog = open_catalog("iceberg", sql_catalog_properties)
    topic = topics.create("distributed", partitions=PARTITIONS)
    return Distributing(spark_session, kafka_properties, topic, catalog)


def rows(batch: WrittenBatch) -> dict[str, list[int]]:
    """The ids in the data files of each table."""
    files = {reference.name: step_files for step in batch.steps for reference, step_files in step}
    result = BatchResult(steps=(files,))
    return {name: sorted(r["id"] for r in rows_of(result, name)) for name in files}


def left_behind(session: Session) -> list[Path]:
    """Folders of rows, and files of shuffles."""
    return [
        *session.folder.glob("passed-*"),
        *(p for p in session.folder.rglob("shuffle_*") if p.is_file()),
    ]


@pytest.mark.parametrize(
    "through", ["files", "rows", pytest.param("none", marks=pytest.mark.matrix)]
)
def test_a_batch_has_one_file_for_each_table(
    distributing: Distributing, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as many as there are Spark tasks, if rows are not distributed."""
    distributing.produce()
    session = distributing.session
    of_others = set(left_behind(session))  # of queries of other tests, in the same session
    distribution = (
        None if through == "none" else RowDistribution(lambda: session, is_row_level=False)
    )
    if through == "rows":  # as executors on other machines, which share no folder
        known = TableShares.distribution
        monkeypatch.setattr(
            TableShares,
            "distribution",
            lambda *args, **more: known(*args, **{**more, "folder": None}),
        )
    keys = {"iceberg.tables.auto-create-enabled": "true", **BY_KIND, **HASH}
    batch = distributing.run(config(**keys), distribution)
    readers = min(session.cores, PARTITIONS)
    files = [f for step in batch.steps for _, listed in step for f in listed]
    assert len(files) == TABLES * (1 if distribution else readers)
    assert rows(batch) == {
        f"t_{kind}": [p * EACH + n for p in range(PARTITIONS) for n in range(kind, EACH, TABLES)]
        for kind in range(TABLES)
    }
    assert sum(p.written for p in batch.progress.values()) == PARTITIONS * EACH
    for _ in islice(growing_pauses(), 200):  # Spark deletes its files in the background
        if not set(left_behind(session)) - of_others:
            break
    assert not set(left_behind(session)) - of_others


def test_a_key_in_several_partitions_has_one_row(distributing: Distributing) -> None:
    """Several Spark tasks read them; the newest record stays."""
    distributing.produce_shared()
    assert distributing.session.cores > 1
    keys = {
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
    }
    batch = distributing.run(config(**keys), None)
    files = [f for step in batch.steps for _, listed in step for f in listed]
    data = [f for f in files if f.content is FileContent.DATA]
    written = rows_of(BatchResult(steps=({"t": tuple(data)},)), "t")
    assert sorted(row["id"] for row in written) == list(range(EACH))
    assert {row["kind"] for row in written} == {"0"}
    assert batch.rows.superseded == (PARTITIONS - 1) * EACH

"""Tables and batches for tests of the column path; no Spark, no Kafka."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema

from connect.config.connector import ConnectorConfig
from connect.model.layout import TopicPartition
from connect.records.record_path import ReferencePath
from connect.validation.parse import parse
from control_schemas.events import TableReference
from worker.batch.blocks import Block
from worker.batch.descriptors import BatchResult, collect
from worker.batch.distribution import Distribution
from worker.decode.decoded_rows import Columns
from worker.pipeline.passed_writing import write_passed
from worker.pipeline.pipeline import PipelineLimits, PipelineSpec, TablePlan, run
from worker.pipeline.topic_forms import column_form
from worker.write.routes import ColumnRouter
from worker.write.table_writers import TableWriters
from worker.write.upsert_writer import ColumnOperations

JSON = "org.apache.kafka.connect.json.JsonConverter"
FIRST_MS = 1_700_000_000_000
BASE = {
    "name": "c1",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "tasks.max": "1",
    "topics": "t",
    "iceberg.tables": "db.t1",
    "iceberg.catalog.type": "sql",
    "iceberg.catalog.uri": "sqlite://",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
}


def config(**more: str | None) -> ConnectorConfig:
    """A connector's configuration; keys with dots go in as ``**{"iceberg.tables": ..}``."""
    raw = {k: v for k, v in {**BASE, **more}.items() if v is not None}
    return parse(raw)


def plan(
    folder: Path,
    schema: Schema,
    *,
    name: str = "db.t1",
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: Mapping[str, str] | None = None,
) -> TablePlan:
    """A table below a folder."""
    *namespace, last = name.split(".")
    return TablePlan(
        name=name,
        reference=TableReference("iceberg", tuple(namespace), last, uuid.UUID(int=7)),
        schema_json=sys.intern(schema.model_dump_json()),  # as ``TablePlan.of``
        spec_json=sys.intern(spec.model_dump_json()),
        location=f"file://{folder}/{name}",
        properties=properties or {},
        io_properties={},
    )


def source(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    topic: str = "t",
    partition: int = 0,
    start: int = 0,
    stamps_ms: Sequence[int] | None = None,
) -> pa.RecordBatch:
    """Records as Spark's Kafka source gives them, one partition."""
    count = len(values)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array([topic] * count, pa.string()),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
            "timestamp": pa.array(
                [1000 * ms for ms in stamps_ms or range(FIRST_MS, FIRST_MS + count)],
                pa.timestamp("us", "UTC"),
            ),
            "key": pa.array(keys or [None] * count, pa.binary()),
            "headers": pa.array([None] * count, header),
        }
    )


def run_batches(
    connector: ConnectorConfig,
    plans: Sequence[TablePlan],
    batches: Sequence[pa.RecordBatch],
    *,
    limits: PipelineLimits | None = None,
    absent: frozenset[str] = frozenset(),
    reference_only: bool = False,
) -> BatchResult:
    """Run the pipeline and put its descriptors together."""
    spec = PipelineSpec(connector, tuple(plans), absent, limits or PipelineLimits(), reference_only)
    return run_spark_tasks(spec, [batches])


def run_spark_tasks(spec: PipelineSpec, reads: Sequence[Sequence[pa.RecordBatch]]) -> BatchResult:
    """Run the pipeline in a Spark task for each element of ``reads``."""
    columns = list(spec.columns())
    descriptors = [
        batch for given in reads for batch in run(spec)(iter([b.select(columns) for b in given]))
    ]
    return collect(pa.Table.from_batches(descriptors))


def run_distributed(
    connector: ConnectorConfig,
    plans: Sequence[TablePlan],
    reads: Sequence[Sequence[pa.RecordBatch]],
    distribution: Distribution,
    *,
    limits: PipelineLimits | None = None,
    sources: tuple[TopicPartition, ...] = (),
) -> tuple[BatchResult, pa.Table]:
    """Run the pipeline with a distribution: a Spark task for each element of ``reads``.

    Returns:
        the result, and the descriptors of all tasks.
    """
    limits = limits or PipelineLimits()
    spec = PipelineSpec(
        connector,
        tuple(plans),
        limits=limits,
        distribution=distribution,
        sources=sources,
        reports_keys=bool(sources),
    )
    passed = pa.Table.from_batches(
        [
            batch
            for given in reads
            for batch in run(spec)(iter([each.select(list(spec.columns())) for each in given]))
        ]
    )
    written = [
        batch
        for task in range(distribution.task_count)
        for batch in write_passed(spec)(
            iter(passed.filter(pc.equal(passed["task"], task)).to_batches(max_chunksize=3))
        )
    ]
    descriptors = pa.Table.from_batches(written)
    return collect(descriptors), descriptors


def rows_of(result: BatchResult, table: str) -> list[dict[str, Any]]:
    """All rows written to a table, file by file."""
    rows: list[dict[str, Any]] = []
    for file in result.files.get(table, ()):
        read = pq.read_table(file.file_path.removeprefix("file://"))
        columns = [[plain(item) for item in column] for column in read.columns]
        rows.extend(
            dict(zip(read.column_names, row, strict=True)) for row in zip(*columns, strict=True)
        )
    return rows


def plain(item: pa.Scalar) -> Any:
    """A value that compares: temporal values as numbers, as their years may be any."""
    kind = item.type
    if not item.is_valid:
        return None
    if pa.types.is_temporal(kind):
        return item.value
    if pa.types.is_struct(kind):
        return {name: plain(inner) for name, inner in item.items()}
    if pa.types.is_map(kind):
        # a map's entries have no order
        return sorted(((plain(e["key"]), plain(e["value"])) for e in item.values), key=repr)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain(inner) for inner in item.values]
    return item.as_py()


def decoded_by_columns(
    connector: ConnectorConfig, table: TablePlan, batch: pa.RecordBatch
) -> list[Columns]:
    """What of a batch goes by columns, with what is left to the reference."""
    spec = PipelineSpec(connector, (table,))
    writers = TableWriters((table,), iter(()).__next__).alike
    router = ColumnRouter(connector, lambda _: ())
    paths = (*router.paths, ColumnOperations(connector).path)
    reference = ReferencePath(connector)
    form = column_form(spec, writers, paths, reference, uses_schema=router.uses_schema)
    return list(form.decode(Block(pa.Table.from_batches([batch]))))

"""CPU seconds per million records of the pipeline, for cells of the matrix without a stack.

``python -m tests.bench.formats [--formats json,avro] [--shapes narrow] [--modes append]
[--tables 1,50] [--scale 0.5] [--rounds 2]``. One process, no Spark, no broker: the records of each
source partition go through one run of the pipeline, as in one Spark task of a micro-batch. Making
the records is not counted.

Stages are those of one more run, under a profile: ``decode`` bytes to columns, ``convert`` to the
table's types, ``newest`` of each key, ``write`` Parquet and metrics; what is left of the whole is
routing, cutting and counting. ``alone`` counts records that went one by one.
"""

from __future__ import annotations

import cProfile
import itertools
import json
import os
import pstats
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from control_schemas.events import FileContent
from tests.bench.matrix_arguments import matrix_parser
from tests.bench.shapes import PARTITIONS, SHAPES, TABLES_MAX, Shape, encoded, keys_of, schemas
from tests.differential.support import config, plan, source
from tests.support.fakes.schema_registry import SchemaRegistryServer
from worker.batch.descriptors import BatchResult, collect
from worker.batch.pipeline_spec import ChangePlan, TablePlan
from worker.pipeline.pipeline import PipelineSpec, run

FORMATS = ("json", "envelope", "json-schema", "avro", "protobuf")
_CONFLUENT = "io.confluent.connect."
_REGISTERED = {
    "avro": ("avro.AvroConverter", "AVRO"),
    "protobuf": ("protobuf.ProtobufConverter", "PROTOBUF"),
    "json-schema": ("json.JsonSchemaConverter", "JSON"),
}
_SPARK_BATCH_ROWS = 10_000
_STAGES = {
    "decode": {("forms.py", "decode")},
    "convert": {("parts.py", "of")},
    "newest": {("changes.py", "_newest")},
    "write": {
        ("tables.py", "open"),
        ("tables.py", "finish"),
        ("tables.py", "repeating_columns"),
        ("core.py", "write_table"),
    },
}
_ALONE = ("records.py", "take")


@dataclass(frozen=True, slots=True)
class _Cell:
    """Records of a shape into tables, with a connector's keys."""

    shape: Shape
    mode: str
    tables: int
    keys: Mapping[str, str | None]


class Cells:
    """Cells of the matrix in this process.

    Args:
        registry: knows the schemas.
        scale: how many records, times each shape's own number.
        rounds: runs of a cell; the cheapest counts.
    """

    def __init__(self, registry: SchemaRegistryServer, scale: float, rounds: int) -> None:
        self._registry = registry
        self._scale = scale
        self._rounds = rounds

    def measure(
        self, format_name: str, shape: Shape, modes: Sequence[str], tables: Sequence[int]
    ) -> Iterator[dict[str, Any]]:
        """Measure the cells of a format and shape with the same records."""
        count = round(shape.records * self._scale)
        keys = self._converter(format_name)
        tasks = list(self._tasks(format_name, shape, count))
        for mode, width in itertools.product(modes, tables):
            cell = _Cell(shape, mode, width, {**keys, **_tables_keys(shape, mode, width)})
            used = min(_run(cell, tasks) for _ in range(self._rounds))
            profile = cProfile.Profile(time.process_time)
            whole_run = _run(cell, tasks, profile)
            stages, alone = _reported(profile)
            yield {
                "format": format_name,
                "shape": shape.name,
                "mode": mode,
                "tables": width,
                "records": count,
                "cpu_s_per_million": _per_million(used, count),
                **{stage: _per_million(s * used / whole_run, count) for stage, s in stages.items()},
                "alone": alone,
                "load": round(os.getloadavg()[0], 1),
            }

    def _tasks(self, format_name: str, shape: Shape, count: int) -> Iterator[list[pa.RecordBatch]]:
        """The batches of each source partition."""
        schema_id = self._schema_id(format_name, shape)
        for partition in range(PARTITIONS):
            values = encoded(format_name, shape, schema_id, partition, count)
            batches = []
            for start in itertools.count(0, _SPARK_BATCH_ROWS):
                part = list(itertools.islice(values, _SPARK_BATCH_ROWS))
                if not part:
                    break
                batches.append(source(part, partition=partition, start=start))
            yield batches

    def _schema_id(self, format_name: str, shape: Shape) -> int:
        if format_name not in _REGISTERED:
            return 0
        reported = schemas(shape)
        text = {"avro": reported.avro, "protobuf": reported.protobuf, "json-schema": reported.json}
        kind = _REGISTERED[format_name][1]
        return self._registry.register(f"{shape.name}-{format_name}", text[format_name], kind)

    def _converter(self, format_name: str) -> dict[str, str | None]:
        key = {"key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}
        if format_name not in _REGISTERED:
            return {**key, "value.converter.schemas.enable": str(format_name == "envelope").lower()}
        return {
            **key,
            "value.converter": _CONFLUENT + _REGISTERED[format_name][0],
            "value.converter.schemas.enable": None,
            "value.converter.schema.registry.url": self._registry.url,
        }


def _run(
    cell: _Cell,
    tasks: Sequence[Sequence[pa.RecordBatch]],
    profile: cProfile.Profile | None = None,
) -> float:
    """CPU seconds of all tasks, one after the other."""
    count = sum(batch.num_rows for batches in tasks for batch in batches)
    with tempfile.TemporaryDirectory() as folder:
        plans = tuple(_plan(Path(folder), cell.shape, cell.mode, n) for n in range(cell.tables))
        spec = PipelineSpec(config(**cell.keys), plans)
        columns = list(spec.columns())
        given = [[batch.select(columns) for batch in batches] for batches in tasks]
        began = time.process_time()
        if profile is not None:
            profile.enable()
        results = [collect(pa.Table.from_batches(list(run(spec)(iter(g))))) for g in given]
        if profile is not None:
            profile.disable()
        used = time.process_time() - began
    rows = sum(_data_rows(result) for result in results)
    expected = count if cell.mode == "append" else keys_of(count)
    assert rows == expected, f"{rows} rows for {expected}"
    return used


def _tables_keys(shape: Shape, mode: str, width: int) -> dict[str, str | None]:
    keys: dict[str, str | None] = {"iceberg.tables": f"bench.{shape.name}_00"}
    if width > 1:
        assert width == TABLES_MAX, "a record's target is one of all tables"
        keys = {
            "iceberg.tables": None,
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "target",
        }
    if mode == "upsert":
        keys["iceberg.tables.upsert-mode-enabled"] = "true"
    return keys


def _plan(folder: Path, shape: Shape, mode: str, number: int) -> TablePlan:
    planned = plan(folder, shape.schema, name=f"bench.{shape.name}_{number:02d}")
    if mode == "append":
        return planned
    key = (shape.schema.find_field("id").field_id,)
    changes = ChangePlan(key, UNPARTITIONED_PARTITION_SPEC.model_dump_json())
    return replace(planned, changes=changes)


def _data_rows(result: BatchResult) -> int:
    files = [f for listed in result.files.values() for f in listed]
    return sum(f.record_count for f in files if f.content == FileContent.DATA)


def _reported(profile: cProfile.Profile) -> tuple[dict[str, float], int]:
    """Return the seconds of each stage, and the number of records on the reference path."""
    seconds = dict.fromkeys(_STAGES, 0.0)
    alone = 0
    stats: Any = pstats.Stats(profile)
    for (file, _, function), (_, calls, _, used, _) in stats.stats.items():
        name = (Path(file).name, function)
        alone += calls if name == _ALONE else 0
        for stage, functions in _STAGES.items():
            seconds[stage] += used if name in functions else 0.0
    return seconds, alone


def _per_million(seconds: float, count: int) -> float:
    return round(seconds / count * 1e6, 2)


def main() -> None:
    """Print a line of JSON per cell."""
    parser = matrix_parser(__doc__, FORMATS, scale=0.5, rounds=2)
    given = parser.parse_args()
    widths = [int(n) for n in given.tables.split(",")]
    with SchemaRegistryServer() as registry:
        cells = Cells(registry, given.scale, given.rounds)
        for shape in given.shapes.split(","):
            for format_name in given.formats.split(","):
                modes = given.modes.split(",")
                for cell in cells.measure(format_name, SHAPES[shape], modes, widths):
                    print(json.dumps(cell), flush=True)


if __name__ == "__main__":
    main()

"""Records of odd sizes through a task's pipeline, each case in a process of its own.

Usage: python -m tests.support.memory_run FOLDER. Each line of its input is a case and how many
times its records are made, as JSON. A line of its output has resident megabytes before the first
record, at most, and what came out.

A process of its own, so that its peak is the pipeline's. It is forked, as Spark's workers are, from
one that has loaded the pipeline: loading takes longer than most cases. Records are made while they
are read, and nothing keeps them, nor the rows about dead letters that Spark would take away.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import psutil
import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tests.differential.support import config, plan, source
from worker.batch.descriptors import collect
from worker.pipeline.pipeline import PipelineSpec, run

COLUMNS = 500
JSON_LEVELS = 1_000
AVRO_LEVELS = 63  # and the number inside
MEBIBYTE = 2**20
HUGE_MB = (60, 8, 60)
EVOLVES = {"iceberg.tables.evolve-schema-enabled": "true"}
TOLERANT = {"errors.tolerance": "all"}
Batches = Iterator[list[bytes]]


@dataclass(frozen=True, slots=True)
class Case:
    """Some records, and the table that they go to.

    Attributes:
        schema: the table's.
        batches: the records, as Spark hands them over.
        keys: configuration keys of the connector, in addition to the usual ones.
        reference_only: take every record through the reference.
    """

    schema: Schema
    batches: Callable[[], Batches]
    keys: dict[str, str | None] = field(default_factory=dict)
    reference_only: bool = False


def wide_row(number: int) -> dict[str, Any]:
    """A row of ``COLUMNS`` values of three kinds."""
    kinds = (number, number / 7, f"text {number % 97}")
    return {f"c{i}": kinds[i % 3] for i in range(COLUMNS)}


def wide_schema() -> Schema:
    """Return the schema of its table."""
    kinds: tuple[IcebergType, ...] = (LongType(), DoubleType(), StringType())
    return Schema(
        *(NestedField(i + 1, f"c{i}", kinds[i % 3], required=False) for i in range(COLUMNS))
    )


def wide(count: int, each: int = 2_000) -> Batches:
    """Records of many columns."""
    for start in range(0, count, each):
        yield [json.dumps(wide_row(start + i)).encode() for i in range(min(each, count - start))]


def wide_avro(count: int, each: int = 2_000) -> Batches:
    """Return the same records as Avro."""
    schema = fastavro.parse_schema(wide_avro_schema())
    for start in range(0, count, each):
        yield [_avro(schema, wide_row(start + i)) for i in range(min(each, count - start))]


def wide_avro_schema() -> dict[str, Any]:
    """Return its schema."""
    kinds = ("long", "double", "string")
    fields = [{"name": f"c{i}", "type": kinds[i % 3]} for i in range(COLUMNS)]
    return {"type": "record", "name": "Wide", "fields": fields}


def _avro(schema: Any, row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def deep_schema(levels: int) -> Schema:
    """A column of so many structs, one inside the other."""
    kind: IcebergType = LongType()
    for i in range(levels):
        kind = StructType(NestedField(levels + 1 - i, "f", kind, required=False))
    return Schema(NestedField(1, "f", kind, required=False))


def deep(levels: int, count: int) -> Batches:
    """Records that are as deep."""
    for start in range(0, count, 1_000):
        yield [b'{"f":' * levels + b"%d" % (start + i) + b"}" * levels for i in range(1_000)]


def deep_avro_schema(levels: int) -> dict[str, Any]:
    """The schema of records that are as deep."""
    kind: Any = "long"
    for i in range(levels):
        kind = {"type": "record", "name": f"R{i}", "fields": [{"name": "f", "type": kind}]}
    value: dict[str, Any] = kind
    return value


def deep_avro(count: int) -> Batches:
    """A number inside records adds nothing to its bytes."""
    for start in range(0, count, 1_000):
        yield [_avro("long", start + i) for i in range(1_000)]


def own_names(count: int, each: int = 10_000) -> Batches:
    """Records that each bring a name of their own."""
    for start in range(0, count, each):
        yield [b'{"id":1,"n%d":7}' % (start + i) for i in range(each)]


def one_by_one(make: Callable[[int], bytes], times: int) -> Callable[[], Batches]:
    """Huge records, each in a batch of its own."""

    def batches() -> Batches:
        for size in HUGE_MB * times:
            yield [make(size * MEBIBYTE)]

    return batches


def text(size: int) -> bytes:
    """One long text."""
    return b'{"id":1,"note":"' + b"x" * (size - 18) + b'"}'


def items(size: int) -> bytes:
    """One list of small numbers."""
    return b'{"id":1,"list":[' + b"7," * ((size - 20) // 2) + b"7]}"


def names(size: int) -> bytes:
    """One object with as many names as fit."""
    each = b'"k%07d":7,'
    return b'{"id":1,' + b"".join(each % i for i in range(size // 12)) + b'"note":"n"}'


NOTES = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "note", StringType(), required=False),
    NestedField(3, "list", ListType(4, LongType(), element_required=False), required=False),
)
MAPS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "map", MapType(3, StringType(), 4, LongType()), required=False),
)


def cases(folder: Path, times: int = 1) -> dict[str, Case]:
    """Return all cases by name."""
    few, many = 1_000 * times, 4_000 * times
    huge = {
        name: one_by_one(make, times)
        for name, make in (("texts", text), ("lists", items), ("objects", names))
    }
    deep_keys = avro_keys(folder, deep_avro_schema(AVRO_LEVELS), "deep")
    unknown = lambda: deep(JSON_LEVELS, few)  # noqa: E731 - twice the same
    return {
        "wide json": Case(wide_schema(), lambda: wide(many)),
        "wide avro": Case(
            wide_schema(), lambda: wide_avro(many), avro_keys(folder, wide_avro_schema(), "wide")
        ),
        "wide, record by record": Case(wide_schema(), lambda: wide(few), reference_only=True),
        "deep json": Case(deep_schema(AVRO_LEVELS - 1), lambda: deep(AVRO_LEVELS, many)),
        "deep avro": Case(deep_schema(AVRO_LEVELS - 1), lambda: deep_avro(many), deep_keys),
        "deep unknown": Case(NOTES, unknown, {**TOLERANT}),
        "deep unknown, evolving": Case(NOTES, unknown, {**TOLERANT, **EVOLVES}),
        "own names, evolving": Case(
            NOTES, lambda: own_names(30_000 * times), {**TOLERANT, **EVOLVES}
        ),
        "own names, map": Case(MAPS, lambda: own_names(30_000 * times)),
        "huge texts": Case(NOTES, huge["texts"]),
        "huge texts, record by record": Case(NOTES, huge["texts"], reference_only=True),
        "huge lists": Case(NOTES, huge["lists"]),
        "huge lists, record by record": Case(NOTES, huge["lists"], reference_only=True),
        "huge objects": Case(NOTES, huge["objects"]),
        "huge objects, evolving": Case(NOTES, huge["objects"], {**TOLERANT, **EVOLVES}),
        "huge dead letters": Case(
            NOTES, one_by_one(lambda size: text(size) + b"x", times), {**TOLERANT}
        ),
    }


def avro_keys(folder: Path, schema: dict[str, Any], name: str) -> dict[str, str | None]:
    """A converter that reads bare Avro."""
    file = folder / f"{name}.avsc"
    file.write_text(json.dumps(schema))
    return {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schemas.enable": None,
        "value.converter.schema.file": str(file),
    }


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Run the case once."""
    table = plan(folder, case.schema, spec=UNPARTITIONED_PARTITION_SPEC)
    connector = config(**case.keys)
    spec = PipelineSpec(connector, (table,), reference_only=case.reference_only)
    columns = list(spec.columns())
    count = 0

    def given() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for values in case.batches():
            batch = source(values, start=count).select(columns)
            count += len(values)
            values.clear()
            yield batch

    before, dead_letters, results = psutil.Process().memory_info().rss, 0, []
    for batch in run(spec)(given()):
        if batch["kind"][0].as_py() == "dead_letter":
            dead_letters += batch.num_rows
        else:
            results.append(batch)
    result = collect(pa.Table.from_batches(results))
    return {
        "records": count,
        "rows": sum(f.record_count for listed in result.files.values() for f in listed),
        "letters": dead_letters,
        "asked": len(result.schema_requests),
        "error": None if result.error is None else result.error.code,
        "before_mb": before >> 20,
        "peak_mb": peak_mb(),
    }


def peak_mb() -> int:
    """Most resident megabytes so far; getrusage would count those of the parent before exec."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10


def forked(name: str, times: int, folder: Path) -> str:
    """Run a case in a process of its own; return what was found, as JSON."""
    reading, writing = os.pipe()
    if not os.fork():
        try:
            with os.fdopen(writing, "w") as out:
                json.dump(measure(cases(folder, times)[name], folder), out)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as found:
        result = found.read()
    _, status = os.wait()
    return json.dumps({"status": status}) if status else result


def main(folder: Path) -> None:
    """Run cases until the end of the input."""
    for line in sys.stdin:
        name, times = json.loads(line)
        print(forked(name, times, folder), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The matrix: formats, shapes, append and upsert, one table and fifty, compared with the Java sink.

``python -m tests.bench.peer [--formats json,avro] [--shapes narrow] [--modes append]
[--tables 1,50] [--scale 1] [--rounds 1] [--seconds 60] [--no-java] [--out FILE]``; ``make
bench-peer`` runs all.

Rules of this file:
- Both sinks run in one stack: the same broker, the same topic, the same REST catalog, tables made
  alike; in a cell they take turns. What a run costs is the CPU of its own processes: worker (JVM
  and Python), coordinator and node; for Java the Connect worker's JVM. Broker and catalog, which
  both use, are listed but not counted.
- Both are warm: a cell's format, shape and number of tables have run before on each side.
- With ``--seconds``, a cell has as many records as the slower side needs for that time, by the
  speed of its first run.
- A run ends when its last row is visible. That is up to a commit interval after its last read, on
  both sides, so the speed until the last read (``busy``) is listed too.
- A run counts only with the rows that must be in its tables.
- The Java sink appends only, and no Protobuf converter for Connect is in the central repository:
  there our figure stands alone. Of an upsert the ratio is to the Java sink's append of the cell.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pyiceberg.catalog import Catalog, load_catalog

from connect.gateways.kafka.bulk_producer import BulkProducer
from tests.bench.matrix_arguments import matrix_parser
from tests.bench.measured_stack import MeasuredStack, ResourceUse, measured_stack
from tests.bench.peer_api import LIMIT_S, check_tasks, create, wait_for_lag
from tests.bench.peer_report import JAVA, OURS, median_run, table_of, with_ratios
from tests.bench.rows_left import rows_left
from tests.bench.shapes import PARTITIONS, SHAPES, TABLES_MAX, Shape, encoded, keys_of, schemas
from tests.support.fakes.schema_registry import SchemaRegistryServer
from tests.support.java_connect import JavaConnect
from tests.support.stack import RestCatalog

FORMATS = ("json", "envelope", "avro", "protobuf")
REPORT = Path("build/bench-peer.json")
_HEAP_MB = 2_048
_BATCH = 2_000
_CONFLUENT = "io.confluent.connect."
_JAVA_FORMATS = ("json", "envelope", "avro")
_JAVA_AVRO = "io.apicurio.registry.utils.converter.AvroConverter"


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the matrix."""

    format_name: str
    shape: str
    mode: str
    tables: int

    @property
    def java_can(self) -> bool:
        """Whether the Java sink supports it."""
        return self.mode == "append" and self.format_name in _JAVA_FORMATS


class Matrix:
    """Both sinks on one stack.

    Args:
        running: the stack.
        java: the Connect worker, None to leave it out.
        catalog: of both.
        registry: of both.
        interval_ms: the commit interval of both.
    """

    def __init__(
        self,
        running: MeasuredStack,
        java: JavaConnect | None,
        catalog: RestCatalog,
        registry: SchemaRegistryServer,
        interval_ms: int,
    ) -> None:
        self._running = running
        self._java = java
        self._rest = catalog
        self._catalog: Catalog = load_catalog("rest", **catalog.properties)
        self._catalog.create_namespace_if_not_exists("bench")
        self._registry = registry
        self._interval_ms = interval_ms
        self._numbers = itertools.count(1)
        self._filled: set[str] = set()
        self._warm: dict[tuple[str, str, str, int], float] = {}

    def measure(
        self, cell: Cell, records: int, rounds: int, seconds: float | None = None
    ) -> dict[str, Any]:
        """Return the medians of several rounds of a cell, for both sides alternately.

        Args:
            cell: which.
            records: of a round; with ``seconds``, those of the first run.
            rounds: of each side.
            seconds: how long a round of the slower side takes, roughly; by default as it comes.
        """
        shape = SHAPES[cell.shape]
        topic = self._topic(cell.format_name, shape, records)
        sides = (OURS, JAVA) if self._java is not None and cell.java_can else (OURS,)
        speeds = [self._warm_speed(side, cell, topic, records) for side in sides]
        if seconds is not None:
            records = round(min(speeds) * seconds)
            topic = self._topic(cell.format_name, shape, records)
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side in sides:
                runs[side].append(self._run(side, cell, topic, records))
        return {
            "format": cell.format_name,
            "shape": cell.shape,
            "mode": cell.mode,
            "tables": cell.tables,
            "records": records,
            **{side: median_run(found) for side, found in runs.items()},
        }

    def warm_up(self, records: int, times: int) -> None:
        """Run both sides until their code is compiled."""
        cell = Cell("json", "narrow", "append", 1)
        topic = self._topic("json", SHAPES["narrow"], records)
        for _ in range(times):
            for side in (OURS, JAVA) if self._java is not None else (OURS,):
                self._run(side, cell, topic, records)

    def _warm_speed(self, side: str, cell: Cell, topic: str, records: int) -> float:
        """Return the records per second of a first run of the cell, which compiles its code."""
        name = (side, cell.format_name, cell.shape, cell.tables)
        if name not in self._warm:
            append = Cell(cell.format_name, cell.shape, "append", cell.tables)
            self._warm[name] = float(self._run(side, append, topic, records)["busy_rows_s"])
        return self._warm[name]

    # -------------------------------------------------------------- one run

    def _run(self, side: str, cell: Cell, topic: str, records: int) -> dict[str, Any]:
        shape = SHAPES[cell.shape]
        tables = [f"bench.{cell.shape}_{n:02d}" for n in range(cell.tables)]
        for table in tables:
            if self._catalog.table_exists(table):
                self._catalog.drop_table(table)
            self._catalog.create_table(table, shape.schema, properties={"format-version": "2"})
        name = f"{side}-{next(self._numbers)}"
        self._running.topic(f"control-{name}", 1)
        config = self._connector(side, name, cell, topic)
        api = f"{self._running.stack.rest_url}" if side == OURS else str(self._java_api.base_url)
        with self._running.measured() as costs:
            started = time.monotonic()
            create(api, name, config)
            if cell.mode == "upsert":
                done = self._wait_for_keys(cell, records, api, name)
            else:
                self._wait(cell, tables, records, lambda: check_tasks(api, name))
                done = time.monotonic()
            seconds = done - started
        httpx.delete(f"{api}/connectors/{name}", timeout=60)
        files, commits = self._files_and_commits(tables)
        return {
            **_measurements(side, costs[0], seconds, records),
            "files": files,
            "commits": commits,
        }

    @property
    def _java_api(self) -> httpx.Client:
        assert self._java is not None
        return self._java.api

    def _wait(
        self, cell: Cell, tables: Sequence[str], records: int, check: Callable[[], None]
    ) -> None:
        """Wait until every table has its rows."""
        expected = _expected(cell, records)
        deadline = time.monotonic() + LIMIT_S
        inspect = 0
        for table in tables:
            while (found := self._rows(table)) < expected[table]:
                inspect += 1
                if inspect % 20 == 0:
                    check()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{cell}: {found} of {expected[table]} rows of {table}")
                time.sleep(0.25)
            if found != expected[table]:
                raise AssertionError(f"{cell}: {found} for {expected[table]} rows of {table}")

    def _rows(self, table: str) -> int:
        head = self._catalog.load_table(table).current_snapshot()
        return 0 if head is None or head.summary is None else int(head.summary["total-records"])

    def _files_and_commits(self, tables: Sequence[str]) -> tuple[int, int]:
        """Return the data files of all tables, and their commits."""
        loaded = [self._catalog.load_table(table) for table in tables]
        heads = [head.summary for table in loaded if (head := table.current_snapshot())]
        files = sum(int(summary["total-data-files"]) for summary in heads if summary)
        return files, sum(len(table.snapshots()) for table in loaded)

    def _wait_for_keys(self, cell: Cell, records: int, api: str, name: str) -> float:
        """Wait for one row per key in each table; return the time on the monotonic clock.

        The coordinator reports the files a moment after they are committed.
        """
        expected = _expected(cell, records)
        deadline = time.monotonic() + LIMIT_S
        while True:
            wait_for_lag(api, name, records)
            done = time.monotonic()
            wrong = {
                table: found
                for table, keys in expected.items()
                if (found := rows_left(self._catalog.load_table(table))) != (keys, keys)
            }
            if not wrong:
                return done
            if done > deadline:
                raise TimeoutError(f"{cell}: rows and keys of {wrong}")

    # -------------------------------------------------------------- topics and connectors

    def _topic(self, format_name: str, shape: Shape, records: int) -> str:
        topic = f"{format_name}-{shape.name}-{records}"
        if topic not in self._filled:
            self._running.topic(topic, PARTITIONS)
            schema_id = self._schema_id(format_name, shape)
            producer = BulkProducer(self._running.kafka)
            for partition in range(PARTITIONS):
                values = encoded(format_name, shape, schema_id, partition, records)
                while batch := list(itertools.islice(values, _BATCH)):
                    producer.send(topic, partition, batch)
            producer.finish(topic)
            self._filled.add(topic)
        return topic

    def _schema_id(self, format_name: str, shape: Shape) -> int:
        reported = schemas(shape)
        if format_name == "protobuf":
            return self._registry.register(f"{shape.name}-protobuf", reported.protobuf, "PROTOBUF")
        return self._registry.register(f"{shape.name}-avro", reported.avro)

    def _connector(self, side: str, name: str, cell: Cell, topic: str) -> dict[str, str]:
        tables = {"iceberg.tables": f"bench.{cell.shape}_00"}
        if cell.tables > 1:
            assert cell.tables == TABLES_MAX, "a record's target is one of all tables"
            tables = {
                "iceberg.tables.dynamic-enabled": "true",
                "iceberg.tables.route-field": "target",
            }
        upsert = {
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.tables.default-id-columns": "id",
        }
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": topic,
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            **self._converter(side, cell.format_name),
            **tables,
            **(upsert if cell.mode == "upsert" else {}),
            "iceberg.catalog": "bench",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": self._rest.uri,
            "iceberg.catalog.warehouse": self._rest.properties["warehouse"],
            "iceberg.control.topic": f"control-{name}",
            "iceberg.control.commit.interval-ms": str(self._interval_ms),
            **(_JAVA_TUNING if side == JAVA else {"tasks.max": "1"}),
        }

    def _converter(self, side: str, format_name: str) -> dict[str, str]:
        if format_name in ("json", "envelope"):
            return {
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": str(format_name == "envelope").lower(),
            }
        if side == JAVA:
            return {
                "value.converter": _JAVA_AVRO,
                "value.converter.apicurio.registry.url": f"{self._registry.url}/apis/registry/v2",
                "value.converter.apicurio.registry.as-confluent": "true",
            }
        classes = {"avro": "avro.AvroConverter", "protobuf": "protobuf.ProtobufConverter"}
        return {
            "value.converter": _CONFLUENT + classes[format_name],
            "value.converter.schema.registry.url": self._registry.url,
        }


# fastest settings on two cores, see docs/evidence/performance.md
_JAVA_TUNING = {
    "tasks.max": "2",
    "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    "iceberg.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "consumer.override.max.poll.records": "500",
    "consumer.override.max.partition.fetch.bytes": "8388608",
    "consumer.override.fetch.max.bytes": "67108864",
    "consumer.override.receive.buffer.bytes": "1048576",
}


def _expected(cell: Cell, records: int) -> dict[str, int]:
    """Return the expected rows by table."""
    keys = keys_of(records)
    numbers = keys if cell.mode == "upsert" else records
    if cell.tables == 1:
        return {f"bench.{cell.shape}_00": numbers}
    counts = dict.fromkeys((f"bench.{cell.shape}_{n:02d}" for n in range(cell.tables)), 0)
    for number in range(numbers):
        counts[f"bench.{cell.shape}_{number % keys % TABLES_MAX:02d}"] += 1
    return counts


def _measurements(side: str, cost: ResourceUse, seconds: float, records: int) -> dict[str, Any]:
    kinds = ("worker", "coordinator", "node") if side == OURS else ("java",)
    used = sum(cost.cpu_s.get(kind, 0) for kind in kinds)
    return {
        "rows_s": round(records / seconds),
        "seconds": round(seconds, 1),
        "busy_rows_s": round(records / cost.busy_s(kinds)),
        "cpu_s_per_mrow": round(used / records * 1e6, 2),
        "cpu_s": {kind: round(s, 1) for kind, s in cost.cpu_s.items()},
        "peak_mb": round(sum(cost.rss_peak_mb.get(kind, 0) for kind in kinds)),
        "load": round(os.getloadavg()[0], 1),
    }


def run(
    cells: Sequence[Cell],
    *,
    scale: float,
    rounds: int,
    has_java: bool,
    interval_ms: int,
    seconds: float | None = None,
) -> list[dict[str, Any]]:
    """Measure cells on a separate stack.

    Args:
        cells: which.
        scale: how many records, times each shape's own number.
        rounds: per cell; medians are reported, on each side.
        has_java: whether the Java sink runs, too.
        interval_ms: commit interval.
        seconds: how long a round of the slower side takes, roughly; by default as it comes.
    """
    found = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-peer-")))
        catalog = RestCatalog(folder / "rest")
        catalog.start()
        stack.callback(catalog.stop)
        registry = stack.enter_context(SchemaRegistryServer())
        running = stack.enter_context(measured_stack(folder / "stack"))
        java = None
        if has_java:
            bootstrap = running.stack.bootstrap_servers
            java = JavaConnect(
                folder / "java",
                bootstrap,
                heap_max_mb=_HEAP_MB,
                converters={"java-avro": _JAVA_AVRO},
            )
            stack.callback(java.close)
            java.start()
        matrix = Matrix(running, java, catalog, registry, interval_ms)
        matrix.warm_up(round(SHAPES["narrow"].records * scale), 2)
        for cell in cells:
            count = round(SHAPES[cell.shape].records * scale)
            found.append(matrix.measure(cell, count, rounds, seconds))
            print(json.dumps(found[-1]), flush=True)
    return with_ratios(found)


def chosen(given: argparse.Namespace) -> list[Cell]:
    """Return the cells that the arguments select, grouped by topic."""
    return [
        Cell(format_name, shape, mode, tables)
        for shape in given.shapes.split(",")
        for format_name in given.formats.split(",")
        for mode in given.modes.split(",")
        for tables in (int(n) for n in given.tables.split(","))
    ]


def main() -> None:
    """Measure the selected cells; print the table, write the JSON."""
    parser = matrix_parser(__doc__, FORMATS, scale=1.0, rounds=1)
    parser.add_argument("--interval-ms", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, help="of a round of the slower side")
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--out", type=Path, default=REPORT)
    given = parser.parse_args()
    cells = run(
        chosen(given),
        scale=given.scale,
        rounds=given.rounds,
        has_java=not given.no_java,
        interval_ms=given.interval_ms,
        seconds=given.seconds,
    )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(cells, indent=2) + "\n")
    print("\n".join(table_of(cells)))


if __name__ == "__main__":
    main()

"""CPU seconds per million records of event-time aggregates, with a query before them and without.

Usage: python -m tests.bench.aggregates [MILLIONS [RUNS [NAMES]]]. One streaming query with its
state in RocksDB, without broker and store: records come from Parquet files, each of them is a
batch. The cases take turns; the first turn warms and does not count, of the others the least does.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from connect.embedded.payments import COUNTRIES, chunk, variant_tails
from connect.validation.parse import parse
from tests.bench.cpu_cases import print_least, take_turns
from tests.bench.task import cpu
from tests.differential.support import source
from tests.support.connector_json import aggregate_config
from worker.aggregate.event_rows import (
    Reports,
    event_ddl,
    event_rows,
    event_schema,
    event_spec,
    result_of,
)
from worker.aggregate.window_query import aggregated, output_mode, streaming_session
from worker.pipeline.pipeline import of_records
from worker.spark.session import Session, open_session
from worker.sql.query_opening import open_query_catalog, opened_query
from worker.sql.sql_batches import SparkQuery, sql_plan
from worker.sql.sql_write import queried
from worker.task.source.source_reader import as_arrow

BATCHES: Final = 4
CHUNK: Final = 2_000
COLUMNS: Final = "at TIMESTAMP, country STRING, amount DOUBLE"
QUERIES: Final = {
    "columns as they are": "SELECT at, country, amount FROM records",
    "one computed, WHERE": "SELECT at, country, amount * 100 AS amount FROM records "
    "WHERE amount >= 0",
    "all computed": "SELECT date_trunc('SECOND', at) AS at, lower(country) AS country, "
    "amount * 100 AS amount FROM records",
    "joined": "SELECT r.at, p.name AS country, r.amount FROM records r "
    "LEFT JOIN places p ON p.code = r.country",
}


class Case:
    """Aggregates of the rows of one query, or of the records.

    Args:
        name: of the query, or ``none``.
        folder: where records and the static table are.
        session: Spark's.
    """

    def __init__(self, name: str, folder: Path, session: Session) -> None:
        self.used: list[dict[str, float]] = []
        self._folder = folder
        config = parse(aggregate_config(self._keys(name)))
        assert config.aggregation is not None
        self._aggregation = config.aggregation
        self._spark = streaming_session(session.spark, self._aggregation)
        self._schema = event_schema(self._aggregation)
        self._spec = event_spec(config, self._schema)
        self._reports = session.context.accumulator([], Reports())
        self._query: SparkQuery | None = None
        if (plan := sql_plan(config)) is not None:
            catalog = open_query_catalog(config, plan)
            self._query = opened_query(config, plan, catalog, self._spark)
            catalog.close()

    def _keys(self, name: str) -> dict[str, str]:
        own = {
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "icefloe.aggregate.columns": COLUMNS,
            "icefloe.aggregate.time-field": "at",
            "icefloe.aggregate.slide": "",
            "icefloe.aggregate.window": "1 minute",
            "icefloe.aggregate.group-by": "country",
        }
        if name == "none":
            return own
        query = QUERIES[name]
        places = {"transforms.q.table.places": f"{self._folder}/places.parquet"}
        return {
            **own,
            "transforms": "q",
            "transforms.q.type": "Sql",
            "transforms.q.columns": COLUMNS,
            "transforms.q.query": query,
            **(places if " places " in query else {}),
        }

    def run(self, count: int) -> None:
        """Run the streaming query once over all records."""
        records = (
            self._spark.readStream.schema(_ddl(self._folder, self._spark))
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._folder / "records"))
            .select(*self._spec.columns())
        )
        rows, opening = records, of_records(self._spec)
        if self._query is not None:
            rows = self._query.rows(records, self._spec)
            opening = queried(self._spec, self._query.split)
        events = rows.mapInArrow(
            event_rows(opening, self._schema, self._reports), event_ddl(self._schema)
        )
        written = 0

        def take(results: Any, _number: int) -> None:
            nonlocal written
            self._reports.value = []
            as_arrow(results)
            progress = result_of(self._reports.value).progress
            written += sum(each.written for each in progress.values())

        before = cpu()
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            running = (
                aggregated(events, self._aggregation)
                .writeStream.foreachBatch(take)
                .outputMode(output_mode(self._aggregation))
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            running.awaitTermination()
        assert written == count, f"{written} of {count} records"
        self.used.append({k: (v - before[k]) * 1e6 / count for k, v in cpu().items()})


def _ddl(folder: Path, spark: Any) -> Any:
    return spark.read.parquet(str(folder / "records")).schema


def _write(folder: Path, records: int) -> int:
    """Write the records and the static table; return how many records there are."""
    codes = [*COUNTRIES, *(f"X{i}" for i in range(10_000 - len(COUNTRIES)))]
    places = pa.table({"code": codes, "name": [f"country {code}" for code in codes]})
    pq.write_table(places, folder / "places.parquet")
    (folder / "records").mkdir()
    tails, share = variant_tails(), max(records // BATCHES // CHUNK, 1)
    for batch in range(BATCHES):
        parts = []
        for number in range(batch * share, (batch + 1) * share):
            at = f"2026-01-01T{number // 60 % 24:02d}:{number % 60:02d}:01.250Z"
            start = number * CHUNK
            parts.append(source(chunk(0, start, start + CHUNK, at, tails), start=start))
        table = pa.Table.from_batches(parts)
        path = folder / "records" / f"{batch}.parquet"
        pq.write_table(table, path, use_dictionary=False, row_group_size=50_000)
    return BATCHES * share * CHUNK


def main(records: int, runs: int, names: list[str]) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="bench-aggregates-") as made:
        folder = Path(made)
        count = _write(folder, records)
        session = open_session({}, folder=folder)
        cases = {name: Case(name, folder, session) for name in ("none", *(names or QUERIES))}
        take_turns(cases, count, runs)
        session.close()
    print_least(cases)


if __name__ == "__main__":
    main(
        int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1e6),
        int(sys.argv[2]) if len(sys.argv) > 2 else 3,
        sys.argv[3:],
    )

"""CPU seconds per million records of a ``Sql`` transformation, compared with none.

Usage: python -m tests.bench.sql [MILLIONS [RUNS [NAMES]]]. Spark and the pipeline, without broker,
catalog and commits: records come from a Parquet file. The cases take turns; the first turn warms
and does not count, of the others the least does.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.embedded.payments import COUNTRIES, chunk, variant_tails
from connect.gateways.catalog.catalog import open_catalog
from tests.bench.cpu_cases import print_least, take_turns
from tests.bench.task import cpu
from tests.differential.support import config, plan, source
from worker.batch.descriptors import DESCRIPTOR_DDL, collect
from worker.pipeline.pipeline import PipelineSpec, run
from worker.spark.session import Session, open_session
from worker.sql.sql_batches import SparkQuery, sql_plan
from worker.sql.static_tables import StaticTables

TEXTS = ("at", "kind", "account", "currency", "merchant", "country")
COLUMNS = f"sequence BIGINT, amount DOUBLE, {', '.join(f'{name} STRING' for name in TEXTS)}"
COMPUTED = (
    "sequence + 1 AS sequence, amount * 2 AS amount, concat(at, '') AS at, upper(kind) AS kind, "
    "lower(account) AS account, lower(currency) AS currency, lower(merchant) AS merchant, "
    "lower(r.country) AS country"
)
JOIN = "FROM records r LEFT JOIN places p ON p.code = r.country"
QUERIES = {
    "columns as they are": "SELECT * FROM records",
    "one computed, WHERE": "SELECT sequence, amount * 100 AS amount, at, kind, account, currency, "
    "merchant, country FROM records WHERE amount >= 0",
    "joined": f"SELECT r.*, p.name {JOIN}",
    "all computed": f"SELECT {COMPUTED} FROM records r",
    "all computed, joined": f"SELECT {COMPUTED}, p.name {JOIN}",
    "a list, mostly null": "SELECT sequence, account, amount, "
    "CASE WHEN amount > 9990 THEN array(kind, currency) END AS tags FROM records",
}
FIELDS = [
    NestedField(1, "sequence", LongType(), required=False),
    NestedField(2, "amount", DoubleType(), required=False),
    *(NestedField(i, name, StringType(), required=False) for i, name in enumerate(TEXTS, 3)),
    NestedField(9, "name", StringType(), required=False),
    NestedField(10, "tags", ListType(11, StringType(), element_required=False), required=False),
]


class Case:
    """One query, or none, over the records.

    Args:
        name: of the query.
        folder: where records, the static table and data files are.
        session: Spark's.
    """

    def __init__(self, name: str, folder: Path, session: Session) -> None:
        self.used: list[dict[str, float]] = []
        self._session = session
        self._folder = folder
        self._query: SparkQuery | None = None
        connector = config(**self._keys(name))
        last = {"joined": 9, "all computed, joined": 9, "a list, mostly null": 10}.get(name, 8)
        self._spec = PipelineSpec(connector, (plan(folder, Schema(*FIELDS[:last])),))
        if name != "none":
            self._query = self._prepared(connector)

    def _keys(self, name: str) -> dict[str, str]:
        if name == "none":
            return {}
        places = {"transforms.q.table.places": f"{self._folder}/places.parquet"}
        return {
            "transforms": "q",
            "transforms.q.type": "Sql",
            "transforms.q.columns": COLUMNS,
            "transforms.q.query": QUERIES[name],
            **(places if " places " in QUERIES[name] else {}),
        }

    def _prepared(self, connector: ConnectorConfig) -> SparkQuery:
        planned = sql_plan(connector)
        assert planned is not None
        uri = f"sqlite:///{self._folder}/catalog.db"
        catalog = open_catalog("c", {"type": "sql", "uri": uri, "warehouse": str(self._folder)})
        query = SparkQuery(
            self._session.spark, planned, StaticTables(planned, catalog, SystemClock())
        )
        query.refresh()
        return query

    def run(self, count: int) -> None:
        """Run the query once over all records."""
        is_bounded = self._query is not None and self._query.may_enlarge
        spark = self._session.spark if is_bounded else self._session.of_rows
        rows = spark.read.parquet(str(self._folder / "records.parquet"))
        rows = rows.select(*self._spec.columns())
        before = cpu()
        if self._query is None:
            asked = rows.mapInArrow(run(self._spec), DESCRIPTOR_DDL)
        else:
            asked = self._query.run(rows, self._spec)
        result = collect(asked.toArrow())
        assert sum(done.written for done in result.progress.values()) == count
        self.used.append({k: (v - before[k]) * 1e6 / count for k, v in cpu().items()})


def main(records: int, runs: int, names: list[str]) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="bench-sql-") as made:
        folder = Path(made)
        codes = [*COUNTRIES, *(f"X{i}" for i in range(10_000 - len(COUNTRIES)))]
        places = pa.table({"code": codes, "name": [f"country {code}" for code in codes]})
        pq.write_table(places, folder / "places.parquet")
        batch = source(list(chunk(0, 0, min(records, 100_000), "2026-01-01", variant_tails())))
        repeated = pa.Table.from_batches([batch] * -(-records // batch.num_rows))
        pq.write_table(repeated, folder / "records.parquet", use_dictionary=False)
        session = open_session({}, folder=folder)
        cases = {n: Case(n, folder, session) for n in ("none", *(names or QUERIES))}
        take_turns(cases, repeated.num_rows, runs)
        session.close()
    print_least(cases)


if __name__ == "__main__":
    main(
        int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1e6),
        int(sys.argv[2]) if len(sys.argv) > 2 else 3,
        sys.argv[3:],
    )

"""``Sql``: the pipeline's halves and the query between them, in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.errors import PySparkException

from connect.errors import ConfigError
from connect.records.transforms.sql.sql_transform import DECLARATION
from tests.differential.support import config, rows_of
from tests.support.spark_marks import SPARK_MARKS
from tests.support.sql_harness import PLACES, SqlHarness, counts
from worker.batch.descriptors import PartitionProgress
from worker.spark.source_options import LARGE_RECORD_TEXT
from worker.sql.sql_batches import SparkQuery, sql_plan
from worker.sql.static_tables import StaticTables

pytestmark = list(SPARK_MARKS)


def test_the_example_of_the_page_is_correct(sql: SqlHarness) -> None:
    """It gives the documented row."""
    example = DECLARATION.example
    assert isinstance(example.after, Mapping)
    SqlHarness.static("geo.locations", PLACES, sql.catalog)
    options = {f"transforms.q.{name}": value for name, value in example.config.items()}
    sql.config = config(**{"transforms": "q", "transforms.q.type": "Sql", **options})
    planned = sql_plan(sql.config)
    assert planned is not None
    query = SparkQuery(sql.session.spark, planned, StaticTables(planned, sql.catalog, sql.clock))
    query.refresh()
    after = example.after["value"]
    kinds = [IntegerType() if type(value) is int else StringType() for value in after.values()]
    schema = Schema(
        *(
            NestedField(i, name, kind, required=False)
            for i, (name, kind) in enumerate(zip(after, kinds, strict=True), start=1)
        )
    )
    result = sql.run(query, [example.before["value"]], schema)
    assert rows_of(result, "db.t1") == [after]


@pytest.mark.parametrize("of_rows", [False, True])
def test_every_record_is_counted_once(sql: SqlHarness, of_rows: bool) -> None:
    """Written, dropped by WHERE or as a tombstone, refused before, in and after the query."""
    query = sql.query(
        "SELECT r.id, p.city, CAST(r.n AS INT) * 2 AS n, id AS city_id FROM records r "
        "LEFT JOIN places p ON p.device = r.device WHERE CAST(r.n AS INT) < 2000000000"
    )
    result = sql.run(
        query,
        [
            {"id": 1, "device": "d1", "n": "1"},
            None,
            {"id": 2, "device": "d2", "n": "2"},
            {"id": 3, "device": "d3", "n": "3"},
            {"id": 4, "n": "2000000001"},  # WHERE
            {"id": 5, "n": "secret"},  # WHERE fails
            {"id": 6, "n": "1500000000"},  # SELECT overflows
            {"id": "secret"},  # no BIGINT
            b"{",
            {"id": 7, "device": None, "n": "7"},
        ],
        of_rows=of_rows,
    )
    assert counts(result) == PartitionProgress(10, 2, 4, 4, 1_700_000_000_009)
    rows = [(row["id"], row["city"], row["n"]) for row in rows_of(result, "db.t1")]
    assert sorted(rows[1:3], key=str) == [(2, "Bern", 4), (2, "Rome", 4)]
    assert rows[:1] + rows[3:] == [(1, "Oslo", 2), (3, None, 6), (7, None, 14)]
    letters = [(d.record.offset, d.error.stage, d.error.code) for d in result.dead_letters]
    assert letters == [
        (5, "TRANSFORMATION", "sql_failed"),
        (6, "TRANSFORMATION", "sql_failed"),
        (7, "TRANSFORMATION", "bad_text"),
        (8, "VALUE_CONVERTER", "bad_json"),
    ]
    assert result.dead_letters[0].record.value == b'{"id": 5, "n": "secret"}'
    assert "secret" not in "".join(str(d.error) for d in result.dead_letters)


def test_a_batch_parses_nothing(sql: SqlHarness) -> None:
    """The expressions of a query are parsed, and their patterns compiled, before the first one."""
    query = sql.query("SELECT id, upper(device) AS city FROM records WHERE device RLIKE 'd[12]'")
    query._expressions._parser = query._expressions._bounded = None  # type: ignore[assignment]
    for _ in range(2):
        result = sql.run(query, [{"id": n, "device": f"d{n}"} for n in range(4)])
        assert [(row["id"], row["city"]) for row in rows_of(result, "db.t1")] == [
            (1, "D1"),
            (2, "D2"),
        ]


def test_rows_that_a_query_enlarges_are_detected_in_unbounded_batches(sql: SqlHarness) -> None:
    """The batch is then read again with a limit in bytes; the size of a list is not checked."""
    query = sql.query(
        "SELECT id, CASE WHEN n = '35' THEN repeat(device, 35) ELSE repeat(device, 30) END AS city "
        "FROM records"
    )
    device = "0123456789" * 100
    records = [{"id": n, "device": device, "n": "30"} for n in range(2)]
    result = sql.run(query, records, of_rows=True)
    assert counts(result).written == 2
    records.append({"id": 2, "device": device, "n": "35"})
    with pytest.raises(PySparkException, match=LARGE_RECORD_TEXT):
        sql.run(query, records, of_rows=True)
    assert counts(sql.run(query, records)).written == 3
    assert not query.may_enlarge
    assert sql.query("SELECT id, array(device, n) AS city FROM records").may_enlarge


def test_a_record_of_several_rows_is_written_whole_or_not_at_all(sql: SqlHarness) -> None:
    """For all block boundaries, a refused row removes the other rows of its record."""
    query = sql.query(
        "SELECT id, CAST(element AS INT) AS n FROM records r JOIN places p ON p.device = r.device",
        columns="id BIGINT, device STRING, element STRING",
        **{
            "transforms": "e,q",
            "transforms.e.type": "Explode",
            "transforms.e.field": "list",
            "transforms.e.element.field": "element",
        },
    )
    values = [
        {"id": 1, "device": "d1", "list": ["1", "2"]},
        {"id": 2, "device": "d2", "list": ["3", "x", "4"]},
        {"id": 3, "device": "d2", "list": ["5", "6"]},
        {"id": 4, "device": "d9", "list": ["7"]},  # no match
        {"id": 5, "device": "d1", "list": []},
    ]
    for block_rows in (1, 3, 65_536):
        result = sql.run(query, values, block_rows=block_rows)
        assert counts(result) == PartitionProgress(5, 2, 1, 2, 1_700_000_000_004)
        rows = [(row["id"], row["n"]) for row in rows_of(result, "db.t1")]
        assert rows == [(1, 1), (1, 2), (3, 5), (3, 5), (3, 6), (3, 6)]


def test_both_paths_give_the_same_rows(sql: SqlHarness) -> None:
    """By columns and record by record, for every type that a query may return."""
    columns = "id BIGINT, t STRING, d DOUBLE, at TIMESTAMP, m MAP<STRING, INT>, l ARRAY<BIGINT>"
    query = sql.query(
        "SELECT id, upper(t) AS s, d / 2 AS d, at, date(at) AS day, m, l, CAST(d AS FLOAT) AS f, "
        "CAST(id AS SMALLINT) AS i, CAST(d AS DECIMAL(12,2)) AS e, CAST(t AS BINARY) AS b, "
        "struct(id AS x, t AS y) AS st, kafka.offset AS o FROM records",
        columns=columns,
    )
    ids = iter(range(1, 100))

    def optional(name: str, kind: Any) -> NestedField:
        return NestedField(next(ids), name, kind, required=False)

    schema = Schema(
        optional("id", LongType()),
        optional("s", StringType()),
        optional("d", DoubleType()),
        optional("at", TimestamptzType()),
        optional("day", DateType()),
        optional("m", MapType(50, StringType(), 51, LongType(), value_required=False)),
        optional("l", ListType(52, StringType(), element_required=False)),
        optional("f", DoubleType()),
        optional("i", IntegerType()),
        optional("e", DecimalType(10, 2)),
        optional("b", BinaryType()),
        optional("st", StructType(optional("x", LongType()), optional("y", StringType()))),
        optional("o", LongType()),
    )
    values = [
        {"id": 1, "t": "a", "d": 1.25, "at": "2026-01-02T03:04:05.678901Z", "m": {"k": 1}},
        {"id": 2, "l": [1, None, 3], "at": 1_700_000_000_123, "d": 123456789.5},  # e does not fit
        {"id": 40_000},  # i overflows
        {},
        {"id": -3, "t": "äß", "d": -0.0, "m": {}, "l": []},
        {"id": 5, "at": "1900-01-01T00:00:00Z", "m": {"x": None}},
    ]
    by_columns = sql.run(query, values, schema)
    one_by_one = sql.run(query, values, schema, reference_only=True)
    assert rows_of(by_columns, "db.t1") == rows_of(one_by_one, "db.t1")
    assert by_columns.progress == one_by_one.progress
    assert counts(by_columns).written == 4
    letters = [
        [(d.record.offset, d.error.code) for d in r.dead_letters] for r in (by_columns, one_by_one)
    ]
    assert letters[0] == letters[1]
    assert [offset for offset, _ in letters[0]] == [1, 2]


def test_tables_are_created_and_widened_by_the_columns_of_the_query(sql: SqlHarness) -> None:
    """Query columns have types, even if null: a new table, a new column and a new route."""
    create = {"iceberg.tables.auto-create-enabled": "true"}
    widen = {"iceberg.tables.evolve-schema-enabled": "true"}
    text = "SELECT id, p.city, kafka.timestamp AS at FROM records LEFT JOIN places p ON "
    query = sql.query(text + "p.device = records.device", **create, **widen)
    value = {"id": 1, "device": "nowhere"}
    (request,) = sql.run(query, [value], None).table_requests
    kinds = {
        f.name: str(f.field_type)
        for f in Schema.model_validate_json(request.schema_json or "").fields
    }
    assert kinds == {"id": "long", "city": "string", "at": "timestamptz"}
    (change,) = sql.run(query, [value]).schema_requests
    assert "at" in change.changes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT nothing FROM records", "UNRESOLVED_COLUMN"),
        ("SELECT id + FROM records", "PARSE_SYNTAX_ERROR"),
        ("SELECT hour(id) AS h FROM records", "convert it with the transformation ParseTimestamp"),
        ("SELECT hour(device = 'x') AS h FROM records", "UNEXPECTED_INPUT_TYPE$"),
        ("SELECT unix_timestamp() AS x FROM records", "another result"),
        ("SELECT upper(id, id) FROM records", "WRONG_NUM_ARGS"),
        ("SELECT id, n AS ID FROM records", "two columns"),
        ("SELECT INTERVAL 1 DAY AS x FROM records", "no table supports"),
        ("SELECT x.* FROM records", "not a relation"),
        ("SELECT id FROM records WHERE id", "not a condition"),
        ("SELECT id FROM records JOIN places p ON p.device = id", "write a CAST"),
        ("SELECT id FROM records JOIN places p ON device = n", "AMBIGUOUS"),
        ("SELECT id FROM records JOIN places p ON p.device = p.city", "one side must use"),
        ("SELECT id FROM records JOIN places p ON p.nothing = n", "UNRESOLVED_COLUMN"),
        ("SELECT device FROM records r JOIN places p ON p.device = r.device", "AMBIGUOUS"),
        (
            "SELECT id FROM records r JOIN places p ON pi() = 1 AND p.city = n",
            "may belong to either",
        ),
    ],
)
def test_unsupported_queries_are_refused(sql: SqlHarness, text: str, message: str) -> None:
    """Before the first record, with Spark's message or ours."""
    with pytest.raises(ConfigError, match=message) as refused:
        sql.query(text)
    assert refused.value.code == "sql_query"


def test_static_tables_are_refreshed(sql: SqlHarness) -> None:
    """Parquet files and Iceberg tables are read again after ``tables.refresh.ms``, not before."""
    folder = sql.folder / "names"
    folder.mkdir()
    pq.write_table(pa.table({"k": ["d1"], "name": ["first"]}), folder / "a.parquet")
    (folder / "_SUCCESS").touch()
    text = (
        "SELECT id, concat(p.city, '-', names.name) AS city FROM records r "
        "LEFT JOIN places p ON r.device = p.device LEFT JOIN names ON k = r.device"
    )
    query = sql.query(text, **{"transforms.q.table.names": str(folder)})
    record = [{"id": 1, "device": "d1"}]
    assert rows_of(sql.run(query, record), "db.t1")[0]["city"] == "Oslo-first"
    sql.places.overwrite(pa.table({"device": ["d1"], "city": ["Paris"]}))
    pq.write_table(pa.table({"k": ["d1"], "name": ["second"]}), folder / "a.parquet")
    sql.clock.ms += 59_999
    query.refresh()
    assert rows_of(sql.run(query, record), "db.t1")[0]["city"] == "Oslo-first"
    sql.clock.ms += 1
    query.refresh()
    assert rows_of(sql.run(query, record), "db.t1")[0]["city"] == "Paris-second"
    pq.write_table(pa.table({"k": ["d1"], "other": ["x"]}), folder / "a.parquet")
    sql.clock.ms += 60_000
    with pytest.raises(ConfigError, match="name"):
        query.refresh()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"transforms.q.table.places": "geo.nowhere"}, "geo.nowhere does not exist"),
        ({"transforms.q.table.places": "/nowhere/at/all"}, "no Parquet files"),
        ({"transforms.q.tables.max.bytes": "100"}, "tables.max.bytes allows 100"),
    ],
)
def test_a_static_table_that_cannot_be_read_is_an_error(
    sql: SqlHarness, keys: dict[str, str], message: str
) -> None:
    """A missing or too large table is named before the first record."""
    text = "SELECT id FROM records r JOIN places p ON p.device = r.device"
    with pytest.raises(ConfigError, match=message) as refused:
        sql.query(text, **{**sql.keys(text), **keys})
    assert refused.value.code == "sql_table"

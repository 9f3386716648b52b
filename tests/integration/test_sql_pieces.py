"""``Sql``: what goes past Spark comes back to its rows, and lists through it."""

from __future__ import annotations

from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tests.differential.support import rows_of
from tests.support.spark_marks import SPARK_MARKS
from tests.support.sql_harness import SqlHarness, counts
from worker.batch.descriptors import PartitionProgress

pytestmark = list(SPARK_MARKS)


def test_unchanged_columns_stay_with_their_rows(sql: SqlHarness) -> None:
    """With or without Spark, for records with several rows, one or none; also Kafka's columns."""
    query = sql.query(
        "SELECT ID AS id, p.city, r.st.Deep.X AS x, length(r.st.deep.y) AS n, st AS whole, l, "
        "kafka.offset AS o, kafka AS k, `offset`.`a` AS q FROM records r "
        "LEFT JOIN places p ON p.device = concat(r.device, '') WHERE id <> 3",
        columns="id BIGINT, device STRING, l ARRAY<STRING>, `offset` STRUCT<a: STRING>, "
        "st STRUCT<deep: STRUCT<x: INT, y: STRING>>",
    )
    ids = iter(range(1, 100))

    def optional(name: str, kind: Any) -> NestedField:
        return NestedField(next(ids), name, kind, required=False)

    inner = StructType(optional("x", IntegerType()), optional("y", StringType()))
    schema = Schema(
        optional("id", LongType()),
        optional("city", StringType()),
        optional("x", IntegerType()),
        optional("n", IntegerType()),
        optional("whole", StructType(optional("deep", inner))),
        optional("l", ListType(next(ids), StringType(), element_required=False)),
        optional("o", LongType()),
        optional("k", StructType(optional("topic", StringType()))),
        optional("q", StringType()),
    )
    values = [
        {"id": 0, "device": "d2", "st": {"deep": {"x": 5, "y": "abc"}}, "l": ["a"]},
        None,
        {"id": 2, "device": "d1", "st": {"deep": None}, "offset": {"a": "q"}},
        {"id": 3, "device": "d2"},
        {"id": 4, "st": None, "l": []},
        {"id": "bad"},
        {"id": 6, "device": "d1", "l": [None, "z"]},
    ]
    for reference_only in (False, True):
        result = sql.run(query, values, schema, reference_only=reference_only)
        assert counts(result) == PartitionProgress(7, 2, 1, 4, 1_700_000_000_006)
        found = [
            (r["id"], r["city"], r["x"], r["n"], r["whole"], r["l"], r["o"], r["k"], r["q"])
            for r in rows_of(result, "db.t1")
        ]
        topic = {"topic": "t"}
        st = {"deep": {"x": 5, "y": "abc"}}
        assert sorted(found[:2], key=str) == [
            (0, city, 5, 3, st, ["a"], 0, topic, None) for city in ("Bern", "Rome")
        ]
        assert found[2:] == [
            (2, "Oslo", None, None, {"deep": None}, None, 2, topic, "q"),
            (4, None, None, None, None, [], 4, topic, None),
            (6, "Oslo", None, None, None, [None, "z"], 6, topic, None),
        ]


def test_unchanged_columns_are_not_sent_to_spark(sql: SqlHarness) -> None:
    """If a query computes nothing, no column is sent."""
    nothing = sql.query("SELECT * FROM records")
    assert nothing.split.seen == ()
    condition = sql.query("SELECT id, n, kafka.offset FROM records r WHERE r.device > ''")
    assert condition.split.seen == ("device",)
    joined = "SELECT r.*, upper(n) AS m FROM records r JOIN places p ON p.device = r.device"
    assert sql.query(joined).split.seen == ("device", "n")
    assert sql.query("SELECT to_json(kafka) AS k FROM records").split.seen == ("kafka",)


def test_lists_that_are_mostly_null_are_unchanged(sql: SqlHarness) -> None:
    """At any depth; fence rows leave no trace in the result."""
    query = sql.query(
        "SELECT id, CASE WHEN id % 300 = 0 THEN array(device, NULL) END AS l, "
        "IF(id % 200 = 7, map(device, array(n)), NULL) AS m, "
        "named_struct('x', IF(id = 5, array(id), NULL)) AS st FROM records "
        "WHERE CAST(n AS INT) <> 500"
    )
    ids = iter(range(1, 100))

    def optional(name: str, kind: Any) -> NestedField:
        return NestedField(next(ids), name, kind, required=False)

    def many(kind: Any) -> ListType:
        return ListType(next(ids), kind, element_required=False)

    schema = Schema(
        optional("id", LongType()),
        optional("l", many(StringType())),
        optional("m", MapType(next(ids), StringType(), next(ids), many(StringType()))),
        optional("st", StructType(optional("x", many(LongType())))),
    )
    values = [{"id": i, "device": "d", "n": "x" if i == 9 else str(i)} for i in range(1_000)]
    expected = [
        {
            "id": i,
            "l": ["d", None] if i % 300 == 0 else None,
            "m": {"d": [str(i)]} if i % 200 == 7 else None,
            "st": {"x": [5] if i == 5 else None},
        }
        for i in range(1_000)
        if i not in (9, 500)
    ]
    result = sql.run(query, values, schema)
    assert counts(result) == PartitionProgress(1_000, 1, 1, 998, 1_700_000_000_999)
    found = [{**row, "m": dict(row["m"]) if row["m"] else None} for row in rows_of(result, "db.t1")]
    assert found == expected


def test_bytes_read_are_reported_without_dead_letters(sql: SqlHarness) -> None:
    """Without a tolerance, records are not kept for dead letters; their sizes are counted."""
    query = sql.query("SELECT id FROM records", **{"errors.tolerance": "none"})
    result = sql.run(query, [b'{"id": 1}', b'{"id": 22}'])
    assert counts(result).bytes_read == 19

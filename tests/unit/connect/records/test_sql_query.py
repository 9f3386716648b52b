"""``Sql`` without Spark: how its query and columns are read, and where it may stand."""

from __future__ import annotations

import time

import pytest

from connect.errors import ConfigError
from connect.records.transforms.sql.sql_columns import columns_schema, spark_type
from connect.records.transforms.sql.sql_query import (
    Equality,
    Join,
    Query,
    column_names,
    parse_query,
    star_of,
)
from connect.validation.parse import parse

CONNECTOR = {
    "name": "c",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.catalog.type": "sql",
    "iceberg.catalog.uri": "sqlite://",
    "transforms": "q",
    "transforms.q.type": "icefloe.transforms.Sql",
    "transforms.q.columns": "id BIGINT",
    "transforms.q.query": "SELECT id FROM records",
}


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("id, r.`a b`, r.kafka.offset, id + 1 AS more, CASE WHEN a THEN 1 END AS `Case`", None),
        ("*", {"id", "a"}),
        ("r.*, 1 AS one", {"id", "a", "one"}),
        ("R.*", {"id", "a"}),
        ("id, l.*", "?"),
        ("CAST(id AS INT)", "?"),  # its name is id
        ("id::INT", "?"),
        ("named_struct('x', 1).x", "?"),
        ("id + 1", "?"),
        ("-id", "?"),
    ],
)
def test_names_of_columns(items: str, names: set[str] | str | None) -> None:
    """Only Spark knows the names of some expressions."""
    if names is None:
        names = {"id", "a b", "offset", "more", "Case"}
    join = " JOIN l ON l.id = r.id" if "l.*" in items else ""
    result = column_names(parse_query(f"SELECT {items} FROM records r{join}"), ["id", "a"])
    assert result == (None if names == "?" else names)


def test_clauses_of_a_query_are_found() -> None:
    """Keywords in strings, comments, brackets and after dots start no clause."""
    found = parse_query(
        """select r.*, a || 'x, from -- y' as z, -- a comment, from x
        left(r.x, 3), CAST(x AS DECIMAL(3,2)), `order by`, r.where /* from */, extract(DAY FROM at)
        from records as r
        left outer join locations AS l ON l.`a b` = r.x and lower(l.b) = lower(r.y)
        inner join t on t.id == l.t
        where a > 1e-5 and b = 'SELECT x FROM y WHERE';"""
    )
    assert found == Query(
        (
            *("r.*", "a || 'x, from -- y' as z", "left(r.x, 3)", "CAST(x AS DECIMAL(3,2))"),
            *("`order by`", "r.where", "extract(DAY FROM at)"),
        ),
        "r",
        (
            Join(
                "locations",
                "l",
                "left",
                (Equality("l.`a b`", "r.x"), Equality("lower(l.b)", "lower(r.y)")),
            ),
            Join("t", "t", "inner", (Equality("t.id", "l.t"),)),
        ),
        "a > 1e-5 and b = 'SELECT x FROM y WHERE'",
    )
    assert [star_of(item) for item in ("*", "l.*", "`l x`.*", "a * b")] == ["", "l", "l x", None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begin with SELECT"),
        ("INSERT INTO t SELECT a FROM records", "subqueries"),
        ("WITH x AS (SELECT 1) SELECT a FROM records", "subqueries"),
        ("SELECT a", "no FROM"),
        ("SELECT a, FROM records", "empty"),
        ("SELECT (SELECT 1) FROM records", "subqueries"),
        ("SELECT DISTINCT a FROM records", "DISTINCT"),
        ("SELECT a FROM places", "not places"),
        ("SELECT a FROM records, places", "a relation must be"),
        ("SELECT a FROM records GROUP BY a", "GROUP"),
        ("SELECT a FROM records ORDER BY a", "ORDER"),
        ("SELECT a FROM records LIMIT 1", "LIMIT"),
        ("SELECT a FROM records WHERE", "no condition"),
        ("SELECT a FROM records FULL JOIN p ON a = b", "FULL"),
        ("SELECT a FROM records CROSS JOIN p", "CROSS"),
        ("SELECT a FROM records LATERAL VIEW explode(x) t", "LATERAL"),
        ("SELECT a FROM records JOIN p USING (a)", "requires a condition"),
        ("SELECT a FROM records JOIN p ON a > b", "equalities"),
        ("SELECT a FROM records JOIN p ON a = b OR c = d", "equalities"),
        ("SELECT a FROM records JOIN p ON a =", "lacks a side"),
        ("SELECT a FROM records r JOIN p R ON a = b", "two relations"),
        ("SELECT a FROM records WHERE at > TIMESTAMP 'now'", "differ"),
        ("SELECT count(a FROM records", "brackets"),
        ("SELECT a) FROM records", "brackets"),
        ("SELECT a FROM records WHERE at > DATE /* */ 'now'", "differ"),
        ("SELECT count(a) FROM records", "the function count is not allowed"),
        ("SELECT `from_xml` (a, 'x INT') FROM records", "the function from_xml is not allowed"),
        ("SELECT system.builtin.upper(a) FROM records", "upper is qualified"),
        ("SELECT reflect('java.lang.System', 'exit', 1) FROM records", "the function reflect"),
        ("SELECT a FROM records WHERE now() > at", "the function now"),
        ("SELECT a FROM records JOIN p ON rand() = a", "the function rand"),
        ("SELECT nofunction(a) FROM records", "the function nofunction"),
        ("SELECT 'a FROM records", "character 8 is not terminated"),
        ("SELECT /* a FROM records", "character 8 is not terminated"),
    ],
)
def test_unsupported_queries_are_refused(text: str, message: str) -> None:
    """The error contains the reason."""
    with pytest.raises(ConfigError, match=message) as refused:
        parse_query(text)
    assert refused.value.code == "sql_query"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "'" * 300_000,
        "SELECT '" + "\\'" * 8_000,
        "SELECT " + "/*" * 8_000,
        "SELECT " + "(" * 16_000,
        "SELECT " + "CAST(a AS " * 30 + "ARRAY<" * 1_000,
        "SELECT CAST(a AS " + "ARRAY<" * 100 + "INT" + ">" * 100 + ") FROM records",
        "SELECT " + "CASE WHEN a THEN " * 900 + "FROM records",
        "SELECT a FROM records " + "JOIN p ON a = b " * 900,
        "SELECT " + "DATE " * 3_000,
        "SELECT " + "`" * 16_001,
    ],
)
def test_long_and_deep_queries_are_refused_at_once(text: str) -> None:
    """In linear time, before they are parsed."""
    for judge in (parse_query, columns_schema):
        start_ns = time.thread_time_ns()
        with pytest.raises(ConfigError) as refused:
            judge(text)
        assert time.thread_time_ns() - start_ns < 1_000_000_000
        assert len(refused.value.message) < 300


def test_columns_have_types_of_tables() -> None:
    """Spark's type names are converted to Iceberg types, also nested ones."""
    text = (
        "a STRING, `b` int, m MAP<STRING, STRUCT<x: FLOAT, l ARRAY<DECIMAL(10,2)>>>, "
        "at TIMESTAMP, n timestamp_ntz, d DEC(5)"
    )
    fields = columns_schema(text).fields
    assert [(f.name, spark_type(f.field_type)) for f in fields] == [
        ("a", "STRING"),
        ("b", "INT"),
        ("m", "MAP<STRING, STRUCT<x: FLOAT, l: ARRAY<DECIMAL(10,2)>>>"),
        ("at", "TIMESTAMP"),
        ("n", "TIMESTAMP_NTZ"),
        ("d", "DECIMAL(5,0)"),
    ]
    assert len({f.field_id for f in fields}) == len(fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a name and a type"),
        ("a", "a name and a type"),
        ("a INTERVAL", "the column type INTERVAL"),
        ("a ARRAY<INT, INT>", "ARRAY"),
        ("a DECIMAL(39,2)", "DECIMAL"),
        ("a INT, A INT", "two columns"),
        ("`a b` INT", "characters other than"),
        ("kafka STRING", "kafka"),
        ("a ARRAY<INT", "brackets"),
    ],
)
def test_invalid_columns_are_refused(text: str, message: str) -> None:
    """The error contains the column or type."""
    with pytest.raises(ConfigError, match=message):
        columns_schema(text)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, None),
        ({"transforms.q.query": "SELECT id FROM records JOIN p ON p.i = id"}, "set table\\.p"),
        ({"transforms.q.table.p": "geo.p"}, "does not join p"),
        (
            {
                "transforms.q.query": "SELECT id FROM records JOIN p ON p.i = id",
                "transforms.q.table.p": "p",
            },
            "must be <namespace>.<table> or a path",
        ),
        ({"transforms.q.query": "SELECT id"}, "no FROM"),
        ({"transforms.q.predicate": "p"}, "cannot have a predicate"),
        ({"transforms": "q,d", "transforms.d.type": "DropHeaders"}, "must be the last"),
        (
            {
                "transforms": "r,q",
                "transforms.r.type": "Sql",
                "transforms.r.columns": "id INT",
                "transforms.r.query": "SELECT id FROM records",
            },
            "one Sql transformation",
        ),
        ({"iceberg.tables.cdc-field": "op"}, "only inserts rows"),
        ({"iceberg.tables.upsert-mode-enabled": "true"}, "only inserts rows"),
    ],
)
def test_errors_without_spark_are_found_at_creation(
    keys: dict[str, str], message: str | None
) -> None:
    """Errors that do not require Spark are reported when the connector is created."""
    if message is None:
        assert parse({**CONNECTOR, **keys}).transforms[-1].alias == "q"
        return
    with pytest.raises(ConfigError, match=message):
        parse({**CONNECTOR, **keys})

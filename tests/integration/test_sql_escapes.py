"""``Sql`` is no way out of its connector: what a query cannot reach, in Spark."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from connect.errors import ConfigError, trace_of
from connect.records.transforms.sql.sql_query import Query
from tests.differential.support import config, rows_of
from tests.support.spark_marks import SPARK_MARKS
from tests.support.sql_harness import SqlHarness
from worker.sql.sql_batches import SparkQuery, sql_plan
from worker.sql.static_tables import StaticTables

pytestmark = list(SPARK_MARKS)
_CANARY = "canary-9f31c7"


@pytest.fixture
def sql(shared_sql: SqlHarness) -> SqlHarness:
    """Queries without tables of their own."""
    return shared_sql


@contextmanager
def _asked() -> Iterator[tuple[str, list[str]]]:
    """A web server's address, and the paths it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", paths
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "variable", ["env:PATH", "system:java.home", "spark:spark.app.name", "spark.app.name"]
)
def test_variables_are_plain_text(sql: SqlHarness, variable: str) -> None:
    """No environment variable, JVM property or Spark setting gets into a row."""
    text = f"${{{variable}}}"
    query = sql.query(f"SELECT id, '{text}' AS city FROM records")
    (row,) = rows_of(sql.run(query, [{"id": 1}]), "db.t1")
    assert row["city"] == text


def test_schemas_of_xml_are_not_fetched(sql: SqlHarness) -> None:
    """``from_xml``, in upper or lower case, reads neither an address nor a local file."""
    secret = sql.folder / "secret.xsd"
    secret.write_text(f"<!DOCTYPE x SYSTEM '{_CANARY}'>")
    with _asked() as (address, paths):
        for place in (f"{address}/x.xsd", secret.as_uri(), str(secret)):
            for name in ("from_xml", "FROM_XML", "`from_xml`", "system.builtin.from_xml"):
                options = f"map('rowValidationXSDPath', '{place}')"
                output = _refused(sql, f"{name}(device, 'x INT', {options}).x")
                assert "from_xml" in output.lower()
        assert not paths


@pytest.mark.parametrize(
    "condition",
    [
        "EXISTS(FROM csv.`{file}` WHERE nothing = 1)",
        "EXISTS(FROM text.`{file}`)",
        "EXISTS(TABLE csv.`{file}`)",
        "id IN (FROM csv.`{file}`)",
        "id = (FROM csv.`{file}`)",
        "id = (VALUES (1))",
        "EXISTS(FROM range(1))",
        "EXISTS(FROM records)",
        "EXISTS(FROM records VERSION AS OF 1)",
        "EXISTS(FROM read_files('{file}'))",
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_subquery_reads_no_file(
    sql: SqlHarness, condition: str, is_there: bool, tmp_path: Path
) -> None:
    """The error contains no line, and is the same whether the file exists."""
    file = tmp_path / "secret.csv"
    if is_there:
        file.write_text(f"{_CANARY},second\n1,2\n")
    output = _refused(sql, "device", condition.format(file=file))
    output = output.replace(str(file), "<file>")
    assert "UNRESOLVED_COLUMN" not in output
    assert "PATH_NOT_FOUND" not in output


@pytest.mark.parametrize(
    "item",
    [
        "reflect('java.lang.System', 'getenv', 'PATH')",
        "java_method('java.lang.System', 'getProperty', 'user.home')",
        "try_reflect('java.lang.System', 'getenv', 'PATH')",
        "current_user()",
        "current_user",
        "`current_user`",
        "session_user",
        "user",
        "current_database()",
        "current_catalog",
        "current_timezone()",
        "current_date",
        "localtimestamp",
        "version()",
        "input_file_name()",
        "spark_partition_id()",
        "monotonically_increasing_id()",
        "raise_error('x')",
        "assert_true(id = 1)",
        "unix_timestamp()",
        "xpath_string('<!DOCTYPE x [<!ENTITY e SYSTEM \"file:/etc/hostname\">]><x>&e;</x>', 'x')",
        "schema_of_xml('<x>1</x>')",
        "to_xml(struct(id))",
        "schema_of_json('{}')",
        "from_json(device, 'x INT', map('mode', 'FAILFAST')).x",
        "to_json(struct(id), map('pretty', 'true'))",
        "from_json(device, device).x",
        "aes_encrypt(device, '0123456789abcdef')",
        "IDENTIFIER('current_user')()",
        "system.session.x",
        "x:y",
        ":parameter",
        "device COLLATE UNICODE",
        "mask(device, upperChar => 'X')",
        "struct(*).id",
        "concat(r.*)",
        "r.__carried",
        "any_value(device) FILTER (WHERE id = 1)",
        "first(device)",
        "row_number() OVER (ORDER BY id)",
        "repeat('x', 2000000000)",
        "repeat(device, id)",
        "repeat(repeat(repeat('x', 9000), 9000), 9000)",
        "lpad('x', 2000000000)",
        "space(2000000000)",
        "size(array_repeat('x', 2000000000))",
        "size(sequence(1, 2000000000))",
        "size(array_insert(array(1), 2000000000, 1))",
        "aggregate(array(1, 2, 3), 'x', (a, x) -> concat(a, a))",
        "size(transform(split(device, ''), x -> device))",
        "size(transform(split(device, ''), x -> transform(split(device, ''), y -> x)))",
        "exists(split(device, ''), x -> exists(split(device, ''), y -> x = y))",
        "exists(array_repeat(1, 10000), x -> exists(array_repeat(1, 10000), y -> x = y))",
        "exists(array(array(1)), x -> exists(x, y -> exists(x, z -> y = z)))",
        "replace(device, 'x', device)",
        "replace(device, 'x', lpad('x', 9999))",
        "regexp_replace(device, '(?=(.*))', '$1')",
        "regexp_extract_all(device, '(?=(.*))')[0]",
        "array_join(split(device, ''), device)",
        "hex(hex(hex(hex(hex(hex(hex(device)))))))",
        "format_string('%2000000000d', id)",
        "format_string(device, id)",
        "format_number(id, 2000000000)",
        "round(1.5D, 2000000000)",
        "from_json(device, '" + "ARRAY<" * 500 + "INT" + ">" * 500 + "')[0]",
        "CAST(device AS " + "ARRAY<" * 500 + "INT" + ">" * 500 + ")[0]",
        "(" * 200 + "device" + ")" * 200,
        "NOT " * 2_000 + "id",
        "id" + " + id" * 600,
    ],
)
def test_only_functions_of_their_arguments_are_allowed(sql: SqlHarness, item: str) -> None:
    """Functions, forms and sizes outside the allowlist are refused before a record is read."""
    _refused(sql, item)


def test_texts_of_spark_errors_are_not_shown(sql: SqlHarness) -> None:
    """An error has its condition and the part of the query, not the existing columns."""
    output = _refused(sql, "nothing")
    assert "UNRESOLVED_COLUMN" in output
    assert "nothing" in output
    for hidden in ("Did you mean", "device", "SQLSTATE", "pyspark"):
        assert hidden not in output
    output = _refused(sql, "id, id")
    assert "PARSE_SYNTAX_ERROR" in output
    assert "== SQL ==" not in output


def test_sessions_resolve_no_files_variables_or_addresses(sql: SqlHarness) -> None:
    """Files are no tables, variables are not replaced, and addresses are no file systems."""
    for spark in (sql.session.spark, sql.session.of_rows):
        assert spark.conf.get("spark.sql.variable.substitute") == "false"
        assert spark.conf.get("spark.sql.runSQLOnFiles") == "false"
        assert spark.conf.get("spark.authenticate") == "true"
    jvm = sql.session.spark.sparkContext._jvm
    assert jvm is not None
    for name in ("accessExternalDTD", "accessExternalSchema", "accessExternalStylesheet"):
        assert jvm.java.lang.System.getProperty(f"javax.xml.{name}") == ""
    with _asked() as (address, paths):
        with pytest.raises(Exception, match="closed"):
            sql.session.spark.read.text(f"{address}/x").collect()
        assert not paths


def _refused(sql: SqlHarness, item: str, where: str | None = None) -> str:
    """The refusal of the worker, past what a node refuses before."""
    planned = sql_plan(config(**sql.keys("SELECT id FROM records")))
    assert planned is not None
    query = Query(("id", f"{item} AS city"), "records", where=where)
    planned = dataclasses.replace(planned, query=query)
    tables = StaticTables(planned, sql.catalog, sql.clock)
    with pytest.raises(ConfigError) as refused:
        SparkQuery(sql.session.spark, planned, tables).refresh()
    assert refused.value.code == "sql_query"
    output = trace_of(refused.value)
    assert _CANARY not in output
    return output

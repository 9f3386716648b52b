"""SQL of a report: what it reads, and what it cannot reach."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from connect.errors import ConfigError, ExitStatus
from connect.operations.report.duckdb_query import QueryError, QueryResult, run_query
from connect.operations.report.kept_records import ReportTooLarge

TABLES = {
    "cameras": pa.table({"id": [1, 2, 3], "place": ["hall", "door", "hall"]}),
    "my-topic.v1": pa.table({"id": [1], "name": ["one"]}),
}


def run(sql: str, *, rows_max: int = 100, bytes_max: int = 2**26) -> QueryResult:
    return run_query(sql, TABLES, rows_max=rows_max, bytes_max=bytes_max)


def test_a_query_joins_tables() -> None:
    """Comments and a semicolon at the end are allowed, and names in quotes."""
    result = run(
        "-- cameras by place\nSELECT place, count(*) AS n, sum(id) AS ids, max(name) AS name\n"
        'FROM cameras LEFT JOIN "my-topic.v1" USING (id) GROUP BY place ORDER BY place;\n'
    )
    assert result == QueryResult(
        ("place", "n", "ids", "name"), (("door", 1, 2, None), ("hall", 2, 4, "one"))
    )


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A readable file in the working folder, and one in DuckDB's folder for temporary files."""
    monkeypatch.chdir(tmp_path)
    spilled = tmp_path / ".tmp"
    spilled.mkdir()
    for folder in (tmp_path, spilled):
        (folder / "secret.csv").write_text("a\ncanary-5d\n")
    return tmp_path / "secret.csv"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM 'secret.csv'",
        "SELECT * FROM read_csv('.tmp/secret.csv')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')",
        "SELECT * FROM sqlite_scan('{file}', 't')",
        "SELECT getenv('HOME')",
        "SELECT * FROM local_table",
        "SELECT * FROM TABLES",
        "COPY cameras TO '{folder}/out.csv'",
        "EXPORT DATABASE '{folder}/out'",
        "ATTACH '{folder}/out.db'",
        "INSTALL httpfs",
        "LOAD '{file}'",
        "SET enable_external_access=true",
        "RESET memory_limit",
        "PRAGMA enable_profiling",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW cameras",
        "SELECT 1; SELECT 2",
        "EXPLAIN ANALYZE COPY cameras TO '{folder}/out.csv'",
        "-- nothing",
        "",
    ],
)
def test_a_query_reaches_only_its_tables(sql: str, file: Path) -> None:
    """No file, network, extension, setting or variable; nothing is written."""
    local_table = pa.table({"a": ["canary-5d"]})
    before = sorted(file.parent.rglob("*"))
    with pytest.raises(QueryError) as refused:
        run(sql.replace("{file}", str(file)).replace("{folder}", str(file.parent)))
    assert "canary-5d" not in str(refused.value)
    assert local_table.num_rows == 1
    assert sorted(file.parent.rglob("*")) == before


def test_no_folder_stays_readable(file: Path) -> None:
    """DuckDB's folder for temporary files would be an exception."""
    settings = "SELECT value FROM duckdb_settings() WHERE name IN ({names})"
    assert file.exists()
    result = run(settings.format(names="'allowed_directories', 'allowed_paths', 'temp_directory'"))
    assert {row[0] for row in result.rows} <= {"[]", ""}


def test_a_wrong_query_is_wrong_usage() -> None:
    """The message of the engine is part of it."""
    with pytest.raises(QueryError, match="plaec") as wrong:
        run("SELECT plaec FROM cameras")
    assert wrong.value.exit_status == ExitStatus.USAGE


def test_the_result_is_limited() -> None:
    """By rows, by the memory of values, and by the memory of the query."""
    assert len(run("SELECT * FROM range(100)").rows) == 100
    with pytest.raises(ReportTooLarge, match="more than 100 rows"):
        run("SELECT * FROM range(1000000000000)")
    with pytest.raises(ReportTooLarge, match="more than 10,000 bytes"):
        run("SELECT repeat('x', 1000) FROM range(50)", bytes_max=10_000)
    with pytest.raises(ReportTooLarge, match="the query needs more memory"):
        run("SELECT count(DISTINCT i::VARCHAR || repeat('x', 100)) FROM range(3000000) r(i)")


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed only with the extra."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigError, match=r"pip install 'icefloe\[report\]'"):
        run("SELECT 1")

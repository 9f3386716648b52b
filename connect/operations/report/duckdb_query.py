"""SQL over Arrow tables, by DuckDB.

Rules of this file:
- A query may come from another person: it reads the tables of the report and nothing else. Files,
  networks, extensions, variables of this process and changes of these settings are refused.
- The query is one statement that returns rows. Memory is bounded, and nothing spills to a disk.
- Only this module needs the library duckdb: it is an extra (``icefloe[report]``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from connect.errors import ConfigError
from connect.operations.report.kept_records import ReportTooLarge

FETCHED_ROWS: Final = 1_000
QUERY_BYTES_MIN: Final = 64 * 2**20
_SETTINGS: Final = (
    "temp_directory=''",  # first: the folder would stay readable
    "TimeZone='UTC'",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "allow_community_extensions=false",
    "allow_persistent_secrets=false",
    "python_enable_replacements=false",
    "enable_external_access=false",
    "lock_configuration=true",  # last
)


class QueryError(ConfigError):
    """The query cannot run, or is refused."""

    default_code = "report_query"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What a query returned.

    Attributes:
        columns: names in order; unique unless the query repeats one.
        rows: values of Python.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def library() -> Any:
    """Return DuckDB.

    Raises:
        ConfigError: ``report_missing``: it is not installed.
    """
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            "icefloe report needs duckdb: pip install 'icefloe[report]'", code="report_missing"
        ) from error
    return duckdb


def run_query(
    sql: str, tables: Mapping[str, pa.Table], *, rows_max: int, bytes_max: int
) -> QueryResult:
    """Run a query over tables.

    Args:
        sql: one statement.
        tables: by the name that the query uses.
        rows_max: rows of the result.
        bytes_max: memory of the query, and text of the result.

    Raises:
        QueryError: it is not one statement that returns rows, it is wrong, or it needs files, a
            network, extensions or settings.
        ReportTooLarge: it needs more memory, or returns more.
    """
    duckdb = library()
    connection = duckdb.connect(":memory:")
    try:
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute(f"SET memory_limit='{max(bytes_max, QUERY_BYTES_MIN)}B'")
        for setting in _SETTINGS:
            connection.execute(f"SET {setting}")
        statements = connection.extract_statements(sql)
        kinds = [str(each.type).rpartition(".")[2] for each in statements]
        if kinds != ["SELECT"]:
            listed = ", ".join(kinds) or "none"
            raise QueryError(f"a report is one statement that returns rows, not: {listed}")
        connection.execute(statements[0])
        columns = tuple(column[0] for column in connection.description)
        return QueryResult(columns, _fetched(connection, rows_max, bytes_max))
    except duckdb.OutOfMemoryException as error:
        raise ReportTooLarge(f"the query needs more memory: raise --max-bytes ({error})") from error
    except duckdb.Error as error:
        raise QueryError(f"the query failed: {error}") from error
    finally:
        connection.close()


def _fetched(connection: Any, rows_max: int, bytes_max: int) -> tuple[tuple[Any, ...], ...]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    while fetched := connection.fetchmany(FETCHED_ROWS):
        size += sum(_size(row) for row in fetched)
        rows += fetched
        if len(rows) > rows_max:
            raise ReportTooLarge(
                f"the query returns more than {rows_max:,} rows: add LIMIT, or raise --max-records"
            )
        if size > bytes_max:
            raise ReportTooLarge(
                f"the result of the query needs more than {bytes_max:,} bytes: add LIMIT, or "
                "raise --max-bytes"
            )
    return tuple(rows)


def _size(value: Any) -> int:
    """Return the approximate memory of a value."""
    match value:
        case str() | bytes():
            return len(value) + 50
        case dict():
            inner: Sequence[Any] = [*value.keys(), *value.values()]
            return 100 + sum(map(_size, inner))
        case list() | tuple():
            return 50 + sum(map(_size, value))
        case _:
            return 32

"""Prints what SQL queries find in the tables of the examples: python query.py FILE [CATALOG].

DuckDB runs the queries. It knows the Iceberg tables of a catalog in SQLite under their own names;
the default is the catalog of ``icefloe up``. Queries read Delta tables with delta_scan('FOLDER'),
and Parquet folders with read_parquet('FOLDER/**/*.parquet').
"""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import duckdb

CATALOG = Path(__file__).resolve().parent / "icefloe-state" / "catalog.db"


def load(connection: duckdb.DuckDBPyConnection, extension: str) -> None:
    """Load an extension: from its Python package, or from DuckDB's site."""
    package = importlib.util.find_spec(f"duckdb_extension_{extension}")
    folder = Path(package.origin).parent if package and package.origin else Path("no-package")
    for file in folder.glob("**/*.duckdb_extension"):
        connection.execute(f"LOAD '{file}'")
        return
    connection.install_extension(extension)
    connection.load_extension(extension)


def add_tables(connection: duckdb.DuckDBPyConnection, file: Path, queries: str) -> None:
    """Make a view of each Iceberg table of a catalog that the queries name."""
    load(connection, "avro")
    load(connection, "iceberg")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as catalog:
        tables = catalog.execute(
            "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
        ).fetchall()
    for namespace, name, metadata in tables:
        if f"{namespace}.{name}" not in queries:
            continue  # it may be in a store that DuckDB cannot reach
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{namespace}"')
        connection.execute(
            f"""CREATE VIEW "{namespace}"."{name}" AS SELECT * FROM iceberg_scan('{metadata}')"""
        )


def show(columns: list[str], rows: list[tuple[str | None, ...]]) -> None:
    """Print rows as a table of texts."""
    cells = [columns, *([text or "-" for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(padded).rstrip())


def main(file: Path, catalog: Path = CATALOG) -> None:
    """Run each query of a file and print its rows."""
    queries = file.read_text("utf-8")
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if catalog.exists():
            add_tables(connection, catalog, queries)
        if "delta_scan" in queries:
            load(connection, "delta")
        for number, query in enumerate(filter(str.strip, queries.split(";"))):
            texts = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM ({query})")
            columns = [str(column[0]) for column in texts.description]
            if number:
                print()
            show(columns, texts.fetchall())


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:]))
    except (duckdb.Error, sqlite3.Error) as error:
        sys.exit(f"{error}\nA table appears with the first commit. Try again in some seconds.")

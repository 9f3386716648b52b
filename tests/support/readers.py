"""Independent readers of Iceberg tables: SQL in Spark and in DuckDB."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb

from tests.support.stack import RestCatalog

Sql = Callable[[str], list[list[Any]]]


def interpreted(session: Any) -> Any:
    """Return a session of the same Spark that compiles no code for its queries.

    A compilation takes more than a query of a few rows. For sessions that judge what Icefloe wrote:
    the worker's own queries are compiled.
    """
    own = session.newSession()
    own.conf.set("spark.sql.codegen.wholeStage", "false")
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return own


def spark_sql(session: Any, rest_catalog: RestCatalog) -> Sql:
    """Run SQL in Spark; tables are ``rest.db.<name>``."""
    session = interpreted(session)
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest"}
    settings |= {".uri": rest_catalog.uri, ".cache-enabled": "false"}
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.rest{key}", value)
    return lambda query: [list(r) for r in session.sql(query).collect()]


@contextlib.contextmanager
def duckdb_sql() -> Iterator[Sql]:
    """Run SQL in DuckDB with the Iceberg extension of its package; nothing is downloaded."""
    connection = duckdb.connect(
        config={"allow_unsigned_extensions": True, "autoinstall_known_extensions": False}
    )
    for name in ("avro", "iceberg"):
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert found is not None
        assert found.origin is not None
        (path,) = Path(found.origin).parent.glob("**/*.duckdb_extension")
        connection.execute(f"load '{path}'")
    connection.execute("set TimeZone = 'UTC'")
    yield lambda query: [list(r) for r in connection.execute(query).fetchall()]
    connection.close()

"""Runs one ``Sql`` query over one record, in a process that a test can kill.

Usage: python -m tests.support.held_query FOLDER CONDITION TEXT. Prints what became of the record.
"""

from __future__ import annotations

import sys
from pathlib import Path

from connect.errors import ConfigError
from connect.gateways.catalog.catalog import open_catalog
from tests.support.sql_harness import SqlHarness, counts
from worker.spark.session import open_session


def main(folder: Path, condition: str, text: str) -> str:
    """Return what became of a record with that text."""
    session = open_session({}, folder=folder)
    uri = f"sqlite:///{folder}/catalog.db"
    catalog = open_catalog("c", {"type": "sql", "uri": uri, "warehouse": str(folder)})
    sql = SqlHarness(session, folder, catalog)
    try:
        query = sql.query(f"SELECT id FROM records WHERE {condition}")
    except ConfigError:
        return "the query is refused"
    results = counts(sql.run(query, [{"id": 1, "device": text}]))
    session.close()
    dead, dropped, written = results.dead_lettered, results.dropped, results.written
    return f"dead-lettered {dead}, dropped {dropped}, written {written}"


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))

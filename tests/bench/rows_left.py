"""Counts the rows that equality deletes leave."""

from __future__ import annotations

import duckdb
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table


def rows_left(table: Table) -> tuple[int, int]:
    """Return the number of rows that equality deletes on ``id`` leave, and of their keys.

    One join: readers that search each delete file for a row take minutes for a million rows.
    """
    if table.current_snapshot() is None:
        return 0, 0
    numbered: dict[DataFileContent, list[tuple[str, int]]] = {
        DataFileContent.DATA: [],
        DataFileContent.EQUALITY_DELETES: [],
    }
    for entry in table.inspect.entries().to_pylist():
        file = entry["data_file"]
        kind = numbered[DataFileContent(file["content"])]
        kind.append((file["file_path"].removeprefix("file://"), entry["sequence_number"]))
    with duckdb.connect() as connection:
        for name, content in (
            ("rows", DataFileContent.DATA),
            ("gone", DataFileContent.EQUALITY_DELETES),
        ):
            connection.execute(f"create table {name}_files (filename text, number bigint)")
            connection.execute(f"create table {name} (id bigint, number bigint)")
            if files := numbered[content]:
                connection.executemany(f"insert into {name}_files values (?, ?)", files)
                connection.execute(
                    f"insert into {name} select id, number from "
                    f"read_parquet(?, filename = true) join {name}_files using (filename)",
                    [[file for file, _ in files]],
                )
        (left,) = connection.execute(
            "select count(*), count(distinct id) from rows left join "
            "(select id, max(number) as until from gone group by id) using (id) "
            "where until is null or number >= until"
        ).fetchall()
        return left

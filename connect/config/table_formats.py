"""Formats of tables, and the keys that choose them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FORMAT: Final = "icefloe.format"
ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
PARQUET: Final = "parquet"
TOPIC: Final = "topic"
"""No tables: all rows go to outputs."""
AGGREGATE: Final = "aggregate"
"""No tables: event-time aggregates go to a topic."""
DELTA_LOCATION: Final = "icefloe.delta.location"
PARQUET_LOCATION: Final = "icefloe.parquet.location"
AGGREGATE_LOCATION: Final = "icefloe.aggregate.location"
ROWS_COLUMNS: Final = "icefloe.rows.columns"
ROWS: Final = "rows"
"""What takes the place of a table's name where a connector has no tables."""
FOLDER_FORMATS: Final[Mapping[str, str]] = {
    DELTA: DELTA_LOCATION,
    PARQUET: PARQUET_LOCATION,
    AGGREGATE: AGGREGATE_LOCATION,
}
"""Formats whose tables, or whose state, are folders, and the key of their location."""
FORMAT_NAMES: Final[Mapping[str, str]] = {
    ICEBERG: "Iceberg tables",
    DELTA: "Delta tables",
    PARQUET: "Parquet folders",
    TOPIC: "rows for topics",
    AGGREGATE: "Aggregates",
}
"""What tables of a format are called in messages."""

FORMAT_VERSIONS: Final = (2, 3)
"""Versions of Iceberg's table format that are written."""
MERGE_ON_READ: Final = "merge-on-read"
COPY_ON_WRITE: Final = "copy-on-write"
DEAD_LETTER: Final = "dead-letter"
TEXT: Final = "text"
NEW_COLUMN: Final = "new-column"
FAIL: Final = "fail"
TYPE_CONFLICT_ACTIONS: Final = (DEAD_LETTER, TEXT, NEW_COLUMN, FAIL)
"""What to do with values that their column does not take."""
NO_DISTRIBUTION: Final = "none"
HASH_DISTRIBUTION: Final = "hash"
"""How rows are changed: with delete files, or by writing data files again."""
DELETION_VECTORS: Final = "deletion-vectors"
"""The delete files of merge-on-read that tables of format version 3 get, instead of equality
deletes."""

UNSUPPORTED: Final[Mapping[str, str]] = {
    DELTA: "delta_unsupported",
    PARQUET: "parquet_unsupported",
    TOPIC: "topic_unsupported",
    AGGREGATE: "aggregate_unsupported",
}
"""Code of the error that tables of a format do not support something."""

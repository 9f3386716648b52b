"""Formats of tables, and the keys that choose them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FORMAT: Final = "icefloe.format"
ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
PARQUET: Final = "parquet"
AGGREGATE: Final = "aggregate"
DELTA_LOCATION: Final = "icefloe.delta.location"
PARQUET_LOCATION: Final = "icefloe.parquet.location"
AGGREGATE_LOCATION: Final = "icefloe.aggregate.location"
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
    AGGREGATE: "Aggregates",
}
"""What tables of a format are called in messages."""

UNSUPPORTED: Final[Mapping[str, str]] = {
    DELTA: "delta_unsupported",
    PARQUET: "parquet_unsupported",
    AGGREGATE: "aggregate_unsupported",
}
"""Code of the error that tables of a format do not support something."""

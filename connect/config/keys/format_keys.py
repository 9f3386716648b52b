"""Keys of the table format, and of tables that are folders without a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connect.config.key import Key

FORMAT: Final = "icefloe.format"
ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
PARQUET: Final = "parquet"
DELTA_LOCATION: Final = "icefloe.delta.location"
PARQUET_LOCATION: Final = "icefloe.parquet.location"
FOLDER_FORMATS: Final[Mapping[str, str]] = {DELTA: DELTA_LOCATION, PARQUET: PARQUET_LOCATION}
"""Formats whose tables are folders, and the key of their location."""
FORMAT_NAMES: Final[Mapping[str, str]] = {
    ICEBERG: "Iceberg tables",
    DELTA: "Delta tables",
    PARQUET: "Parquet folders",
}
"""What tables of a format are called in messages."""

UNSUPPORTED: Final[Mapping[str, str]] = {
    DELTA: "delta_unsupported",
    PARQUET: "parquet_unsupported",
}
"""Code of the error that tables of a format do not support something."""

FORMAT_KEYS: tuple[Key, ...] = (
    Key(
        FORMAT,
        "STRING",
        "Format of the connector's tables. With `delta` and `parquet` there is no catalog: a table "
        "is a folder below `icefloe.delta.location` or `icefloe.parquet.location`. Some keys are "
        "not supported with them, and validation reports them.",
        ICEBERG,
        choices=(ICEBERG, DELTA, PARQUET),
    ),
    Key(
        DELTA_LOCATION,
        "STRING",
        "Location of Delta tables, such as `s3://lake/tables`. Table `db.events` is in folder "
        "`db/events` below it. `iceberg.table.<table>.location` sets the folder of one table. "
        "Options of the object store are `iceberg.catalog.s3.*` and `.adls.*`.",
    ),
    Key(
        PARQUET_LOCATION,
        "STRING",
        "Location of Parquet folders, such as `s3://lake/archive`. Table `db.events` is in folder "
        "`db/events` below it. `iceberg.table.<table>.location` sets the folder of one table. "
        "Options of the object store are `iceberg.catalog.s3.*`.",
    ),
)

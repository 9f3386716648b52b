"""Keys of the table format, and of tables that are folders without a catalog."""

from __future__ import annotations

from connect.config.key import Key
from connect.config.keys.aggregate_keys import AGGREGATE_KEYS
from connect.config.table_formats import (
    AGGREGATE,
    DELTA,
    DELTA_LOCATION,
    FORMAT,
    ICEBERG,
    PARQUET,
    PARQUET_LOCATION,
)

FORMAT_KEYS: tuple[Key, ...] = (
    Key(
        FORMAT,
        "STRING",
        "Format of the connector's tables. With `delta` and `parquet` there is no catalog: a table "
        "is a folder below `icefloe.delta.location` or `icefloe.parquet.location`. With "
        "`aggregate` there is no table: event-time aggregates are written to a topic. Some keys "
        "are not supported with these formats, and validation reports them.",
        ICEBERG,
        choices=(ICEBERG, DELTA, PARQUET, AGGREGATE),
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
    *AGGREGATE_KEYS,
)

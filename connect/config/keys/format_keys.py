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
    ROWS_COLUMNS,
    TOPIC,
)

FORMAT_KEYS: tuple[Key, ...] = (
    Key(
        FORMAT,
        "STRING",
        "Format of the connector's tables. With `delta` and `parquet` there is no catalog: a table "
        "is a folder below `icefloe.delta.location` or `icefloe.parquet.location`. With `topic` "
        "there are no tables: the rows go to the topics of `icefloe.outputs` only. With "
        "`aggregate`, event-time aggregates of the records go to a topic. Some keys are not "
        "supported with these formats, and validation reports them.",
        ICEBERG,
        choices=(ICEBERG, DELTA, PARQUET, TOPIC, AGGREGATE),
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
    Key(
        ROWS_COLUMNS,
        "STRING",
        "Columns of the rows, with `icefloe.format=topic`: names and types of Spark SQL, such as "
        "`id BIGINT, amount DECIMAL(10, 2), tags ARRAY<STRING>`. Records are converted to them as "
        "to the columns of a table; other fields are left out.",
    ),
    *AGGREGATE_KEYS,
)

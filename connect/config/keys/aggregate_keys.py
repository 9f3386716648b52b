"""Keys of connectors that write event-time aggregates to a topic."""

from __future__ import annotations

from connect.config.aggregation import (
    COLUMNS,
    EMIT,
    FUNCTIONS,
    GROUP_BY,
    INTERVAL,
    MISSING_STATE,
    SLIDE,
    STATE_PARTITIONS,
    TIME_FIELD,
    TOPIC,
    TOPIC_PARTITIONS,
    WATERMARK,
    WINDOW,
)
from connect.config.key import Key, between, where_read
from connect.config.table_formats import AGGREGATE_LOCATION

AGGREGATE_KEYS: tuple[Key, ...] = (
    Key(
        AGGREGATE_LOCATION,
        "STRING",
        "Location of the state of aggregates, such as `s3://lake/state`. The state of a connector "
        "is in a folder with its name below it. Options of the object store are "
        "`iceberg.catalog.s3.*`, `.adls.*` and `.gcs.*`.",
    ),
    Key(
        COLUMNS,
        "STRING",
        "Fields of records that the aggregates use, with Spark SQL types: "
        "`ts TIMESTAMP, device STRING, signal DOUBLE`. They are converted like columns of a table. "
        "After a `Sql` transformation they are columns of its query.",
    ),
    Key(TIME_FIELD, "STRING", "Column with the event time, of type `TIMESTAMP`."),
    Key(WINDOW, "STRING", "Length of a window, such as `10 minutes`."),
    Key(
        SLIDE,
        "STRING",
        "Distance between the starts of two windows. It is the length of a window if not set.",
    ),
    Key(
        WATERMARK,
        "STRING",
        "How much later than the newest event a record may arrive, such as `1 hour`. Later records "
        "are dropped and counted.",
    ),
    Key(GROUP_BY, "LIST", "Columns whose values make a group; none for one group."),
    Key(
        FUNCTIONS,
        "LIST",
        "Values of each group and window, such as `n=count(*),total=sum(amount)`. Functions are "
        "`count`, `sum`, `min`, `max`, `avg` and `approx_distinct`.",
    ),
    Key(
        TOPIC,
        "STRING",
        "Topic of the results. It is created with `cleanup.policy=compact` if it does not exist.",
    ),
    Key(
        TOPIC_PARTITIONS,
        "INT",
        "Number of partitions of the topic of the results if it is created.",
        "1",
        check=where_read(between(1, 1_000)),
    ),
    Key(
        EMIT,
        "STRING",
        "`update` sends each change of a group and window. `final` sends it once, after the "
        "watermark has passed the end of the window.",
        "update",
        choices=("update", "final"),
    ),
    Key(
        INTERVAL,
        "LONG",
        "Time between two batches of aggregates.",
        "5000",
        unit="ms",
        check=where_read(between(100, 86_400_000)),
    ),
    Key(
        STATE_PARTITIONS,
        "INT",
        "Number of parts of the state, which Spark computes in parallel. It cannot be changed "
        "without a new state.",
        "2",
        check=where_read(between(1, 1_000)),
    ),
    Key(
        MISSING_STATE,
        "STRING",
        "What a task does if no state exists for its source offsets. `fail` stops it. `empty` "
        "starts with empty windows at these offsets.",
        "fail",
        choices=("fail", "empty"),
    ),
)

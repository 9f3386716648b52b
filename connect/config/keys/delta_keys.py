"""Keys of the table format, and of tables in the format of Delta Lake."""

from __future__ import annotations

from typing import Final

from connect.config.key import Key

FORMAT: Final = "icefloe.format"
DELTA: Final = "delta"
DELTA_LOCATION: Final = "icefloe.delta.location"

FORMAT_KEYS: tuple[Key, ...] = (
    Key(
        FORMAT,
        "STRING",
        "Format of the connector's tables. With `delta` there is no catalog: a table is a folder "
        "below `icefloe.delta.location`. Some keys are not supported with it, and validation "
        "reports them.",
        "iceberg",
        choices=("iceberg", DELTA),
    ),
    Key(
        DELTA_LOCATION,
        "STRING",
        "Location of Delta tables, such as `s3://lake/tables`. Table `db.events` is in folder "
        "`db/events` below it. `iceberg.table.<table>.location` sets the folder of one table. "
        "Options of the object store are `iceberg.catalog.s3.*` and `.adls.*`.",
    ),
)

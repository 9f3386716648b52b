"""Keys of rows that are replaced and deleted by key."""

from __future__ import annotations

from connect.config.debezium_preset import PRESETS
from connect.config.key import Key, at_least, one_of, where_read
from connect.config.table_formats import COPY_ON_WRITE, MERGE_ON_READ

ROW_CHANGE_KEYS: tuple[Key, ...] = (
    Key(
        "icefloe.debezium",
        "STRING",
        "Database of the Debezium connector that writes the topics: `postgres`, `mysql`, "
        "`mariadb`, `sqlserver`, `oracle` or `mongodb`. Keys that the configuration does not have "
        "get values that fit its changes.",
        None,
        choices=tuple(PRESETS),
        is_open=True,
        check=lambda value: None if value is None else one_of(tuple(PRESETS))(value),
    ),
    Key(
        "iceberg.tables.write-mode",
        "STRING",
        "How rows are replaced and deleted by key. `merge-on-read` writes equality delete files, "
        "and deletion vectors in tables of format version 3. `copy-on-write` writes the data files "
        "with the rows again, for small tables and readers without support for deletes.",
        MERGE_ON_READ,
        choices=(MERGE_ON_READ, COPY_ON_WRITE),
    ),
    Key(
        "iceberg.tables.copy-on-write-max-bytes",
        "LONG",
        "Maximum size of the data files that a commit with copy-on-write may write again. A larger "
        "commit to an Iceberg table uses delete files.",
        "1073741824",
        unit="bytes",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.tables.deletion-vectors-enabled",
        "BOOLEAN",
        "Delete rows of tables of format version 3 by deletion vectors. Commits read the key "
        "columns of data files for that. `false` writes equality delete files.",
        "true",
    ),
    Key(
        "iceberg.tables.deletion-vectors-max-bytes",
        "LONG",
        "Maximum size of the key columns that a commit may read to find the rows for deletion "
        "vectors. A larger commit uses equality delete files.",
        "268435456",
        unit="bytes",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.tables.equality-deletes-enabled",
        "BOOLEAN",
        "Let commits remove rows by equality delete files. With `false`, a commit beyond the "
        "limits of copy-on-write and deletion vectors fails its table. For readers that cannot "
        "read equality deletes.",
        "true",
    ),
    Key(
        "iceberg.tables.no-key",
        "STRING",
        "Action for a record without message key, if its table has neither id-columns nor "
        "identifier fields: `error` rejects it; `append` adds the rows of reads and inserts.",
        "error",
        choices=("error", "append"),
    ),
    Key(
        "iceberg.tables.no-key-changes",
        "STRING",
        "Action for an update or delete without message key where iceberg.tables.no-key is "
        "`append`. `dead-letter` makes it a dead letter, also with errors.tolerance=none. It is an "
        "error if no dead letters are set. `append` adds the row with its operation.",
        "dead-letter",
        choices=("dead-letter", "append"),
    ),
    Key(
        "iceberg.tables.unavailable-value",
        "STRING",
        "Action for a change whose source did not send an unchanged large value (TOAST): Debezium "
        "puts the text `__debezium_unavailable_value` in its place. `store` writes the text over "
        "the value, as the Java sink does, and counts it (`icefloe_values_unavailable_total`); "
        "`error` rejects the record.",
        "store",
        choices=("store", "error"),
    ),
    Key(
        "icefloe.debezium.types",
        "STRING",
        "Types of new columns for Debezium's types with a schema. `java` takes those of the Java "
        "sink: numbers and texts for dates, times and UUIDs. `typed` takes date, time, timestamp, "
        "timestamptz, uuid and decimals with their precision. Existing columns keep their type.",
        "java",
        choices=("java", "typed"),
    ),
)

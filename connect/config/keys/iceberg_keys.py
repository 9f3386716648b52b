"""Keys of the Iceberg sink: those of the Java sink 1.12, then our own."""

from __future__ import annotations

import re

from connect.config.key import Key, Prefix, at_least, between, one_of, where_read

CONTROL_TOPIC = "iceberg.control.topic"
DEFAULT_CONTROL_TOPIC = "control-iceberg"
_DAY_MS = 86_400_000
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def topic_name(value: str) -> str | None:
    """What is wrong with a topic's name by Kafka's rule, or None: what breaks it cannot exist."""
    if _TOPIC.fullmatch(value):
        return None
    return "a topic's name has 1 to 249 letters, digits, dots, underscores and dashes"


JAVA_KEYS: tuple[Key, ...] = (
    Key("iceberg.tables", "LIST", "Tables to write to, comma-separated.", None, "HIGH"),
    Key(
        "iceberg.tables.dynamic-enabled",
        "BOOLEAN",
        "Take the table's name from the route field of each record.",
        "false",
    ),
    Key(
        "iceberg.tables.route-field",
        "STRING",
        "Field of the record (dots for nesting) that decides its table.",
    ),
    Key(
        "iceberg.tables.default-commit-branch",
        "STRING",
        "Branch to commit to where the table names none; main when absent.",
    ),
    Key(
        "iceberg.tables.default-id-columns",
        "STRING",
        "Identifier columns of tables that name none, comma-separated.",
    ),
    Key(
        "iceberg.tables.default-partition-by",
        "STRING",
        "Partition terms of tables created here that name none, such as `day(ts),bucket(id, 8)`.",
    ),
    Key(
        "iceberg.tables.auto-create-enabled",
        "BOOLEAN",
        "Create a missing table from the first batch.",
        "false",
    ),
    Key(
        "iceberg.tables.schema-force-optional",
        "BOOLEAN",
        "Make every column optional when creating and evolving tables.",
        "false",
    ),
    Key(
        "iceberg.tables.schema-case-insensitive",
        "BOOLEAN",
        "Match record fields to columns without regard to case.",
        "false",
    ),
    Key(
        "iceberg.tables.cdc-field",
        "STRING",
        "Field of the record (dots for nesting) whose first letter says what it does to the row of "
        "its key: U replaces it, D deletes it, anything else inserts.",
    ),
    Key(
        "iceberg.tables.upsert-mode-enabled",
        "BOOLEAN",
        "Replace the row of a record's key instead of adding one.",
        "false",
    ),
    Key(
        "iceberg.tables.evolve-schema-enabled",
        "BOOLEAN",
        "Add columns for unknown record fields, widen types, relax required columns.",
        "false",
    ),
    Key("iceberg.catalog", "STRING", "Name of the catalog.", "iceberg"),
    Key(
        CONTROL_TOPIC,
        "STRING",
        "Topic of the control events.",
        DEFAULT_CONTROL_TOPIC,
        check=topic_name,
    ),
    Key(
        "iceberg.control.group-id-prefix",
        "STRING",
        "Prefix of the Java sink's temporary control consumer groups.",
        "cg-control-",
        "LOW",
        java_only="control events are read without a consumer group",
    ),
    Key(
        "iceberg.connect.group-id",
        "STRING",
        "Consumer group of the source offsets when it is not `connect-<name>`.",
        None,
        "LOW",
    ),
    Key(
        "iceberg.control.commit.interval-ms",
        "INT",
        "Time from the start of one commit round to the start of the next.",
        "300000",
        unit="ms",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.control.commit.timeout-ms",
        "INT",
        "How long to wait for every task's answer before committing what is there.",
        "30000",
        unit="ms",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.control.commit.kept-max-bytes",
        "LONG",
        "Announcements the coordinator keeps for tables that cannot be committed. Above it, tasks "
        "are asked for no more data until a table is committed or skipped; nothing is dropped.",
        "134217728",
        "LOW",
        unit="bytes",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.control.commit.threads",
        "INT",
        "Tables committed at the same time, each with a connection to the catalog.",
        "16",
        check=where_read(between(1, 256)),
    ),
    Key(
        "iceberg.coordinator.transactional.prefix",
        "STRING",
        "Put before the coordinator's transactional id.",
        None,
        "LOW",
    ),
    Key(
        "iceberg.hadoop-conf-dir",
        "STRING",
        "Folder of Hadoop configuration files.",
        java_only="no Hadoop client takes part; give file system options as `iceberg.catalog.*`",
    ),
    Key(
        "iceberg.coordinator-executor-keep-alive-timeout-ms",
        "LONG",
        "Keep-alive time of the Java coordinator's threads.",
        "120000",
        "LOW",
        unit="ms",
        java_only="threads are not kept in a Java executor",
    ),
    Key(
        "iceberg.control.commit.max-consecutive-failures",
        "INT",
        "Failed commits in a row after which the Java coordinator ends.",
        "1",
        unit="rounds",
        check=where_read(at_least(1)),
        java_only="failed commits follow the outcome table of docs/explanation/guarantees.md",
    ),
)

OWN_KEYS: tuple[Key, ...] = (
    Key(
        "iceberg.control.group-id",
        "STRING",
        "Consumer group of the source offsets, as the older `io.tabular` sink names it; for "
        "that connector class `cg-control-<name>` when absent.",
        None,
        "LOW",
    ),
    Key(
        "iceberg.catalog.multi-table-commit",
        "BOOLEAN",
        "The REST catalog's multi-table transaction is known to be atomic (`icefloe catalog "
        "check` tells): commit all tables of a round at once.",
        "false",
    ),
    Key(
        "iceberg.control.vtts.out-of-order-ms",
        "LONG",
        "Taken off the largest record timestamp of a partition: how late records may come.",
        "0",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
    ),
    Key(
        "iceberg.control.vtts.idle-lag-ms",
        "LONG",
        "Taken off the time of observation for a partition that is read to its end.",
        "10000",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
    ),
    Key(
        "iceberg.control.vtts.future-max-ms",
        "LONG",
        "How far ahead of the worker's clock a record's timestamp may be. Records beyond it are "
        "written and counted (`icefloe_records_future_total`), but do not move the valid-through "
        "time.",
        "3600000",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
    ),
    Key(
        "iceberg.control.vtts.heartbeat-ms",
        "LONG",
        "How often to refresh the valid-through time of tables without new data; 0 is never.",
        "0",
        "LOW",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
        java_only="a table without new data gets no commit, so its valid-through time stays",
    ),
    Key(
        "iceberg.worker.max-uncommitted-rounds",
        "INT",
        "Rounds a task may announce without seeing a commit before it stops reading.",
        "3",
        "LOW",
        unit="rounds",
        check=where_read(between(1, 1000)),
    ),
    Key(
        "iceberg.tables.unmatched",
        "STRING",
        "What happens to a record that finds no table; by default `fail` when errors.tolerance "
        "is none, else `dead-letter`.",
        None,
        choices=("drop", "dead-letter", "fail"),
        is_open=True,
        check=lambda value: (
            None if value is None else one_of(("drop", "dead-letter", "fail"))(value)
        ),
    ),
    Key(
        "iceberg.tables.refused",
        "STRING",
        "What happens to records of a table that the catalog or the object store does not let the "
        "connector use (401, 403): `wait` until it does, or `dead-letter` with "
        "errors.tolerance=all.",
        "wait",
        choices=("wait", "dead-letter"),
    ),
    Key(
        "iceberg.tables.timestamp-unit",
        "STRING",
        "Unit of numbers that go into timestamp columns.",
        "ms",
        choices=("ms", "us", "s"),
    ),
    Key(
        "iceberg.tables.max-new-columns",
        "INT",
        "Most columns one batch may add to a table.",
        "500",
        "LOW",
        unit="columns",
        check=where_read(between(0, 10_000)),
    ),
    Key(
        "iceberg.tables.max-tables",
        "INT",
        "Most tables a connector may write to by dynamic routing, map and template.",
        "1000",
        "LOW",
        unit="tables",
        check=where_read(between(1, 100_000)),
    ),
    Key(
        "iceberg.tables.topic-to-table-map",
        "LIST",
        "Tables by topic, `topic:table,...`; in place of `iceberg.tables`.",
        "",
    ),
    Key(
        "iceberg.tables.name-template",
        "STRING",
        "Name of a record's table, in place of `iceberg.tables`: `${topic}`, `${schema}` for the "
        "full name of the value's schema, `${1}` for a group of `topics.regex`, `${field}` for a "
        "field of the record, dots for nesting. Characters other than letters, digits, `_` and `-` "
        "of what is filled in become `_`. With a map, for the topics it does not list.",
        None,
    ),
    Key(
        "iceberg.tables.default-sort-by",
        "STRING",
        "Sort order of tables created here that name none, such as "
        "`ts desc nulls last,bucket(id, 8)`: a property of the table, the files written here are "
        "not sorted.",
    ),
    Key(
        "iceberg.tables.default-location",
        "STRING",
        "Location of tables created here that name none: a URI with `${namespace}` and `${table}`; "
        "the catalog chooses when absent.",
    ),
    Key(
        "iceberg.tables.default-namespace",
        "STRING",
        "Namespace of tables that are named without one.",
        None,
    ),
    Key(
        "errors.deadletterqueue.max-ratio",
        "DOUBLE",
        "Largest share of dead letters among the last 1,000 records or more that a task read; more "
        "of them stop the task before their batch is announced. 1 is no limit.",
        "0.5",
        check=where_read(between(0, 1)),
    ),
    Key(
        "errors.deadletterqueue.max-run-length",
        "INT",
        "Most dead letters in a row of one source partition; more of them stop the task before "
        "their batch is announced. 0 is no limit.",
        "0",
        check=where_read(at_least(0)),
    ),
    Key(
        "errors.deadletterqueue.table",
        "STRING",
        "Iceberg table that gets the records that could not be handled, beside or in place of the "
        "topic; created when it is missing.",
        None,
    ),
    Key(
        "icefloe.owner",
        "STRING",
        "Who applies this connector from files; `icefloe apply --prune` deletes only its own.",
        None,
        "LOW",
    ),
    Key(
        "icefloe.lso.stalled.ms",
        "LONG",
        "How long an open transaction may hold back a source partition or the control topic "
        "before it is told (log, metrics `lso_stalled` and `control_lso_stalled`).",
        "60000",
        "LOW",
        unit="ms",
        check=where_read(between(1, 86_400_000)),
    ),
    Key(
        "icefloe.tasks.per.worker",
        "INT",
        "Tasks per worker process; one task already uses all cores.",
        "1",
        "LOW",
        unit="tasks",
        check=where_read(between(1, 64)),
    ),
    Key(
        "icefloe.drain.records",
        "INT",
        "Unread records at which a task reads before the next commit round.",
        "250000",
        "LOW",
        unit="records",
        check=where_read(at_least(1)),
    ),
)

TABLE_KEYS: tuple[Key, ...] = (
    Key("route-regex", "STRING", "Records whose route field matches go to the table."),
    Key("id-columns", "STRING", "Identifier columns of the table, comma-separated."),
    Key("partition-by", "STRING", "Partition terms of the table when it is created here."),
    Key("commit-branch", "STRING", "Branch to commit the table to."),
    Key("sort-by", "STRING", "Sort order of the table when it is created here."),
    Key("location", "STRING", "Location of the table when it is created here."),
)

PREFIXES: tuple[Prefix, ...] = (
    Prefix(
        "iceberg.catalog.",
        "Property of the catalog and its file system.",
        "iceberg.catalog.uri",
        is_secret_bearing=True,
    ),
    Prefix(
        "iceberg.table.",
        "Setting of one table: route-regex, id-columns, partition-by, commit-branch, sort-by, "
        "location.",
        "iceberg.table.db.events.route-regex",
    ),
    Prefix(
        "iceberg.tables.auto-create-props.",
        "Table property of tables created here.",
        "iceberg.tables.auto-create-props.format-version",
    ),
    Prefix(
        "iceberg.tables.write-props.",
        "Table property that overrides the table's own when files are written.",
        "iceberg.tables.write-props.write.parquet.compression-codec",
    ),
    Prefix(
        "iceberg.kafka.",
        "Kafka client property for the control topic, over the node's.",
        "iceberg.kafka.bootstrap.servers",
        is_secret_bearing=True,
    ),
    Prefix(
        "iceberg.hadoop.",
        "Hadoop property of the Java sink.",
        "iceberg.hadoop.fs.s3a.endpoint",
        is_secret_bearing=True,
        java_only="no Hadoop client takes part; give file system options as `iceberg.catalog.*`",
    ),
)

UNKNOWN_TO_USERS = ("iceberg.coordinator.transactional.suffix",)
"""Keys that a framework adds to task configurations; accepted, without effect."""

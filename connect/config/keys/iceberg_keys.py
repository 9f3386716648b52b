"""Keys of the Iceberg sink: keys of the Java sink 1.12, and keys of Icefloe."""

from __future__ import annotations

import re

from connect.config.end_position import end_error
from connect.config.key import Key, Prefix, at_least, between, one_of, where_read
from connect.config.keys.format_keys import FORMAT_KEYS
from connect.config.keys.maintenance_keys import MAINTENANCE_KEYS
from connect.config.keys.output_keys import OUTPUTS_KEY
from connect.config.keys.row_change_keys import ROW_CHANGE_KEYS
from connect.config.keys.topic_keys import TOPIC_PREFIX
from connect.config.output_config import OUTPUT_PREFIX
from connect.config.start_position import OFFSETS_FORM, offsets_error, timestamp_error
from connect.config.table_formats import (
    HASH_DISTRIBUTION,
    NO_DISTRIBUTION,
    TYPE_CONFLICT_ACTIONS,
)

CONTROL_TOPIC = "iceberg.control.topic"
DEFAULT_CONTROL_TOPIC = "control-iceberg"
_DAY_MS = 86_400_000
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def topic_name(value: str) -> str | None:
    """Return the error of a topic name that violates Kafka's rules, or None."""
    if _TOPIC.fullmatch(value):
        return None
    return "a topic name must have 1 to 249 letters, digits, dots, underscores and dashes"


JAVA_KEYS: tuple[Key, ...] = (
    Key("iceberg.tables", "LIST", "Comma-separated list of tables to write to.", None, "HIGH"),
    Key(
        "iceberg.tables.dynamic-enabled",
        "BOOLEAN",
        "Use the value of the route field as table name.",
        "false",
    ),
    Key(
        "iceberg.tables.route-field",
        "STRING",
        "Field that selects the table of a record; dots separate nested fields.",
    ),
    Key(
        "iceberg.tables.default-commit-branch",
        "STRING",
        "Default branch of commits; `main` if not set.",
    ),
    Key(
        "iceberg.tables.default-id-columns",
        "STRING",
        "Default identifier columns of tables, comma-separated.",
    ),
    Key(
        "iceberg.tables.default-partition-by",
        "STRING",
        "Default partition terms of new tables, such as `day(ts),bucket(id, 8)`.",
    ),
    Key(
        "iceberg.tables.auto-create-enabled",
        "BOOLEAN",
        "Create missing tables with a schema from the first records.",
        "false",
    ),
    Key(
        "iceberg.tables.schema-force-optional",
        "BOOLEAN",
        "Make all columns optional when tables are created or evolved.",
        "false",
    ),
    Key(
        "iceberg.tables.schema-case-insensitive",
        "BOOLEAN",
        "Match record fields to columns case-insensitively.",
        "false",
    ),
    Key(
        "iceberg.tables.cdc-field",
        "STRING",
        "Field with the operation of a record; dots separate nested fields. The first letter "
        "counts: U replaces the row of the record's key, D deletes it, I, C and R insert a row. "
        "Texts and booleans true (delete) and false (insert) are understood, too. Other values are "
        "record errors (`cdc_field`). A key of the older `io.tabular` sink; Apache's sink does not "
        "have it.",
    ),
    Key(
        "iceberg.tables.upsert-mode-enabled",
        "BOOLEAN",
        "Replace the row of a record's key instead of inserting a row. A key of the older "
        "`io.tabular` sink; Apache's sink does not have it.",
        "false",
    ),
    Key(
        "iceberg.tables.evolve-schema-enabled",
        "BOOLEAN",
        "Add columns for new record fields, widen types, and make required columns optional.",
        "false",
    ),
    Key(
        "iceberg.tables.type-conflict",
        "STRING",
        "Action for a value that its column does not take, after the source changed a type. "
        "`dead-letter` rejects the record, as the Java sink does. `text` writes the value to the "
        "column `<column>__text`, and `new-column` to `<column>__<type>`; both write null to the "
        "column, and need iceberg.tables.evolve-schema-enabled. `fail` fails the table "
        "(`type_conflict`), and iceberg.tables.refused decides. Key columns always reject.",
        "dead-letter",
        choices=TYPE_CONFLICT_ACTIONS,
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
        "Prefix of the temporary consumer groups for the control topic.",
        "cg-control-",
        "LOW",
        java_only="control events are read without a consumer group",
    ),
    Key(
        "iceberg.connect.group-id",
        "STRING",
        "Consumer group of the source offsets; `connect-<name>` if not set.",
        None,
        "LOW",
    ),
    Key(
        "iceberg.control.commit.interval-ms",
        "INT",
        "Interval between the starts of commit rounds.",
        "300000",
        unit="ms",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.control.commit.timeout-ms",
        "INT",
        "Time to wait for the answers of all tasks before a partial commit.",
        "30000",
        unit="ms",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.control.commit.kept-max-bytes",
        "LONG",
        "Maximum size of the announcements that the coordinator keeps in memory for tables that "
        "cannot be committed. Above the limit, tasks do not read more data until a table is "
        "committed or skipped. No announcement is dropped. A key of Icefloe.",
        "134217728",
        "LOW",
        unit="bytes",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.control.commit.threads",
        "INT",
        "Number of tables that are committed in parallel, each with a connection to the catalog. "
        "In the Java sink the default is twice the number of cores.",
        "16",
        check=where_read(between(1, 256)),
    ),
    Key(
        "iceberg.coordinator.transactional.prefix",
        "STRING",
        "Prefix of the coordinator's transactional id.",
        None,
        "LOW",
    ),
    Key(
        "iceberg.hadoop-conf-dir",
        "STRING",
        "Folder with Hadoop configuration files.",
        java_only="Hadoop is not used; set file system options as `iceberg.catalog.*`",
    ),
    Key(
        "iceberg.coordinator-executor-keep-alive-timeout-ms",
        "LONG",
        "Keep-alive time of the coordinator's threads in the Java sink.",
        "120000",
        "LOW",
        unit="ms",
        java_only="there is no Java thread pool",
    ),
    Key(
        "iceberg.control.commit.max-consecutive-failures",
        "INT",
        "Number of consecutive failed commits after which the coordinator of the Java sink stops.",
        "1",
        unit="rounds",
        check=where_read(at_least(1)),
        java_only="failed commits follow the outcome table of docs/explanation/guarantees.md",
    ),
)

OWN_KEYS: tuple[Key, ...] = (
    *FORMAT_KEYS,
    *MAINTENANCE_KEYS,
    *ROW_CHANGE_KEYS,
    OUTPUTS_KEY,
    Key(
        "iceberg.control.group-id",
        "STRING",
        "Consumer group of the source offsets of the older `io.tabular` sink; `cg-control-<name>` "
        "if not set for that connector class.",
        None,
        "LOW",
    ),
    Key(
        "iceberg.catalog.multi-table-commit",
        "BOOLEAN",
        "Commit all tables of a round in one transaction of the REST catalog. Set this only if the "
        "catalog's multi-table transactions are atomic (see `icefloe catalog check`).",
        "false",
    ),
    Key(
        "iceberg.control.vtts.out-of-order-ms",
        "LONG",
        "Maximum lateness of records, subtracted from the largest record timestamp of a partition.",
        "0",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
    ),
    Key(
        "iceberg.control.vtts.idle-lag-ms",
        "LONG",
        "Subtracted from the observation time of a partition that is read to its end.",
        "10000",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
    ),
    Key(
        "iceberg.control.vtts.future-max-ms",
        "LONG",
        "Maximum time that a record timestamp may be ahead of the worker's clock. Records beyond "
        "it are written and counted (`icefloe_records_future_total`), but do not advance the "
        "valid-through time.",
        "3600000",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
    ),
    Key(
        "iceberg.control.vtts.heartbeat-ms",
        "LONG",
        "Interval of valid-through time updates for tables without new data; 0 disables them.",
        "0",
        "LOW",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
        java_only="a table without new data has no commit",
    ),
    Key(
        "iceberg.worker.max-uncommitted-rounds",
        "INT",
        "Number of rounds that a task may announce without a commit before it stops reading.",
        "3",
        "LOW",
        unit="rounds",
        check=where_read(between(1, 1000)),
    ),
    Key(
        "iceberg.tables.unmatched",
        "STRING",
        "Action for a record without table. Default: `fail` if errors.tolerance is none, else "
        "`dead-letter`.",
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
        "Action for records of a table for which the catalog or object store denies access (401, "
        "403): `wait` until access is granted, or `dead-letter` with errors.tolerance=all.",
        "wait",
        choices=("wait", "dead-letter"),
    ),
    Key(
        "iceberg.tables.timestamp-unit",
        "STRING",
        "Unit of numbers for timestamp and time columns, unless a record's schema names one.",
        "ms",
        choices=("ms", "us", "ns", "s"),
    ),
    Key(
        "iceberg.tables.max-new-columns",
        "INT",
        "Maximum number of columns that a batch may add to a table.",
        "500",
        "LOW",
        unit="columns",
        check=where_read(between(0, 10_000)),
    ),
    Key(
        "iceberg.tables.max-tables",
        "INT",
        "Maximum number of tables that a connector may write to with dynamic routing, map or "
        "template.",
        "1000",
        "LOW",
        unit="tables",
        check=where_read(between(1, 100_000)),
    ),
    Key(
        "iceberg.tables.topic-to-table-map",
        "LIST",
        "Map from topics to tables, `topic:table,...`; replaces `iceberg.tables`.",
        "",
    ),
    Key(
        "iceberg.tables.name-template",
        "STRING",
        "Template of table names; replaces `iceberg.tables`. Variables: `${topic}`, `${schema}` "
        "(full name of the value's schema), `${1}` (a group of `topics.regex`) and `${field}` (a "
        "field of the record; dots separate nested fields). In the values of variables, characters "
        "other than letters, digits, `_` and `-` are replaced by `_`. If a topic map is set, the "
        "template applies to topics that are not in the map.",
        None,
    ),
    Key(
        "iceberg.tables.default-sort-by",
        "STRING",
        "Default sort order of new tables, such as `ts desc nulls last,bucket(id, 8)`. It is a "
        "property of the table; data files are sorted by it with iceberg.tables.sort-enabled.",
    ),
    Key(
        "iceberg.tables.sort-enabled",
        "BOOLEAN",
        "Sort the rows of each data file by the sort order of its table, if it has one. In a file "
        "with several row groups, each row group is sorted.",
        "false",
    ),
    Key(
        "iceberg.tables.write-distribution-mode",
        "STRING",
        "Which Spark task writes a row. With `none` it is the task that reads the record: a batch "
        "has a file for each table, partition value and Spark task. With `hash` the rows of a "
        "table go to one task, and those of a large table are divided by partition value. A batch "
        "has about one file for each table and partition value. Use it with many tables.",
        NO_DISTRIBUTION,
        choices=(NO_DISTRIBUTION, HASH_DISTRIBUTION),
    ),
    Key(
        "iceberg.tables.default-location",
        "STRING",
        "Template for the default location of new tables: a URI with `${namespace}` and "
        "`${table}`. If not set, the catalog chooses the location.",
    ),
    Key(
        "iceberg.tables.default-namespace",
        "STRING",
        "Namespace of tables without namespace.",
        None,
    ),
    Key(
        "errors.deadletterqueue.max-ratio",
        "DOUBLE",
        "Maximum ratio of dead letters among the last 1,000 or more records of a task. Above it, "
        "the task fails before the batch is announced. 1 disables the limit.",
        "0.5",
        check=where_read(between(0, 1)),
    ),
    Key(
        "errors.deadletterqueue.max-run-length",
        "INT",
        "Maximum number of consecutive dead letters in a source partition. Above it, the task "
        "fails before the batch is announced. 0 disables the limit.",
        "0",
        check=where_read(at_least(0)),
    ),
    Key(
        "errors.deadletterqueue.table",
        "STRING",
        "Iceberg table for dead letters, in addition to or instead of the dead letter topic. A "
        "missing table is created.",
        None,
    ),
    Key(
        "icefloe.owner",
        "STRING",
        "Owner of a connector that is applied from files. `icefloe apply --prune` deletes only "
        "connectors of its owner.",
        None,
        "LOW",
    ),
    Key(
        "icefloe.start.timestamp",
        "STRING",
        "Instant from which a connector without committed offsets reads its partitions: ISO-8601 "
        "with a zone, or milliseconds since 1970. A partition without a record from then on starts "
        "at its end. Partitions that appear later start from `auto.offset.reset`.",
        None,
        check=where_read(timestamp_error),
    ),
    Key(
        "icefloe.start.offsets",
        "STRING",
        "First source offset of partitions without a committed offset, in the form of Spark's "
        f"`startingOffsets`: `{OFFSETS_FORM}`. -2 is the earliest offset, -1 the latest.",
        None,
        check=where_read(offsets_error),
    ),
    Key(
        "icefloe.fail-on-data-loss",
        "BOOLEAN",
        "Whether a task stops when source records were deleted before they were read. `false` "
        "continues at the start of the log and reports the lost range in log, status, metric "
        "`icefloe_source_offsets_lost_total` and snapshot summary (`icefloe.data-loss`). A topic "
        "that was created again is then read from its start. A partition whose committed offset "
        "is gone continues after its last announcement, if that is known for certain.",
        "true",
    ),
    Key(
        "icefloe.end",
        "STRING",
        "End of a bounded run: `latest`, or a timestamp (ISO-8601 with a zone, or milliseconds "
        "since 1970). The end offsets are fixed when the connector starts for the first time. "
        "`latest` ends at the present end of each partition, a timestamp before the first record "
        "with that timestamp or a later one. After the last commit the tasks are COMPLETED.",
        None,
        check=where_read(end_error),
    ),
    Key(
        "icefloe.lineage.enabled",
        "BOOLEAN",
        "Whether a node with `icefloe.lineage.enabled` sends lineage events of this connector.",
        "true",
        "LOW",
    ),
    Key(
        "icefloe.lso.stalled.ms",
        "LONG",
        "Time for which an open transaction may block a source partition or the control topic "
        "before it is reported (log, metrics `icefloe_lso_stalled` and "
        "`icefloe_control_lso_stalled`).",
        "60000",
        "LOW",
        unit="ms",
        check=where_read(between(1, 86_400_000)),
    ),
    Key(
        "icefloe.tasks.per.worker",
        "INT",
        "Number of separate reads into which a worker process divides its tasks of the connector. "
        "A single read uses all cores.",
        "1",
        "LOW",
        unit="reads",
        check=where_read(between(1, 64)),
    ),
    Key(
        "icefloe.drain.records",
        "INT",
        "Number of unread records at which a task reads before the next commit round. 0: as many "
        "as it reads in a quarter of the commit interval, at least 250,000. More make fewer files.",
        "0",
        "LOW",
        unit="records",
        check=where_read(at_least(0)),
    ),
    Key(
        "icefloe.batch.timeout.ms",
        "LONG",
        "Time after which a batch that does not end is cancelled. Its task then fails with "
        "`batch_timeout` and starts again. Rows of a batch that is cancelled are in no table, and "
        "the next attempt reads them again.",
        "900000",
        "LOW",
        unit="ms",
        check=where_read(between(1_000, _DAY_MS // 4)),
    ),
)

TABLE_KEYS: tuple[Key, ...] = (
    Key(
        "route-regex",
        "STRING",
        "Regular expression for the route field; matching records go to the table.",
    ),
    Key("id-columns", "STRING", "Identifier columns of the table, comma-separated."),
    Key("partition-by", "STRING", "Partition terms of the table if the connector creates it."),
    Key("commit-branch", "STRING", "Branch for commits to the table."),
    Key("sort-by", "STRING", "Sort order of the table if the connector creates it."),
    Key("location", "STRING", "Location of the table if the connector creates it."),
    Key(
        "sort-enabled",
        "BOOLEAN",
        "Sort the rows of the table's data files by its sort order; iceberg.tables.sort-enabled if "
        "not set.",
    ),
    Key(
        "write-mode",
        "STRING",
        "`merge-on-read` or `copy-on-write`; iceberg.tables.write-mode if not set.",
    ),
    Key(
        "deletion-vectors-enabled",
        "BOOLEAN",
        "Delete rows by deletion vectors if the table has format version 3; "
        "iceberg.tables.deletion-vectors-enabled if not set.",
    ),
    Key(
        "type-conflict",
        "STRING",
        "Action for values that their column does not take; iceberg.tables.type-conflict if not "
        "set.",
        choices=TYPE_CONFLICT_ACTIONS,
    ),
    Key(
        "equality-deletes-enabled",
        "BOOLEAN",
        "Let commits remove rows by equality delete files; iceberg.tables.equality-deletes-enabled "
        "if not set.",
    ),
    Key(
        "no-key",
        "STRING",
        "`error` or `append`; iceberg.tables.no-key if not set.",
        choices=("error", "append"),
    ),
    Key(
        "no-key-changes",
        "STRING",
        "`dead-letter` or `append`; iceberg.tables.no-key-changes if not set.",
        choices=("dead-letter", "append"),
    ),
    Key(
        "maintenance-enabled",
        "BOOLEAN",
        "Let the maintenance process rewrite the table and remove its orphan files.",
        "true",
    ),
)

PREFIXES: tuple[Prefix, ...] = (
    Prefix(
        OUTPUT_PREFIX,
        "Setting of one output: topic, where, key, columns, tables, topic.partitions, "
        "topic.replication.factor, webhook.url, webhook.authorization, webhook.batch.rows, "
        "webhook.retry.ms.",
        "icefloe.output.alerts.topic",
    ),
    Prefix(
        TOPIC_PREFIX,
        "Converters of one topic, or of the topics of a pattern: key.converter, value.converter "
        "and their options, regex.",
        "icefloe.topic.orders.value.converter",
    ),
    Prefix(
        "iceberg.catalog.",
        "Property of the catalog and its file system.",
        "iceberg.catalog.uri",
        is_secret_bearing=True,
    ),
    Prefix(
        "iceberg.table.",
        "Setting of one table: route-regex, id-columns, partition-by, commit-branch, sort-by, "
        "location, maintenance-enabled, sort-enabled, write-mode, deletion-vectors-enabled, "
        "equality-deletes-enabled, type-conflict, no-key, no-key-changes.",
        "iceberg.table.db.events.route-regex",
    ),
    Prefix(
        "iceberg.tables.auto-create-props.",
        "Table property of new tables.",
        "iceberg.tables.auto-create-props.format-version",
    ),
    Prefix(
        "iceberg.tables.write-props.",
        "Table property that overrides the table's property when files are written.",
        "iceberg.tables.write-props.write.parquet.compression-codec",
    ),
    Prefix(
        "iceberg.kafka.",
        "Kafka client property for the control topic, which overrides the node's property.",
        "iceberg.kafka.bootstrap.servers",
        is_secret_bearing=True,
    ),
    Prefix(
        "iceberg.hadoop.",
        "Hadoop property of the Java sink.",
        "iceberg.hadoop.fs.s3a.endpoint",
        is_secret_bearing=True,
        java_only="Hadoop is not used; set file system options as `iceberg.catalog.*`",
    ),
)

UNKNOWN_TO_USERS = ("iceberg.coordinator.transactional.suffix",)
"""Keys that frameworks add to task configurations. They have no effect."""

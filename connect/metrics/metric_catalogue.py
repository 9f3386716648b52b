"""Every metric of every process, declared once; ``process_metrics`` counts and exposes them.

Rules of this file:
- Label values are names of connectors, tables and topics, task numbers and bounded codes; never
  record content.
"""

from __future__ import annotations

from connect.metrics.metric import Metric

_CONNECTOR = ("connector",)
_TASK = ("connector", "task")
_TABLE = ("connector", "table")

CATALOGUE: tuple[Metric, ...] = (
    # worker
    Metric("records_read", "counter", "records", _TASK, "Source records read."),
    Metric("records_written", "counter", "records", _TASK, "Records in data files."),
    Metric(
        "aggregate_results",
        "counter",
        "records",
        _TASK,
        "Results of groups and windows sent to the topic of an aggregate connector.",
    ),
    Metric(
        "aggregate_late_rows",
        "counter",
        "rows",
        _TASK,
        "Rows of groups and windows that were dropped because their window was closed. Late "
        "records of the same group, window and Spark task are one row.",
    ),
    Metric(
        "aggregate_state_rows",
        "gauge",
        "rows",
        _TASK,
        "Groups and windows in the state of an aggregate connector.",
    ),
    Metric(
        "aggregate_state_bytes",
        "gauge",
        "bytes",
        _TASK,
        "Memory that Spark uses for the state of an aggregate connector.",
    ),
    Metric(
        "aggregate_watermark_timestamp_seconds",
        "gauge",
        "seconds",
        _TASK,
        "Watermark of an aggregate connector, as event time; 0 before the first.",
    ),
    Metric("records_dropped", "counter", "records", _TASK, "Records filtered or without a route."),
    Metric("records_dead_lettered", "counter", "records", _TASK, "Records in the dead letters."),
    Metric(
        "records_failed",
        "counter",
        "records",
        _TASK,
        "Dead letters of records that raised an exception which no code expects (record_failed). "
        "A batch that fails twice is searched for them.",
    ),
    Metric(
        "records_future",
        "counter",
        "records",
        _TASK,
        "Records whose timestamp is ahead of the clock by more than "
        "iceberg.control.vtts.future-max-ms: they are written and do not move the VTTS.",
    ),
    Metric(
        "source_offsets_lost",
        "counter",
        "offsets",
        _TASK,
        "Source offsets whose records were deleted before they were read, and that the task "
        "continued after (`icefloe.fail-on-data-loss=false`).",
    ),
    Metric(
        "source_positions_recovered",
        "counter",
        "partitions",
        _TASK,
        "Partitions without a committed source offset that continued after their last announcement "
        "(`icefloe.fail-on-data-loss=false`).",
    ),
    Metric(
        "late_records",
        "counter",
        "records",
        _TASK,
        "Records whose timestamp is at or below the last VTTS that the task has seen: they are "
        "written, and the VTTS was claimed without them.",
    ),
    Metric(
        "values_truncated",
        "counter",
        "values",
        _TASK,
        "Times and timestamps that lost digits beyond microseconds.",
    ),
    Metric(
        "record_path_records",
        "counter",
        "records",
        (*_TASK, "reason"),
        "Records that were processed one by one; each takes about ten times the CPU.",
    ),
    Metric("values_unavailable", "counter", "values", _TASK, "Values that no source has sent."),
    Metric("type_conflicts", "counter", "values", _TASK, "Values that moved to another column."),
    Metric("files_written", "counter", "files", _TASK, "Data and delete files written."),
    Metric("bytes_written", "counter", "bytes", _TASK, "Size of the files written."),
    Metric("batches", "counter", "batches", _TASK, "Micro-batches run."),
    Metric("batch_duration_ms", "gauge", "ms", _TASK, "Duration of the last micro-batch."),
    Metric(
        "batch_duration_seconds", "histogram", "seconds", _CONNECTOR, "Duration of micro-batches."
    ),
    Metric(
        "announcement_duration_seconds",
        "histogram",
        "seconds",
        _CONNECTOR,
        "Duration of announcements: each commits source offsets.",
    ),
    Metric("announcements", "counter", "transactions", _TASK, "Answers announced to rounds."),
    Metric(
        "batch_timeouts",
        "counter",
        "batches",
        _TASK,
        "Batches that were cancelled because they did not end (`icefloe.batch.timeout.ms`).",
    ),
    Metric(
        "task_retries", "counter", "restarts", _TASK, "Times a task started over after an error."
    ),
    Metric("lag_records", "gauge", "records", _TASK, "Source records not yet in files."),
    Metric(
        "lag_records_partition_max",
        "gauge",
        "records",
        _TASK,
        "Source records not yet in files, of the partition with the most.",
    ),
    Metric(
        "rounds_uncommitted", "gauge", "rounds", _TASK, "Rounds announced, not known committed."
    ),
    Metric("held_back", "gauge", "0 or 1", _TASK, "1 while back-pressure stops reading."),
    Metric(
        "lso_stalled",
        "gauge",
        "partitions",
        _TASK,
        "Source partitions that an open transaction of another producer holds back.",
    ),
    Metric("partitions", "gauge", "partitions", _TASK, "Source partitions of the task."),
    Metric(
        "batch_duration_avg_ms",
        "gauge",
        "ms",
        _TASK,
        "Average duration of the micro-batches of the last minute.",
    ),
    Metric(
        "batch_duration_max_ms",
        "gauge",
        "ms",
        _TASK,
        "Duration of the longest micro-batch of the last minute.",
    ),
    Metric(
        "batch_records_avg",
        "gauge",
        "records",
        _TASK,
        "Average records of the micro-batches of the last minute.",
    ),
    Metric(
        "batch_records_max",
        "gauge",
        "records",
        _TASK,
        "Records of the largest micro-batch of the last minute.",
    ),
    Metric(
        "announcement_duration_avg_ms",
        "gauge",
        "ms",
        _TASK,
        "Average duration of the announcements of the last minute: each commits source offsets.",
    ),
    Metric(
        "announcement_duration_max_ms",
        "gauge",
        "ms",
        _TASK,
        "Duration of the longest announcement of the last minute.",
    ),
    Metric(
        "records_pending", "gauge", "records", _TASK, "Records in files that are not announced yet."
    ),
    Metric(
        "records_pending_avg",
        "gauge",
        "records",
        _TASK,
        "Average of icefloe_records_pending over the last minute.",
    ),
    Metric(
        "records_pending_max",
        "gauge",
        "records",
        _TASK,
        "Maximum of icefloe_records_pending over the last minute.",
    ),
    Metric(
        "records_pending_partition_max",
        "gauge",
        "records",
        _TASK,
        "Offsets read and not announced yet, of the partition with the most.",
    ),
    Metric(
        "record_errors",
        "counter",
        "records",
        _TASK,
        "Records that could not be handled: dead letters, and the one that ended the task.",
    ),
    Metric(
        "record_errors_logged",
        "counter",
        "records",
        _TASK,
        "Records that could not be handled and that were logged (errors.log.enable).",
    ),
    Metric(
        "dead_letters_produced",
        "counter",
        "records",
        _TASK,
        "Records in the dead letter topic; none when the connector names no topic.",
    ),
    Metric(
        "output_rows",
        "counter",
        "rows",
        _TASK,
        "Rows that outputs (icefloe.outputs) sent to topics and webhooks, with stored offsets.",
    ),
    Metric(
        "output_rows_refused",
        "counter",
        "rows",
        _TASK,
        "Rows that a webhook did not accept, with errors.tolerance=all.",
    ),
    Metric(
        "output_bytes",
        "counter",
        "bytes",
        _TASK,
        "Size of all rows of outputs: keys and values, and 64 bytes for each.",
    ),
    Metric(
        "last_error_timestamp_ms",
        "gauge",
        "ms since 1970",
        _TASK,
        "When a record of the task could not be handled last; 0 for never.",
    ),
    Metric(
        "jvm_memory_used_bytes",
        "gauge",
        "bytes",
        ("area",),
        "Memory of Spark's JVM in use, by area: heap, nonheap.",
        prefix="",
    ),
    Metric(
        "jvm_memory_committed_bytes",
        "gauge",
        "bytes",
        ("area",),
        "Memory that Spark's JVM has from the system.",
        prefix="",
    ),
    Metric(
        "jvm_memory_max_bytes",
        "gauge",
        "bytes",
        ("area",),
        "Limit of the memory of Spark's JVM; -1 without a limit.",
        prefix="",
    ),
    Metric(
        "spark_executors",
        "gauge",
        "executors",
        (),
        "Executors that the Spark cluster of the worker has now; absent with a local master.",
    ),
    Metric("jvm_threads_current", "gauge", "threads", (), "Threads of Spark's JVM.", prefix=""),
    Metric(
        "jvm_gc_collection_seconds_sum",
        "gauge",
        "seconds",
        ("gc",),
        "Time that a garbage collector of Spark's JVM has taken since its start.",
        prefix="",
    ),
    Metric(
        "jvm_gc_collection_seconds_count",
        "gauge",
        "collections",
        ("gc",),
        "Collections of a garbage collector of Spark's JVM since its start.",
        prefix="",
    ),
    # worker and coordinator
    Metric(
        "catalog_request_duration_seconds",
        "histogram",
        "seconds",
        ("process", "operation", "outcome"),
        "Duration of requests to catalogs; outcome: ok, or the error's code.",
    ),
    # coordinator
    Metric("rounds", "counter", "rounds", _CONNECTOR, "Rounds ended."),
    Metric(
        "rounds_partial", "counter", "rounds", _CONNECTOR, "Rounds ended by timeout, without VTTS."
    ),
    Metric("round_duration_ms", "gauge", "ms", _CONNECTOR, "Duration of the last round."),
    Metric("round_duration_seconds", "histogram", "seconds", _CONNECTOR, "Duration of rounds."),
    Metric(
        "table_commits",
        "counter",
        "commits",
        ("connector", "table", "outcome"),
        "Table commits by outcome: committed, or the error's code.",
    ),
    Metric("commit_duration_ms", "gauge", "ms", _TABLE, "Duration of the table's last commit."),
    Metric(
        "commit_duration_seconds",
        "histogram",
        "seconds",
        _CONNECTOR,
        "Duration of commits of tables.",
    ),
    Metric("records_committed", "counter", "records", _TABLE, "Records committed."),
    Metric("files_committed", "counter", "files", _TABLE, "Files committed."),
    Metric(
        "copy_on_write_files",
        "counter",
        "files",
        _TABLE,
        "Data files written by commits with copy-on-write in place of others.",
    ),
    Metric(
        "copy_on_write_bytes",
        "counter",
        "bytes",
        _TABLE,
        "Size of the data files that commits with copy-on-write replaced.",
    ),
    Metric(
        "copy_on_write_seconds",
        "counter",
        "seconds",
        _TABLE,
        "Time to read and write data files for copy-on-write, also of commits that fell back.",
    ),
    Metric(
        "copy_on_write_fallbacks",
        "counter",
        "commits",
        ("connector", "table", "reason"),
        "Commits that used vectors or delete files although copy-on-write is set, by reason.",
    ),
    Metric("deletion_vectors", "counter", "vectors", _TABLE, "Deletion vectors committed."),
    Metric(
        "deletion_vector_read_bytes",
        "counter",
        "bytes",
        _TABLE,
        "Size of the key columns that commits with deletion vectors searched.",
    ),
    Metric(
        "deletion_vector_seconds",
        "counter",
        "seconds",
        _TABLE,
        "Time to make the vectors, also of commits that fell back.",
    ),
    Metric(
        "deletion_vector_fallbacks",
        "counter",
        "commits",
        ("connector", "table", "reason"),
        "Commits to tables of format version 3 that used equality deletes instead, by reason.",
    ),
    Metric("snapshots_expired", "counter", "snapshots", _TABLE, "Old snapshots removed."),
    Metric(
        "expired_files_deleted",
        "counter",
        "files",
        _TABLE,
        "Files deleted that only removed snapshots needed.",
    ),
    Metric(
        "maintenance_running",
        "gauge",
        "processes",
        _CONNECTOR,
        "1 while the maintenance process of the node works for the connector.",
    ),
    Metric(
        "maintenance_work",
        "counter",
        "runs",
        ("connector", "table", "work", "outcome"),
        "Ended work of the maintenance process: done, or an error code.",
    ),
    Metric(
        "maintenance_files_rewritten", "counter", "files", _TABLE, "Data files that were replaced."
    ),
    Metric(
        "maintenance_bytes_rewritten",
        "counter",
        "bytes",
        _TABLE,
        "Size of the data files that were replaced.",
    ),
    Metric(
        "maintenance_delete_files_removed",
        "counter",
        "files",
        _TABLE,
        "Delete files that were applied and removed from the table.",
    ),
    Metric(
        "maintenance_orphan_files_deleted",
        "counter",
        "files",
        _TABLE,
        "Files deleted that no snapshot lists.",
    ),
    Metric(
        "announcements_bytes",
        "gauge",
        "bytes",
        _CONNECTOR,
        "Announcements that are in no table yet, as they are in the control topic.",
    ),
    Metric(
        "records_uncommitted", "gauge", "records", _CONNECTOR, "Records in files, not committed."
    ),
    Metric(
        "valid_through_timestamp_seconds",
        "gauge",
        "seconds since 1970",
        _CONNECTOR,
        "Valid-through timestamp of the last full commit.",
    ),
    Metric(
        "valid_through_age_seconds",
        "gauge",
        "seconds",
        _CONNECTOR,
        "Age of the valid-through timestamp, worked out by the node when asked.",
    ),
    Metric(
        "control_lso_stalled",
        "gauge",
        "partitions",
        _CONNECTOR,
        "Partitions of the control topic that an open transaction of another producer holds back.",
    ),
    Metric(
        "control_retention_left_seconds",
        "gauge",
        "seconds",
        _CONNECTOR,
        "Time until the control topic deletes the oldest announcement that is in no table; -1 "
        "while there is none.",
    ),
    Metric("tables_failed", "gauge", "tables", _CONNECTOR, "Tables whose files wait for a commit."),
    Metric("announcements_skipped", "counter", "announcements", _TABLE, "Skipped by an operator."),
    Metric("files_skipped", "counter", "files", _TABLE, "Files in skipped announcements."),
    Metric("records_skipped", "counter", "records", _TABLE, "Records in skipped announcements."),
    Metric(
        "control_events_malformed",
        "counter",
        "events",
        _CONNECTOR,
        "Control events not understood.",
    ),
    Metric(
        "coordinator_restarts",
        "counter",
        "restarts",
        ("connector", "code"),
        "Times a coordinator started over, by the error's code.",
    ),
    # node
    Metric(
        "rest_request_duration_seconds",
        "histogram",
        "seconds",
        ("method", "route", "status"),
        "Duration of requests to the REST API, by path template and HTTP status.",
    ),
    Metric("connectors", "gauge", "connectors", ("state",), "Connectors by state."),
    Metric("tasks", "gauge", "tasks", ("state",), "Tasks by state."),
    Metric(
        "task_failures", "counter", "failures", ("connector", "code"), "Failures of tasks by code."
    ),
    Metric(
        "task_restarts",
        "counter",
        "restarts",
        _CONNECTOR,
        "Failed tasks started again by the node.",
    ),
    Metric(
        "task_stalls",
        "counter",
        "restarts",
        _CONNECTOR,
        "Tasks that the node started again because they made no progress.",
    ),
    Metric(
        "coordinator_stalls",
        "counter",
        "restarts",
        _CONNECTOR,
        "Coordinators that the node started again because no round ended for several intervals.",
    ),
    Metric(
        "inventory_differences",
        "counter",
        "units",
        ("connector", "code"),
        "Corrected differences between what the node believed and what a child process ran: "
        "`missing` units were started again, `unexpected` ones were stopped.",
    ),
    Metric("layouts", "counter", "layouts", _CONNECTOR, "Layouts written."),
    Metric(
        "source_topics_recreated",
        "counter",
        "topics",
        _CONNECTOR,
        "Source topics that were deleted and created again, and that the connector then read from "
        "their start (`icefloe.fail-on-data-loss=false`).",
    ),
    Metric(
        "rewinds",
        "counter",
        "rewinds",
        ("connector", "outcome"),
        "Rewinds that ended: done or cancelled.",
    ),
    Metric(
        "rewinds_unfinished",
        "gauge",
        "connectors",
        (),
        "Connectors with a rewind that was begun and has not ended.",
    ),
    Metric(
        "offsets_kept",
        "counter",
        "offsets",
        _CONNECTOR,
        "Committed offsets of failed, paused or stopped units that the leader stored again.",
    ),
    Metric(
        "notifications",
        "counter",
        "messages",
        ("outcome",),
        "Messages to the webhook: sent, failed (sent again later) or refused.",
    ),
    Metric(
        "lineage_events",
        "counter",
        "events",
        ("outcome",),
        "Lineage events: sent, failed (sent again later), refused by the receiver, or dropped "
        "because too many waited.",
    ),
    Metric("is_leader", "gauge", "boolean", (), "1 on the node that leads its cluster."),
    Metric("cluster_nodes", "gauge", "nodes", (), "Nodes of the cluster, as the leader sees them."),
    Metric("rebalances", "counter", "rebalances", (), "This leader placed the work again."),
    Metric("child_restarts", "counter", "restarts", ("process",), "Child processes started again."),
    Metric("child_up", "gauge", "0 or 1", ("process",), "1 while the child process is ready."),
)

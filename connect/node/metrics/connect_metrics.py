"""Kafka Connect's metrics under their usual Prometheus names, for existing dashboards.

Rules of this file:
- A metric is in this file only if its meaning is that of Kafka Connect. Names are those of the
  JMX exporter's usual rules (``kafka_connect_<group>_<attribute>``).
- Values are computed when they are read; this module keeps none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from connect.metrics.metric import Kind
from connect.metrics.process_metrics import Sample
from connect.node.node_requests import ReportedStatus

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily
Values: TypeAlias = Mapping[tuple[str, ...], float]

_CONNECTOR = ("connector",)
_TASK = ("connector", "task")


@dataclass(frozen=True, slots=True)
class ConnectMetric:
    """One metric of Kafka Connect; ``name`` is as exposed, ``_total`` included.

    ``source`` is Icefloe's metric with the same labels and meaning; None: from the statuses.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class UnexposedMetrics:
    """Attributes of one group of Kafka Connect's metrics that Icefloe does not expose, and why."""

    group: str
    names: tuple[str, ...]
    why: str


CATALOGUE: tuple[ConnectMetric, ...] = (
    ConnectMetric(
        "kafka_connect_sink_task_partition_count",
        "gauge",
        _TASK,
        "Topic partitions assigned to this task.",
        "partitions",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_sink_record_read_total",
        "counter",
        _TASK,
        "Records read from Kafka by this task.",
        "records_read",
    ),
    ConnectMetric(
        "kafka_consumer_fetch_manager_records_consumed_total",
        "counter",
        _TASK,
        "Records consumed by the task.",
        "records_read",
    ),
    ConnectMetric(
        "kafka_consumer_fetch_manager_records_lag_max",
        "gauge",
        _TASK,
        "Maximum lag in number of records of any partition of the task.",
        "lag_records_partition_max",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_sink_record_send_total",
        "counter",
        _TASK,
        "Records output from the transformations and written by this task.",
        "records_written",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_sink_record_active_count",
        "gauge",
        _TASK,
        "Records read and written whose offsets are not committed yet.",
        "records_pending",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_sink_record_active_count_avg",
        "gauge",
        _TASK,
        "Average of kafka_connect_sink_task_sink_record_active_count over the last minute.",
        "records_pending_avg",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_sink_record_active_count_max",
        "gauge",
        _TASK,
        "Maximum of kafka_connect_sink_task_sink_record_active_count over the last minute.",
        "records_pending_max",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_sink_record_lag_max",
        "gauge",
        _TASK,
        "Maximum number of offsets by which commits lag behind reads, over the task's partitions.",
        "records_pending_partition_max",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_offset_commit_seq_no",
        "gauge",
        _TASK,
        "Number of the last offset commit of this task since it started.",
        "announcements",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_offset_commit_completion_total",
        "counter",
        _TASK,
        "Offset commits that were completed: one per announcement.",
        "announcements",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_put_batch_avg_time_ms",
        "gauge",
        _TASK,
        "Average time to handle a micro-batch, over the last minute.",
        "batch_duration_avg_ms",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_put_batch_max_time_ms",
        "gauge",
        _TASK,
        "Longest time to handle a micro-batch, over the last minute.",
        "batch_duration_max_ms",
    ),
    ConnectMetric(
        "kafka_connect_connector_task_batch_size_avg",
        "gauge",
        _TASK,
        "Average records of a micro-batch, over the last minute.",
        "batch_records_avg",
    ),
    ConnectMetric(
        "kafka_connect_connector_task_batch_size_max",
        "gauge",
        _TASK,
        "Records of the largest micro-batch of the last minute.",
        "batch_records_max",
    ),
    ConnectMetric(
        "kafka_connect_connector_task_offset_commit_avg_time_ms",
        "gauge",
        _TASK,
        "Average time of an offset commit, which is an announcement, over the last minute.",
        "announcement_duration_avg_ms",
    ),
    ConnectMetric(
        "kafka_connect_connector_task_offset_commit_max_time_ms",
        "gauge",
        _TASK,
        "Longest time of an offset commit of the last minute.",
        "announcement_duration_max_ms",
    ),
    ConnectMetric(
        "kafka_connect_task_error_total_record_errors",
        "gauge",
        _TASK,
        "Records that could not be handled, tolerated or not.",
        "record_errors",
    ),
    ConnectMetric(
        "kafka_connect_task_error_total_record_failures",
        "gauge",
        _TASK,
        "Records that could not be handled; a failed record is not retried.",
        "record_errors",
    ),
    ConnectMetric(
        "kafka_connect_task_error_total_records_skipped",
        "gauge",
        _TASK,
        "Records skipped due to errors that are tolerated.",
        "records_dead_lettered",
    ),
    ConnectMetric(
        "kafka_connect_task_error_total_retries",
        "gauge",
        _TASK,
        "Number of times the task started again from its committed offsets.",
        "task_retries",
    ),
    ConnectMetric(
        "kafka_connect_task_error_total_errors_logged",
        "gauge",
        _TASK,
        "Errors that were logged (errors.log.enable).",
        "record_errors_logged",
    ),
    ConnectMetric(
        "kafka_connect_task_error_deadletterqueue_produce_requests",
        "gauge",
        _TASK,
        "Records written to the dead letter queue.",
        "dead_letters_produced",
    ),
    ConnectMetric(
        "kafka_connect_task_error_last_error_timestamp",
        "gauge",
        _TASK,
        "Time of the task's last record error, ms since 1970; 0 if there was none.",
        "last_error_timestamp_ms",
    ),
    ConnectMetric(
        "kafka_connect_connector_status",
        "gauge",
        ("connector", "task", "status"),
        "1 for the status of each task, and with an empty task label for that of the connector.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_count", "gauge", (), "Connectors run in this worker."
    ),
    ConnectMetric("kafka_connect_worker_task_count", "gauge", (), "Tasks run in this worker."),
    ConnectMetric(
        "kafka_connect_worker_connector_total_task_count",
        "gauge",
        _CONNECTOR,
        "Tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_running_task_count",
        "gauge",
        _CONNECTOR,
        "Running tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_paused_task_count",
        "gauge",
        _CONNECTOR,
        "Paused tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_failed_task_count",
        "gauge",
        _CONNECTOR,
        "Failed tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_unassigned_task_count",
        "gauge",
        _CONNECTOR,
        "Unassigned tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_restarting_task_count",
        "gauge",
        _CONNECTOR,
        "Restarting tasks of the connector on the worker.",
    ),
)


_SINK_TASK = "sink-task-metrics"
_WORKER = "connect-worker-metrics"
_STATED = ("class", "type", "version")
UNEXPOSED: tuple[UnexposedMetrics, ...] = (
    UnexposedMetrics(
        _SINK_TASK,
        ("sink-record-read-rate", "sink-record-send-rate", "offset-commit-completion-rate"),
        "`rate()` of the total",
    ),
    UnexposedMetrics(
        _SINK_TASK,
        ("offset-commit-skip-rate", "offset-commit-skip-total"),
        "no commit is skipped: offsets are committed in the announcement's transaction, and the "
        "task waits for it",
    ),
    UnexposedMetrics(
        "task-error-metrics",
        ("deadletterqueue-produce-failures",),
        "dead letters are sent in the announcement's transaction: when it fails, the task starts "
        "again (`kafka_connect_task_error_total_retries`) and no dead letter is lost",
    ),
    UnexposedMetrics(
        "connector-task-metrics",
        ("status",),
        "`kafka_connect_connector_status` with the task's label",
    ),
    UnexposedMetrics(
        "connector-task-metrics",
        ("running-ratio", "pause-ratio"),
        "`avg_over_time()` of `kafka_connect_connector_status`",
    ),
    UnexposedMetrics(
        "connector-task-metrics",
        ("offset-commit-success-percentage", "offset-commit-failure-percentage"),
        "a failed commit ends the task's work and is counted in "
        "`kafka_connect_task_error_total_retries` or `icefloe_task_failures_total`",
    ),
    UnexposedMetrics(
        "connector-task-metrics",
        tuple(
            f"{subject}-{part}"
            for subject in (
                "connector",
                "task",
                "header-converter",
                "key-converter",
                "value-converter",
            )
            for part in (_STATED if subject == "connector" else ("class", "version"))
        ),
        "texts: `GET /connectors/<name>` and `GET /connector-plugins?connectorsOnly=false`",
    ),
    UnexposedMetrics(
        "connector-metrics",
        tuple(f"connector-{part}" for part in _STATED),
        "texts: `GET /connectors/<name>` and `GET /connectors/<name>/status`",
    ),
    UnexposedMetrics(
        "connector-transform-metrics",
        ("transform-class", "transform-version"),
        "texts: `GET /connectors/<name>`",
    ),
    UnexposedMetrics(
        "connector-predicate-metrics",
        ("predicate-class", "predicate-version"),
        "texts: `GET /connectors/<name>`",
    ),
    UnexposedMetrics(
        _WORKER,
        tuple(
            f"{subject}-startup-{part}"
            for subject in ("connector", "task")
            for part in (
                "attempts-total",
                "success-total",
                "success-percentage",
                "failure-total",
                "failure-percentage",
            )
        ),
        "tasks run in a process of the node and restart in it: `icefloe_task_failures_total`, "
        "`icefloe_task_restarts_total`, `icefloe_child_restarts_total`",
    ),
    UnexposedMetrics(_WORKER, ("connector-destroyed-task-count",), "a deleted task has no status"),
    UnexposedMetrics(
        "connect-worker-rebalance-metrics",
        (
            "leader-name",
            "epoch",
            "connect-protocol",
            "completed-rebalances-total",
            "rebalancing",
            "rebalance-avg-time-ms",
            "rebalance-max-time-ms",
            "time-since-last-rebalance-ms",
        ),
        "a rebalance does not stop tasks that stay: `icefloe_rebalances_total`, "
        "`icefloe_layouts_total`, "
        "`icefloe_is_leader`, `icefloe_cluster_nodes`, and `GET /icefloe/v1/cluster`",
    ),
)


class ConnectMetrics(Collector):
    """Exposes the metrics of a node as those of Kafka Connect.

    Args:
        samples: the node's own values.
        statuses: every connector's status.
    """

    def __init__(
        self,
        samples: Callable[[], Sequence[Sample]],
        statuses: Callable[[], Sequence[ReportedStatus]],
    ) -> None:
        self._samples = samples
        self._statuses = statuses

    def collect(self) -> Iterator[Family]:
        """Yield metric families for prometheus_client."""
        values = _from_statuses(self._statuses())
        for name, labels, number in self._samples():
            values.setdefault(name, {})[tuple(labels.values())] = number
        for metric in CATALOGUE:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
            family = kind(name, metric.doc, labels=list(metric.labels))
            for labelled, number in values.get(metric.source or metric.name, {}).items():
                family.add_metric(list(labelled), number)
            yield family


def _from_statuses(statuses: Sequence[ReportedStatus]) -> dict[str, dict[tuple[str, ...], float]]:
    by_status: dict[tuple[str, ...], float] = {}
    samples: dict[str, dict[tuple[str, ...], float]] = {
        "kafka_connect_connector_status": by_status,
        "kafka_connect_worker_connector_count": {(): len(statuses)},
        "kafka_connect_worker_task_count": {(): sum(len(s.tasks) for s in statuses)},
    }
    counts = "kafka_connect_worker_connector_{}_task_count"
    for status in statuses:
        by_status[status.name, "", status.state.lower()] = 1
        states = [task.state.lower() for task in status.tasks]
        for task in status.tasks:
            by_status[status.name, str(task.id), task.state.lower()] = 1
        samples.setdefault(counts.format("total"), {})[(status.name,)] = len(states)
        for state in ("running", "paused", "failed", "unassigned", "restarting"):
            samples.setdefault(counts.format(state), {})[(status.name,)] = states.count(state)
    return samples

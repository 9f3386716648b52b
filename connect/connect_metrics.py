"""Kafka Connect's metrics under the names Prometheus setups give them, for dashboards that exist.

Rules of this file:
- Only metrics whose meaning is Kafka's are here; what Icefloe counts otherwise has a name of its
  own. Names are those of the JMX exporter's usual rules (``kafka_connect_<group>_<attribute>``).
- Values are the node's own at the moment they are asked for; nothing is kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from connect.metrics import Kind, Sample
from connect.rest.herder_api import ConnectorStatus

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily
Values: TypeAlias = Mapping[tuple[str, ...], float]

_CONNECTOR = ("connector",)
_TASK = ("connector", "task")


@dataclass(frozen=True, slots=True)
class ConnectMetric:
    """One metric of Kafka Connect; ``name`` is as exposed, ``_total`` included.

    ``source`` is our metric with the same labels and meaning; None: from the statuses.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    source: str | None = None


CATALOGUE: tuple[ConnectMetric, ...] = (
    ConnectMetric(
        "kafka_connect_sink_task_sink_record_read_total", "counter", _TASK,
        "Records read from Kafka by this task.", "records_read",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_sink_record_send_total", "counter", _TASK,
        "Records output from the transformations and written by this task.", "records_written",
    ),
    ConnectMetric(
        "kafka_connect_sink_task_offset_commit_completion_total", "counter", _TASK,
        "Offset commits that were completed: one per announcement.", "announcements",
    ),
    ConnectMetric(
        "kafka_connect_task_error_deadletterqueue_produce_requests", "gauge", _TASK,
        "Records given to the dead letter queue.", "records_dead_lettered",
    ),
    ConnectMetric(
        "kafka_connect_connector_status", "gauge", ("connector", "task", "status"),
        "1 for the status of each task, and with an empty task of the connector.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_count", "gauge", (), "Connectors run in this worker."
    ),
    ConnectMetric("kafka_connect_worker_task_count", "gauge", (), "Tasks run in this worker."),
    ConnectMetric(
        "kafka_connect_worker_connector_total_task_count", "gauge", _CONNECTOR,
        "Tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_running_task_count", "gauge", _CONNECTOR,
        "Running tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_paused_task_count", "gauge", _CONNECTOR,
        "Paused tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_failed_task_count", "gauge", _CONNECTOR,
        "Failed tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_unassigned_task_count", "gauge", _CONNECTOR,
        "Unassigned tasks of the connector on the worker.",
    ),
    ConnectMetric(
        "kafka_connect_worker_connector_restarting_task_count", "gauge", _CONNECTOR,
        "Restarting tasks of the connector on the worker.",
    ),
)  # fmt: skip


class ConnectMetrics(Collector):
    """Metrics of a node as Kafka Connect's.

    Args:
        samples: the node's own values.
        statuses: every connector's status.
    """

    def __init__(
        self,
        samples: Callable[[], Sequence[Sample]],
        statuses: Callable[[], Sequence[ConnectorStatus]],
    ) -> None:
        self._samples = samples
        self._statuses = statuses

    def collect(self) -> Iterator[Family]:
        """Metric families for prometheus_client."""
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


def _from_statuses(statuses: Sequence[ConnectorStatus]) -> dict[str, dict[tuple[str, ...], float]]:
    shown: dict[tuple[str, ...], float] = {}
    found: dict[str, dict[tuple[str, ...], float]] = {
        "kafka_connect_connector_status": shown,
        "kafka_connect_worker_connector_count": {(): len(statuses)},
        "kafka_connect_worker_task_count": {(): sum(len(s.tasks) for s in statuses)},
    }
    counts = "kafka_connect_worker_connector_{}_task_count"
    for status in statuses:
        shown[status.name, "", status.state.lower()] = 1
        states = [task.state.lower() for task in status.tasks]
        for task in status.tasks:
            shown[status.name, str(task.id), task.state.lower()] = 1
        found.setdefault(counts.format("total"), {})[(status.name,)] = len(states)
        for state in ("running", "paused", "failed", "unassigned", "restarting"):
            found.setdefault(counts.format(state), {})[(status.name,)] = states.count(state)
    return found

"""The metrics of a node, as the REST API shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from connect.metrics.process_metrics import Exposition, gauge
from connect.node.herder.herder import Herder
from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.metrics.connect_metrics import ConnectMetrics
from connect.node.node_requests import State
from connect.state.config_store import ConfigStore


class NodeMetrics:
    """Metrics of node, worker and coordinator, those of Kafka Connect included.

    Args:
        exposition: metrics of all processes.
        connectors: statuses.
        herder: the processes of coordinators.
        store: unfinished rewinds.
    """

    def __init__(
        self,
        exposition: Exposition,
        connectors: StoredConnectors,
        herder: Herder,
        store: ConfigStore,
    ) -> None:
        exposition.also(ConnectMetrics(exposition.samples, connectors.statuses))
        self._exposition = exposition
        self._connectors = connectors
        self._herder = herder
        self._store = store

    def text(self) -> str:
        """Return all metrics of node, worker and coordinator in Prometheus' text format."""
        statuses = self._connectors.statuses()
        tasks = Counter(task.state for status in statuses for task in status.tasks)
        for state in get_args(State):
            gauge("connectors", state=state).set(sum(s.state == state for s in statuses))
            gauge("tasks", state=state).set(tasks[state])
        stored = map(self._store.get, self._store.names())
        gauge("rewinds_unfinished").set(sum(state.rewind is not None for state in stored))
        return self._exposition.text()

    def sums(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Return sums of these metrics as this node last received them, by connector and metric.

        Args:
            metrics: names in ``connect.metrics.metric_catalogue`` that have a label ``connector``;
                gauges count the units of this node.

        Returns:
            No entry for a metric that this node did not receive.
        """
        return self._exposition.sums(metrics)

    def coordinator_process(self, name: str) -> str | None:
        """Return the process of this node that runs a connector's coordinator; None if none."""
        run = self._herder.run_of(name)
        return run.coordinator.child if run is not None and run.has_coordinator else None

"""Metrics of connectors, collected from all nodes that run their units.

Rules of this file:
- A node has the metrics of its own units. It requests those of other nodes that run a connector
  which the caller may read, all at once, in bounded time. They ask no further node, nor Kafka.
- If a node does not answer, the total is null and the node is named.
- A node that did not answer is not asked again for a while, so it delays one request, not all.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from connect.clock import Clock
from connect.errors import IcefloeError
from connect.node.herder.cluster.cluster import ClusterView
from connect.node.metrics.node_metrics import NodeMetrics
from connect.node.node_requests import ReportedStatus, UnavailableError
from connect.node.rest.access import Credentials
from connect.node.rest.peers import Peers

ASK_S: Final = 2.0
ASKING_MAX: Final = 8
SILENT_MS: Final = 10_000
REASON_CHARS: Final = 300
OVERVIEW: Final = "/icefloe/v1/overview"
NOT_IN_FILES: Final = "not_in_files"
OF_TASKS: Final = {
    NOT_IN_FILES: "lag_records",
    "records_read": "records_read",
    "record_path": "record_path_records",
    "dead_letters": "records_dead_lettered",
}
OF_COORDINATOR: Final = {
    "in_files_not_committed": "records_uncommitted",
    "tables_failed": "tables_failed",
}
OF_TIME: Final = {
    "valid_through_ms": "valid_through_timestamp_seconds",
    "valid_through_age_ms": "valid_through_age_seconds",
}
FIELDS: Final = (*OF_TASKS, *OF_COORDINATOR, *OF_TIME)

PROCESS: Final = "coordinator_process"

ConnectorMetrics: TypeAlias = Mapping[str, int | None]
"""Values by the names of ``FIELDS``; None when not received."""


@dataclass(frozen=True, slots=True)
class CollectedMetrics:
    """The result of a collection.

    Attributes:
        processes: connector -> process of its coordinator, on that node; None when not received.
        missing: node -> why its metrics are missing.
    """

    by_connector: Mapping[str, ConnectorMetrics]
    processes: Mapping[str, str | None]
    missing: Mapping[str, str]


class ClusterMetrics:
    """Collects metrics from the nodes of the cluster. Thread-safe.

    Args:
        metrics: of this node.
        cluster: the nodes and their addresses.
        clock: for the time after which a silent node is asked again.
    """

    def __init__(
        self, metrics: NodeMetrics, cluster: ClusterView, peers: Peers, clock: Clock
    ) -> None:
        self._own_metrics = metrics
        self._cluster = cluster
        self._peers = peers
        self._clock = clock
        self._pool = ThreadPoolExecutor(ASKING_MAX, thread_name_prefix="figures")
        self._silent_until_ms: dict[str, int] = {}
        self._lock = threading.Lock()

    def own(self) -> dict[str, ConnectorMetrics]:
        """Return this node's metrics by connector."""
        names = {**OF_TASKS, **OF_COORDINATOR, **OF_TIME}
        received = self._own_metrics.sums(tuple(names.values()))
        return {connector: _metrics(metrics) for connector, metrics in received.items()}

    def of(
        self,
        credentials: Credentials,
        statuses: Sequence[ReportedStatus],
        *,
        is_alone: bool = False,
    ) -> CollectedMetrics:
        """Return the metrics of connectors.

        Args:
            credentials: the caller's; sent to the other nodes.
            statuses: of the connectors; they name the nodes of their units.
            is_alone: ask no other node.
        """
        own = self.own()
        processes = {s.name: self._own_metrics.coordinator_process(s.name) for s in statuses}
        if is_alone:
            metrics = {s.name: own.get(s.name, _NOTHING) for s in statuses}
            return CollectedMetrics(metrics, processes, {})
        urls = self._cluster.nodes()
        nodes = {node for status in statuses for node in _nodes(status)}
        received: dict[str, Mapping[str, ConnectorMetrics]] = {
            n: own for n in nodes if urls.get(n, "") is None
        }
        missing: dict[str, str] = {}
        answers = self._ask(credentials, {n: urls.get(n) for n in nodes if n not in received})
        for node, answer in answers.items():
            if isinstance(answer, str):
                missing[node] = answer
            else:
                received[node] = answer
        by_connector = {status.name: _together(status, received) for status in statuses}
        for status in statuses:
            answered = answers.get(status.worker_id, "")
            if not isinstance(answered, str):
                processes[status.name] = _process(answered.get(status.name, {}))
        return CollectedMetrics(by_connector, processes, dict(sorted(missing.items())))

    def _ask(
        self, credentials: Credentials, urls: Mapping[str, str | None]
    ) -> dict[str, Mapping[str, ConnectorMetrics] | str]:
        """Return each node's metrics, or why there are none."""
        answers: dict[str, Mapping[str, ConnectorMetrics] | str] = {}
        pending: dict[str, Future[Mapping[str, ConnectorMetrics]]] = {}
        for node, url in urls.items():
            if url is None:
                answers[node] = "it has left the cluster"
            elif self._is_silent(node):
                answers[node] = f"it did not answer and is asked again after {SILENT_MS // 1000} s"
            else:
                pending[node] = self._pool.submit(self._metrics_of, url, credentials)
        wait(pending.values(), timeout=ASK_S)
        for node, future in pending.items():
            if not future.done():
                if not future.cancel():  # a cancelled request was never sent
                    self._was_silent(node)
                answers[node] = f"no answer within {ASK_S:g} s"
                continue
            try:
                answers[node] = future.result()
            except UnavailableError as e:
                self._was_silent(node)
                answers[node] = e.message[:REASON_CHARS]
            except IcefloeError as e:
                answers[node] = e.message[:REASON_CHARS]
        return answers

    def _metrics_of(self, url: str, credentials: Credentials) -> Mapping[str, ConnectorMetrics]:
        url = f"{url}{OVERVIEW}?forward=false"
        answer = self._peers.ask("GET", url, credentials, timeout_s=ASK_S)
        if answer.status_code != 200:
            raise IcefloeError(f"it answered with HTTP {answer.status_code}")
        try:
            return {connector["name"]: connector for connector in answer.json()["connectors"]}
        except (ValueError, KeyError, TypeError) as e:
            raise IcefloeError("its answer is not an overview") from e

    def _is_silent(self, node: str) -> bool:
        with self._lock:
            return self._silent_until_ms.get(node, 0) > self._clock.monotonic_ms()

    def _was_silent(self, node: str) -> None:
        with self._lock:
            self._silent_until_ms[node] = self._clock.monotonic_ms() + SILENT_MS


def _metrics(received: Mapping[str, float]) -> ConnectorMetrics:
    metrics: dict[str, int | None] = dict(_NOTHING)
    for names, factor in ((OF_TASKS, 1), (OF_COORDINATOR, 1), (OF_TIME, 1000)):
        for field, metric in names.items():
            if metric in received:
                metrics[field] = int(received[metric] * factor)
    return metrics


def _process(connector: Mapping[str, Any]) -> str | None:
    """Return the process that another node names; an earlier version names none."""
    name = connector.get(PROCESS)
    return name if isinstance(name, str) else None


def _nodes(status: ReportedStatus) -> set[str]:
    return {status.worker_id, *(task.worker_id for task in status.tasks)}


def _together(
    status: ReportedStatus, received: Mapping[str, Mapping[str, ConnectorMetrics]]
) -> dict[str, int | None]:
    """Return a connector's metrics, summed over the nodes of its units."""

    def of(node: str) -> Mapping[str, Any]:
        return received.get(node, {}).get(status.name, _NOTHING)

    metrics: dict[str, int | None] = {f: of(status.worker_id).get(f) for f in _OF_ITS_COORDINATOR}
    nodes = {task.worker_id for task in status.tasks}
    for field in OF_TASKS:
        metrics[field] = (
            _sum(of(node).get(field) for node in nodes) if nodes <= set(received) else None
        )
    if all(task.state == "FAILED" for task in status.tasks):  # no task measures it
        metrics[NOT_IN_FILES] = None
    return metrics


def _sum(numbers: Iterable[int | None]) -> int | None:
    known: Collection[int] = [number for number in numbers if number is not None]
    return sum(known) if known else None


_OF_ITS_COORDINATOR: Final = (*OF_COORDINATOR, *OF_TIME)
_NOTHING: Final[ConnectorMetrics] = dict.fromkeys(FIELDS)

"""What the REST API asks of the herder.

Rules of this file:
- Methods block; the REST layer calls them on a thread. ``health``, ``connectors``, ``connector``,
  ``status`` and ``task_configs`` read memory alone and are called on its event loop.
- The REST layer has validated before it calls: configurations are checked, names can be
  addressed, shapes are right. The herder stores and returns configurations exactly as given.
- The herder speaks in values and in the few errors below; status codes and Kafka Connect's
  sentences are the REST layer's.
- A change is visible to the next read on the same node as soon as the method returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from connect.config.node.node_config import NodeConfig
from connect.errors import IcefloeError

TargetState = Literal["STARTED", "PAUSED", "STOPPED"]
State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]
View = Literal["tables", "rounds", "lag", "dead-letters", "audit", "orphan-age"]
VIEWS: tuple[View, ...] = ("tables", "rounds", "lag", "dead-letters", "audit", "orphan-age")
Offsets = Mapping[tuple[str, int], int | None]  # (topic, partition) -> next offset; None resets


class UnknownConnectorError(IcefloeError):
    """No connector of that name; HTTP 404."""

    default_code = "connector_unknown"


class UnknownTaskError(IcefloeError):
    """The connector has no such task; HTTP 404."""

    default_code = "task_unknown"


class ConflictError(IcefloeError):
    """Not in this state (exists already, not stopped, being rebalanced); HTTP 409.

    ``message`` is the answer's message as it stands.
    """

    default_code = "conflict"


class NotAllowedError(IcefloeError):
    """Asked for what cannot be done now; HTTP 400, ``message`` is the answer's message."""

    default_code = "not_allowed"


class UnavailableError(IcefloeError):
    """The node cannot answer yet or any more (starting, broker away); HTTP 503."""

    default_code = "unavailable"


@dataclass(frozen=True, slots=True)
class Health:
    """``healthy`` answers 200, the others 503."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


@dataclass(frozen=True, slots=True)
class ConnectorDefinition:
    """A connector as created. ``task_ids`` is empty until tasks exist and while stopped."""

    name: str
    config: Mapping[str, str]
    task_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """State of one task; ``trace`` begins with one line naming cause and coordinates."""

    id: int
    state: State
    worker_id: str
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class ReportedStatus:
    """State of a connector and its tasks, tasks in order of their id."""

    name: str
    state: State
    worker_id: str
    tasks: tuple[TaskStatus, ...] = ()
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What the node knows of itself when the API is built.

    Attributes:
        advertised_url: ``http://host:port``, the base of ``Location`` headers.
        kafka_version: what ``GET /`` reports; clients gate on it.
        commit: build identifier reported beside it.
        group_id: the node cluster's ``group.id``; no connector's consumer group may equal it.
    """

    advertised_url: str
    group_id: str
    kafka_version: str = "4.3.1"
    commit: str = "unknown"

    @classmethod
    def of(cls, node: NodeConfig) -> NodeInfo:
        """From the node's properties."""
        return cls(advertised_url=node.advertised.url, group_id=node.group_id)


class HerderApi(Protocol):
    """The herder as the REST API sees it."""

    def health(self) -> Health:
        """State of this node; never blocks on the broker."""
        ...

    def cluster_id(self) -> str:
        """Kafka's cluster id."""
        ...

    def connectors(self) -> Sequence[str]:
        """Names of all connectors."""
        ...

    def connector(self, name: str) -> ConnectorDefinition:
        """Info of one connector.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def status(self, name: str) -> ReportedStatus:
        """State of a connector and its tasks; PAUSED and STOPPED show at once when asked for.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def task_configs(self, name: str) -> Mapping[int, Mapping[str, str]]:
        """Task id to task configuration, as written for the tasks.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def create_connector(
        self, name: str, config: Mapping[str, str], *, initial_state: TargetState | None = None
    ) -> ConnectorDefinition:
        """Store a new connector; return what was stored, tasks not yet there.

        Raises:
            ConflictError: the name is taken, message ``Connector <name> already exists``.
        """
        ...

    def put_connector(
        self, name: str, config: Mapping[str, str]
    ) -> tuple[bool, ConnectorDefinition]:
        """Create or replace; return whether it was created, and the connector."""
        ...

    def delete_connector(self, name: str) -> None:
        """Forget the connector and stop its tasks.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def set_target_state(self, name: str, state: TargetState) -> None:
        """Pause, resume (STARTED) or stop.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def restart_connector(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> ReportedStatus:
        """Restart what the flags choose; return the status with the chosen ones RESTARTING.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def restart_task(self, name: str, task: int) -> None:
        """Restart one task.

        Raises:
            UnknownConnectorError: no such connector.
            UnknownTaskError: no such task.
        """
        ...

    def active_topics(self, name: str) -> Sequence[str]:
        """Topics read since creation or the last reset; empty for an unknown connector."""
        ...

    def reset_active_topics(self, name: str) -> None:
        """Empty the set of active topics; nothing happens for an unknown connector."""
        ...

    def offsets(self, name: str) -> Offsets:
        """Committed source offsets of the connector's group.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def alter_offsets(self, name: str, offsets: Offsets) -> None:
        """Move committed source offsets; the connector must be STOPPED with no task left.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: not stopped, or the consumer group is in use.
        """
        ...

    def reset_offsets(self, name: str) -> None:
        """Forget all committed source offsets; the connector must be STOPPED.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: not stopped, or the consumer group is in use.
        """
        ...

    def publish_log_level(self, namespace: str, level: str) -> None:
        """Set a logger's level on every node, this one included (``scope=cluster``)."""
        ...

    def metrics_text(self) -> str:
        """All metrics of node, worker and coordinator in Prometheus' text format."""
        ...

    def measurements(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Sums of these metrics as this node heard them last, by connector and metric.

        Args:
            metrics: names in ``connect.metrics.metric_catalogue`` that have a label ``connector``;
                gauges are of what runs on this node.

        Returns:
            No entry where nothing was heard.
        """
        ...

    def extension(self, name: str, what: View) -> Mapping[str, Any]:
        """Icefloe's own view of a connector.

        Args:
            name: connector.
            what: which one.

        Returns:
            A JSON object.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def decide_table(
        self, name: str, table: str, action: Literal["retry", "skip"]
    ) -> Mapping[str, Any]:
        """The operator's word on a table that cannot be committed.

        Args:
            name: connector.
            table: as ``extension(name, "tables")`` names it.
            action: ``retry`` tries again now; ``skip`` gives up the announcements that wait.

        Returns:
            A JSON object: what was given up, file by file, and what waits on.

        Raises:
            UnknownConnectorError: no such connector.
            ConflictError: nothing of the table waits, or it is being tried at this moment.
            UnavailableError: the coordinator did not answer.
        """
        ...

    def rebase(self, name: str, tables: Sequence[str], *, is_applied: bool) -> Mapping[str, Any]:
        """Say, or do, what lets a stopped connector go on without what its control log lost.

        Args:
            name: connector.
            tables: to look at besides those its configuration names.
            is_applied: False only says.

        Returns:
            A JSON object: control offsets, sentences on what is given up, what each table is.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: it is not stopped.
            UnavailableError: broker or coordinator did not answer.
        """
        ...

    def reset_valid_through(
        self, name: str, tables: Sequence[str], reason: str, *, is_applied: bool
    ) -> Mapping[str, Any]:
        """Show, or take back, what a stopped connector claimed of its valid-through time.

        Args:
            name: connector.
            tables: to look at besides those its configuration names.
            reason: kept in the snapshot that takes a claim back.
            is_applied: False only shows.

        Returns:
            A JSON object: what each table claims, and the snapshot that takes it back.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: it is not stopped.
            UnavailableError: broker or coordinator did not answer.
        """
        ...

    def where(self, what: Literal["leader", "coordinator"], name: str | None) -> str | None:
        """Which other node has to answer.

        Args:
            what: the leader, or the node that runs a connector's coordinator.
            name: connector.

        Returns:
            Its base URL; None when this node answers.

        Raises:
            ConflictError: the cluster has no leader at this moment.
            UnavailableError: the node is starting, or the other one is not known.
        """
        ...

    def position(self) -> int:
        """How far this node has read what is stored."""
        ...

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until this node has read so far; whether it was in time."""
        ...

    def nodes(self) -> Mapping[str, str | None]:
        """Base URL of each node of the cluster by its worker id; None for this node."""
        ...

    def cluster(self) -> Mapping[str, Any]:
        """Nodes of the cluster, leader and placements, as a JSON object."""
        ...

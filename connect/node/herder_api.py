"""The interface between the REST API and the herder.

Rules of this file:
- Methods block; the REST layer calls them on a thread. ``health``, ``connectors``, ``connector``,
  ``status`` and ``task_configs`` read memory alone; it calls these on its event loop.
- The REST layer validates configurations, names and bodies before it calls. The herder stores and
  returns configurations exactly as sent.
- The herder returns values and raises the errors below. Status codes and Kafka Connect's messages
  belong to the REST layer.
- A change is visible to the next read on the same node as soon as the method returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from connect.config.node.node_config import NodeConfig
from connect.errors import IcefloeError
from connect.protocol.offset_plan import OffsetTarget, PartitionMove

TargetState = Literal["STARTED", "PAUSED", "STOPPED"]
State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING", "COMPLETED"]
View = Literal["tables", "rounds", "lag", "dead-letters", "audit", "orphan-age", "maintenance"]
Offsets = Mapping[tuple[str, int], int | None]  # (topic, partition) -> next offset; None resets


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """Moves of source offsets that were not made.

    Attributes:
        moves: one for each partition.
        is_stopped: whether the connector is STOPPED, so that the offsets can be changed.
        is_row_level: whether its records replace rows by key.
        is_rewindable: whether ``icefloe rewind`` can take its tables back.
    """

    moves: Sequence[PartitionMove]
    is_stopped: bool
    is_row_level: bool
    is_rewindable: bool = True


class UnknownConnectorError(IcefloeError):
    """No connector of that name; HTTP 404."""

    default_code = "connector_unknown"


class UnknownTaskError(IcefloeError):
    """The connector has no such task; HTTP 404."""

    default_code = "task_unknown"


class ConflictError(IcefloeError):
    """Not in this state (exists already, not stopped, being rebalanced); HTTP 409.

    ``message`` is the message of the answer.
    """

    default_code = "conflict"


class NotAllowedError(IcefloeError):
    """The request cannot be done now; HTTP 400, ``message`` is the message of the answer."""

    default_code = "not_allowed"


class UnavailableError(IcefloeError):
    """The node cannot answer now (starting, broker not reachable); HTTP 503."""

    default_code = "unavailable"


@dataclass(frozen=True, slots=True)
class Health:
    """``healthy`` answers 200, the others 503."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


@dataclass(frozen=True, slots=True)
class ProbeState:
    """What the probes of a container platform may know of a node.

    Attributes:
        failure: why the node cannot recover without a restart; None while it can.
        waits: why it takes no work now; empty when it is ready.
    """

    failure: str | None = None
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectorDefinition:
    """A connector as created. ``task_ids`` is empty until tasks exist and while stopped."""

    name: str
    config: Mapping[str, str]
    task_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """State of one task; ``trace`` begins with one line naming cause and coordinates.

    ``runs_in`` is the task with a lower id that does its work; None if it is run on its own.
    """

    id: int
    state: State
    worker_id: str
    trace: str | None = None
    runs_in: int | None = None


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
    """Facts of the node that the API returns.

    Attributes:
        advertised_url: ``http://host:port``, the base of ``Location`` headers.
        kafka_version: version in the answer of ``GET /``; clients check it.
        commit: build identifier in the same answer.
        group_id: the node cluster's ``group.id``; no connector's consumer group may equal it.
    """

    advertised_url: str
    group_id: str
    kafka_version: str = "4.3.1"
    commit: str = "unknown"

    @classmethod
    def of(cls, node: NodeConfig) -> NodeInfo:
        """Return the facts of a node with these properties."""
        return cls(advertised_url=node.advertised.url, group_id=node.group_id)


class OffsetsApi(Protocol):
    """Source offsets of a connector; see ``HerderApi``."""

    def offsets(self, name: str) -> Offsets:
        """Return the committed source offsets of the connector's group.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def plan_offsets(self, name: str, target: OffsetTarget) -> OffsetPlan:
        """Return where the source offsets of a connector would be moved; changes nothing.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: the target does not fit the connector.
            ConflictError: a rewind was begun and is not finished.
        """
        ...

    def alter_offsets(self, name: str, offsets: Offsets) -> None:
        """Change committed source offsets; the connector must be STOPPED without any task.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: not stopped, or the consumer group is in use.
        """
        ...

    def reset_offsets(self, name: str) -> None:
        """Reset all committed source offsets; the connector must be STOPPED.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: not stopped, or the consumer group is in use.
        """
        ...


class StoppedConnectorsApi(Protocol):
    """What an operator changes while a connector is stopped, besides its source offsets."""

    def rebase(self, name: str, tables: Sequence[str], *, is_applied: bool) -> Mapping[str, Any]:
        """Show, or apply, the changes that let a connector continue after lost control events.

        Args:
            name: connector, which must be stopped.
            tables: tables to check in addition to those of its configuration.
            is_applied: False only shows the changes.

        Returns:
            A JSON object: control offsets, sentences on what is given up, state of each table.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: it is not stopped.
            UnavailableError: broker or coordinator did not answer.
        """
        ...

    def reset_valid_through(
        self, name: str, tables: Sequence[str], reason: str, *, is_applied: bool
    ) -> Mapping[str, Any]:
        """Show, or withdraw, the valid-through time that a stopped connector claimed.

        Args:
            name: connector.
            tables: tables to check in addition to those of its configuration.
            reason: stored in the snapshot that withdraws a claim.
            is_applied: False only shows the claims.

        Returns:
            A JSON object: the claim of each table, and the snapshot that withdraws it.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: it is not stopped.
            UnavailableError: broker or coordinator did not answer.
        """
        ...

    def rewind(self, name: str, to: Mapping[str, Any], *, is_applied: bool) -> Mapping[str, Any]:
        """Show, or apply, the way back to an earlier commit of a connector.

        Args:
            name: connector; applying needs it stopped.
            to: ``timestamp_ms``, ``snapshot_id``, ``offsets``, ``beginning``, ``tables``,
                ``accept``, ``cancel`` and ``replace``, all of them. Without a place to go back to,
                a rewind that was begun is finished, or cancelled.
            is_applied: False only shows the changes.

        Returns:
            A JSON object: the commit, tables, source offsets, problems and results.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: it is not stopped, or there is no such commit.
            ConflictError: another rewind was begun and is not finished.
            UnavailableError: broker, catalog or coordinator did not answer; a rewind that was begun
                stays begun.
        """
        ...


class MaintenanceApi(Protocol):
    """The part of the herder that maintains tables."""

    def request_maintenance(self, name: str, *, is_run: bool) -> Mapping[str, Any]:
        """Run the maintenance of a connector's tables now, or stop it until the next request.

        Args:
            name: connector.
            is_run: False stops it, on this node until its next start.

        Returns:
            The view ``maintenance`` as it was at the request.

        Raises:
            UnknownConnectorError: no such connector.
            ConflictError: the connector does not run, enables no maintenance, or the node's
                properties do not allow it.
        """
        ...


class HerderApi(OffsetsApi, StoppedConnectorsApi, MaintenanceApi, Protocol):
    """The herder, as the REST API uses it."""

    def health(self) -> Health:
        """Return the health of this node; never waits for the broker."""
        ...

    def cluster_id(self) -> str:
        """Return Kafka's cluster id."""
        ...

    def connectors(self) -> Sequence[str]:
        """Return the names of all connectors."""
        ...

    def connector(self, name: str) -> ConnectorDefinition:
        """Return the definition of one connector.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def status(self, name: str) -> ReportedStatus:
        """Return the state of a connector and its tasks; PAUSED and STOPPED show at once.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def task_configs(self, name: str) -> Mapping[int, Mapping[str, str]]:
        """Return the stored task configurations by task id.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def create_connector(
        self, name: str, config: Mapping[str, str], *, initial_state: TargetState | None = None
    ) -> ConnectorDefinition:
        """Store a new connector; return its definition, without tasks.

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
        """Delete the connector and stop its tasks.

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
        """Restart the units that the flags select; return the status with those RESTARTING.

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
        """Return the topics read since creation or the last reset; none if it is unknown."""
        ...

    def reset_active_topics(self, name: str) -> None:
        """Remove all active topics; does nothing for an unknown connector."""
        ...

    def publish_log_level(self, namespace: str, level: str) -> None:
        """Set a logger's level on every node, this one included (``scope=cluster``)."""
        ...

    def metrics_text(self) -> str:
        """Return all metrics of node, worker and coordinator in Prometheus' text format."""
        ...

    def metric_sums(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Return sums of these metrics as this node last received them, by connector and metric.

        Args:
            metrics: names in ``connect.metrics.metric_catalogue`` that have a label ``connector``;
                gauges count the units of this node.

        Returns:
            No entry for a metric that this node did not receive.
        """
        ...

    def coordinator_process(self, name: str) -> str | None:
        """Return the process of this node that runs a connector's coordinator; None if none does.

        Args:
            name: of the connector.
        """
        ...

    def connector_view(self, name: str, view: View) -> Mapping[str, Any]:
        """Return one of Icefloe's own views of a connector.

        Args:
            name: connector.
            view: which one.

        Returns:
            A JSON object.

        Raises:
            UnknownConnectorError: no such connector.
        """
        ...

    def decide_table(
        self, name: str, table: str, action: Literal["retry", "skip"]
    ) -> Mapping[str, Any]:
        """Retry or skip the failed commits of a table.

        Args:
            name: connector.
            table: as ``extension(name, "tables")`` names it.
            action: ``retry`` commits again now; ``skip`` gives up the waiting announcements.

        Returns:
            A JSON object: the files that were given up, and those that still wait.

        Raises:
            UnknownConnectorError: no such connector.
            ConflictError: the table has no failed commit, or is being committed now.
            UnavailableError: the coordinator did not answer.
        """
        ...

    def node_to_ask(self, role: Literal["leader", "coordinator"], name: str | None) -> str | None:
        """Return the other node that has to answer.

        Args:
            role: the leader, or the node that runs a connector's coordinator.
            name: connector.

        Returns:
            Its base URL; None when this node answers.

        Raises:
            ConflictError: the cluster has no leader now.
            UnavailableError: the node is starting, or the other one is not known.
        """
        ...

    def position(self) -> int:
        """Return the offset up to which this node has read the config topic."""
        ...

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until this node has read up to an offset; return whether it did in time."""
        ...

    def nodes(self) -> Mapping[str, str | None]:
        """Return the base URL of each node by its worker id; None for this node."""
        ...

    def cluster(self) -> Mapping[str, Any]:
        """Return nodes, leader and placements of the cluster as a JSON object."""
        ...

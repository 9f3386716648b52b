"""What the requests to a node take, return and raise.

Rules of this file:
- Status codes and Kafka Connect's messages belong to the REST layer (``connect.node.rest``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.protocol.offset_plan import PartitionMove

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


@contextmanager
def reachable() -> Iterator[None]:
    """Map refusals of the broker, and its absence, to errors of the API."""
    try:
        yield
    except ConfigError as e:
        raise NotAllowedError(e.message, code=e.code) from e
    except RetriableError as e:
        if e.code == "group_in_use":  # the caller can correct it
            raise NotAllowedError(e.message, code=e.code) from e
        raise UnavailableError(e.message, code=e.code) from e


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

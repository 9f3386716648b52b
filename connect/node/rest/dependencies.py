"""FastAPI dependencies of the path operations.

Rules of this file:
- Dependencies are ``async`` and read the application's state alone: a plain function would run on
  a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, cast

from fastapi import Depends, Path, Request
from pydantic import BeforeValidator

from connect.node.herder.cluster.cluster import ClusterView
from connect.node.herder.requests.stopped_connectors import StoppedConnectors
from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.herder.requests.views import TableDecisions, Views
from connect.node.metrics.node_metrics import NodeMetrics
from connect.node.node_requests import NodeInfo, ProbeState
from connect.node.rest.access import CALLER, Credentials, credentials_of
from connect.node.rest.auth import Caller
from connect.node.rest.cluster_metrics import ClusterMetrics
from connect.node.rest.config_validation import ConfigValidator
from connect.node.rest.log_levels import LogLevels
from connect.operations.connector_operations import ConnectorOperations
from connect.state.config_store import ConfigStore
from connect.validation.plugins import Plugins


@dataclass(frozen=True, slots=True)
class RequestHandlers:
    """The parts of a node that do what path operations request.

    Attributes:
        stopped: changes of stopped connectors.
        views: Icefloe's own views of connectors.
        decisions: about the tables of running connectors.
        cluster: nodes, leader and placements.
        metrics: of this node.
        store: how far this node has read the config topic.
    """

    connectors: StoredConnectors
    stopped: StoppedConnectors
    views: Views
    decisions: TableDecisions
    cluster: ClusterView
    metrics: NodeMetrics
    store: ConfigStore


@dataclass(frozen=True, slots=True)
class Services:
    """The objects that path operations use; one of each per application.

    Attributes:
        handlers: the parts of the node.
        node: facts of the node.
        plugins: plugins that configurations may name.
        cluster_metrics: metrics of connectors, from all nodes.
        operations: on connectors, with clients of their own.
        probe: the state that probes report.
        is_tracking_topics: whether active topics are kept.
        is_topic_reset_allowed: whether they may be reset.
    """

    handlers: RequestHandlers
    node: NodeInfo
    plugins: Plugins
    validator: ConfigValidator
    log_levels: LogLevels
    cluster_metrics: ClusterMetrics
    operations: ConnectorOperations
    probe: Callable[[], ProbeState]
    is_tracking_topics: bool = True
    is_topic_reset_allowed: bool = True


async def services(request: Request) -> Services:
    """Return the objects of the application."""
    return cast("Services", request.app.state.services)


async def connectors(request: Request) -> StoredConnectors:
    """Return what does requests about stored connectors."""
    return cast("Services", request.app.state.services).handlers.connectors


async def stopped(request: Request) -> StoppedConnectors:
    """Return what does requests that need a stopped connector."""
    return cast("Services", request.app.state.services).handlers.stopped


@dataclass(frozen=True, slots=True)
class ReadableConnectors:
    """The connectors that the caller may read.

    Attributes:
        services: the objects of the application.
    """

    names: list[str]
    services: Services


async def readable(request: Request) -> ReadableConnectors:
    """Return the connectors that the caller may read; one dependency takes less than two."""
    of_application = cast("Services", request.app.state.services)
    admitted = cast("Caller", request.scope[CALLER])
    stored = of_application.handlers.connectors.names()
    names = [name for name in stored if admitted.may("read", name)]
    return ReadableConnectors(names, of_application)


async def caller(request: Request) -> Caller:
    """Return the caller that the path operation's rule has admitted."""
    return cast("Caller", request.scope[CALLER])


async def credentials(request: Request) -> Credentials:
    """Return the caller's credentials for requests to other nodes."""
    return credentials_of(request)


def _java_boolean(value: Any) -> Any:
    return value.lower() == "true" if isinstance(value, str) else value


ServicesDep: TypeAlias = Annotated[Services, Depends(services)]
ConnectorsDep: TypeAlias = Annotated[StoredConnectors, Depends(connectors)]
StoppedDep: TypeAlias = Annotated[StoppedConnectors, Depends(stopped)]
CallerDep: TypeAlias = Annotated[Caller, Depends(caller)]
ReadableDep: TypeAlias = Annotated[ReadableConnectors, Depends(readable)]
CredentialsDep: TypeAlias = Annotated[Credentials, Depends(credentials)]
ConnectorName: TypeAlias = Annotated[str, Path(min_length=1)]
JavaFlag: TypeAlias = Annotated[bool, BeforeValidator(_java_boolean)]
"""A boolean query parameter as Java reads it: ``true`` in any case, else false."""

"""The REST API; ``docs/reference/rest-differences.md`` lists what differs from Kafka's."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from connect.clock import SystemClock
from connect.config.node.node_config import NodeConfig
from connect.config.reserved_topics import node_topics
from connect.node.node_requests import NodeInfo, ProbeState
from connect.node.rest import (
    connectors,
    control,
    node_info,
    operations,
    overview,
    status_page,
)
from connect.node.rest import plugins as plugin_list
from connect.node.rest.api_errors import add_error_handlers
from connect.node.rest.auth import Users
from connect.node.rest.cluster_metrics import ClusterMetrics
from connect.node.rest.config_validation import ConfigValidator, NodeFacts
from connect.node.rest.dependencies import RequestHandlers, Services
from connect.node.rest.forwarding import Forwarding
from connect.node.rest.http_middleware import CrossOrigin, HttpMiddleware
from connect.node.rest.limits import CallerTurns, SignIn
from connect.node.rest.log_levels import LogLevels
from connect.node.rest.peers import Peers
from connect.operations.connector_operations import NODE_LIMITS, ConnectorOperations
from connect.validation.plugins import BUILT_IN, Plugins
from connect.validation.preflight.preflight import Preflight

ROUTERS: Final[tuple[APIRouter, ...]] = (
    connectors.router,
    connectors.offsets_router,
    plugin_list.router,
    node_info.loggers_router,
    node_info.router,
    overview.router,
    control.router,
    operations.router,
    status_page.router,
)


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The node properties that configure the API.

    Attributes:
        cross_origin: origins of browsers that may call.
        is_tracking_topics: keep active topics.
        is_topic_reset_allowed: allow the reset of active topics.
        has_admin: serve ``/admin``.
        reserved_topics: topics that no connector may read or send dead letters to, without the
            control topics of connectors.
        properties: all properties of the node, placeholders unresolved.
        remote_s: time limit for requests to brokers and catalogs in a validation; 0 makes none.
        node_certificates: common names of the nodes' certificates; nodes may name their callers'.
    """

    cross_origin: CrossOrigin = field(default_factory=CrossOrigin)
    is_tracking_topics: bool = True
    is_topic_reset_allowed: bool = True
    has_admin: bool = True
    reserved_topics: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)
    remote_s: float = 0.0
    node_certificates: frozenset[str] = frozenset()

    @classmethod
    def of(cls, node: NodeConfig) -> ApiSettings:
        """Return the settings of a node."""
        v = node.values
        return cls(
            cross_origin=CrossOrigin.of(
                v["access.control.allow.origin"], v["access.control.allow.methods"]
            ),
            is_tracking_topics=v["topic.tracking.enable"],
            is_topic_reset_allowed=v["topic.tracking.allow.reset"],
            has_admin=v["admin.listeners"] != [],
            reserved_topics=node_topics(node.properties),
            properties=node.properties,
            remote_s=v["icefloe.validate.remote.ms"] / 1000,
            node_certificates=frozenset(v["icefloe.rest.node.certificates"]),
        )


class Api(FastAPI):
    """The application; its OpenAPI document describes exactly what it does."""

    def __init__(self) -> None:
        super().__init__(
            title="Icefloe",
            version=version("icefloe"),
            description="Kafka Connect's REST API for sinks, and Icefloe's own below /icefloe/v1.",
            docs_url=None,
            redoc_url=None,
            openapi_url=None,  # a path operation serves it, to authenticated callers only
            redirect_slashes=False,
            # spans and logs would hold bodies and traces, with secrets in them
            telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
            generate_unique_id_function=lambda route: route.name,
        )

    def openapi(self) -> dict[str, Any]:
        """Return the document without 422: FastAPI adds it, but the API never returns it."""
        if self.openapi_schema is None:
            document = super().openapi()
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(name, None)
        return super().openapi()

    def methods_of(self, path: str) -> set[str]:
        """Return the methods of all path operations that match a decoded path."""
        methods: set[str] = set()
        for route in self.routes:
            if isinstance(route, APIRoute) and route.path_regex.match(path):
                methods |= route.methods or set()
        return methods


def create_app(
    handlers: RequestHandlers,
    node: NodeInfo,
    log_levels: LogLevels,
    *,
    plugins: Plugins = BUILT_IN,
    resolve: Callable[[str], str] | None = None,
    settings: ApiSettings | None = None,
    users: Users | None = None,
    peers: ssl.SSLContext | None = None,
    connector_operations: ConnectorOperations | None = None,
    probe: Callable[[], ProbeState] = ProbeState,
) -> Api:
    """Build the application.

    Args:
        handlers: the parts of the node that do what is requested.
        node: facts of the node.
        log_levels: the process's loggers; the node sets them too, for ``scope=cluster``.
        plugins: plugins that configurations may name.
        resolve: resolves placeholders, for validation only.
        settings: CORS, topic tracking, admin endpoints.
        users: users and their grants; None disables authentication.
        peers: TLS towards other nodes of the cluster.
        connector_operations: on connectors, with clients of their own; None: without
            placeholders.
        probe: the state that probes report.

    Returns:
        An ASGI application.
    """
    chosen = settings or ApiSettings()
    others = Peers(peers, may_name=bool(chosen.node_certificates))
    validator = _validator(handlers, node, plugins, resolve or str, chosen)
    app = Api()
    app.state.services = Services(
        handlers,
        node,
        plugins,
        validator,
        log_levels,
        ClusterMetrics(handlers.metrics, handlers.cluster, others, SystemClock()),
        connector_operations
        or ConnectorOperations(chosen.properties, {}, SystemClock(), NODE_LIMITS),
        probe,
        is_tracking_topics=chosen.is_tracking_topics,
        is_topic_reset_allowed=chosen.is_topic_reset_allowed,
    )
    app.state.sign_in = None if users is None else SignIn(users, SystemClock())
    app.state.turns = CallerTurns()
    app.state.node_certificates = chosen.node_certificates
    app.state.forwarding = Forwarding(handlers.connectors, handlers.cluster, handlers.store, others)
    add_error_handlers(app)
    for router in ROUTERS:
        if router is not node_info.loggers_router or chosen.has_admin:
            # not include_router: FastAPI then matches every route twice, 40 us a request
            app.router.routes.extend(router.routes)
    hosts = frozenset({urlsplit(node.advertised_url).hostname or ""}) if users is None else None

    def middleware(inner: ASGIApp) -> HttpMiddleware:
        return HttpMiddleware(inner, app.methods_of, chosen.cross_origin, hosts)

    app.add_middleware(middleware)
    return app


def _validator(
    handlers: RequestHandlers,
    node: NodeInfo,
    plugins: Plugins,
    resolve: Callable[[str], str],
    settings: ApiSettings,
) -> ConfigValidator:
    """Return the validator of configurations, with or without requests to other systems."""
    facts = NodeFacts(
        node.group_id,
        resolve,
        reserved_topics=settings.reserved_topics,
        properties=settings.properties,
    )
    preflight = None
    if settings.remote_s:
        preflight = Preflight(
            settings.properties,
            resolve,
            whole_s=settings.remote_s,
            excluded=settings.reserved_topics,
            clock=SystemClock(),
        )
    return ConfigValidator(handlers.connectors, plugins, facts, preflight)

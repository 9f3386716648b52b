"""The REST API put together; see ``docs/rest-differences.md`` for what differs from Kafka's."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Literal
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from connect.clock import SystemClock
from connect.config.node import NodeConfig
from connect.config.plugins import BUILT_IN, Plugins
from connect.config.reserved_topics import node_topics
from connect.preflight.preflight import Preflight
from connect.rest.auth import Users
from connect.rest.bodies import as_object
from connect.rest.connectors import Connectors
from connect.rest.described import openapi
from connect.rest.errors import ApiError, not_found
from connect.rest.figures import ClusterFigures
from connect.rest.forwarding import Forwarding
from connect.rest.gate import CrossOrigin, Gate, error_body
from connect.rest.herder_api import VIEWS, HerderApi, NodeInfo, View
from connect.rest.judging import Judge, NodeFacts
from connect.rest.limits import CallerTurns, SignIn
from connect.rest.loggers import Loggers, LogLevels
from connect.rest.offsets import Offsets
from connect.rest.overview import Overview
from connect.rest.peers import Peers
from connect.rest.plugins import PluginList
from connect.rest.routes import (
    JSON_TYPE,
    Answer,
    Call,
    Endpoint,
    add_route,
    always,
    methods_of,
    refused,
)
from connect.rest.status_page import StatusPage
from connect.secret_values import KNOWN

REASON_CHARACTERS_MAX = 500
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What the node's properties say about the API.

    Attributes:
        cross_origin: browsers' origins that may call.
        is_tracking_topics: keep active topics.
        is_topic_reset_allowed: allow them to be emptied.
        has_admin: serve ``/admin``.
        reserved_topics: topics that no connector may read or send dead letters to, connectors'
            control topics aside.
        properties: all of the node's, placeholders unresolved.
        remote_s: how long validating may ask brokers and catalogs; 0 asks nobody.
        node_certificates: common names of the nodes' own; they may name their callers'.
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
        """From the node's properties."""
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


class _Node:
    """Endpoints about the node and the cluster."""

    def __init__(self, herder: HerderApi, node: NodeInfo) -> None:
        self._herder = herder
        self._node = node

    def root(self, call: Call) -> Answer:
        del call
        return Answer(
            200,
            {
                "version": self._node.kafka_version,
                "commit": self._node.commit,
                "kafka_cluster_id": self._herder.cluster_id(),
            },
        )

    def health(self, call: Call) -> Answer:
        del call
        found = self._herder.health()
        status = 200 if found.status == "healthy" else 503
        return Answer(status, {"status": found.status, "message": found.message})

    def metrics(self, call: Call) -> Answer:
        del call
        return Answer(200, text=self._herder.metrics_text(), content_type=METRICS_TYPE)

    def cluster(self, call: Call) -> Answer:
        del call
        return Answer(200, dict(self._herder.cluster()))

    def openapi(self, call: Call) -> Answer:
        del call
        return Answer(200, openapi(version("icefloe")))

    def view(self, what: View) -> Endpoint:
        """``GET /icefloe/v1/connectors/<name>/<what>``."""

        def show(call: Call) -> Answer:
            with not_found(call.path["name"]):
                found = self._herder.extension(call.path["name"], what)
                return Answer(200, KNOWN.masked(found))

        return show

    def decide(self, action: Literal["retry", "skip"]) -> Endpoint:
        """``POST /icefloe/v1/connectors/<name>/tables/<table>/<action>``."""

        def act(call: Call) -> Answer:
            name, table = call.path["name"], call.path["table"]
            with not_found(name):
                return Answer(200, KNOWN.masked(self._herder.decide_table(name, table, action)))

        return act

    def rebase(self, call: Call) -> Answer:
        """``POST /icefloe/v1/connectors/<name>/control/rebase``."""
        name = call.path["name"]
        body = as_object(call.json(), "the request", ("apply", "tables"))
        tables, is_applied = body.get("tables", []), body.get("apply", False)
        if not isinstance(tables, list) or not all(type(t) is str for t in tables):
            raise ApiError(400, '"tables" must be a list of names')
        if type(is_applied) is not bool:
            raise ApiError(400, '"apply" must be true or false')
        with not_found(name):
            found = self._herder.rebase(name, tables, is_applied=is_applied)
            return Answer(200, KNOWN.masked(found))

    def reset_valid_through(self, call: Call) -> Answer:
        """``POST /icefloe/v1/connectors/<name>/control/vtts/reset``."""
        name = call.path["name"]
        body = as_object(call.json(), "the request", ("apply", "tables", "reason"))
        tables, is_applied = body.get("tables", []), body.get("apply", False)
        reason = body.get("reason")
        if not isinstance(tables, list) or not all(type(t) is str for t in tables):
            raise ApiError(400, '"tables" must be a list of names')
        if type(is_applied) is not bool:
            raise ApiError(400, '"apply" must be true or false')
        is_text = isinstance(reason, str) and reason.isprintable() and reason.strip()
        if not is_text or len(str(reason)) > REASON_CHARACTERS_MAX:
            raise ApiError(
                400, f'"reason" must be one line of at most {REASON_CHARACTERS_MAX} characters'
            )
        with not_found(name):
            found = self._herder.reset_valid_through(
                name, tables, str(reason), is_applied=is_applied
            )
            return Answer(200, KNOWN.masked(found))


def create_app(
    herder: HerderApi,
    node: NodeInfo,
    log_levels: LogLevels,
    *,
    plugins: Plugins = BUILT_IN,
    resolve: Callable[[str], str] | None = None,
    settings: ApiSettings | None = None,
    users: Users | None = None,
    peers: ssl.SSLContext | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        herder: what the API acts on.
        node: what the node says of itself.
        log_levels: the process's loggers; the herder sets them too, for ``scope=cluster``.
        plugins: what configurations may name.
        resolve: turns placeholders into values, for judging configurations only.
        settings: CORS, topic tracking, admin endpoints.
        users: who may do what; None lets everybody do everything.
        peers: TLS towards other nodes of the cluster.

    Returns:
        An ASGI application.
    """
    chosen = settings or ApiSettings()
    app = FastAPI(title="Icefloe", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    if users is not None:
        app.state.sign_in = SignIn(users, SystemClock())
    app.state.turns = CallerTurns()
    app.state.node_certificates = chosen.node_certificates
    others = Peers(peers, may_name=bool(chosen.node_certificates))
    app.state.around = Forwarding(herder, others).around
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    judge = _judge(herder, node, plugins, resolve or str, chosen)
    connectors = Connectors(herder, node, plugins, judge)
    _add_connectors(app, connectors)
    offsets = Offsets(
        herder,
        is_tracking=chosen.is_tracking_topics,
        is_reset_allowed=chosen.is_topic_reset_allowed,
    )
    one = "/connectors/{name}"
    add_route(app, "GET", f"{one}/offsets", offsets.read)
    add_route(app, "PATCH", f"{one}/offsets", offsets.alter)
    add_route(app, "DELETE", f"{one}/offsets", offsets.reset)
    add_route(app, "GET", f"{one}/topics", offsets.topics)
    add_route(app, "PUT", f"{one}/topics/reset", offsets.reset_topics)
    listed = PluginList(plugins, judge)
    add_route(app, "GET", "/connector-plugins", listed.list)
    add_route(app, "GET", "/connector-plugins/{plugin}/config", listed.keys)
    add_route(app, "PUT", "/connector-plugins/{plugin}/config/validate", listed.validate)
    if chosen.has_admin:
        loggers = Loggers(log_levels, herder)
        add_route(app, "GET", "/admin/loggers", loggers.list)
        add_route(app, "GET", "/admin/loggers/{logger}", loggers.read)
        add_route(app, "PUT", "/admin/loggers/{logger}", loggers.set)
    itself = _Node(herder, node)
    add_route(app, "GET", "/", itself.root)
    add_route(app, "GET", "/health", itself.health, is_quick=always)
    add_route(app, "GET", "/metrics", itself.metrics)
    add_route(app, "GET", "/icefloe/v1/openapi.json", itself.openapi)
    add_route(app, "GET", "/icefloe/v1/cluster", itself.cluster)
    overview = Overview(herder, ClusterFigures(herder, others, SystemClock()))
    add_route(app, "GET", "/icefloe/v1/overview", overview.show)
    _add_page(app, StatusPage())
    own = "/icefloe/v1/connectors/{name}"
    for view in VIEWS:
        is_counted = view == "dead-letters"
        show = overview.dead_letters if is_counted else itself.view(view)
        add_route(app, "GET", f"{own}/{view}", show)
    _add_decisions(app, own, itself)

    hosts = frozenset({urlsplit(node.advertised_url).hostname or ""}) if users is None else None

    def gate(inner: ASGIApp) -> Gate:
        return Gate(inner, _methods(app), chosen.cross_origin, hosts)

    app.add_middleware(gate)
    return app


def _add_decisions(app: FastAPI, own: str, itself: _Node) -> None:
    """What only an operator decides."""
    add_route(app, "POST", own + "/tables/{table}/retry", itself.decide("retry"))
    add_route(app, "POST", own + "/tables/{table}/skip", itself.decide("skip"))
    add_route(app, "POST", own + "/control/rebase", itself.rebase)
    add_route(app, "POST", own + "/control/vtts/reset", itself.reset_valid_through)


def _judge(
    herder: HerderApi,
    node: NodeInfo,
    plugins: Plugins,
    resolve: Callable[[str], str],
    settings: ApiSettings,
) -> Judge:
    """Who judges configurations, with or without questions to brokers and catalogs."""
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
    return Judge(herder, plugins, facts, preflight)


def _methods(app: FastAPI) -> Callable[[str], Iterable[str]]:
    return lambda path: methods_of(app.router.routes, path)


def _is_short(call: Call) -> bool:
    """A list of names; with what is behind each name it may be long."""
    return not call.query


def _add_page(app: FastAPI, page: StatusPage) -> None:
    add_route(app, "GET", "/ui", page.page)
    add_route(app, "GET", "/ui/{file}", page.file)


def _add_connectors(app: FastAPI, connectors: Connectors) -> None:
    one = "/connectors/{name}"
    task = one + "/tasks/{task}"
    add_route(app, "GET", "/connectors", connectors.list, is_quick=_is_short)
    add_route(app, "POST", "/connectors", connectors.create)
    add_route(app, "GET", one, connectors.read, is_quick=always)
    add_route(app, "DELETE", one, connectors.delete)
    add_route(app, "GET", f"{one}/config", connectors.config, is_quick=always)
    add_route(app, "PUT", f"{one}/config", connectors.put_config)
    add_route(app, "PATCH", f"{one}/config", connectors.patch_config)
    add_route(app, "GET", f"{one}/status", connectors.status, is_quick=always)
    add_route(app, "PUT", f"{one}/pause", connectors.pause)
    add_route(app, "PUT", f"{one}/resume", connectors.resume)
    add_route(app, "PUT", f"{one}/stop", connectors.stop)
    add_route(app, "POST", f"{one}/restart", connectors.restart)
    add_route(app, "GET", f"{one}/tasks", connectors.tasks, is_quick=always)
    add_route(app, "POST", f"{one}/tasks", connectors.internal_tasks)
    add_route(app, "GET", f"{task}/status", connectors.task_status, is_quick=always)
    add_route(app, "POST", f"{task}/restart", connectors.restart_task)


async def _refused(request: Request, error: Exception) -> Response:
    del request
    status = error.status_code if isinstance(error, HTTPException) else 500
    return refused(status)


async def _failed(request: Request, error: Exception) -> Response:
    """A bug: the server logs it with its trace, the client learns nothing of its inside."""
    del request, error
    return Response(error_body(500, "Internal Server Error"), 500, media_type=JSON_TYPE)

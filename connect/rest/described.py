"""Every endpoint of the API, said once: role, bodies, statuses; the OpenAPI document from it.

Rules of this file:
- An endpoint that is not described here cannot be registered (``routes.add_route``), and one that
  is described must be there; both are tested.
- Judging a configuration is for ``admin``: it resolves secrets and calls what it names.
- ``read`` looks, ``operate`` acts on what is there (pause, restart, offsets), ``admin`` changes
  what exists and how it is set up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from connect.rest import models as m

Role: TypeAlias = Literal["read", "operate", "admin"]
Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Reach: TypeAlias = Literal["connector", "any", "node"]
Kind: TypeAlias = Literal["string", "boolean"]
At: TypeAlias = Literal["here", "leader", "coordinator"]
Query: TypeAlias = tuple[tuple[str, Kind, str], ...]

ANYWHERE: Final = (400, 406, 408, 413, 415)
"""Refusals that every endpoint has: bad path or body, Accept, slow, large, Content-Type."""
FOR_CALLERS: Final = frozenset({401, 429})
"""Refusals of every endpoint that asks who calls: nobody known, more than the caller's share."""
OPEN_TO_ALL: Final = frozenset({"/health", "/ui", "/ui/{file}"})
"""Whoever watches a process needs no password for it; the status page's files hold no secret."""
_REASONS: Final = {
    200: "done",
    201: "created",
    202: "accepted",
    204: "done, nothing to say",
    400: "not understood, or not valid",
    401: "nobody known",
    403: "the caller may not, another site's page asks, or it is switched off in the properties",
    404: "not there",
    406: "only JSON is spoken",
    408: "the body took too long",
    409: "not in this state, or the cluster is choosing a leader",
    413: "the body is too large",
    415: "the body must be JSON",
    429: "the caller, or its address, asks for more than its share: see Retry-After",
    503: "the node is starting, or Kafka is away",
}


_OWN: Final = "/icefloe/v1/connectors/{name}"


@dataclass(frozen=True, slots=True)
class Described:
    """One endpoint.

    Attributes:
        method: HTTP method.
        path: with its parameters in braces.
        role: what a caller must be.
        summary: one line.
        statuses: every status it answers with beyond those of ``ANYWHERE``.
        answer: body of its successes; None is an empty one.
        body: what it takes; None is nothing.
        query: name, type and meaning of each query parameter.
        media_type: of its answer.
    """

    method: Method
    path: str
    role: Role
    summary: str
    statuses: tuple[int, ...]
    answer: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    query: Query = ()
    media_type: str = "application/json"

    @property
    def reach(self) -> Reach:
        """What a caller's grant must cover: the connector of the path, any, or the whole node."""
        if "{name}" in self.path:
            return "connector"
        is_node = self.path.startswith(("/admin", "/metrics", "/icefloe/v1/cluster"))
        return "node" if is_node else "any"

    @property
    def at(self) -> At:
        """Which node answers: the one asked, the leader, or the one with the coordinator."""
        is_own = self.path.startswith(f"{_OWN}/") and "/control/" not in self.path
        if is_own:
            return "here" if self.path.endswith(("/audit", "/dead-letters")) else "coordinator"
        is_local = self.path.endswith(("/validate", "/topics/reset", "{name}/tasks"))
        return "here" if self.method == "GET" or is_local else "leader"

    @property
    def all_statuses(self) -> tuple[int, ...]:
        """Every status it answers with."""
        callers = set(FOR_CALLERS) if self.path not in OPEN_TO_ALL else set()
        is_for_some = self.role != "read" or self.reach != "any"  # all may read something
        if self.method != "GET" or (callers and is_for_some):
            callers.add(403)
        rebalance = {409} if self.at == "leader" else set()
        return tuple(sorted({*self.statuses, *ANYWHERE, *callers, *rebalance}))


_ONE = "/connectors/{name}"
_TASK = _ONE + "/tasks/{task}"
_EXPAND: Query = (("expand", "string", "info or status; may be repeated"),)
_RESTART: Query = (
    ("includeTasks", "boolean", "restart tasks too"),
    ("onlyFailed", "boolean", "restart nothing that runs"),
)
_ALL_PLUGINS: Query = (("connectorsOnly", "boolean", "false lists every plugin"),)
_VERSION: Query = (("version", "string", "the version that is wanted"),)
_SCOPE: Query = (("scope", "string", "worker (this node) or cluster"),)
_REMOTE: Query = (("icefloe.remote", "boolean", "false asks no broker, catalog or registry"),)
_FORWARD: Query = (("forward", "boolean", "false asks no other node for figures"),)
_FOUND = (200, 404, 503)

_CONNECT: tuple[Described, ...] = (
    Described("GET", "/", "read", "Version and cluster id", (200, 503), m.ServerInfo),
    Described("GET", "/health", "read", "Health of the node", (200, 503), m.HealthStatus),
    Described(
        "GET", "/connectors", "read", "All connectors", (200, 503), m.Connectors, None, _EXPAND
    ),
    Described(
        "POST", "/connectors", "admin", "Create one", (201, 409, 503), m.ConnectorInfo,
        m.CreateConnector,
    ),
    Described("GET", _ONE, "read", "A connector", _FOUND, m.ConnectorInfo),
    Described("DELETE", _ONE, "admin", "Delete it; its offsets stay", (204, 404, 503)),
    Described("GET", f"{_ONE}/config", "read", "Its configuration", _FOUND, m.StoredConfiguration),
    Described(
        "PUT", f"{_ONE}/config", "admin", "Create it, or replace its configuration",
        (200, 201, 503), m.ConnectorInfo, m.Configuration,
    ),
    Described(
        "PATCH", f"{_ONE}/config", "admin", "Change some keys of its configuration", _FOUND,
        m.ConnectorInfo, m.Configuration,
    ),
    Described("GET", f"{_ONE}/status", "read", "Its state", _FOUND, m.ConnectorStatus),
    Described("PUT", f"{_ONE}/pause", "operate", "Pause it", (202, 404, 503)),
    Described("PUT", f"{_ONE}/resume", "operate", "Resume it", (202, 404, 503)),
    Described("PUT", f"{_ONE}/stop", "operate", "Stop it: no tasks are left", (204, 404, 503)),
    Described(
        "POST", f"{_ONE}/restart", "operate", "Restart it, its tasks, or what has failed",
        (202, 204, 404, 503), m.ConnectorStatus, None, _RESTART,
    ),
    Described("GET", f"{_ONE}/tasks", "read", "Its tasks", _FOUND, m.TaskConfigurations),
    Described("POST", f"{_ONE}/tasks", "admin", "Between Kafka's workers only; always refused", ()),
    Described("GET", f"{_TASK}/status", "read", "State of a task", _FOUND, m.TaskState),
    Described("POST", f"{_TASK}/restart", "operate", "Restart a task", (204, 404, 503)),
    Described("GET", f"{_ONE}/offsets", "read", "Source offsets", _FOUND, m.ConnectorOffsets),
    Described(
        "PATCH", f"{_ONE}/offsets", "operate", "Move offsets of a stopped connector",
        (200, 404, 409, 503), m.Message, m.ConnectorOffsets,
    ),
    Described(
        "DELETE", f"{_ONE}/offsets", "operate", "Forget offsets of a stopped connector",
        (200, 404, 409, 503), m.Message,
    ),
    Described("GET", f"{_ONE}/topics", "read", "Topics it read", (200, 403, 503), m.ActiveTopics),
    Described("PUT", f"{_ONE}/topics/reset", "operate", "Empty that set", (202, 403, 503)),
    Described(
        "GET", "/connector-plugins", "read", "Installed plugins", (200,), m.PluginInfos, None,
        _ALL_PLUGINS,
    ),
    Described(
        "GET", "/connector-plugins/{plugin}/config", "read", "Keys of a plugin", (200, 404),
        m.KeyDefinitions, None, _VERSION,
    ),
    Described(
        "PUT", "/connector-plugins/{plugin}/config/validate", "admin", "Judge a configuration",
        (200,), m.ValidationResult, m.Configuration, _REMOTE,
    ),
    Described("GET", "/admin/loggers", "admin", "Log levels", (200,), m.LoggerLevels),
    Described("GET", "/admin/loggers/{logger}", "admin", "A log level", (200, 404), m.LoggerLevel),
    Described(
        "PUT", "/admin/loggers/{logger}", "admin", "Set a log level",
        (200, 204, 404, 503), m.ChangedLoggers, m.SetLevel, _SCOPE,
    ),
)  # fmt: skip

_OURS: tuple[Described, ...] = (
    Described("GET", "/metrics", "read", "Metrics for Prometheus", (200,), media_type="text/plain"),
    Described("GET", "/icefloe/v1/openapi.json", "read", "This document", (200,)),
    Described("GET", "/icefloe/v1/cluster", "read", "Nodes and placements", (200, 503), m.Cluster),
    Described(
        "GET", "/icefloe/v1/overview", "read", "Every connector, and the caller's role for it",
        (200, 503), m.Overview, None, _FORWARD,
    ),
    Described("GET", "/ui", "read", "The status page", (200,), media_type="text/html"),
    Described(
        "GET", "/ui/{file}", "read", "A part of that page", (200, 404), media_type="*/*"
    ),
    Described("GET", f"{_OWN}/tables", "read", "Last outcome of each table", _FOUND, m.Tables),
    Described("GET", f"{_OWN}/rounds", "read", "The last commit rounds", _FOUND, m.Rounds),
    Described("GET", f"{_OWN}/lag", "read", "What is not in tables yet", _FOUND, m.Lag),
    Described("GET", f"{_OWN}/dead-letters", "read", "Dead letters", _FOUND, m.DeadLetters),
    Described(
        "GET", f"{_OWN}/orphan-age", "read", "How old a file must be to be an orphan", _FOUND,
        m.OrphanAge,
    ),
    Described("GET", f"{_OWN}/audit", "read", "Rows in against rows out", _FOUND, m.Audit),
    Described(
        "POST", f"{_OWN}/tables/{{table}}/retry", "operate", "Try a failed table again",
        (200, 404, 409, 503), m.Decided,
    ),
    Described(
        "POST", f"{_OWN}/tables/{{table}}/skip", "operate", "Give up what waits for a failed table",
        (200, 404, 409, 503), m.Decided,
    ),
    Described(
        "POST", f"{_OWN}/control/rebase", "operate", "Go on without what the control log lost",
        (200, 404, 409, 503), m.Rebased, m.AskRebase,
    ),
    Described(
        "POST", f"{_OWN}/control/vtts/reset", "operate", "Take back a valid-through time",
        (200, 404, 409, 503), m.Reset, m.AskReset,
    ),
)  # fmt: skip

ENDPOINTS: Final[tuple[Described, ...]] = _CONNECT + _OURS
BY_ROUTE: Final = {(e.method, e.path): e for e in ENDPOINTS}


def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document.

    Args:
        version: of this product.
    """
    kinds: dict[type[BaseModel], None] = {m.Error: None}
    for endpoint in ENDPOINTS:
        kinds |= {kind: None for kind in (endpoint.answer, endpoint.body) if kind is not None}
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in kinds], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Icefloe",
            "version": version,
            "description": "Kafka Connect's REST API for sinks, and Icefloe's own below "
            "/icefloe/v1.",
        },
        "paths": paths,
        "components": {"schemas": schemas.get("$defs", {})},
    }


def _operation(endpoint: Described) -> dict[str, Any]:
    names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer"} if name == "task" else {"type": "string", "minLength": 1},
        }
        for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": {"type": kind}}
        for name, kind, text in endpoint.query
    ]
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "x-icefloe-role": endpoint.role,
        "parameters": parameters,
        "responses": {str(s): _response(endpoint, s) for s in endpoint.all_statuses},
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": _reference(endpoint.body)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _response(endpoint: Described, status: int) -> dict[str, Any]:
    described: dict[str, Any] = {"description": _REASONS[status]}
    if status == 503 and endpoint.path == "/health":
        kind: type[BaseModel] | None = m.HealthStatus
    elif status >= 400:
        kind = m.Error
    else:
        kind = endpoint.answer if status not in {202, 204} or endpoint.query == _RESTART else None
        kind = None if status == 204 else kind
    if kind is not None:
        described["content"] = {"application/json": {"schema": _reference(kind)}}
    elif status < 300 and endpoint.media_type != "application/json":
        described["content"] = {endpoint.media_type: {"schema": {"type": "string"}}}
    elif status == 200:
        described["content"] = {"application/json": {"schema": {}}}
    return described


def _reference(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}

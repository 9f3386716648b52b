"""The node and the cluster: ``/``, health, probes, ``/metrics``, OpenAPI, ``/admin/loggers``."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from connect.node.rest import models as m
from connect.node.rest.access import open_to_all, rule
from connect.node.rest.api_errors import ApiError
from connect.node.rest.api_route import REASONS, ApiRoute, errors
from connect.node.rest.dependencies import ConnectorsDep, ServicesDep
from connect.node.rest.log_levels import LEVELS, NAME_CHARACTERS_MAX

router = APIRouter(route_class=ApiRoute, tags=["node"])
loggers_router = APIRouter(prefix="/admin/loggers", route_class=ApiRoute, tags=["loggers"])

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/", dependencies=[rule("read", "any")], responses=errors(503))
def read_server(services: ServicesDep) -> m.ServerInfo:
    """Show Kafka Connect's version, which clients check, and the id of the Kafka cluster."""
    return m.ServerInfo(
        version=services.node.kafka_version,
        commit=services.node.commit,
        kafka_cluster_id=services.handlers.cluster.kafka_id(),
    )


@router.get(
    "/health",
    dependencies=[open_to_all()],
    responses={503: {"model": m.HealthStatus, "description": REASONS[503]}},
)
async def read_health(connectors: ConnectorsDep, response: Response) -> m.HealthStatus:
    """Show the health of the node; no password is needed."""
    health = connectors.health
    response.status_code = 200 if health.status == "healthy" else 503
    return m.HealthStatus(status=health.status, message=health.message)


@router.get(
    "/livez",
    dependencies=[open_to_all()],
    responses={503: {"model": m.ProbeStatus, "description": REASONS[503]}},
)
async def read_liveness(services: ServicesDep, response: Response) -> m.ProbeStatus:
    """Show whether the node works; a restart helps when it does not. No password is needed."""
    failure = services.probe().failure
    return _probed(response, [] if failure is None else [failure])


@router.get(
    "/readyz",
    dependencies=[open_to_all()],
    responses={503: {"model": m.ProbeStatus, "description": REASONS[503]}},
)
async def read_readiness(services: ServicesDep, response: Response) -> m.ProbeStatus:
    """Show whether the node takes work: joined, children ready, not draining; no password."""
    probe = services.probe()
    return _probed(response, [*([probe.failure] if probe.failure else []), *probe.waits])


def _probed(response: Response, reasons: list[str]) -> m.ProbeStatus:
    response.status_code = 503 if reasons else 200
    return m.ProbeStatus(status="failed" if reasons else "ok", reasons=reasons)


@router.get("/metrics", response_class=PlainTextResponse, dependencies=[rule("read", "node")])
def read_metrics(services: ServicesDep) -> Response:
    """Show all metrics of the node in Prometheus' text format."""
    return Response(services.handlers.metrics.text(), headers={"content-type": METRICS_TYPE})


@router.get("/icefloe/v1/openapi.json", dependencies=[rule("read", "any")])
def read_openapi(request: Request) -> JSONResponse:
    """Show this document."""
    return JSONResponse(request.app.openapi())


@router.get("/icefloe/v1/cluster", dependencies=[rule("read", "node")], responses=errors(503))
def read_cluster(services: ServicesDep) -> m.Cluster:
    """Show the nodes of the cluster, the leader, and the placements."""
    return m.Cluster.model_validate(dict(services.handlers.cluster.view()))


@loggers_router.get("", dependencies=[rule("admin", "node")])
def list_loggers(services: ServicesDep) -> m.LoggerLevels:
    """List the loggers and their levels."""
    return m.LoggerLevels.model_validate(services.log_levels.known())


@loggers_router.get("/{logger}", dependencies=[rule("admin", "node")], responses=errors(404))
def read_logger(logger: str, services: ServicesDep) -> m.LoggerLevel:
    """Show the level of a logger."""
    level = services.log_levels.get(logger)
    if level is None:
        raise ApiError(404, f"Logger {logger} not found.")
    return m.LoggerLevel.model_validate(level)


@loggers_router.put(
    "/{logger}",
    response_model=m.ChangedLoggers,
    dependencies=[rule("admin", "node", at="leader")],
    responses={204: {"description": "Set on every node"}, **errors(404, 503)},
)
def set_logger(
    logger: str,
    body: m.SetLevel,
    services: ServicesDep,
    scope: Annotated[str, Query(description="worker (this node) or cluster")] = "worker",
) -> m.ChangedLoggers | Response:
    """Set the level of a logger and those below it, on this node or on every node."""
    if body.level is None:
        raise ApiError(400, "Desired 'level' parameter was not specified in request.")
    level = body.level.upper()
    if level not in LEVELS:
        raise ApiError(404 if body.level else 400, f"invalid log level '{body.level}'.")
    if len(logger) > NAME_CHARACTERS_MAX:
        raise ApiError(400, f"The logger's name has more than {NAME_CHARACTERS_MAX} characters.")
    if scope.lower() == "cluster":
        services.handlers.connectors.publish_log_level(logger, level)
        return Response(status_code=204)
    return m.ChangedLoggers(services.log_levels.set(logger, level))

"""The node and the cluster: ``/``, health and probes, ``/metrics``, the OpenAPI document."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from connect.node.rest import models as m
from connect.node.rest.access import open_to_all, rule
from connect.node.rest.api_route import REASONS, ApiRoute, errors
from connect.node.rest.dependencies import ConnectorsDep, ServicesDep

router = APIRouter(route_class=ApiRoute, tags=["node"])

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

"""``/icefloe/v1/overview``: every connector in one answer, with the caller's role for each.

Rules of this file:
- No request is sent to the broker. States are those this node last received; metrics come from the
  nodes that run the units. So any number of pages may poll every few seconds.
- A metric that no node has is null, never zero.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

from fastapi import APIRouter, Query

from connect.config.masking import displayed_value
from connect.node.node_requests import ReportedStatus, UnknownConnectorError
from connect.node.rest import models as m
from connect.node.rest.access import rule
from connect.node.rest.api_errors import not_found
from connect.node.rest.api_route import ApiRoute, errors
from connect.node.rest.auth import Caller
from connect.node.rest.cluster_metrics import ConnectorMetrics
from connect.node.rest.dependencies import CallerDep, ConnectorName, CredentialsDep, ServicesDep
from connect.redaction.secret_values import KNOWN

router = APIRouter(prefix="/icefloe/v1", route_class=ApiRoute, tags=["overview"])

REASON_CHARS: Final = 300


@router.get("/overview", dependencies=[rule("read", "any")], responses=errors(503))
def read_overview(
    services: ServicesDep,
    caller: CallerDep,
    credentials: CredentialsDep,
    forward: Annotated[str, Query(description="false asks no other node for metrics")] = "true",
) -> m.Overview:
    """Show the connectors that the caller may read, with the caller's role for each."""
    statuses = []
    for name in services.handlers.connectors.names():
        if caller.may("read", name):
            try:
                statuses.append(services.handlers.connectors.status(name))
            except UnknownConnectorError:
                continue  # deleted meanwhile
    figures = services.cluster_metrics.of(credentials, statuses, is_alone=forward == "false")
    return m.Overview(
        caller=m.OverviewCaller(name=caller.name, node_role=caller.role(None)),
        missing=[m.OverviewMissing(worker_id=n, reason=why) for n, why in figures.missing.items()],
        connectors=[
            _connector(s, caller, figures.by_connector[s.name], figures.processes[s.name])
            for s in statuses
        ],
    )


@router.get(
    "/connectors/{name}/dead-letters",
    dependencies=[rule("read", "connector")],
    responses=errors(404, 503),
)
def read_dead_letters(
    name: ConnectorName,
    services: ServicesDep,
    credentials: CredentialsDep,
    forward: Annotated[str, Query(description="false asks no other node for metrics")] = "true",
) -> m.DeadLetters:
    """Count the dead letters of all tasks, and show the newest without their content."""
    with not_found(f"Connector {name} not found"):
        letters = services.handlers.views.show(name, "dead-letters")
        status = services.handlers.connectors.status(name)
    gathered = services.cluster_metrics.of(credentials, [status], is_alone=forward == "false")
    count = gathered.by_connector[name]["dead_letters"]
    return m.DeadLetters.model_validate({**KNOWN.masked(letters), "records": count})


@router.get(
    "/connectors/{name}/config",
    dependencies=[rule("read", "connector")],
    responses=errors(404, 503),
)
def read_masked_config(name: ConnectorName, services: ServicesDep) -> m.StoredConfiguration:
    """Show a configuration without its secrets; references to secrets are kept."""
    with not_found(f"Connector {name} not found"):
        config = services.handlers.connectors.definition(name).config
    shown = {key: KNOWN.mask(displayed_value(key, value)) for key, value in config.items()}
    return m.StoredConfiguration(shown)


def _connector(
    status: ReportedStatus, caller: Caller, metrics: ConnectorMetrics, process: str | None
) -> m.OverviewConnector:
    return m.OverviewConnector.model_validate(
        {
            "name": status.name,
            "role": caller.role(status.name),
            "state": status.state,
            "worker_id": status.worker_id,
            "coordinator_process": process,
            "tasks": dict(Counter(task.state for task in status.tasks)),
            "reason": _reason(status),
            **metrics,
        }
    )


def _reason(status: ReportedStatus) -> str | None:
    """First line of the first trace: the connector's own, else that of a task."""
    traces = (status.trace, *(task.trace for task in status.tasks))
    trace = next((trace for trace in traces if trace), None)
    return None if trace is None else KNOWN.mask(trace).partition("\n")[0][:REASON_CHARS]

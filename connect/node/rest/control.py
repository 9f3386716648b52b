"""``/icefloe/v1/connectors/<name>``: views of a connector, and decisions of an operator."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter

from connect.node.herder_api import HerderApi, View
from connect.node.rest import models as m
from connect.node.rest.access import rule
from connect.node.rest.api_errors import not_found
from connect.node.rest.api_route import ApiRoute, errors
from connect.node.rest.dependencies import ConnectorName, HerderDep
from connect.redaction.secret_values import KNOWN

router = APIRouter(
    prefix="/icefloe/v1/connectors/{name}", route_class=ApiRoute, tags=["tables and commits"]
)

_READ: Final = rule("read", "connector", at="coordinator")
_DECIDE: Final = rule("operate", "connector", at="coordinator")
_CONTROL: Final = rule("operate", "connector", at="leader")
# fields called "name" hold names of tables, which a placeholder may have given a secret
_KEPT_NAMES: Final = frozenset({"connector", "state"})


@router.get("/tables", dependencies=[_READ], responses=errors(404, 503))
def read_tables(name: ConnectorName, herder: HerderDep) -> m.Tables:
    """Show the last outcome of each table."""
    return m.Tables.model_validate(_view(herder, name, "tables"))


@router.get("/rounds", dependencies=[_READ], responses=errors(404, 503))
def read_rounds(name: ConnectorName, herder: HerderDep) -> m.Rounds:
    """Show the last commit rounds."""
    return m.Rounds.model_validate(_view(herder, name, "rounds"))


@router.get("/lag", dependencies=[_READ], responses=errors(404, 503))
def read_lag(name: ConnectorName, herder: HerderDep) -> m.Lag:
    """Show the number of records that are not in tables yet."""
    return m.Lag.model_validate(_view(herder, name, "lag"))


@router.get("/orphan-age", dependencies=[_READ], responses=errors(404, 503))
def read_orphan_age(name: ConnectorName, herder: HerderDep) -> m.OrphanAge:
    """Show the age from which files that no table references may be deleted."""
    return m.OrphanAge.model_validate(_view(herder, name, "orphan-age"))


@router.get("/audit", dependencies=[rule("read", "connector")], responses=errors(404, 503))
def read_audit(name: ConnectorName, herder: HerderDep) -> m.Audit:
    """Compare rows in with rows out; reads the control topic and every manifest."""
    return m.Audit.model_validate(_view(herder, name, "audit"))


@router.post("/tables/{table}/retry", dependencies=[_DECIDE], responses=errors(404, 409, 503))
def retry_table(name: ConnectorName, table: str, herder: HerderDep) -> m.TableDecisionResult:
    """Try a failed table again now."""
    with not_found(f"Connector {name} not found"):
        return m.TableDecisionResult.model_validate(
            KNOWN.masked(herder.decide_table(name, table, "retry"))
        )


@router.post("/tables/{table}/skip", dependencies=[_DECIDE], responses=errors(404, 409, 503))
def skip_table(name: ConnectorName, table: str, herder: HerderDep) -> m.TableDecisionResult:
    """Give up the waiting files of a failed table."""
    with not_found(f"Connector {name} not found"):
        return m.TableDecisionResult.model_validate(
            KNOWN.masked(herder.decide_table(name, table, "skip"))
        )


@router.post("/control/rebase", dependencies=[_CONTROL], responses=errors(404, 409, 503))
def rebase(name: ConnectorName, body: m.RebaseRequest, herder: HerderDep) -> m.Rebased:
    """Let a stopped connector continue without lost events of its control topic."""
    with not_found(f"Connector {name} not found"):
        found = herder.rebase(name, body.tables, is_applied=body.apply)
    return m.Rebased.model_validate(KNOWN.masked(found))


@router.post("/control/vtts/reset", dependencies=[_CONTROL], responses=errors(404, 409, 503))
def reset_valid_through(name: ConnectorName, body: m.ResetRequest, herder: HerderDep) -> m.Reset:
    """Withdraw the valid-through time that a stopped connector claimed."""
    with not_found(f"Connector {name} not found"):
        found = herder.reset_valid_through(name, body.tables, body.reason, is_applied=body.apply)
    return m.Reset.model_validate(KNOWN.masked(found))


def _view(herder: HerderApi, name: str, view: View) -> Any:
    with not_found(f"Connector {name} not found"):
        return KNOWN.masked(herder.extension(name, view), kept=_KEPT_NAMES)

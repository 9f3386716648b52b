"""``/icefloe/v1/connectors/<name>``: views of a connector, and decisions of an operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi import APIRouter

from connect.errors import ConfigError
from connect.node.node_requests import OffsetPlan, View
from connect.node.rest import models as m
from connect.node.rest import operation_models as om
from connect.node.rest.access import rule
from connect.node.rest.api_errors import ApiError, not_found
from connect.node.rest.api_route import ApiRoute, errors
from connect.node.rest.dependencies import ConnectorName, Services, ServicesDep, StoppedDep
from connect.protocol.offset_plan import OffsetTarget
from connect.redaction.secret_values import KNOWN
from connect.state.rewind_record import RewindChoice

router = APIRouter(
    prefix="/icefloe/v1/connectors/{name}", route_class=ApiRoute, tags=["tables and commits"]
)

_READ: Final = rule("read", "connector", at="coordinator")
_DECIDE: Final = rule("operate", "connector", at="coordinator")
_CONTROL: Final = rule("operate", "connector", at="leader")
_PLAN: Final = rule("operate", "connector")
_REWIND: Final = rule("admin", "connector", at="leader")
# fields called "name" hold names of tables, which a placeholder may have given a secret
_KEPT_NAMES: Final = frozenset({"connector", "state"})


@router.get("/tables", dependencies=[_READ], responses=errors(404, 503))
def read_tables(name: ConnectorName, services: ServicesDep) -> m.Tables:
    """Show the last outcome of each table."""
    return m.Tables.model_validate(_view(services, name, "tables"))


@router.get("/rounds", dependencies=[_READ], responses=errors(404, 503))
def read_rounds(name: ConnectorName, services: ServicesDep) -> m.Rounds:
    """Show the last commit rounds."""
    return m.Rounds.model_validate(_view(services, name, "rounds"))


@router.get("/lag", dependencies=[_READ], responses=errors(404, 503))
def read_lag(name: ConnectorName, services: ServicesDep) -> m.Lag:
    """Show the number of records that are not in tables yet."""
    return m.Lag.model_validate(_view(services, name, "lag"))


@router.get("/orphan-age", dependencies=[_READ], responses=errors(404, 503))
def read_orphan_age(name: ConnectorName, services: ServicesDep) -> m.OrphanAge:
    """Show the age from which files that no table references may be deleted."""
    return m.OrphanAge.model_validate(_view(services, name, "orphan-age"))


@router.get("/maintenance", dependencies=[_READ], responses=errors(404, 503))
def read_maintenance(name: ConnectorName, services: ServicesDep) -> om.Maintenance:
    """Show which maintenance of tables is due, runs, and was done."""
    return om.Maintenance.model_validate(_view(services, name, "maintenance"))


@router.post("/maintenance/run", dependencies=[_DECIDE], responses=errors(404, 409, 503))
def run_maintenance(name: ConnectorName, services: ServicesDep) -> om.Maintenance:
    """Begin all enabled maintenance of all tables now, also after a stop."""
    return _requested(services, name, is_run=True)


@router.post("/maintenance/stop", dependencies=[_DECIDE], responses=errors(404, 409, 503))
def stop_maintenance(name: ConnectorName, services: ServicesDep) -> om.Maintenance:
    """Stop maintenance, until a run is requested or the node is started again."""
    return _requested(services, name, is_run=False)


@router.get("/audit", dependencies=[rule("read", "connector")], responses=errors(404, 503))
def read_audit(name: ConnectorName, services: ServicesDep) -> m.Audit:
    """Compare rows in with rows out; reads the control topic and every manifest."""
    return m.Audit.model_validate(_view(services, name, "audit"))


@router.post("/tables/{table}/retry", dependencies=[_DECIDE], responses=errors(404, 409, 503))
def retry_table(name: ConnectorName, table: str, services: ServicesDep) -> m.TableDecisionResult:
    """Try a failed table again now."""
    with not_found(f"Connector {name} not found"):
        return m.TableDecisionResult.model_validate(
            KNOWN.masked(services.handlers.decisions.decide(name, table, "retry"))
        )


@router.post("/tables/{table}/skip", dependencies=[_DECIDE], responses=errors(404, 409, 503))
def skip_table(name: ConnectorName, table: str, services: ServicesDep) -> m.TableDecisionResult:
    """Give up the waiting files of a failed table."""
    with not_found(f"Connector {name} not found"):
        return m.TableDecisionResult.model_validate(
            KNOWN.masked(services.handlers.decisions.decide(name, table, "skip"))
        )


@router.post("/offsets/plan", dependencies=[_PLAN], responses=errors(404, 409, 503))
def plan_offsets(
    name: ConnectorName, body: om.AskOffsetPlan, stopped: StoppedDep
) -> om.PlannedOffsets:
    """Show where source offsets would be moved, and what that costs; changes nothing."""
    try:
        target = OffsetTarget.of(body.to, body.value, body.topic, body.partition)
    except ConfigError as error:
        raise ApiError(400, error.message) from None
    with not_found(f"Connector {name} not found"):
        plan = stopped.plan_offsets(name, target)
    moves = [
        om.OffsetMove(
            topic=move.tp.topic,
            partition=move.tp.partition,
            from_offset=move.from_offset,
            to_offset=move.to_offset,
            reread=move.reread,
            skipped=move.skipped,
            bounded_at=move.bounded_at,
        )
        for move in plan.moves
    ]
    return om.PlannedOffsets(
        connector=name,
        stopped=plan.is_stopped,
        offsets=moves,
        warnings=list(_warnings(name, plan)),
    )


def _warnings(name: str, plan: OffsetPlan) -> Iterator[str]:
    reread = sum(move.reread for move in plan.moves)
    skipped = sum(move.skipped for move in plan.moves)
    if reread and plan.is_row_level:
        yield (
            f"up to {reread} records are read again: their changes are applied again, in order, "
            "and the tables show older values until that is done"
        )
    elif reread:
        way_out = f". To move back without doubled rows, use: icefloe rewind {name}"
        yield (
            f"up to {reread} records are read again, and their rows are written a second time: "
            f"rows in the tables are doubled{way_out if plan.is_rewindable else ''}"
        )
    if skipped:
        yield f"up to {skipped} records are skipped: they are written to no table"
    if not plan.is_stopped:
        yield f"connector {name} must be STOPPED before its offsets can be changed"


@router.post("/control/rebase", dependencies=[_CONTROL], responses=errors(404, 409, 503))
def rebase(name: ConnectorName, body: m.RebaseRequest, stopped: StoppedDep) -> m.Rebased:
    """Let a stopped connector continue without lost events of its control topic."""
    with not_found(f"Connector {name} not found"):
        result = stopped.rebase(name, body.tables, is_applied=body.apply)
    return m.Rebased.model_validate(KNOWN.masked(result))


@router.post("/control/vtts/reset", dependencies=[_CONTROL], responses=errors(404, 409, 503))
def reset_valid_through(name: ConnectorName, body: m.ResetRequest, stopped: StoppedDep) -> m.Reset:
    """Withdraw the valid-through time that a stopped connector claimed."""
    with not_found(f"Connector {name} not found"):
        result = stopped.reset_valid_through(name, body.tables, body.reason, is_applied=body.apply)
    return m.Reset.model_validate(KNOWN.masked(result))


@router.post("/rewind", dependencies=[_REWIND], responses=errors(404, 409, 503))
def rewind(name: ConnectorName, body: om.AskRewind, stopped: StoppedDep) -> om.Rewound:
    """Take tables and source offsets of a connector back to an earlier commit."""
    choice = RewindChoice(
        body.timestamp_ms,
        body.snapshot_id,
        [(at.topic, at.partition, at.offset) for at in body.offsets],
        is_to_beginning=body.beginning,
        tables=body.tables,
        only=body.only,
        accepted=body.accept,
        is_cancelled=body.cancel,
        is_replacing=body.replace,
    )
    with not_found(f"Connector {name} not found"):
        result = stopped.rewind(name, choice, is_applied=body.apply)
    return om.Rewound.model_validate(KNOWN.masked(result, kept=_KEPT_NAMES))


def _requested(services: Services, name: str, *, is_run: bool) -> om.Maintenance:
    with not_found(f"Connector {name} not found"):
        result = services.handlers.decisions.request_maintenance(name, is_run=is_run)
    return om.Maintenance.model_validate(KNOWN.masked(result, kept=_KEPT_NAMES))


def _view(services: Services, name: str, view: View) -> Any:
    with not_found(f"Connector {name} not found"):
        return KNOWN.masked(services.handlers.views.show(name, view), kept=_KEPT_NAMES)

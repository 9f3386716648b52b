"""``/admin/loggers``: levels of the process's loggers."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from connect.node.rest import models as m
from connect.node.rest.access import rule
from connect.node.rest.api_errors import ApiError
from connect.node.rest.api_route import ApiRoute, errors
from connect.node.rest.dependencies import ServicesDep
from connect.node.rest.log_levels import LEVELS, NAME_CHARACTERS_MAX

router = APIRouter(prefix="/admin/loggers", route_class=ApiRoute, tags=["loggers"])

_ADMIN: Final = rule("admin", "node")


@router.get("", dependencies=[_ADMIN])
def list_loggers(services: ServicesDep) -> m.LoggerLevels:
    """List the loggers and their levels."""
    return m.LoggerLevels.model_validate(services.log_levels.known())


@router.get("/{logger}", dependencies=[_ADMIN], responses=errors(404))
def read_logger(logger: str, services: ServicesDep) -> m.LoggerLevel:
    """Show the level of a logger."""
    level = services.log_levels.get(logger)
    if level is None:
        raise ApiError(404, f"Logger {logger} not found.")
    return m.LoggerLevel.model_validate(level)


@router.put(
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

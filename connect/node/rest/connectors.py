"""``/connectors``: create, read, change, delete, run, restart; source offsets and topics.

Messages and status codes are those recorded from Kafka Connect 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator

from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.node_requests import (
    ConnectorDefinition,
    NodeInfo,
    ReportedStatus,
    TaskStatus,
    UnknownConnectorError,
    UnknownTaskError,
)
from connect.node.rest import models as m
from connect.node.rest.access import rule
from connect.node.rest.api_errors import ApiError, not_found
from connect.node.rest.api_route import ApiRoute, errors, on_thread
from connect.node.rest.dependencies import (
    CallerDep,
    ConnectorName,
    ConnectorsDep,
    JavaFlag,
    ReadableDep,
    Services,
    ServicesDep,
    StoppedDep,
)
from connect.redaction.secret_values import KNOWN
from connect.state.topic_records import TargetState
from connect.validation.plugins import Plugins

router = APIRouter(prefix="/connectors", route_class=ApiRoute, tags=["connectors"])
offsets_router = APIRouter(prefix="/connectors/{name}", route_class=ApiRoute, tags=["offsets"])

_INITIAL: Final[Mapping[str, TargetState]] = {
    "RUNNING": "STARTED",
    "PAUSED": "PAUSED",
    "STOPPED": "STOPPED",
}
_TASK_ID = re.compile(r"[+-]?[0-9]{1,10}")
_JAVA_BLANKS = "".join(map(chr, range(33)))
_READ: Final = rule("read", "connector")
_OPERATE: Final = rule("operate", "connector", at="leader")
_ADMIN: Final = rule("admin", "connector", at="leader")
_EXTERNAL: Final = (
    "The Connect framework-managed offsets for this connector have been {done} successfully. "
    "However, if this connector manages offsets externally, they will need to be manually {done} "
    "in the system that the connector uses."
)


def _java_int(value: Any) -> int:
    if not _TASK_ID.fullmatch(value) or not -(2**31) <= int(value) < 2**31:
        raise ValueError("no number of a task")
    return int(value)


TaskNumber: TypeAlias = Annotated[int, BeforeValidator(_java_int)]


@router.get(
    "",
    dependencies=[rule("read", "any")],
    response_model_exclude_none=True,
    responses=errors(503),
)
async def list_connectors(
    readable: ReadableDep,
    expand: Annotated[list[str] | None, Query(description="info or status, or both")] = None,
) -> m.Connectors:
    """List the connectors that the caller may read: names, or with ``expand`` objects by name."""
    if expand is None:
        return m.Connectors(readable.names)
    names, services = readable.names, readable.services
    return await on_thread(_expanded, services, names, tuple(dict.fromkeys(expand)))


def _expanded(services: Services, names: Iterable[str], expansions: Iterable[str]) -> m.Connectors:
    entries: dict[str, m.Expanded] = {}
    for name in names:
        entry = m.Expanded()
        try:
            for part in expansions:
                connector = services.handlers.connectors.definition(name)
                if part == "info":
                    entry.info = info_of(connector, services.plugins)
                elif part == "status":
                    status = services.handlers.connectors.status(name)
                    entry.status = status_of(status, connector.config, services.plugins)
        except UnknownConnectorError:
            continue  # deleted meanwhile
        entries[name] = entry
    return m.Connectors(entries)


@router.get("/{name}", dependencies=[_READ], responses=errors(404, 503))
async def read_connector(name: ConnectorName, services: ServicesDep) -> m.ConnectorInfo:
    """Show a connector."""
    return info_of(_known(services.handlers.connectors, name), services.plugins)


@router.get("/{name}/config", dependencies=[_READ], responses=errors(404, 503))
async def read_config(name: ConnectorName, connectors: ConnectorsDep) -> m.StoredConfiguration:
    """Show the configuration as sent."""
    return m.StoredConfiguration(dict(_known(connectors, name).config))


@router.get(
    "/{name}/status",
    dependencies=[_READ],
    response_model_exclude_none=True,
    responses=errors(404, 503),
)
async def read_status(name: ConnectorName, services: ServicesDep) -> m.ConnectorStatus:
    """Show the state of a connector and its tasks."""
    with not_found(f"No status found for connector {name}"):
        status = services.handlers.connectors.status(name)
        connector = services.handlers.connectors.definition(name)
    return status_of(status, connector.config, services.plugins)


@router.post(
    "",
    status_code=201,
    dependencies=[rule("admin", "any", at="leader")],
    responses=errors(409, 503),
)
def create_connector(
    body: m.CreateConnector, response: Response, caller: CallerDep, services: ServicesDep
) -> m.ConnectorInfo:
    """Create a connector."""
    name = (body.name or "").strip(_JAVA_BLANKS)
    if not caller.may("admin", name):
        raise ApiError(403, f"{caller.name} lacks the role admin for connector {name}")
    initial = None if body.initial_state is None else _INITIAL[body.initial_state]
    valid = services.validator.valid(_named(body.config, name), caller)
    created = services.handlers.connectors.create(name, valid, initial_state=initial)
    response.headers["location"] = _location(services.node, name)
    return info_of(created, services.plugins)


@router.put(
    "/{name}/config",
    dependencies=[_ADMIN],
    responses={201: {"model": m.ConnectorInfo, "description": "Created"}, **errors(503)},
)
def put_config(
    name: ConnectorName,
    body: m.Configuration,
    response: Response,
    caller: CallerDep,
    services: ServicesDep,
) -> m.ConnectorInfo:
    """Create a connector, or replace its configuration."""
    valid = services.validator.valid(_named(body.root, name), caller)
    is_new, connector = services.handlers.connectors.put(name, valid)
    if is_new:
        response.status_code = 201
        response.headers["location"] = _location(services.node, name)
    return info_of(connector, services.plugins)


@router.patch("/{name}/config", dependencies=[_ADMIN], responses=errors(404, 503))
def patch_config(
    name: ConnectorName, body: m.Configuration, caller: CallerDep, services: ServicesDep
) -> m.ConnectorInfo:
    """Change some keys of a configuration: null removes a key; the name stays."""
    current = _known(services.handlers.connectors, name)
    if body.root.get("name") is not None:
        _named(body.root, current.name)
    changed: dict[str, str | None] = {**current.config, **body.root}
    merged = {k: v for k, v in changed.items() if v is not None}
    valid = services.validator.valid(merged, caller)
    _, connector = services.handlers.connectors.put(current.name, valid)
    return info_of(connector, services.plugins)


@router.delete(
    "/{name}",
    status_code=204,
    response_class=Response,
    dependencies=[_ADMIN],
    responses=errors(404, 503),
)
def delete_connector(name: ConnectorName, connectors: ConnectorsDep) -> None:
    """Delete a connector; its offsets stay."""
    connectors.delete(_known(connectors, name).name)


@router.put(
    "/{name}/pause",
    status_code=202,
    response_class=Response,
    dependencies=[_OPERATE],
    responses=errors(404, 503),
)
def pause_connector(name: ConnectorName, connectors: ConnectorsDep) -> None:
    """Pause a connector."""
    _set_target(connectors, name, "PAUSED")


@router.put(
    "/{name}/resume",
    status_code=202,
    response_class=Response,
    dependencies=[_OPERATE],
    responses=errors(404, 503),
)
def resume_connector(name: ConnectorName, connectors: ConnectorsDep) -> None:
    """Resume a connector."""
    _set_target(connectors, name, "STARTED")


@router.put(
    "/{name}/stop",
    status_code=204,
    response_class=Response,
    dependencies=[_OPERATE],
    responses=errors(404, 503),
)
def stop_connector(name: ConnectorName, connectors: ConnectorsDep) -> None:
    """Stop a connector: it keeps no tasks."""
    _set_target(connectors, name, "STOPPED")


@router.post(
    "/{name}/restart",
    status_code=202,
    response_model=m.ConnectorStatus,
    response_model_exclude_none=True,
    dependencies=[_OPERATE],
    responses={204: {"description": "Restarted without tasks"}, **errors(404, 503)},
)
def restart_connector(
    name: ConnectorName,
    services: ServicesDep,
    include_tasks: Annotated[
        JavaFlag, Query(alias="includeTasks", description="restart tasks too")
    ] = False,
    only_failed: Annotated[
        JavaFlag, Query(alias="onlyFailed", description="restart failed ones only")
    ] = False,
) -> m.ConnectorStatus | Response:
    """Restart a connector, its tasks, or failed ones: 204 without parameters, otherwise 202."""
    with not_found(f"Unknown connector: {name}"):
        status = services.handlers.connectors.restart(
            name, include_tasks=include_tasks, only_failed=only_failed
        )
        config = services.handlers.connectors.definition(name).config
    if not include_tasks and not only_failed:
        return Response(status_code=204)
    return status_of(status, config, services.plugins)


@router.get("/{name}/tasks", dependencies=[_READ], responses=errors(404, 503))
async def read_tasks(name: ConnectorName, connectors: ConnectorsDep) -> m.TaskConfigurations:
    """Show the configuration of each task."""
    name = _known(connectors, name).name
    configs = connectors.task_configs(name)
    return m.TaskConfigurations(
        [
            m.TaskConfiguration(id=m.TaskId(connector=name, task=task), config=dict(configs[task]))
            for task in sorted(configs)
        ]
    )


@router.post("/{name}/tasks", status_code=400, dependencies=[rule("admin", "connector")])
async def put_tasks(name: ConnectorName) -> m.Error:
    """Refuse the internal request between Kafka Connect's workers."""
    del name
    raise ApiError(400, "Internal request missing required signature")


@router.get(
    "/{name}/tasks/{task}/status",
    dependencies=[_READ],
    response_model_exclude_none=True,
    responses=errors(404, 503),
)
async def read_task_status(
    name: ConnectorName, task: TaskNumber, services: ServicesDep
) -> m.TaskState:
    """Show the state of a task."""
    try:
        status = next(t for t in services.handlers.connectors.status(name).tasks if t.id == task)
        config = services.handlers.connectors.definition(name).config
    except (UnknownConnectorError, StopIteration):
        raise ApiError(404, f"No status found for task {name}-{task}") from None
    return _task_state(status, _version(config, services.plugins))


@router.post(
    "/{name}/tasks/{task}/restart",
    status_code=204,
    response_class=Response,
    dependencies=[_OPERATE],
    responses=errors(404, 503),
)
def restart_task(name: ConnectorName, task: TaskNumber, connectors: ConnectorsDep) -> None:
    """Restart a task."""
    try:
        connectors.restart_task(name, task)
    except UnknownConnectorError:
        raise ApiError(404, f"Unknown connector: {name}") from None
    except UnknownTaskError:
        raise ApiError(404, f"Unknown task: {name}-{task}") from None


def info_of(connector: ConnectorDefinition, plugins: Plugins) -> m.ConnectorInfo:
    """Return the body of ``GET /connectors/<name>``."""
    return m.ConnectorInfo(
        name=connector.name,
        config=dict(connector.config),
        tasks=[m.TaskId(connector=connector.name, task=task) for task in connector.task_ids],
        type=_type(connector.config, plugins),
    )


def status_of(
    status: ReportedStatus, config: Mapping[str, str], plugins: Plugins
) -> m.ConnectorStatus:
    """Return the body of ``GET /connectors/<name>/status``."""
    version = _version(config, plugins)
    return m.ConnectorStatus(
        name=status.name,
        connector=m.ConnectorState(
            state=status.state,
            worker_id=status.worker_id,
            version=version,
            trace=None if status.trace is None else KNOWN.mask(status.trace),
        ),
        tasks=[_task_state(task, version) for task in status.tasks],
        type=_type(config, plugins),
    )


def _task_state(task: TaskStatus, version: str | None) -> m.TaskState:
    return m.TaskState(
        id=task.id,
        state=task.state,
        worker_id=task.worker_id,
        version=version,
        trace=None if task.trace is None else KNOWN.mask(task.trace),
    )


def _version(config: Mapping[str, str], plugins: Plugins) -> str | None:
    plugin = plugins.connector(config.get("connector.class", ""))
    return None if plugin is None else plugin.version


def _type(config: Mapping[str, str], plugins: Plugins) -> m.ConnectorType:
    plugin = plugins.connector(config.get("connector.class", ""))
    return (
        "source"
        if plugin is not None and plugin.type == "source"
        else ("unknown" if plugin is None else "sink")
    )


def _location(node: NodeInfo, name: str) -> str:
    path = quote(name, safe="!$&'()*+,;=:@-._~")
    return f"{node.advertised_url}/connectors/{path}"


def _known(connectors: StoredConnectors, name: str) -> ConnectorDefinition:
    with not_found(f"Connector {name} not found"):
        return connectors.definition(name)


def _set_target(connectors: StoredConnectors, name: str, state: TargetState) -> None:
    with not_found(f"Unknown connector {name}"):
        connectors.set_target(name, state)


def _named(config: Mapping[str, str | None], name: str) -> dict[str, str | None]:
    """Return the configuration with its name.

    Raises:
        ApiError: 400, it has another name.
    """
    configured = config.get("name", name)
    if configured != name:
        raise ApiError(
            400,
            f"Connector name configuration ({configured}) doesn't match connector name in the URL "
            f"({name})",
        )
    return {**config, "name": name}


@offsets_router.get("/offsets", dependencies=[_READ], responses=errors(404, 503))
def read_offsets(name: ConnectorName, stopped: StoppedDep) -> m.ConnectorOffsets:
    """Show the committed source offsets."""
    with not_found(f"Connector {name} not found"):
        offsets = stopped.offsets(name)
    return m.ConnectorOffsets(
        offsets=[
            m.ConnectorOffset(
                partition=m.OffsetPartition(kafka_partition=partition, kafka_topic=topic),
                offset=None if offset is None else m.OffsetValue(kafka_offset=offset),
            )
            for (topic, partition), offset in sorted(offsets.items())
        ]
    )


@offsets_router.patch("/offsets", dependencies=[_OPERATE], responses=errors(404, 409, 503))
def alter_offsets(name: ConnectorName, body: m.ChangeOfOffsets, stopped: StoppedDep) -> m.Message:
    """Change the source offsets of a stopped connector; a null offset is reset."""
    targets = {
        (entry.partition.kafka_topic, entry.partition.kafka_partition): (
            None if entry.offset is None else entry.offset.kafka_offset
        )
        for entry in body.offsets
    }
    with not_found(f"Connector {name} not found"):
        stopped.alter_offsets(name, targets)
    return m.Message(message=_EXTERNAL.format(done="altered"))


@offsets_router.delete("/offsets", dependencies=[_OPERATE], responses=errors(404, 409, 503))
def reset_offsets(name: ConnectorName, stopped: StoppedDep) -> m.Message:
    """Reset the source offsets of a stopped connector."""
    with not_found(f"Connector {name} not found"):
        stopped.reset_offsets(name)
    return m.Message(message=_EXTERNAL.format(done="reset"))


@offsets_router.get("/topics", dependencies=[_READ], responses=errors(403, 503))
def read_topics(name: ConnectorName, services: ServicesDep) -> m.ActiveTopics:
    """List the topics that a connector has read."""
    if not services.is_tracking_topics:
        raise ApiError(403, "Topic tracking is disabled.")
    topics = list(services.handlers.connectors.active_topics(name))
    return m.ActiveTopics({name: m.TopicList(topics=topics)})


@offsets_router.put(
    "/topics/reset",
    status_code=202,
    response_class=Response,
    dependencies=[rule("operate", "connector")],
    responses=errors(403, 503),
)
def reset_topics(name: ConnectorName, services: ServicesDep) -> None:
    """Reset the list of topics that a connector has read."""
    if not services.is_tracking_topics:
        raise ApiError(403, "Topic tracking is disabled.")
    if not services.is_topic_reset_allowed:
        raise ApiError(403, "Topic tracking reset is disabled.")
    services.handlers.connectors.reset_active_topics(name)

"""``/connectors/<name>/offsets`` and ``/connectors/<name>/topics``."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response

from connect.node.rest import models as m
from connect.node.rest.access import rule
from connect.node.rest.api_errors import ApiError, not_found
from connect.node.rest.api_route import ApiRoute, errors
from connect.node.rest.dependencies import ConnectorName, ServicesDep, StoppedDep

router = APIRouter(prefix="/connectors/{name}", route_class=ApiRoute, tags=["offsets"])

_EXTERNAL: Final = (
    "The Connect framework-managed offsets for this connector have been {done} successfully. "
    "However, if this connector manages offsets externally, they will need to be manually {done} "
    "in the system that the connector uses."
)
_READ: Final = rule("read", "connector")
_OPERATE: Final = rule("operate", "connector", at="leader")


@router.get("/offsets", dependencies=[_READ], responses=errors(404, 503))
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


@router.patch("/offsets", dependencies=[_OPERATE], responses=errors(404, 409, 503))
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


@router.delete("/offsets", dependencies=[_OPERATE], responses=errors(404, 409, 503))
def reset_offsets(name: ConnectorName, stopped: StoppedDep) -> m.Message:
    """Reset the source offsets of a stopped connector."""
    with not_found(f"Connector {name} not found"):
        stopped.reset_offsets(name)
    return m.Message(message=_EXTERNAL.format(done="reset"))


@router.get("/topics", dependencies=[_READ], responses=errors(403, 503))
def read_topics(name: ConnectorName, services: ServicesDep) -> m.ActiveTopics:
    """List the topics that a connector has read."""
    if not services.is_tracking_topics:
        raise ApiError(403, "Topic tracking is disabled.")
    topics = list(services.handlers.connectors.active_topics(name))
    return m.ActiveTopics({name: m.TopicList(topics=topics)})


@router.put(
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

"""Keys and values of the two compacted topics, as they are written.

Rules of this file:
- Keys and JSON are Kafka Connect's own (config topic: ``connector-``, ``target-state-``,
  ``task-``, ``commit-``; status topic: ``status-connector-``, ``status-task-``,
  ``status-topic-``), so that either product reads what the other wrote. Ours are additions:
  ``icefloe.layout``, ``.topic-ids``, ``.abandoned``, ``.ranges-from`` in the commit record, the
  layout in each task's properties, ``icefloe-ready-<connector>``, ``icefloe-offsets-<connector>``,
  ``icefloe-source-<connector>``, ``icefloe-placement-<connector>`` and ``icefloe-leader``; in the
  status topic
  ``icefloe-node-<node>``, ``icefloe-running-<node>/<connector>`` and
  ``icefloe-problem-<connector>``.
- Values are stored as sent: a ``${provider:path:key}`` placeholder is never resolved here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from connect.model.layout import Layout, TopicPartition
from connect.protocol.source_floor import SourceFloor
from connect.state.placement import Places

TargetState = Literal["STARTED", "PAUSED", "STOPPED"]
TARGET_STATES: tuple[TargetState, ...] = ("STARTED", "PAUSED", "STOPPED")

CONNECTOR = "connector-"
TARGET = "target-state-"
TASK = "task-"
COMMIT = "commit-"
READY = "icefloe-ready-"
OFFSETS = "icefloe-offsets-"
SOURCE = "icefloe-source-"
PLACEMENT = "icefloe-placement-"
LEADER = "icefloe-leader"
RESTART = "restart-connector-"
LOGGER = "logger-cluster-"
STATUS_CONNECTOR = "status-connector-"
STATUS_TASK = "status-task-"
STATUS_TOPIC = "status-topic-"
NODE = "icefloe-node-"
RUNNING = "icefloe-running-"
PROBLEM = "icefloe-problem-"

LAYOUT_KEY = "icefloe.layout"
PARTITIONS_KEY = "icefloe.partitions"
TOPIC_IDS_KEY = "icefloe.topic-ids"
ABANDONED_KEY = "icefloe.abandoned"
RANGES_FROM_KEY = "icefloe.ranges-from"
TASK_CLASS = "org.apache.iceberg.connect.IcebergSinkTask"  # what a Java worker would run

Record = tuple[str, Mapping[str, Any] | None]
"""Key and JSON value; a value of None is a tombstone."""


def config_records(
    connector: str, config: Mapping[str, str], target: TargetState | None = None
) -> list[Record]:
    """The records of a created or changed connector; the wish goes first, as in Kafka."""
    records = [] if target is None else [target_record(connector, target)]
    return [*records, (CONNECTOR + connector, {"properties": dict(config)})]


def target_record(connector: str, target: TargetState) -> Record:
    """The operator's wish; ``state`` alone is what workers before Kafka 3.5 understand."""
    old = "PAUSED" if target == "STOPPED" else target
    return (TARGET + connector, {"state": old, "state.v2": target})


def layout_records(layout: Layout, config: Mapping[str, str]) -> Iterator[Record]:
    """The task configs of a layout, then its commit record."""
    for task, partitions in enumerate(layout.tasks):
        pairs = [[tp.topic, tp.partition] for tp in partitions]
        yield (
            f"{TASK}{layout.connector}-{task}",
            {
                "properties": {
                    **config,
                    "task.class": TASK_CLASS,
                    "task.id": str(task),
                    LAYOUT_KEY: str(layout.number),
                    PARTITIONS_KEY: json.dumps(pairs, separators=(",", ":")),
                }
            },
        )
    more: dict[str, Any] = {
        TOPIC_IDS_KEY: dict(layout.topic_ids),
        ABANDONED_KEY: list(layout.abandoned),
        RANGES_FROM_KEY: [list(item) for item in layout.ranges_from],
    }
    yield (
        COMMIT + layout.connector,
        {
            "tasks": len(layout.tasks),
            LAYOUT_KEY: layout.number,
            **{k: v for k, v in more.items() if v},
        },
    )


def ready_record(layout: Layout, tasks_ever: int) -> Record:
    """Says that no task of an older layout can write any more."""
    return (READY + layout.connector, {"layout": layout.number, "tasks": tasks_ever})


def offsets_record(connector: str, offsets: Mapping[TopicPartition, int] | None) -> Record:
    """All committed source offsets a connector is to have before it starts again.

    Written while offsets of single partitions are being forgotten, which takes two requests to
    the broker; a crash between them is made good by whoever reads this. None: nothing is to do.
    """
    if offsets is None:
        return (OFFSETS + connector, None)
    listed = [[tp.topic, tp.partition, offset] for tp, offset in sorted(offsets.items())]
    return (OFFSETS + connector, {"offsets": listed})


def source_record(connector: str, floor: SourceFloor) -> Record:
    """The source partitions that the connector has read; a tombstone where there is none."""
    if not floor.offsets:
        return (SOURCE + connector, None)
    listed = [[tp.topic, tp.partition, offset] for tp, offset in sorted(floor.offsets.items())]
    return (SOURCE + connector, {"offsets": listed, "topic-ids": dict(floor.topic_ids)})


def placement_record(connector: str, places: Places) -> Record:
    """Says which nodes run the connector."""
    value: dict[str, Any] = {"coordinator": places.coordinator, "tasks": list(places.tasks)}
    if places.after:
        value["after"] = list(places.after)
    return (PLACEMENT + connector, value)


def leader_record(worker_id: str, url: str) -> Record:
    """Says who leads; written by the leader once nobody else can write this topic any more."""
    return (LEADER, {"worker_id": worker_id, "url": url})


def restart_record(request: str, connector: str, *, coordinator: bool, tasks: list[int]) -> Record:
    """Asks the nodes that run these units to start them again; Kafka's record, with ours in it."""
    value = {
        "include-tasks": bool(tasks),
        "only-failed": False,
        "icefloe.request": request,
        "icefloe.coordinator": coordinator,
        "icefloe.tasks": tasks,
    }
    return (RESTART + connector, value)


def logger_record(namespace: str, level: str) -> Record:
    """Sets a logger's level on every node."""
    return (LOGGER + namespace, {"level": level})


def running_key(node: str, connector: str) -> str:
    """Key of what a node runs of a connector."""
    return f"{RUNNING}{node}/{connector}"


def number_of(value: Any) -> int | None:
    """A number as it is stored, in JSON or in a string; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() else None


def topic_record(connector: str, topic: str, *, task: int, now_ms: int) -> Record:
    """Says that a connector has read from a topic; ``now_ms`` is when that was seen."""
    seen = {"name": topic, "connector": connector, "task": task, "discoverTimestamp": now_ms}
    return (f"{STATUS_TOPIC}{topic}:connector-{connector}", {"topic": seen})


def task_base_config(properties: Mapping[str, str]) -> dict[str, str]:
    """The connector's configuration that a stored task was made from."""
    ours = {"task.class", "task.id", LAYOUT_KEY, PARTITIONS_KEY}
    return {key: value for key, value in properties.items() if key not in ours}


def encode(value: Mapping[str, Any] | None) -> bytes | None:
    """JSON as Kafka Connect's schemaless JsonConverter writes it."""
    if value is None:
        return None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode(value: bytes | None) -> Mapping[str, Any] | None:
    """Inverse of ``encode``.

    Raises:
        ValueError: not a JSON object.
    """
    if value is None:
        return None
    parsed = json.loads(value)
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one error for all that is not ours
    return parsed

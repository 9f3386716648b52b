"""Keys and values of the two compacted topics, as they are written.

Rules of this file:
- Keys and JSON are those of Kafka Connect, so each product reads what the other wrote. Config
  topic: ``connector-``, ``target-state-``, ``task-``, ``commit-``. Status topic:
  ``status-connector-``, ``status-task-``, ``status-topic-``.
- Icefloe adds to the config topic: ``icefloe.layout``, ``.topic-ids``, ``.abandoned``,
  ``.ranges-from`` and ``.tasks-max`` in the commit record, the layout in each task's properties,
  ``icefloe-ready-<connector>``, ``icefloe-offsets-<connector>``, ``icefloe-source-<connector>``,
  ``icefloe-end-<connector>``, ``icefloe-rewind-<connector>``, ``icefloe-placement-<connector>``
  and ``icefloe-leader``.
- Icefloe adds to the status topic: ``icefloe-node-<node>``, ``icefloe-running-<node>/<connector>``
  and ``icefloe-problem-<connector>``.
- Readers ignore keys and fields that they do not know. The record of the leader has the format of
  all records of Icefloe in the config topic, which only the leader writes. The format rises when an
  older node would misunderstand a record. A node that reads a higher format than its own ends.
- Values are stored as sent: a ``${provider:path:key}`` placeholder is not resolved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from connect.model.layout import Layout, TopicPartition
from connect.protocol.source_end import SourceEnd
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
END = "icefloe-end-"
REWIND = "icefloe-rewind-"
PLACEMENT = "icefloe-placement-"
LEADER = "icefloe-leader"
STATE_FORMAT = 1
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
TASKS_MAX_KEY = "icefloe.tasks-max"
TASK_ID_KEY = "task.id"
TASK_CLASS = "org.apache.iceberg.connect.IcebergSinkTask"  # what a Java worker would run

Record = tuple[str, Mapping[str, Any] | None]
"""Key and JSON value; a value of None is a tombstone."""


def config_records(
    connector: str, config: Mapping[str, str], target: TargetState | None = None
) -> list[Record]:
    """Return the records of a new or changed connector; the target state first, as in Kafka."""
    records = [] if target is None else [target_record(connector, target)]
    return [*records, (CONNECTOR + connector, {"properties": dict(config)})]


def target_record(connector: str, target: TargetState) -> Record:
    """Return the record of a target state; workers before Kafka 3.5 read ``state`` alone."""
    old = "PAUSED" if target == "STOPPED" else target
    return (TARGET + connector, {"state": old, "state.v2": target})


def layout_records(layout: Layout, config: Mapping[str, str]) -> Iterator[Record]:
    """Yield the task configs of a layout, then its commit record."""
    for task, partitions in enumerate(layout.tasks):
        yield (
            f"{TASK}{layout.connector}-{task}",
            {
                "properties": {
                    **config,
                    "task.class": TASK_CLASS,
                    TASK_ID_KEY: str(task),
                    LAYOUT_KEY: str(layout.number),
                    PARTITIONS_KEY: partition_pairs(partitions),
                }
            },
        )
    more: dict[str, Any] = {
        TOPIC_IDS_KEY: dict(layout.topic_ids),
        ABANDONED_KEY: list(layout.abandoned),
        RANGES_FROM_KEY: [list(item) for item in layout.ranges_from],
        TASKS_MAX_KEY: layout.tasks_max,
    }
    yield (
        COMMIT + layout.connector,
        {
            "tasks": len(layout.tasks),
            LAYOUT_KEY: layout.number,
            **{k: v for k, v in more.items() if v},
        },
    )


def partition_pairs(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as the properties of a task have them."""
    return json.dumps([[tp.topic, tp.partition] for tp in partitions], separators=(",", ":"))


def ready_record(layout: Layout, tasks_ever: int) -> Record:
    """Return the record that marks all older layouts as fenced."""
    return (READY + layout.connector, {"layout": layout.number, "tasks": tasks_ever})


def offsets_record(connector: str, offsets: Mapping[TopicPartition, int] | None) -> Record:
    """Return the record of the source offsets to commit before the connector starts again.

    It is written while offsets of single partitions are removed, which takes two requests to the
    broker. After a crash between them, the next leader finishes the change. None removes it.
    """
    if offsets is None:
        return (OFFSETS + connector, None)
    listed = [[tp.topic, tp.partition, offset] for tp, offset in sorted(offsets.items())]
    return (OFFSETS + connector, {"offsets": listed})


def source_record(connector: str, floor: SourceFloor) -> Record:
    """Return the record of the source partitions that were read; a tombstone if there are none."""
    if not floor.is_stored:
        return (SOURCE + connector, None)
    offsets, starts = (
        [[tp.topic, tp.partition, offset] for tp, offset in sorted(of_partitions.items())]
        for of_partitions in (floor.offsets, floor.starts)
    )
    value: dict[str, Any] = {"offsets": offsets, "topic-ids": dict(floor.topic_ids)}
    if starts:
        value["starts"] = starts
    if floor.control:
        listed = [[tp.topic, tp.partition, at] for tp, at in sorted(floor.control.items())]
        value |= {"control": listed, "control-topic-id": floor.control_topic_id}
    if floor.recreated:
        value["recreated"] = {
            topic: {
                "topic-id": recreated.topic_id,
                "former-ids": list(recreated.former_ids),
                "lost-from": [list(item) for item in sorted(recreated.lost_from.items())],
                "pending": recreated.is_pending,
            }
            for topic, recreated in sorted(floor.recreated.items())
        }
    return (SOURCE + connector, value)


def end_record(connector: str, end: SourceEnd | None) -> Record:
    """Return the record of the end of a bounded run; None removes it."""
    return (END + connector, None if end is None else end.to_json())


def rewind_record(connector: str, rewind: Mapping[str, Any] | None) -> Record:
    """Return the record of a rewind that has begun; None removes it when the rewind is done.

    The connector does not start while there is one.
    """
    return (REWIND + connector, rewind)


def placement_record(connector: str, places: Places) -> Record:
    """Return the record of the nodes that run the connector."""
    value: dict[str, Any] = {"coordinator": places.coordinator, "tasks": list(places.tasks)}
    if places.after:
        value["after"] = list(places.after)
    return (PLACEMENT + connector, value)


def leader_record(worker_id: str, url: str) -> Record:
    """Return the record of the leader; it writes it after it has fenced all other writers."""
    return (LEADER, {"worker_id": worker_id, "url": url, "format": STATE_FORMAT})


def restart_record(request: str, connector: str, *, coordinator: bool, tasks: list[int]) -> Record:
    """Return Kafka Connect's restart record, with the units to restart in fields of Icefloe."""
    value = {
        "include-tasks": bool(tasks),
        "only-failed": False,
        "icefloe.request": request,
        "icefloe.coordinator": coordinator,
        "icefloe.tasks": tasks,
    }
    return (RESTART + connector, value)


def logger_record(namespace: str, level: str) -> Record:
    """Return the record that sets the level of a logger on every node."""
    return (LOGGER + namespace, {"level": level})


def running_key(node: str, connector: str) -> str:
    """Return the key of the units of a connector that a node runs."""
    return f"{RUNNING}{node}/{connector}"


def number_of(value: Any) -> int | None:
    """Return a stored number, from JSON or from a string; None for any other value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() else None


def topic_record(connector: str, topic: str, *, task: int, now_ms: int) -> Record:
    """Return the record of an active topic; ``now_ms`` is when it was found to be active."""
    discovered = {"name": topic, "connector": connector, "task": task, "discoverTimestamp": now_ms}
    return (f"{STATUS_TOPIC}{topic}:connector-{connector}", {"topic": discovered})


def task_base_config(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of the connector from which a stored task config was made."""
    added = {"task.class", TASK_ID_KEY, LAYOUT_KEY, PARTITIONS_KEY}
    return {key: value for key, value in properties.items() if key not in added}


def encode(value: Mapping[str, Any] | None) -> bytes | None:
    """Return JSON as Kafka Connect's schemaless JsonConverter writes it."""
    if value is None:
        return None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode(value: bytes | None) -> Mapping[str, Any] | None:
    """Parse what ``encode`` wrote.

    Raises:
        ValueError: not a JSON object.
    """
    if value is None:
        return None
    parsed = json.loads(value)
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one error for every foreign value
    return parsed

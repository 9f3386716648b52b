"""Connectors as the config topic tells of them: a pure fold over its records.

Rules of this file:
- No client, no clock, no thread: records in, state out; the same records give the same state.
- What records look like is said in ``records``.
- A layout counts when its commit record is read and every task of it is there with the same
  number; it may be started when the ready record with that number is read.
- What cannot be understood is skipped, never fatal: the topic may hold another product's keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from connect.model.layout import Layout, TopicPartition
from connect.protocol.source_floor import SourceFloor
from connect.state.placement import Places
from connect.state.topic_records import (
    ABANDONED_KEY,
    COMMIT,
    CONNECTOR,
    LAYOUT_KEY,
    LEADER,
    OFFSETS,
    PARTITIONS_KEY,
    PLACEMENT,
    RANGES_FROM_KEY,
    READY,
    RESTART,
    SOURCE,
    TARGET,
    TARGET_STATES,
    TASK,
    TOPIC_IDS_KEY,
    Record,
    TargetState,
    number_of,
    offsets_record,
    source_record,
)


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart that an operator asked for; done once by whoever runs the units."""

    request: str
    coordinator: bool = False
    tasks: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, by its own word: the last one that could write the config topic."""

    worker_id: str
    url: str


@dataclass(frozen=True, slots=True)
class StoredConnector:
    """What the config topic says of one connector.

    Attributes:
        name: connector name.
        config: as sent; None when the connector does not exist (deleted, or only leftovers).
        target: the operator's wish.
        is_stopped: told to stop and not to start since: it has no tasks any more, also when it
            is PAUSED by now and its layout still to be cleared.
        layout: the latest committed layout that is whole; None when there is none.
        task_configs: the stored properties of each task of ``layout``.
        ready: number of the newest layout whose transactional ids are all taken over.
        pending_offsets: committed source offsets to be set before anything starts; None when there
            are none to set.
        source_floor: source partitions that were read before.
        number_max: highest layout number ever seen, committed or not; the next one is above it.
        tasks_ever: task ids below this may have run; their transactional ids must be taken over
            before a new layout is ready. Task records outlive the layouts they belonged to, so a
            crash between any two steps forgets none.
        places: which nodes run it; None until the leader has said so.
        restart: the last restart an operator asked for; None when none was.
        revision: rises with every record about the connector that this process read.
    """

    name: str
    config: Mapping[str, str] | None = None
    target: TargetState = "STARTED"
    is_stopped: bool = False
    layout: Layout | None = None
    task_configs: tuple[Mapping[str, str], ...] = ()
    ready: int | None = None
    pending_offsets: Mapping[TopicPartition, int] | None = None
    source_floor: SourceFloor = field(default_factory=SourceFloor)
    number_max: int = 0
    tasks_ever: int = 0
    places: Places | None = None
    restart: Restart | None = None
    revision: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether the tasks of the latest layout may start."""
        return self.layout is not None and self.ready == self.layout.number


@dataclass(slots=True)
class _Building:
    """One connector while its records are folded."""

    state: StoredConnector
    pending: dict[int, Mapping[str, str]] = field(default_factory=dict)


class ConfigState:
    """The config topic, folded. Not safe for threads: its owner locks."""

    def __init__(self) -> None:
        self._connectors: dict[str, _Building] = {}
        self.leader: Leader | None = None

    def get(self, connector: str) -> StoredConnector:
        """The connector's state; an empty one when nothing was ever written."""
        found = self._connectors.get(connector)
        return found.state if found else StoredConnector(connector)

    def names(self) -> list[str]:
        """Connectors that exist, sorted."""
        return sorted(n for n, b in self._connectors.items() if b.state.config is not None)

    def apply(self, key: str, value: Mapping[str, Any] | None) -> str | None:
        """Fold one record in.

        Returns:
            The connector it was about, or None when it was none of ours or not understood.
        """
        if key == LEADER and value is not None:
            self.leader = Leader(str(value.get("worker_id")), str(value.get("url")))
            return None
        for prefix, fold in (
            (TARGET, self._target),
            (CONNECTOR, self._connector),
            (COMMIT, self._commit),
            (READY, self._ready),
            (OFFSETS, self._offsets),
            (SOURCE, self._source),
            (PLACEMENT, self._placement),
            (RESTART, self._restart),
        ):
            if key.startswith(prefix):
                name = key.removeprefix(prefix)
                return self._touch(name) if name and fold(name, value) else None
        if key.startswith(TASK):
            name, _, number = key.removeprefix(TASK).rpartition("-")
            if name and number.isdigit() and self._task(name, int(number), value):
                return self._touch(name)
        return None

    def _at(self, name: str) -> _Building:
        return self._connectors.setdefault(name, _Building(StoredConnector(name)))

    def _touch(self, name: str) -> str:
        building = self._at(name)
        building.state = replace(building.state, revision=building.state.revision + 1)
        return name

    def _connector(self, name: str, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        if value is None:
            # number_max outlives the connector: a zombie of the deleted one stays behind it
            building.state = StoredConnector(
                name,
                number_max=building.state.number_max,
                tasks_ever=building.state.tasks_ever,
                revision=building.state.revision,
            )
            building.pending.clear()
            return True
        properties = value.get("properties")
        if not isinstance(properties, dict):
            return False
        building.state = replace(building.state, config=_strings(properties))
        return True

    def _target(self, name: str, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        wish = "STARTED" if value is None else value.get("state.v2") or value.get("state")
        for target in TARGET_STATES:
            if wish == target:
                is_stopped = target == "STOPPED" or (
                    building.state.is_stopped and target == "PAUSED"
                )
                building.state = replace(building.state, target=target, is_stopped=is_stopped)
                return True
        return False

    def _task(self, name: str, task: int, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        if value is None:
            building.pending.pop(task, None)
            return True
        properties = value.get("properties")
        if not isinstance(properties, dict):
            return False
        building.pending[task] = _strings(properties)
        self._saw(building, number_of(properties.get(LAYOUT_KEY)), tasks=task + 1)
        return True

    def _commit(self, name: str, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        if value is None:
            building.state = replace(building.state, layout=None, task_configs=(), ready=None)
            building.pending.clear()
            return True
        count, number = value.get("tasks"), number_of(value.get(LAYOUT_KEY))
        self._saw(building, number)
        configs = _whole(building.pending, count, number)
        layout = _layout(name, number, configs)
        if layout is not None:
            layout = _with_memory(layout, value)
        building.state = replace(
            building.state, layout=layout, task_configs=configs if layout and configs else ()
        )
        return True

    def _ready(self, name: str, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        value = value or {}
        number = number_of(value.get("layout"))
        self._saw(building, number, tasks=number_of(value.get("tasks")) or 0)
        building.state = replace(building.state, ready=number)
        return True

    def _offsets(self, name: str, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        try:
            wanted = None if value is None else _offsets(value["offsets"])
        except (KeyError, TypeError, ValueError):
            return False
        building.state = replace(building.state, pending_offsets=wanted)
        return True

    def _source(self, name: str, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        try:
            floor = (
                SourceFloor()
                if value is None
                else SourceFloor(_offsets(value["offsets"]), _strings(value.get("topic-ids", {})))
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return False
        building.state = replace(building.state, source_floor=floor)
        return True

    def _placement(self, name: str, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        try:
            places = None if value is None else _places(value)
        except (KeyError, TypeError):
            return False
        building.state = replace(building.state, places=places)
        return True

    def _restart(self, name: str, value: Mapping[str, Any] | None) -> bool:
        building = self._at(name)
        value = value or {}
        listed = value.get("icefloe.tasks", ())
        if not isinstance(value.get("icefloe.request"), str) or not isinstance(listed, list):
            return False
        wish = Restart(
            value["icefloe.request"],
            coordinator=value.get("icefloe.coordinator") is True,
            tasks=frozenset(task for task in listed if isinstance(task, int)),
        )
        building.state = replace(building.state, restart=wish)
        return True

    def _saw(self, building: _Building, number: int | None, tasks: int = 0) -> None:
        building.state = replace(
            building.state,
            number_max=max(number or 0, building.state.number_max),
            tasks_ever=max(tasks, building.state.tasks_ever),
        )


def deletion_records(state: StoredConnector) -> list[Record]:
    """Tombstones of everything but the ready record.

    The ready record stays: with it the numbering goes on if the name is used again, so a task of
    the deleted connector that wakes up late finds a number above its own, and its transactional
    id is still known to whoever creates the name anew.
    """
    ready = {"layout": state.number_max, "tasks": state.tasks_ever}
    return [
        (CONNECTOR + state.name, None),
        (TARGET + state.name, None),
        *((f"{TASK}{state.name}-{task}", None) for task in range(state.tasks_ever)),
        (COMMIT + state.name, None),
        *([(PLACEMENT + state.name, None)] if state.places else []),
        *([(RESTART + state.name, None)] if state.restart else []),
        *([offsets_record(state.name, None)] if state.pending_offsets is not None else []),
        *([source_record(state.name, SourceFloor())] if state.source_floor.offsets else []),
        *([(READY + state.name, ready)] if state.number_max else []),
    ]


def _strings(properties: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in properties.items() if value is not None}


def _whole(
    pending: Mapping[int, Mapping[str, str]], count: Any, number: int | None
) -> tuple[Mapping[str, str], ...] | None:
    """The configs of tasks 0 to count - 1, or None when one is missing or of another layout."""
    if not isinstance(count, int) or isinstance(count, bool) or number is None:
        return None
    configs = [pending.get(task) for task in range(count)]
    found = tuple(c for c in configs if c is not None and number_of(c.get(LAYOUT_KEY)) == number)
    return found if len(found) == count else None


def _layout(
    connector: str,
    number: int | None,
    configs: Sequence[Mapping[str, str]] | None,
) -> Layout | None:
    if number is None or configs is None:
        return None
    try:
        tasks = tuple(
            tuple(TopicPartition(str(topic), int(partition)) for topic, partition in pairs)
            for pairs in (json.loads(c[PARTITIONS_KEY]) for c in configs)
        )
    except (KeyError, TypeError, ValueError):
        return None
    return Layout(connector, number, tasks)


def _with_memory(layout: Layout, value: Mapping[str, Any]) -> Layout:
    """What a layout remembers from those before it; nothing where that is not understood."""
    try:
        return replace(
            layout,
            topic_ids=tuple(sorted(_strings(value.get(TOPIC_IDS_KEY, {})).items())),
            abandoned=tuple(str(topic_id) for topic_id in value.get(ABANDONED_KEY, ())),
            ranges_from=tuple((int(p), int(at)) for p, at in value.get(RANGES_FROM_KEY, ())),
        )
    except (AttributeError, TypeError, ValueError):
        return layout


def _places(value: Mapping[str, Any]) -> Places:
    return Places(
        coordinator=str(value["coordinator"]),
        tasks=tuple(str(node) for node in value.get("tasks", ())),
        after=tuple(str(node) for node in value.get("after", ())),
    )


def _offsets(listed: Any) -> dict[TopicPartition, int]:
    return {TopicPartition(str(t), int(p)): int(offset) for t, p, offset in listed}

"""The state of connectors, computed from the records of the config topic.

Rules of this file:
- No client, no clock, no thread: the same records give the same state.
- ``topic_records`` describes the format of the records.
- A layout counts when its commit record is read and every task of it is present with the same
  number. It may be started when the ready record with that number is read.
- A record that cannot be parsed is skipped: the topic may hold keys of another product.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from connect.model.layout import Layout, TopicPartition
from connect.protocol.source_end import SourceEnd
from connect.protocol.source_floor import RecreatedTopic, SourceFloor
from connect.state.placement import Places
from connect.state.rewind_record import RewindRecord
from connect.state.topic_records import (
    ABANDONED_KEY,
    COMMIT,
    CONNECTOR,
    END,
    LAYOUT_KEY,
    LEADER,
    OFFSETS,
    PARTITIONS_KEY,
    PLACEMENT,
    RANGES_FROM_KEY,
    READY,
    RESTART,
    REWIND,
    SOURCE,
    STATE_FORMAT,
    TARGET,
    TARGET_STATES,
    TASK,
    TASKS_MAX_KEY,
    TOPIC_IDS_KEY,
    Record,
    TargetState,
    end_record,
    number_of,
    offsets_record,
    rewind_record,
    source_record,
)


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart that an operator requested; done once by the nodes that run the units."""

    request: str
    coordinator: bool = False
    tasks: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader: the last node that became the writer of the config topic.

    Attributes:
        worker_id: ``host:port``.
        url: base URL of its REST API.
        state_format: of the records that it writes.
    """

    worker_id: str
    url: str
    state_format: int = STATE_FORMAT


@dataclass(frozen=True, slots=True)
class StoredConnector:
    """The state of one connector in the config topic.

    Attributes:
        config: as sent; None when the connector does not exist (deleted, or never created).
        target: the target state that the operator set.
        is_stopped: it was set to STOPPED and not to STARTED since. It has no tasks, even if it is
            PAUSED now and its layout is not cleared yet.
        layout: the latest committed layout with all its tasks; None when there is none.
        task_configs: the stored properties of each task of ``layout``.
        ready: number of the newest layout whose transactional ids are all fenced.
        pending_offsets: source offsets to commit before anything starts; None when there are none.
        source_floor: source partitions that were read before.
        end: where a bounded run ends; None until it is fixed, and without ``icefloe.end``.
        rewind: the rewind that has begun and is not done; None when there is none.
        number_max: highest layout number ever read, committed or not; the next one is above it.
        tasks_ever: task ids below this may have run; their transactional ids must be fenced
            before a new layout is ready. Task records outlive the layouts they belonged to, so a
            crash between any two steps loses none.
        places: which nodes run it; None until the leader has placed it.
        restart: the last restart that an operator requested; None when there was none.
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
    end: SourceEnd | None = None
    rewind: RewindRecord | None = None
    number_max: int = 0
    tasks_ever: int = 0
    places: Places | None = None
    restart: Restart | None = None
    revision: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether the tasks of the latest layout may start."""
        return self.layout is not None and self.ready == self.layout.number

    @property
    def is_completed(self) -> bool:
        """Whether the bounded run of the present configuration is complete."""
        if self.end is None or self.config is None:
            return False
        return self.end.is_completed(self.config)

    @property
    def is_to_run(self) -> bool:
        """Whether tasks have to run: the target state is STARTED, and no run is complete."""
        return self.config is not None and self.target == "STARTED" and not self.is_completed


@dataclass(slots=True)
class _PartialState:
    """One connector: its state, and task records whose commit record is not read yet."""

    state: StoredConnector
    pending: dict[int, Mapping[str, str]] = field(default_factory=dict)


class ConfigState:
    """The state of all connectors. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._connectors: dict[str, _PartialState] = {}
        self.leader: Leader | None = None

    def get(self, connector: str) -> StoredConnector:
        """Return the connector's state; an empty one when nothing was ever written."""
        connector_state = self._connectors.get(connector)
        return connector_state.state if connector_state else StoredConnector(connector)

    def names(self) -> list[str]:
        """Return the names of the existing connectors, sorted."""
        return sorted(n for n, b in self._connectors.items() if b.state.config is not None)

    def apply(self, key: str, value: Mapping[str, Any] | None) -> str | None:
        """Apply one record.

        Returns:
            The connector it was about; None when it was about none, or could not be parsed.
        """
        if key == LEADER and value is not None:
            state_format = number_of(value.get("format")) or STATE_FORMAT
            self.leader = Leader(str(value.get("worker_id")), str(value.get("url")), state_format)
            return None
        for prefix, fold in (
            (TARGET, self._target),
            (CONNECTOR, self._connector),
            (COMMIT, self._commit),
            (READY, self._ready),
            (OFFSETS, self._offsets),
            (SOURCE, self._source),
            (END, self._end),
            (REWIND, self._rewind),
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

    def _at(self, name: str) -> _PartialState:
        return self._connectors.setdefault(name, _PartialState(StoredConnector(name)))

    def _touch(self, name: str) -> str:
        partial = self._at(name)
        partial.state = replace(partial.state, revision=partial.state.revision + 1)
        return name

    def _connector(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        if value is None:
            # number_max outlives the connector: a zombie of the deleted one has a lower number
            partial.state = StoredConnector(
                name,
                number_max=partial.state.number_max,
                tasks_ever=partial.state.tasks_ever,
                revision=partial.state.revision,
            )
            partial.pending.clear()
            return True
        properties = value.get("properties")
        if not isinstance(properties, dict):
            return False
        partial.state = replace(partial.state, config=_strings(properties))
        return True

    def _target(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        written = "STARTED" if value is None else value.get("state.v2") or value.get("state")
        for target in TARGET_STATES:
            if written == target:
                is_stopped = target == "STOPPED" or (
                    partial.state.is_stopped and target == "PAUSED"
                )
                partial.state = replace(partial.state, target=target, is_stopped=is_stopped)
                return True
        return False

    def _task(self, name: str, task: int, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        if value is None:
            partial.pending.pop(task, None)
            return True
        properties = value.get("properties")
        if not isinstance(properties, dict):
            return False
        partial.pending[task] = _strings(properties)
        self._note_number(partial, number_of(properties.get(LAYOUT_KEY)), tasks=task + 1)
        return True

    def _commit(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        if value is None:
            partial.state = replace(partial.state, layout=None, task_configs=(), ready=None)
            partial.pending.clear()
            return True
        count, number = value.get("tasks"), number_of(value.get(LAYOUT_KEY))
        self._note_number(partial, number)
        configs = _whole(partial.pending, count, number)
        layout = _layout(name, number, configs)
        if layout is not None:
            layout = _with_more(layout, value)
        partial.state = replace(
            partial.state, layout=layout, task_configs=configs if layout and configs else ()
        )
        return True

    def _ready(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        value = value or {}
        number = number_of(value.get("layout"))
        self._note_number(partial, number, tasks=number_of(value.get("tasks")) or 0)
        partial.state = replace(partial.state, ready=number)
        return True

    def _offsets(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        try:
            offsets = None if value is None else _offsets(value["offsets"])
        except (KeyError, TypeError, ValueError):
            return False
        partial.state = replace(partial.state, pending_offsets=offsets)
        return True

    def _source(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        try:
            floor = (
                SourceFloor()
                if value is None
                else SourceFloor(
                    _offsets(value["offsets"]),
                    _strings(value.get("topic-ids", {})),
                    _offsets(value.get("starts", ())),
                    _offsets(value.get("control", ())),
                    str(value.get("control-topic-id", "")),
                    {
                        str(t): _recreated(recreated)
                        for t, recreated in value.get("recreated", {}).items()
                    },
                )
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return False
        partial.state = replace(partial.state, source_floor=floor)
        return True

    def _end(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        try:
            end = None if value is None else SourceEnd.from_json(value)
        except (KeyError, TypeError, ValueError):
            return False
        partial.state = replace(partial.state, end=end)
        return True

    def _rewind(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        try:
            record = None if value is None else RewindRecord.from_json(value)
        except (TypeError, ValueError):  # it stops the start, as every record does
            record = RewindRecord(str(value and value.get("id")))
        partial.state = replace(partial.state, rewind=record)
        return True

    def _placement(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        try:
            places = None if value is None else _places(value)
        except (KeyError, TypeError):
            return False
        partial.state = replace(partial.state, places=places)
        return True

    def _restart(self, name: str, value: Mapping[str, Any] | None) -> bool:
        partial = self._at(name)
        value = value or {}
        listed = value.get("icefloe.tasks", ())
        if not isinstance(value.get("icefloe.request"), str) or not isinstance(listed, list):
            return False
        restart = Restart(
            value["icefloe.request"],
            coordinator=value.get("icefloe.coordinator") is True,
            tasks=frozenset(task for task in listed if isinstance(task, int)),
        )
        partial.state = replace(partial.state, restart=restart)
        return True

    def _note_number(self, partial: _PartialState, number: int | None, tasks: int = 0) -> None:
        partial.state = replace(
            partial.state,
            number_max=max(number or 0, partial.state.number_max),
            tasks_ever=max(tasks, partial.state.tasks_ever),
        )


def deletion_records(state: StoredConnector) -> list[Record]:
    """Return tombstones of everything but the ready record.

    The ready record stays. A new connector of the same name continues the numbering, so a late
    task of the deleted one reads a number above its own. Its transactional id stays known too,
    and is fenced when a new connector of that name starts.
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
        *([rewind_record(state.name, None)] if state.rewind is not None else []),
        *(
            [source_record(state.name, SourceFloor())]
            if state.source_floor != SourceFloor()
            else []
        ),
        *([end_record(state.name, None)] if state.end is not None else []),
        *([(READY + state.name, ready)] if state.number_max else []),
    ]


def _strings(properties: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in properties.items() if value is not None}


def _whole(
    pending: Mapping[int, Mapping[str, str]], count: Any, number: int | None
) -> tuple[Mapping[str, str], ...] | None:
    """Return the configs of tasks 0 to count - 1; None if one is missing or of another layout."""
    if not isinstance(count, int) or isinstance(count, bool) or number is None:
        return None
    configs = [pending.get(task) for task in range(count)]
    of_layout = tuple(
        c for c in configs if c is not None and number_of(c.get(LAYOUT_KEY)) == number
    )
    return of_layout if len(of_layout) == count else None


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


def _with_more(layout: Layout, value: Mapping[str, Any]) -> Layout:
    """Add the further fields of a commit record; none if they cannot be parsed."""
    try:
        return replace(
            layout,
            topic_ids=tuple(sorted(_strings(value.get(TOPIC_IDS_KEY, {})).items())),
            abandoned=tuple(str(topic_id) for topic_id in value.get(ABANDONED_KEY, ())),
            ranges_from=tuple((int(p), int(at)) for p, at in value.get(RANGES_FROM_KEY, ())),
            tasks_max=number_of(value.get(TASKS_MAX_KEY)) or 0,
        )
    except (AttributeError, TypeError, ValueError):
        return layout


def _places(value: Mapping[str, Any]) -> Places:
    return Places(
        coordinator=str(value["coordinator"]),
        tasks=tuple(str(node) for node in value.get("tasks", ())),
        after=tuple(str(node) for node in value.get("after", ())),
    )


def _recreated(value: Mapping[str, Any]) -> RecreatedTopic:
    return RecreatedTopic(
        str(value["topic-id"]),
        tuple(map(str, value.get("former-ids", ()))),
        {int(p): int(offset) for p, offset in value.get("lost-from", ())},
        is_pending=value.get("pending") is True,
    )


def _offsets(listed: Any) -> dict[TopicPartition, int]:
    return {TopicPartition(str(t), int(p)): int(offset) for t, p, offset in listed}

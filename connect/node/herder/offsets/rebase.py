"""``icefloe control rebase``: lets a connector continue after its control topic lost events.

Rules of this file:
- The operator sees what is given up, with its ranges, before it is applied. Applying computes the
  plan again from the present state, and does what that plan shows.
- Only wrong offsets are changed: a connector with a complete control log keeps its offsets.
- The coordinator process corrects the tables: it has the catalog's clients and secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.child_requests import ChildRequests
from connect.node.herder.offsets.offset_events import OffsetEvents
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector

GIVEN_UP = (
    "To read the records of given-up announcements again, set the source offsets back with "
    "PATCH /connectors/<name>/offsets before resuming. Records after these offsets that were "
    "committed will be in the tables twice."
)


@dataclass(slots=True)
class RebasePlan:
    """The changes that a rebase makes.

    Attributes:
        layout: the layout that records the rebase.
        offsets: control offsets of the connector's control group that change.
        notes: what is given up and what is done, a sentence each.
        kept: control offsets that stay as they are.
    """

    layout: Layout
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kept: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def floor(self) -> dict[str, int]:
        """The control offsets of the group after the rebase, by control partition."""
        return {str(tp.partition): at for tp, at in {**self.kept, **self.offsets}.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the form of the REST API."""
        moved = [[tp.topic, tp.partition, at] for tp, at in sorted(self.offsets.items())]
        return {"control_offsets": moved, "says": self.notes, "then": GIVEN_UP}


class Rebase:
    """Rebases stopped connectors.

    Args:
        store: layouts.
        offset_events: stores control offsets.
        requests: to the coordinator process.
    """

    def __init__(
        self,
        store: ConfigStore,
        admin: KafkaAdmin,
        offset_events: OffsetEvents,
        requests: ChildRequests,
    ) -> None:
        self._store = store
        self._admin = admin
        self._offset_events = offset_events
        self._requests = requests

    def run(
        self,
        state: StoredConnector,
        config: ConnectorConfig,
        tables: Sequence[str],
        is_applied: bool,
    ) -> dict[str, Any]:
        """Return the plan, or apply it; see ``StoppedConnectors.rebase``."""
        planned = plan(self._admin, state, config)
        command: dict[str, Any] = {
            "op": "rebase",
            "connector": state.name,
            "config": dict(state.config or {}),
            "tables": list(tables),
            "offsets": planned.floor,
            "apply": is_applied,
        }
        answer = self._requests.ask("coordinator", command)
        if "error" in answer:
            planned.notes.append(f"tables could not be read: {answer['error']}")
        if is_applied:
            if planned.offsets:
                self._offset_events.set_control(state, config, planned.offsets)
            self._store.put_layout(planned.layout, state.config or {})
            self._store.put_ready(planned.layout)
        report = {**planned.to_json(), "tables": answer["tables"]}
        return {"connector": state.name, "applied": is_applied, **report}


def plan(admin: KafkaAdmin, state: StoredConnector, config: ConnectorConfig) -> RebasePlan:
    """Compare the stored control offsets of a stopped connector with its control topic.

    Raises:
        RetriableError: ``topic_missing``: there is no control topic; or the broker cannot be
            reached.
    """
    topic, group = config.control_topic, config.control_group_id
    layout = state.layout or Layout(state.name, 0, ())
    topic_ids = dict(layout.topic_ids)
    topic_id = admin.topic_id(topic)
    partitions = admin.partitions(topic)
    if topic_id is None or not partitions:
        raise RetriableError(f"control topic {topic} does not exist", code="topic_missing")
    marks, committed = admin.watermarks(partitions), admin.committed(group, partitions)
    planned = RebasePlan(replace(layout, number=state.number_max + 1, tasks=()))
    planned.kept = {tp: at for tp, at in committed.items() if at is not None}
    former = topic_ids.get(topic)
    if former is not None and former != topic_id:
        planned.notes.append(
            f"control topic {topic} was replaced (its id is {topic_id}, it was {former}): "
            "announcements in the old topic that were not committed are given up; their files "
            "stay in storage, and their source offsets stay committed; control offsets of the old "
            "topic in tables no longer count"
        )
        planned.offsets = {tp: start for tp, (start, _) in marks.items()}
        planned.layout = replace(planned.layout, abandoned=(*layout.abandoned, former))
    else:
        has_source = any(admin.committed_all(name) for name in config.member_groups)
        _plan_offsets(planned, marks, committed, has_source=has_source)
    ends = tuple((tp.partition, end) for tp, (_, end) in sorted(marks.items()))
    planned.notes.append(
        "source ranges announced so far are accepted as they are; from control offsets "
        f"{', '.join(f'{p}:{end}' for p, end in ends)} on each must begin where the last one ended"
    )
    planned.layout = replace(
        planned.layout,
        topic_ids=tuple(sorted({**topic_ids, topic: topic_id}.items())),
        ranges_from=ends,
    )
    return planned


def _plan_offsets(
    planned: RebasePlan,
    marks: Mapping[TopicPartition, tuple[int, int]],
    committed: Mapping[TopicPartition, int | None],
    *,
    has_source: bool,
) -> None:
    has_history = any(offset is not None for offset in committed.values())
    if not has_history and not has_source:
        planned.notes.append(
            "the group has no source offsets either, so the control group gets none: with control "
            "offsets the connector would start as a new one and write all records again; set the "
            "source offsets"
        )
        return
    for tp, (start, end) in sorted(marks.items()):
        offset = committed[tp]
        if offset is None and not has_history:
            planned.offsets[tp] = start
            planned.notes.append(
                f"the group has no offset for control partition {tp.partition}: reading begins at "
                f"{start}; announcements below it that were not committed are given up, and tables "
                "filter events that they have committed"
            )
        elif offset is not None and offset < start:
            planned.offsets[tp] = start
            planned.notes.append(
                f"control events {offset}..{start - 1} of partition {tp.partition} are gone: "
                "announcements among them that were not committed are given up; their files stay "
                "in storage, and their source offsets stay committed"
            )
        elif offset is not None and offset > end:
            planned.offsets[tp] = start
            planned.notes.append(
                f"control partition {tp.partition} ends at {end}, below the group's offset "
                f"{offset}: events {end}..{offset - 1} are gone; reading begins at {start}, and "
                "tables filter events that they have committed. A table with a control offset "
                "above the end stays stopped until the topic is deleted and created again"
            )

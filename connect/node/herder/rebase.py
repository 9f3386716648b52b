"""``icefloe control rebase``: go on after the control log lost what a connector needs of it.

Rules of this file:
- What is given up is said before it is done, with its ranges; done is what was said, and the plan
  is worked out anew from what is there.
- Only what is wrong is changed: a connector whose control log is whole keeps its offsets.
- Tables are mended by the coordinator process, which has the catalog's clients and secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import Layout, TopicPartition
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector

GIVEN_UP = (
    "To have records again whose announcements were given up, set the source offsets back with "
    "PATCH /connectors/<name>/offsets before resuming: what had been committed from there on will "
    "be in the tables twice."
)


@dataclass(slots=True)
class RebasePlan:
    """What a rebase would do.

    Attributes:
        layout: the layout that remembers it.
        offsets: control offsets that the connector's control group gets; those that change.
        says: what is given up and what is done, a sentence each.
        kept: control offsets that stay as they are.
    """

    layout: Layout
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    says: list[str] = field(default_factory=list)
    kept: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def floor(self) -> dict[str, int]:
        """Control partition -> control offset of the group after it."""
        return {str(tp.partition): at for tp, at in {**self.kept, **self.offsets}.items()}

    def to_json(self) -> dict[str, Any]:
        """For the REST API."""
        moved = [[tp.topic, tp.partition, at] for tp, at in sorted(self.offsets.items())]
        return {"control_offsets": moved, "says": self.says, "then": GIVEN_UP}


class Rebase:
    """Rebases stopped connectors.

    Args:
        store: layouts.
        admin: the cluster.
        ask: sends a command to a child and returns its answer.
    """

    def __init__(
        self,
        store: ConfigStore,
        admin: KafkaAdmin,
        ask: Callable[[str, Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        self._store = store
        self._admin = admin
        self._ask = ask

    def run(
        self,
        state: StoredConnector,
        config: ConnectorConfig,
        tables: Sequence[str],
        is_applied: bool,
    ) -> dict[str, Any]:
        """Say what would be done, or do it; see ``HerderApi.rebase``."""
        made = plan(self._admin, state, config)
        asked: dict[str, Any] = {
            "op": "rebase",
            "connector": state.name,
            "config": dict(state.config or {}),
            "tables": list(tables),
            "offsets": made.floor,
            "apply": is_applied,
        }
        answer = self._ask("coordinator", asked)
        if "error" in answer:
            made.says.append(f"tables could not be looked at: {answer['error']}")
        if is_applied:
            if made.offsets:
                self._admin.alter_offsets(config.control_group_id, made.offsets)
            self._store.put_layout(made.layout, state.config or {})
            self._store.put_ready(made.layout)
        displayed = {**made.to_json(), "tables": answer["tables"]}
        return {"connector": state.name, "applied": is_applied, **displayed}


def plan(admin: KafkaAdmin, state: StoredConnector, config: ConnectorConfig) -> RebasePlan:
    """Compare what a stopped connector remembers of its control topic with what is there.

    Raises:
        RetriableError: ``topic_missing``: there is no control topic; or the broker is away.
    """
    topic, group = config.control_topic, config.control_group_id
    layout = state.layout or Layout(state.name, 0, ())
    known = dict(layout.topic_ids)
    topic_id = admin.topic_id(topic)
    count = admin.topics().get(topic)
    if topic_id is None or not count:
        raise RetriableError(f"control topic {topic} does not exist", code="topic_missing")
    partitions = [TopicPartition(topic, p) for p in range(count)]
    marks, committed = admin.watermarks(partitions), admin.committed(group, partitions)
    made = RebasePlan(replace(layout, number=state.number_max + 1, tasks=()))
    made.kept = {tp: at for tp, at in committed.items() if at is not None}
    former = known.get(topic)
    if former is not None and former != topic_id:
        made.says.append(
            f"control topic {topic} is another one ({topic_id}, it was {former}): every "
            "announcement in the old one that was not committed is given up; its files stay in "
            "storage, its source offsets were passed; control offsets that tables have of the old "
            "topic no longer count"
        )
        made.offsets = {tp: start for tp, (start, _) in marks.items()}
        made.layout = replace(made.layout, abandoned=(*layout.abandoned, former))
    else:
        has_source = any(admin.committed_all(name) for name in config.member_groups)
        _plan_offsets(made, marks, committed, has_source=has_source)
    ends = tuple((tp.partition, end) for tp, (_, end) in sorted(marks.items()))
    made.says.append(
        "source ranges announced so far are taken as they are; from control offsets "
        f"{', '.join(f'{p}:{end}' for p, end in ends)} on each must begin where the last one ended"
    )
    made.layout = replace(
        made.layout,
        topic_ids=tuple(sorted({**known, topic: topic_id}.items())),
        ranges_from=ends,
    )
    return made


def _plan_offsets(
    made: RebasePlan,
    marks: Mapping[TopicPartition, tuple[int, int]],
    committed: Mapping[TopicPartition, int | None],
    *,
    has_source: bool,
) -> None:
    has_history = any(offset is not None for offset in committed.values())
    if not has_history and not has_source:
        made.says.append(
            "the group has no source offsets either: the control group gets none, for with them "
            "the connector would begin anew and write everything again; set the source offsets"
        )
        return
    for tp, (start, end) in sorted(marks.items()):
        offset = committed[tp]
        if offset is None and not has_history:
            made.offsets[tp] = start
            made.says.append(
                f"the group has no offset for control partition {tp.partition}: reading begins at "
                f"{start}; announcements below it that were not committed are given up, and tables "
                "filter what they have"
            )
        elif offset is not None and offset < start:
            made.offsets[tp] = start
            made.says.append(
                f"control events {offset}..{start - 1} of partition {tp.partition} are gone: "
                "announcements among them that were not committed are given up; their files stay "
                "in storage, their source offsets were passed"
            )
        elif offset is not None and offset > end:
            made.offsets[tp] = start
            made.says.append(
                f"control partition {tp.partition} ends at {end}, below the group's offset "
                f"{offset}: events {end}..{offset - 1} are gone; reading begins at {start}, and "
                "tables filter what they have: tables whose control offset is above the end stay "
                "stopped until the topic is deleted and created anew"
            )

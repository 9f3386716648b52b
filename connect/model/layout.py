"""The layout of a connector: which task reads which source partitions.

The leader writes layouts and numbers them per connector. A layout is stored in the task configs
(``icefloe.layout`` and ``icefloe.partitions`` in each), followed by the commit record.
The ready record follows once every transactional id of the old and the new layout is fenced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple


class TopicPartition(NamedTuple):
    """A source partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The partitions of each task of one connector.

    Attributes:
        connector: connector name.
        number: layout number, from 1; it rises with every change.
        tasks: per task id (the index) its partitions, sorted.
        topic_ids: name and id of each source topic and of the control topic, as they were when
            the connector first read them, sorted; a topic with another id is a new topic.
        abandoned: ids of control topics that the operator has given up.
        ranges_from: control partition and control offset; the operator accepts the source ranges
            that were announced below it as they are.
        tasks_max: ``tasks.max`` of the configuration, the number of tasks that clients see; 0 if
            an older version has written the layout.
    """

    connector: str
    number: int
    tasks: tuple[tuple[TopicPartition, ...], ...]
    topic_ids: tuple[tuple[str, str], ...] = ()
    abandoned: tuple[str, ...] = ()
    ranges_from: tuple[tuple[int, int], ...] = ()
    tasks_max: int = 0

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Every partition of the layout."""
        return frozenset(chain.from_iterable(self.tasks))

    def to_json(self) -> dict[str, Any]:
        """Return the form in which layouts are sent between processes."""
        return {
            "connector": self.connector,
            "layout": self.number,
            "tasks": [[[tp.topic, tp.partition] for tp in task] for task in self.tasks],
            "topic_ids": dict(self.topic_ids),
            "abandoned": list(self.abandoned),
            "ranges_from": [list(item) for item in self.ranges_from],
            "tasks_max": self.tasks_max,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Layout:
        """Return the layout from which ``to_json`` made this form."""
        return cls(
            connector=data["connector"],
            number=data["layout"],
            tasks=tuple(
                tuple(TopicPartition(topic, partition) for topic, partition in task)
                for task in data["tasks"]
            ),
            topic_ids=tuple(sorted(data.get("topic_ids", {}).items())),
            abandoned=tuple(data.get("abandoned", ())),
            ranges_from=tuple((p, offset) for p, offset in data.get("ranges_from", ())),
            tasks_max=data.get("tasks_max", 0),
        )


def spread(
    connector: str, number: int, partitions: Sequence[TopicPartition], *, tasks: int
) -> Layout:
    """Distribute partitions over at most ``tasks`` tasks, never more than there are partitions.

    The result depends on the partitions alone, so equal cluster metadata gives an equal layout.
    """
    ordered = sorted(set(partitions))
    count = min(tasks, len(ordered))
    return Layout(connector, number, tuple(tuple(ordered[i::count]) for i in range(count)))

"""A connector, or some of its partitions, whose committed offsets the broker has forgotten.

Rules of this file:
- Brokers forget the offsets of a group that nobody uses (``offsets.retention.minutes``, 7 days).
  To start again from ``auto.offset.reset`` would write records twice, or pass records by.
- A connector without any offset is new, unless a table or the control topic holds something of it.
- A partition without an offset is new, unless the config topic says that it was read before
  (``SourceFloor``) or the control topic does. The floor may begin after an offset was lost: the
  config topic is a new one, or the Java sink's offsets expired before the move.
- An operator who resets or sets source offsets takes both back: the floor is cleared, and the
  control topic has an event that names the partitions (``OffsetMoves``).
- No offset is guessed: an offset that is too low writes rows twice. An operator sets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, DataLost
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.protocol.control_topic import ControlRecord, read_to_end
from connect.protocol.snapshot_ancestry import summary
from connect.protocol.source_floor import SourceFloor
from control_schemas.events import DataComplete, DataWritten

PLACES_SHOWN_MAX = 50
CODE = "offsets_lost"


@dataclass(frozen=True, slots=True)
class OffsetLoss:
    """Tells new connectors and partitions from those whose offsets are lost.

    Args:
        config: the connector, placeholders resolved.
        kafka: Java-named properties of a consumer.
        admin: the cluster.
        clock: for bounded waits.
    """

    config: ConnectorConfig
    kafka: Mapping[str, str]
    admin: KafkaAdmin
    clock: Clock

    def refuse_connector(self) -> None:
        """Return when a group of the connector has an offset, or nothing of it was ever announced.

        Without offsets the control topic is read from its beginning, and the tables that the
        configuration names are loaded.

        Raises:
            DataLost: ``offsets_lost``, with the source offsets that were announced last, as far as
                the control topic still has them.
            RetriableError: broker or catalog cannot be asked.
        """
        if not self._has_offsets():
            self._refuse_connector(self._announced())

    def refuse_partitions(
        self,
        missing: Mapping[TopicPartition, tuple[int, int]],
        floor: SourceFloor,
        topic_ids: Mapping[str, str],
    ) -> None:
        """Return when none of these partitions was ever read.

        Args:
            missing: partitions without a committed offset, each with its log's start and end.
            floor: the partitions that were read before, by the config topic.
            topic_ids: identities of the source topics now.

        Raises:
            DataLost: ``offsets_lost``, with the partitions and the ranges that were not read.
            RetriableError: broker or catalog cannot be asked.
        """
        announced = self._announced()
        if not floor.offsets and not self._has_offsets():
            self._refuse_connector(announced)
        ends = read_before(missing, floor, announced.ends, topic_ids)
        if not ends:
            return
        displayed = ", ".join(
            f"{tp.topic}-{tp.partition} {at} (its log holds {missing[tp][0]}..{missing[tp][1] - 1})"
            for tp, at in sorted(ends.items())[:PLACES_SHOWN_MAX]
        )
        first = min(ends)
        raise DataLost(
            f"group {self.config.connect_group_id} has no source offsets for {len(ends)} "
            f"partitions read before: they expired, or were deleted. Last known: {displayed}. Stop "
            "the connector and set these source offsets with PATCH /connectors/<name>/offsets; an "
            "offset of null starts a partition from auto.offset.reset",
            code=CODE,
            group=self.config.connect_group_id,
            topic=first.topic,
            partition=first.partition,
            offset=ends[first],
        )

    def _has_offsets(self) -> bool:
        groups = (*self.config.member_groups, self.config.control_group_id)
        return any(self.admin.committed_all(group) for group in groups)

    def _refuse_connector(self, announced: AnnouncedOffsets) -> None:
        tables = list(_tables_with_commits(self.config))
        if not announced.is_any and not tables:
            return
        said = f"tables {', '.join(tables)} hold its commits" if tables else "it announced files"
        displayed = sorted(announced.ends.items())[:PLACES_SHOWN_MAX]
        places = ", ".join(f"{tp.topic}-{tp.partition} {at}" for tp, at in displayed)
        groups = ", ".join((*self.config.member_groups, self.config.control_group_id))
        raise DataLost(
            f"the connector is not new ({said}), but its groups {groups} have no offsets "
            "any more: they expired, or were deleted; to start would be to write again whatever "
            "the topics still hold. Set the source offsets with PATCH /connectors/<name>/offsets; "
            f"announced last: {places or 'no longer known'}",
            code=CODE,
            group=self.config.connect_group_id,
        )

    def _announced(self) -> AnnouncedOffsets:
        """What the control topic says of the connector."""
        topic, group = self.config.control_topic, self.config.connect_group_id
        count = self.admin.topics().get(topic, 0)
        marks = self.admin.watermarks([TopicPartition(topic, p) for p in range(count)])
        found = AnnouncedOffsets()
        reader = LogReader(self.kafka)
        try:
            for record in read_to_end(
                reader,
                {tp: first for tp, (first, _) in marks.items()},
                {tp: end for tp, (_, end) in marks.items()},
                self.clock,
                holding=group.encode(),
            ):
                if record.event is not None and record.event.group_id == group:
                    found.add(record)
        finally:
            reader.close()
        return found


def read_before(
    missing: Collection[TopicPartition],
    floor: SourceFloor,
    announced: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
) -> dict[TopicPartition, int]:
    """Return which of these partitions were read before, with their last known ends.

    Args:
        missing: partitions without a committed offset.
        floor: the partitions that were read before, by the config topic. It is behind by as much
            as was announced since it was written.
        announced: last announced ends, by the control topic. They do not count where the floor
            knows that the topic was another one.
        topic_ids: identities of the source topics now.
    """
    known = floor.of(missing, topic_ids)
    others = floor.offsets.keys() - known.keys()
    return known | {tp: at for tp, at in announced.items() if tp in missing and tp not in others}


@dataclass(slots=True)
class AnnouncedOffsets:
    """What a connector has announced, as far as the control topic has it."""

    is_any: bool = False
    _ends: dict[TopicPartition, tuple[_Place, int]] = field(default_factory=dict)
    _moves: list[tuple[_Place, frozenset[TopicPartition]]] = field(default_factory=list)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Per source partition the last announced end; none where an operator moved it since."""
        return {
            tp: end
            for tp, (place, end) in self._ends.items()
            if not any(
                (tp in moved or not moved) and at.is_after(place) for at, moved in self._moves
            )
        }

    def add(self, record: ControlRecord) -> None:
        """Take one event of the connector."""
        event = record.event
        assert event is not None
        place = _Place(record.partition, record.offset, event.timestamp_us)
        if isinstance(event.payload, DataWritten) or record.headers.ranges:
            self.is_any = True
        if record.headers.moved is not None:
            moved = frozenset(TopicPartition(*at) for at in record.headers.moved)
            self._moves.append((place, moved))
        if isinstance(event.payload, DataComplete):
            for said in event.payload.assignments or ():
                tp = TopicPartition(said.topic, said.partition)
                before = self._ends.get(tp)
                is_newer = before is None or place.is_after(before[0])
                if said.offset is not None and is_newer:
                    self._ends[tp] = place, said.offset


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an event is; events of two control partitions are ordered by their times."""

    partition: int
    offset: int
    timestamp_us: int

    def is_after(self, other: _Place) -> bool:
        if self.partition == other.partition:
            return self.offset > other.offset
        return self.timestamp_us > other.timestamp_us


def _tables_with_commits(config: ConnectorConfig) -> Iterator[str]:
    """Tables of the configuration that say what the connector committed to them."""
    if not config.tables:
        return
    catalog = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
    try:
        for name in config.tables:
            try:
                metadata = catalog.load(tuple(name.split("."))).metadata
            except CommitRefused:  # missing, or out of bounds: its own commits will say so
                continue
            if config.offsets_mirror_property in metadata.properties or any(
                config.offsets_property in summary(s) for s in metadata.snapshots
            ):
                yield name
    finally:
        catalog.close()

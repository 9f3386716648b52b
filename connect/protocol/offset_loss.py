"""Detects connectors and partitions with committed offsets that the broker has deleted.

Rules of this file:
- Brokers delete the offsets of an unused group (``offsets.retention.minutes``, 7 days). To start
  again from ``auto.offset.reset`` would write records twice, or skip records.
- A connector without any offset is new, unless a table or the control topic has data of it.
- A partition without an offset is new, unless it was read before, by the config topic
  (``SourceFloor``) or by the control topic. The floor may begin after an offset was lost: the
  config topic was created again, or the Java sink's offsets expired before the migration.
- An operator who resets or sets source offsets clears both: the floor is removed, and the control
  topic gets an event that names the partitions (``OffsetEvents``).
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
    """Distinguishes new connectors and partitions from those with lost offsets.

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
        """Return when a group of the connector has an offset, or the connector never announced.

        Without offsets this reads the control topic from its beginning, and loads the tables of
        the configuration.

        Raises:
            DataLost: ``offsets_lost``, with the source offsets that were announced last, as far as
                the control topic still has them.
            RetriableError: broker or catalog cannot be reached.
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
            topic_ids: present ids of the source topics.

        Raises:
            DataLost: ``offsets_lost``, with the partitions and the ranges that were not read.
            RetriableError: broker or catalog cannot be reached.
        """
        announced = self._announced()
        if not floor.offsets and not self._has_offsets():
            self._refuse_connector(announced)
        ends = read_before(missing, floor, announced.ends, topic_ids)
        if not ends:
            return
        known = ", ".join(
            f"{tp.topic}-{tp.partition} {at} (its log holds {missing[tp][0]}..{missing[tp][1] - 1})"
            for tp, at in sorted(ends.items())[:PLACES_SHOWN_MAX]
        )
        first = min(ends)
        raise DataLost(
            f"group {self.config.connect_group_id} has no source offsets for {len(ends)} "
            f"partitions read before: they expired, or were deleted. Last known: {known}. Stop "
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
        reason = f"tables {', '.join(tables)} hold its commits" if tables else "it announced files"
        first_ends = sorted(announced.ends.items())[:PLACES_SHOWN_MAX]
        places = ", ".join(f"{tp.topic}-{tp.partition} {at}" for tp, at in first_ends)
        groups = ", ".join((*self.config.member_groups, self.config.control_group_id))
        raise DataLost(
            f"the connector is not new ({reason}), but its groups {groups} have no offsets "
            "any more: they expired, or were deleted; a start would write all records of the "
            "topics again. Set the source offsets with PATCH /connectors/<name>/offsets; "
            f"announced last: {places or 'no longer known'}",
            code=CODE,
            group=self.config.connect_group_id,
        )

    def _announced(self) -> AnnouncedOffsets:
        """Return the offsets that the connector announced on the control topic."""
        group = self.config.connect_group_id
        marks = self.admin.watermarks(self.admin.partitions(self.config.control_topic))
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
        floor: the partitions that were read before, by the config topic. It does not have the
            announcements since it was written.
        announced: last announced ends, by the control topic. They do not count for a topic that
            was replaced since the floor was written.
        topic_ids: present ids of the source topics.
    """
    known = floor.of(missing, topic_ids)
    others = floor.offsets.keys() - known.keys()
    return known | {tp: at for tp, at in announced.items() if tp in missing and tp not in others}


@dataclass(slots=True)
class AnnouncedOffsets:
    """The announcements of a connector that the control topic still has."""

    is_any: bool = False
    _ends: dict[TopicPartition, tuple[_Place, int]] = field(default_factory=dict)
    _offset_changes: list[tuple[_Place, frozenset[TopicPartition]]] = field(default_factory=list)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The last announced end of each source partition that no operator has changed since."""
        return {
            tp: end
            for tp, (place, end) in self._ends.items()
            if not any(
                (tp in changed or not changed) and at.is_after(place)
                for at, changed in self._offset_changes
            )
        }

    def add(self, record: ControlRecord) -> None:
        """Add one event of the connector."""
        event = record.event
        assert event is not None
        place = _Place(record.partition, record.offset, event.timestamp_us)
        if isinstance(event.payload, DataWritten) or record.headers.ranges:
            self.is_any = True
        if record.headers.moved is not None:
            changed = frozenset(TopicPartition(*at) for at in record.headers.moved)
            self._offset_changes.append((place, changed))
        if isinstance(event.payload, DataComplete):
            for announced in event.payload.assignments or ():
                tp = TopicPartition(announced.topic, announced.partition)
                before = self._ends.get(tp)
                is_newer = before is None or place.is_after(before[0])
                if announced.offset is not None and is_newer:
                    self._ends[tp] = place, announced.offset


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an event; events of two control partitions are ordered by their times."""

    partition: int
    offset: int
    timestamp_us: int

    def is_after(self, other: _Place) -> bool:
        if self.partition == other.partition:
            return self.offset > other.offset
        return self.timestamp_us > other.timestamp_us


def _tables_with_commits(config: ConnectorConfig) -> Iterator[str]:
    """Yield the tables of the configuration that hold commits of the connector."""
    if not config.tables:
        return
    catalog = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
    try:
        for name in config.tables:
            try:
                metadata = catalog.load(tuple(name.split("."))).metadata
            except CommitRefused:  # missing, or out of bounds: its next commit reports that
                continue
            if config.offsets_mirror_property in metadata.properties or any(
                config.offsets_property in summary(s) for s in metadata.snapshots
            ):
                yield name
    finally:
        catalog.close()

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
- With ``icefloe.fail-on-data-loss=false`` a partition continues where its last announcement ended,
  if that is certain: the control topic has an announcement of it, or holds every event since the
  offset in the floor was read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, DataLost
from connect.gateways.catalog.catalog import ignore_request, open_catalog
from connect.gateways.catalog.log_stores import open_logs
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.protocol.control_topic import OWN_PARTITION, ControlRecord, read_to_end
from connect.protocol.log_transactions import TransactionIds
from connect.protocol.snapshot_ancestry import summary
from connect.protocol.source_floor import ControlEvents, SourceFloor
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

    def refuse_connector(self) -> bool:
        """Return whether the connector is known to have announced before.

        Without offsets in any group this reads the control topic from its beginning, and loads the
        tables of the configuration.

        Raises:
            DataLost: ``offsets_lost``, with the source offsets that were announced last, as far as
                the control topic still has them. Not with ``icefloe.fail-on-data-loss=false``:
                tables contain their control offsets, and tasks find their source offsets.
            RetriableError: broker or catalog cannot be reached.
        """
        if self._has_offsets():
            return False
        announced = self._announced()
        if self.config.fail_on_data_loss:
            self._refuse_connector(announced)
            return False
        return announced.is_any or any(_tables_with_commits(self.config))

    def recover_partitions(
        self,
        missing: Mapping[TopicPartition, tuple[int, int]],
        floor: SourceFloor,
        topic_ids: Mapping[str, str],
    ) -> dict[TopicPartition, int]:
        """Return where those of the partitions continue that were read before.

        The result is empty when none of them was. It never contains an offset that is not certain.

        Args:
            missing: partitions without a committed offset, each with its log's start and end.
            floor: the partitions that were read before, by the config topic.
            topic_ids: present ids of the source topics.

        Raises:
            DataLost: ``offsets_lost``, with the partitions and the ranges that were not read. With
                ``icefloe.fail-on-data-loss=false`` only partitions whose offset is not certain.
            RetriableError: broker or catalog cannot be reached.
        """
        announced = self._announced()
        ends = read_before(missing, floor, announced.ends, topic_ids)
        continues = not self.config.fail_on_data_loss
        may_be_new = missing.keys() - ends.keys()
        if not floor.offsets and not self._has_offsets() and (may_be_new or not continues):
            self._refuse_connector(announced)
        if continues:
            certain = {
                tp: at
                for tp, at in ends.items()
                if tp in announced.certain or floor.is_complete(tp, announced.events)
            }
            if certain.keys() == ends.keys():
                return certain
            ends = {tp: at for tp, at in ends.items() if tp not in certain}
        if ends:
            self._refuse_partitions(missing, ends)
        return {}

    def _refuse_partitions(
        self,
        missing: Mapping[TopicPartition, tuple[int, int]],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        last_known = ", ".join(
            f"{tp.topic}-{tp.partition} {at} (its log holds {missing[tp][0]}..{missing[tp][1] - 1})"
            for tp, at in sorted(ends.items())[:PLACES_SHOWN_MAX]
        )
        doubt = (
            ""
            if self.config.fail_on_data_loss
            else "The control topic no longer has all events since then, so these may be behind. "
        )
        first_partition = min(ends)
        raise DataLost(
            f"group {self.config.connect_group_id} has no source offsets for {len(ends)} "
            f"partitions read before: they expired, or were deleted. "
            f"Last known: {last_known}. {doubt}"
            "Stop the connector and set these source offsets with "
            "PATCH /connectors/<name>/offsets; an offset of null starts a partition from "
            "auto.offset.reset",
            code=CODE,
            group=self.config.connect_group_id,
            topic=first_partition.topic,
            partition=first_partition.partition,
            offset=ends[first_partition],
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
        return announced_offsets(self.config, self.kafka, self.admin, self.clock)


def announced_offsets(
    config: ConnectorConfig, kafka: Mapping[str, str], admin: KafkaAdmin, clock: Clock
) -> AnnouncedOffsets:
    """Read the control topic: what the connector announced, as far as it is retained.

    Args:
        config: the connector.
        kafka: Java-named properties of a consumer.
        admin: the cluster.
        clock: for bounded waits.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    group, topic = config.connect_group_id, config.control_topic
    topic_id = admin.topic_id(topic)
    marks = admin.watermarks(admin.partitions(topic))
    announced = AnnouncedOffsets()
    reader = LogReader(kafka)
    try:
        for record in read_to_end(
            reader,
            {tp: log_start for tp, (log_start, _) in marks.items()},
            {tp: end for tp, (_, end) in marks.items()},
            clock,
            holding=group.encode(),
        ):
            if record.event is not None and record.event.group_id == group:
                announced.add(record)
    finally:
        reader.close()
    own = marks.get(TopicPartition(topic, OWN_PARTITION))
    # a control topic with other partitions has events of the Java sink, which are not counted
    is_countable = topic_id is not None and not any(
        start for tp, (start, _) in marks.items() if tp.partition != OWN_PARTITION
    )
    if own is not None and is_countable:
        announced.events = ControlEvents(str(topic_id), *own)
    return announced


def control_events(admin: KafkaAdmin, topic: str) -> ControlEvents | None:
    """Return which events the control topic holds; None if it does not exist.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    topic_id, tp = admin.topic_id(topic), TopicPartition(topic, OWN_PARTITION)
    return None if topic_id is None else ControlEvents(topic_id, *admin.watermarks([tp])[tp])


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
    noted = floor.of(missing, topic_ids)
    others = floor.offsets.keys() - noted.keys()
    return noted | {tp: at for tp, at in announced.items() if tp in missing and tp not in others}


@dataclass(slots=True)
class AnnouncedOffsets:
    """The announcements of a connector that the control topic still has.

    Attributes:
        is_any: whether there is one.
        events: which events the topic holds; None if that says nothing about older ones.
    """

    is_any: bool = False
    events: ControlEvents | None = None
    _ends: dict[TopicPartition, tuple[_EventPlace, int]] = field(default_factory=dict)
    _offset_changes: list[tuple[_EventPlace, frozenset[TopicPartition]]] = field(
        default_factory=list
    )

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The last announced end of each source partition that no operator has changed since."""
        return {
            tp: end
            for tp, (position, end) in self._ends.items()
            if not any(
                (tp in changed or not changed) and at.is_after(position)
                for at, changed in self._offset_changes
            )
        }

    @property
    def certain(self) -> frozenset[TopicPartition]:
        """The partitions of ``ends`` that no later announcement can have followed.

        Retention deletes the oldest events of a control partition first, so the newest announcement
        of Icefloe's partition is the last one. The Java sink's may be in another control partition.
        """
        is_whole = self.events is not None and self.events.start == 0
        return frozenset(
            tp for tp in self.ends if is_whole or self._ends[tp][0].partition == OWN_PARTITION
        )

    def add(self, record: ControlRecord) -> None:
        """Add one event of the connector."""
        event = record.event
        assert event is not None
        position = _EventPlace(record.partition, record.offset, event.timestamp_us)
        if isinstance(event.payload, DataWritten) or record.headers.ranges:
            self.is_any = True
        if record.headers.moved is not None:
            changed = frozenset(TopicPartition(*at) for at in record.headers.moved)
            self._offset_changes.append((position, changed))
        if isinstance(event.payload, DataComplete):
            for announced in event.payload.assignments or ():
                tp = TopicPartition(announced.topic, announced.partition)
                before = self._ends.get(tp)
                is_newer = before is None or position.is_after(before[0])
                if announced.offset is not None and is_newer:
                    self._ends[tp] = position, announced.offset


@dataclass(frozen=True, slots=True)
class _EventPlace:
    """The place of an event; events of two control partitions are ordered by their times."""

    partition: int
    offset: int
    timestamp_us: int

    def is_after(self, other: _EventPlace) -> bool:
        if self.partition == other.partition:
            return self.offset > other.offset
        return self.timestamp_us > other.timestamp_us


def _tables_with_commits(config: ConnectorConfig) -> Iterator[str]:
    """Yield the tables of the configuration that hold commits of the connector."""
    if not config.tables or not config.has_tables:
        return
    if not config.is_iceberg:
        yield from _logs_with_commits(config)
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


def _logs_with_commits(config: ConnectorConfig) -> Iterator[str]:
    """The same for tables without a catalog, which remember control offsets in their logs."""
    store = open_logs(config.catalog_properties, config.locations, ignore_request)
    floor_id = TransactionIds.of(config).floor(0)
    for name in config.tables:
        try:
            if store.load(name.split(".")).transaction(floor_id):
                yield name
        except CommitRefused:  # missing, or not supported: its next commit reports that
            continue

"""A connector whose consumer groups have forgotten where it was.

Rules of this file:
- Brokers forget the offsets of a group that nobody uses (``offsets.retention.minutes``, 7 days):
  source and control offsets of a stopped connector go together. To start then would be to write
  again whatever the topics still hold.
- Without any offset a connector is new, unless a table or the control topic says otherwise. Which
  records the tables have is then for an operator to say; nothing is guessed.
- Source offsets that are gone while control offsets are there were taken away by somebody: that
  is a wish to begin anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.control_log import read_to_end
from connect.errors import CommitRefused, DataLost
from connect.gateways.catalog import open_catalog
from connect.gateways.kafka import LogReader
from connect.gateways.kafka_admin import KafkaAdmin
from connect.layout import TopicPartition
from connect.snapshot_history import summary
from control_schemas.events import DataComplete, DataWritten

PLACES_SHOWN_MAX = 50


def refuse_lost_offsets(
    config: ConnectorConfig, kafka: Mapping[str, str], admin: KafkaAdmin, clock: Clock
) -> None:
    """Return when a group of the connector has an offset, or nothing of it was ever announced.

    Without offsets the control topic is read from its beginning and the tables that the
    configuration names are looked at.

    Args:
        config: the connector, placeholders resolved.
        kafka: Java-named properties of a consumer.
        admin: the cluster.
        clock: for bounded waits.

    Raises:
        DataLost: ``offsets_lost``, with the source offsets that were announced last, as far as the
            control topic still has them.
        RetriableError: broker or catalog cannot be asked.
    """
    groups = (*config.member_groups, config.control_group_id)
    if any(admin.committed_all(group) for group in groups):
        return
    was_announced, ends = _announced(config, kafka, admin, clock)
    tables = list(_tables_with_commits(config))
    if not was_announced and not tables:
        return
    said = f"tables {', '.join(tables)} hold its commits" if tables else "it announced files"
    shown = sorted(ends.items())[:PLACES_SHOWN_MAX]
    places = ", ".join(f"{tp.topic}-{tp.partition} {at}" for tp, at in shown)
    raise DataLost(
        f"the connector is not new ({said}), but its groups {', '.join(groups)} have no offsets "
        "any more: they expired, or were deleted; to start would be to write again whatever the "
        "topics still hold. Set the source offsets with PATCH /connectors/<name>/offsets; "
        f"announced last: {places or 'no longer known'}",
        code="offsets_lost",
        group=config.connect_group_id,
    )


def _announced(
    config: ConnectorConfig, kafka: Mapping[str, str], admin: KafkaAdmin, clock: Clock
) -> tuple[bool, dict[TopicPartition, int]]:
    """Whether files or source ranges of the group are in the control topic, and their ends."""
    count = admin.topics().get(config.control_topic, 0)
    marks = admin.watermarks([TopicPartition(config.control_topic, p) for p in range(count)])
    was_announced, ends = False, dict[TopicPartition, int]()
    reader = LogReader(kafka)
    try:
        for record in read_to_end(
            reader,
            {tp: first for tp, (first, _) in marks.items()},
            {tp: end for tp, (_, end) in marks.items()},
            clock,
            holding=config.connect_group_id.encode(),
        ):
            event = record.event
            if event is None or event.group_id != config.connect_group_id:
                continue
            if isinstance(event.payload, DataWritten) or record.headers.ranges:
                was_announced = True
            if isinstance(event.payload, DataComplete):
                for said in event.payload.assignments or ():
                    if said.offset is not None:
                        ends[TopicPartition(said.topic, said.partition)] = said.offset
    finally:
        reader.close()
    return was_announced, ends


def _tables_with_commits(config: ConnectorConfig) -> Iterator[str]:
    """Tables of the configuration that say what the connector committed to them."""
    if not config.tables:
        return
    catalog = open_catalog(config.catalog_name, config.catalog_properties)
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

"""The newest layout from which tasks of a connector have announced, by the control topic.

Layout numbers are kept in the config topic. Where that was lost, or restored from a copy, the
control topic may hold announcements of layouts with higher numbers. Rounds of a lower layout would
never be covered, and its steps would be ordered before theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.protocol.control_topic import read_to_end

NUMBER_MAX = 10**12
"""A layout is never written so often: what claims a higher number is not ours."""


def newest_announced_layout(
    config: ConnectorConfig,
    kafka: Mapping[str, str],
    admin: KafkaAdmin,
    clock: Clock,
    *,
    is_whole: bool,
) -> int:
    """Return the highest layout number of the connector's announcements; 0 where there is none.

    Args:
        config: the connector.
        kafka: Java-named properties of a consumer.
        admin: the cluster.
        clock: for bounded waits.
        is_whole: read the whole control topic, else from the connector's control offsets on: what
            lies below them is committed and never read again.

    Raises:
        RetriableError: the broker is away.
    """
    topic, group = config.control_topic, config.connect_group_id
    count = admin.topics().get(topic, 0)
    partitions = [TopicPartition(topic, number) for number in range(count)]
    marks = admin.watermarks(partitions)
    starts = {tp: start for tp, (start, _) in marks.items()}
    if not is_whole:
        for tp, at in admin.committed(config.control_group_id, partitions).items():
            starts[tp] = max(starts[tp], at or 0)
    newest = 0
    reader = LogReader(kafka)
    try:
        for record in read_to_end(
            reader,
            starts,
            {tp: end for tp, (_, end) in marks.items()},
            clock,
            holding=group.encode(),
        ):
            if record.event is not None and record.event.group_id == group:
                number = record.headers.layout or 0
                newest = max(newest, number if number <= NUMBER_MAX else 0)
    finally:
        reader.close()
    return newest

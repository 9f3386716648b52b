"""Reads a connector's events on its control topic, for the plan of a rewind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.protocol.control_topic import ControlRecord, read_to_end


@dataclass(frozen=True, slots=True)
class ControlLog:
    """The events of one connector.

    Args:
        config: the connector.
        kafka: Java-named properties of a consumer.
        admin: the cluster.
        clock: for bounded waits.
    """

    config: ConnectorConfig
    kafka: Mapping[str, str]
    admin: KafkaAdmin
    clock: Clock

    def starts(self) -> dict[int, int]:
        """Return the first retained control offset of each partition."""
        marks = self.admin.watermarks(self.admin.partitions(self.config.control_topic))
        return {tp.partition: start for tp, (start, _) in marks.items()}

    def read(self, take: Callable[[ControlRecord], None]) -> None:
        """Pass every retained event of the connector on, in order within each partition.

        Raises:
            RetriableError: the broker cannot be reached, or an open transaction holds events back;
                ``control_event_unreadable``.
        """
        control = self.admin.partitions(self.config.control_topic)
        group = self.config.connect_group_id
        marks = self.admin.watermarks(control)
        reader = LogReader(self.kafka)
        try:
            for record in read_to_end(
                reader,
                {tp: start for tp, (start, _) in marks.items()},
                self.admin.high_watermarks(control),
                self.clock,
                holding=group.encode(),
            ):
                if record.error is not None:
                    raise RetriableError(
                        f"control event {record.offset} of partition {record.partition} cannot be "
                        f"read: {record.error}",
                        code="control_event_unreadable",
                    )
                if record.event is not None and record.event.group_id == group:
                    take(record)
        finally:
            reader.close()

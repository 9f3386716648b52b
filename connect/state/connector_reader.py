"""Reads the state of one connector from the config topic, once, to the topic's end.

A task reads its layout this way. It needs no store, which follows the topic and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from connect.clock import SystemClock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import Layout
from connect.state.compacted_topic import read_all
from connect.state.connector_state import ConfigState, StoredConnector
from connect.state.topic_records import decode


def read_layouts(
    properties: Mapping[str, str], topic: str, connector: str
) -> tuple[Layout | None, int | None]:
    """Read the config topic to its end, for the check that a task makes at its start.

    Args:
        properties: Java-named client properties.
        topic: ``config.storage.topic``.
        connector: connector name.

    Returns:
        The connector's latest layout (None when it has none or is deleted), and the number of
        the newest layout that is ready.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    found = read_connector(properties, topic, connector)
    return found.layout, found.ready


def read_connector(properties: Mapping[str, str], topic: str, connector: str) -> StoredConnector:
    """Read the config topic to its end; return the whole state of one connector."""
    state = ConfigState()

    def on_record(key: str, value: bytes | None) -> None:
        try:
            state.apply(key, decode(value))
        except ValueError:
            return

    admin = KafkaAdmin(properties)
    reader = LogReader({**properties, "fetch.max.wait.ms": "10"})
    try:
        read_all(admin, reader, topic, on_record, clock=SystemClock())
    finally:
        reader.close()
        admin.close()
    return state.get(connector)

"""The layout of a connector, as a task reads it from the config topic when it starts."""

from __future__ import annotations

from collections.abc import Mapping

from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.model.layout import Layout
from connect.state.connector_reader import ConnectorReader


def read_layouts(
    properties: Mapping[str, str], topic: str, connector: str
) -> tuple[Layout | None, int | None]:
    """Read the config topic to its end.

    Args:
        properties: Java-named client properties.
        topic: ``config.storage.topic``.
        connector: connector name.

    Returns:
        The connector's latest layout (None when it has none or is deleted), and the number of
        the newest layout that is ready.
    """
    stored = ConnectorReader(topic, SharedAdmins()).read(connector, properties)
    return stored.layout, stored.ready

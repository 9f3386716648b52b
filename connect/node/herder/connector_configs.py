"""Stored connector configurations, typed, and the client properties made from them."""

from __future__ import annotations

from collections.abc import Mapping

from connect.config.connector import ConnectorConfig
from connect.config.node.node_config import NodeConfig
from connect.config.reserved_topics import control_topics, node_topics
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_clients import client_properties
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.validation.parse import parse
from connect.validation.providers import Providers


class ConnectorConfigs:
    """Parses stored configurations.

    Args:
        node: node configuration.
        providers: resolves placeholders.
        store: all configurations.

    Attributes:
        group_id: the node cluster's ``group.id``.
    """

    def __init__(self, node: NodeConfig, providers: Providers, store: ConfigStore) -> None:
        self.group_id = node.group_id
        self._node = node
        self._providers = providers
        self._store = store
        self._node_topics = node_topics(node.properties)

    def parsed(self, state: StoredConnector) -> ConnectorConfig:
        """Return the connector's configuration, typed; its placeholders are not resolved.

        Raises:
            ConfigError: it is not valid.
        """
        return parse(
            state.config or {}, node=self._node.properties, resolve=self._providers.resolve
        )

    def valid(self, state: StoredConnector) -> ConnectorConfig | None:
        """Return the connector's configuration, typed; None when it is not valid."""
        try:
            return self.parsed(state)
        except ConfigError:
            return None

    def group_of(self, state: StoredConnector) -> str:
        """Return the consumer group of its source offsets, even if it is not valid."""
        config = self.valid(state)
        return f"connect-{state.name}" if config is None else config.connect_group_id

    def reserved_topics(self) -> frozenset[str]:
        """Return the topics that no connector may read or send dead letters to."""
        configs = [self._store.get(name).config or {} for name in self._store.names()]
        return self._node_topics | control_topics(configs, self._providers.resolve)

    def producer_properties(self, config: ConnectorConfig | None) -> dict[str, str]:
        """Return Java-named producer properties; of the node alone when ``config`` is None."""
        node = self._providers.resolve_all(self._node.properties)
        overrides: list[Mapping[str, str]] = []
        if config is not None:
            overrides = [
                self._providers.resolve_all(config.producer_overrides),
                self._providers.resolve_all(config.kafka_overrides),
            ]
        return client_properties(node, *overrides, prefix="producer.")

    def consumer_properties(self, config: ConnectorConfig) -> dict[str, str]:
        """Return Java-named properties of a consumer of the connector's control topic."""
        return client_properties(
            self._providers.resolve_all(self._node.properties),
            self._providers.resolve_all(config.kafka_overrides),
            prefix="consumer.",
        )

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

_CATALOG_IDENTITY = ("type", "catalog-impl", "uri", "warehouse")


class ConnectorConfigs:
    """Parses stored configurations.

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

    def sharing_tables(self, config: ConnectorConfig) -> list[ConnectorConfig]:
        """Return the other connectors of the cluster that may write to a table of a connector.

        A catalog is the same if its type, address and warehouse are.
        """
        own = {*config.tables, *config.topic_tables.values(), config.errors.dead_letter_table}
        names = {config.qualified(table) for table in own if table}
        sharing = []
        for name in self._store.names():
            other = self.valid(self._store.get(name))
            if other is None or other.name == config.name or not other.is_iceberg:
                continue
            if self._catalog_of(other) != self._catalog_of(config):
                continue
            if config.names_tables_by_record or any(map(other.may_write, names)):
                sharing.append(other)
        return sharing

    def _catalog_of(self, config: ConnectorConfig) -> list[str]:
        texts = (config.catalog_properties.get(key, "") for key in _CATALOG_IDENTITY)
        return [self._resolved(text).rstrip("/") for text in texts]

    def _resolved(self, text: str) -> str:
        try:
            return self._providers.resolve(text)
        except ConfigError:
            return text

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

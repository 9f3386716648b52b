"""Validation of configurations for the validate, create and change requests.

Rules of this file:
- Local checks need the node alone and decide what may be stored: an outage of a catalog does not
  prevent the creation of a connector.
- A validate request without local errors continues with the checks of broker and catalog.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from connect.config.invalid_config import InvalidConfigError
from connect.config.keys.iceberg_keys import DEFAULT_CONTROL_TOPIC
from connect.config.location_policy import EVERYWHERE, LocationPolicy
from connect.config.masking import Masker
from connect.config.output_topics_policy import OutputTopicsPolicy
from connect.config.reserved_topics import control_topics, output_topics, source_topics
from connect.config.size_limits import ERRORS_CHARACTERS_MAX
from connect.config.source_group import group_key, source_group
from connect.config.static_tables_policy import EVERY_STATIC_TABLE, StaticTablesPolicy
from connect.errors import ConfigError
from connect.gateways.access_policy import AccessPolicy
from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.node_requests import UnavailableError, UnknownConnectorError
from connect.node.rest.api_errors import ApiError
from connect.node.rest.auth import Caller
from connect.validation.client_policy import ClientPolicy
from connect.validation.parse import granted_tables, parse
from connect.validation.plugins import Plugin, Plugins
from connect.validation.preflight.broker_checks import DEAD_LETTER_TOPIC
from connect.validation.preflight.preflight import Preflight
from connect.validation.validate import TakenNames, Validation, validate

_LOG = logging.getLogger(__name__)
Raw = Mapping[str, "str | None"]
_INVALID = (
    "Connector configuration is invalid and contains the following {count} error(s):\n{errors}\n"
    "You can also find the above list of errors at the endpoint "
    "`/connector-plugins/{{connectorType}}/config/validate`"
)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Node properties that restrict configurations.

    Attributes:
        group_id: the node cluster's ``group.id``; no connector's consumer group may equal it.
        resolve: resolves placeholders, for validation only.
        reserved_topics: topics that no connector may read or send dead letters to, without the
            control topics of other connectors.
        properties: node properties, placeholders unresolved.
    """

    group_id: str
    resolve: Callable[[str], str] = str
    reserved_topics: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)


class ConfigValidator:
    """Validates configurations.

    Args:
        connectors: the other connectors.
        plugins: plugins that configurations may name.
        preflight: checks of broker and catalog; None makes none.
    """

    def __init__(
        self,
        connectors: StoredConnectors,
        plugins: Plugins,
        facts: NodeFacts,
        preflight: Preflight | None = None,
    ) -> None:
        self._connectors = connectors
        self._plugins = plugins
        self._facts = facts
        self._preflight = preflight

    def plugin_of(self, config: Raw) -> Plugin:
        """Return the connector plugin that a configuration names.

        Raises:
            ApiError: 400, it names none, or an unknown one.
        """
        class_name = config.get("connector.class")
        if class_name is None:
            pairs = ", ".join(
                f"{k}={'null' if v is None else v}" for k, v in sorted(config.items())
            )
            raise ApiError(400, f"Connector config {{{pairs}}} contains no connector type")
        plugin = self._plugins.connector(class_name)
        if plugin is None:
            available = ", ".join(p.class_name for p in self._plugins.of("sink", "source"))
            raise ApiError(
                400,
                "Failed to find any class that implements Connector and which name matches "
                f"{class_name}, available connectors are: {available}",
            )
        return plugin

    def quick(self, plugin: Plugin, config: Raw, caller: Caller) -> Validation:
        """Run the local checks; return every entry of the validate answer.

        Raises:
            ApiError: 400, the configuration cannot be validated at all.
        """
        facts = self._facts
        others = self._others(config.get("name"))
        taken_names = TakenNames(
            facts.group_id,
            facts.reserved_topics | control_topics(others.values(), facts.resolve),
            facts.reserved_topics - {DEFAULT_CONTROL_TOPIC},
            self._topics_read(others),
            self._foreign_topics(config, others, caller),
            self._groups(others, caller),
        )
        try:
            validation = validate(
                plugin,
                config,
                self._plugins,
                cluster=taken_names,
                resolve=facts.resolve,
                policy=ClientPolicy.of(facts.properties, facts.resolve),
                access=AccessPolicy.of(facts.properties),
            )
        except ConfigError as error:
            raise ApiError(400, Masker(config, facts.resolve)(error.message)) from error
        if validation.errors or plugin.check is None:
            return validation
        return validation.with_errors(config, self._not_granted(config))

    def whole(self, plugin: Plugin, config: Raw, caller: Caller) -> Validation:
        """Run the local checks and, without errors, those of broker and catalog.

        Raises:
            ApiError: as ``quick``.
        """
        validation = self.quick(plugin, config, caller)
        if validation.errors or plugin.check is None or self._preflight is None:
            return validation
        values = {name: value for name, value in config.items() if value is not None}
        return validation.with_errors(config, self._preflight.check(values))

    def valid(self, config: Raw, caller: Caller) -> dict[str, str]:
        """Return the configuration to store.

        Raises:
            ApiError: 400, with every error.
        """
        validation = self.quick(self.plugin_of(config), config, caller)
        if validation.errors:
            lines = "\n".join(validation.errors)[:ERRORS_CHARACTERS_MAX]
            raise ApiError(400, _INVALID.format(count=len(validation.errors), errors=lines))
        for warning in validation.warnings:
            _LOG.warning("connector %s: %s", config.get("name"), warning)
        return {name: value for name, value in config.items() if value is not None}

    def _not_granted(self, config: Raw) -> dict[str, list[str]]:
        """Return errors about tables and locations that the operator has not granted."""
        facts = self._facts
        locations = LocationPolicy.of(str(config.get("name")), facts.properties)
        static = StaticTablesPolicy.of(str(config.get("name")), facts.properties)
        topics = OutputTopicsPolicy.of(str(config.get("name")), facts.properties)
        is_open = (
            locations == EVERYWHERE
            and static == EVERY_STATIC_TABLE
            and topics == OutputTopicsPolicy()
        )
        if not granted_tables(config, facts.properties) and is_open:
            return {}
        resolved = {k: facts.resolve(v) for k, v in config.items() if v is not None}
        try:
            parse(resolved, node=facts.properties)
        except InvalidConfigError as error:
            mask = Masker(config, facts.resolve)
            return {name: [mask(text) for text in texts] for name, texts in error.errors.items()}
        return {}

    def _others(self, name: str | None) -> dict[str, Mapping[str, str]]:
        """Return the configurations of the other connectors that are Iceberg sinks."""
        configs: dict[str, Mapping[str, str]] = {}
        with contextlib.suppress(UnavailableError):  # starting: the creation reports it
            for other in self._connectors.names():
                if other == name:
                    continue
                with contextlib.suppress(UnknownConnectorError):  # deleted meanwhile
                    config = self._connectors.definition(other).config
                    plugin = self._plugins.connector(config.get("connector.class", ""))
                    if plugin is not None and plugin.check is not None:
                        configs[other] = config
        return configs

    def _topics_read(self, others: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
        """Return the topics that other connectors name, and those that their regex has matched."""
        topics = set(source_topics(others.values(), self._facts.resolve))
        topics |= output_topics(others.values())
        for other in others:
            with contextlib.suppress(UnknownConnectorError):  # deleted meanwhile
                topics.update(self._connectors.active_topics(other))
        return frozenset(topics)

    def _foreign_topics(
        self, config: Raw, others: Mapping[str, Mapping[str, str]], caller: Caller
    ) -> frozenset[str]:
        """Return the topics of connectors that the caller may not change.

        Dead letters have the bytes of their records, which a tenant chooses.
        """
        if not config.get(DEAD_LETTER_TOPIC):
            return frozenset()
        return self._topics_read(
            {other: each for other, each in others.items() if not caller.may("admin", other)}
        )

    def _groups(self, others: Mapping[str, Mapping[str, str]], caller: Caller) -> dict[str, str]:
        """Return the consumer group of each other connector, with the owner's description."""
        return {
            self._source_group(config): (
                f"connector {other}" if caller.may("read", other) else "another"
            )
            for other, config in others.items()
        }

    def _source_group(self, config: Mapping[str, str]) -> str:
        key = group_key(config)
        if key is None:
            return source_group(config)
        try:
            return source_group({**config, key: self._facts.resolve(config[key])})
        except ConfigError:
            return source_group(config)

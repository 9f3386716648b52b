"""The converters of a connector's records, by source topic."""

from __future__ import annotations

from dataclasses import dataclass

from connect.config.connector import ConnectorConfig, ConverterConfig
from connect.records.converters.converter import Converter, Role
from connect.records.converters.converter_classes import converter


@dataclass(frozen=True, slots=True, eq=False)
class RecordConverters:
    """The converters of some topics.

    Attributes:
        config: the connector's configuration with these converters.
        key: converter of keys.
        value: converter of values.
    """

    config: ConnectorConfig
    key: Converter
    value: Converter


class ConvertersByTopic:
    """Chooses converters by source topic.

    Args:
        config: the connector's configuration.

    Attributes:
        default: converters of topics without own converters.
        sets: all sets of converters, the default first.

    Raises:
        ConfigError: a converter of the configuration is invalid.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._entries = config.topic_converters
        self._built: dict[tuple[Role, int], Converter] = {}
        self.sets = tuple(
            RecordConverters(
                each,
                self._once(each.key_converter, "key"),
                self._once(each.value_converter, "value"),
            )
            for each in config.converter_sets
        )
        self.default = self.sets[0]
        self._by_topic: dict[str, RecordConverters] = {}

    def _once(self, config: ConverterConfig, role: Role) -> Converter:
        """Build a converter; entries that keep the connector's converter share it."""
        key = role, id(config)
        if key not in self._built:
            self._built[key] = converter(config, role)
        return self._built[key]

    def of(self, topic: str) -> RecordConverters:
        """Return the converters of a source topic."""
        if not self._entries:
            return self.default
        converters = self._by_topic.get(topic)
        if converters is None:
            index = next((n for n, e in enumerate(self._entries, 1) if e.has_topic(topic)), 0)
            converters = self._by_topic[topic] = self.sets[index]
        return converters

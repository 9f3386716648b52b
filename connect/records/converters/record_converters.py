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
        self._known: dict[str, RecordConverters] = {}

    def _once(self, config: ConverterConfig, role: Role) -> Converter:
        """Build a converter; entries that keep the connector's converter share it."""
        place = role, id(config)
        if place not in self._built:
            self._built[place] = converter(config, role)
        return self._built[place]

    def of(self, topic: str) -> RecordConverters:
        """Return the converters of a source topic."""
        if not self._entries:
            return self.default
        found = self._known.get(topic)
        if found is None:
            place = next((n for n, e in enumerate(self._entries, 1) if e.has_topic(topic)), 0)
            found = self._known[topic] = self.sets[place]
        return found

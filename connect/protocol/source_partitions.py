"""The source partitions of a connector: its topics, expanded with the cluster's metadata."""

from __future__ import annotations

from collections.abc import Mapping

from connect.config.connector import ConnectorConfig
from connect.config.reserved_topics import INTERNAL_TOPICS
from connect.errors import ConfigError
from connect.java_compat.java_regex import compile_java_regex
from connect.model.layout import TopicPartition


def source_partitions(
    config: ConnectorConfig, topics: Mapping[str, int], *, excluded: frozenset[str] = frozenset()
) -> list[TopicPartition]:
    """Expand ``topics`` or ``topics.regex`` with the cluster's metadata.

    Args:
        config: the connector.
        topics: partition count of every topic of the cluster.
        excluded: reserved topics, which a regex does not match. The control topic of the connector
            is excluded too, or the connector would read its own events.

    Returns:
        Sorted partitions; a topic that does not exist adds none.

    Raises:
        ConfigError: ``topics_regex``: not a regular expression.
    """
    if config.topics_regex is None:
        names = set(config.topics) & topics.keys()
    else:
        try:
            pattern = compile_java_regex(config.topics_regex)
        except ConfigError as e:
            raise ConfigError(
                f"topics.regex is no {e.message}", code="topics_regex", connector=config.name
            ) from e
        kept_out = INTERNAL_TOPICS | excluded | {config.control_topic}
        names = set(pattern.matching(topic for topic in topics if topic not in kept_out))
    return sorted(TopicPartition(name, p) for name in names for p in range(topics[name]))

"""Which partitions a connector reads: its topics, expanded against the cluster's metadata."""

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
    """Expand ``topics`` or ``topics.regex`` against the cluster's metadata.

    Args:
        config: the connector.
        topics: partition count of every topic of the cluster.
        excluded: topics that no regex adds: the reserved ones. The connector's control topic is
            left out of a regex too, or it would read what it writes.

    Returns:
        Sorted partitions; topics that do not exist (yet) contribute none.

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

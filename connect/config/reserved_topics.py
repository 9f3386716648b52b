"""Reserved topics, which connectors may neither read nor use for dead letters and outputs.

Rules of this file:
- These topics contain configurations with secrets, states of connectors, and announcements of
  files. Their records must not reach a table, and records from a source topic must not reach these
  topics.
- The reserved topics are the nodes' storage topics, the broker's internal topics, the default
  control topic, the control topics of all stored connectors, and the topics that the operator
  lists.
- The rules of ``cross_key_rules`` check a connector's own control topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from connect.config.aggregation import TOPIC as AGGREGATE_TOPIC
from connect.config.keys.iceberg_keys import CONTROL_TOPIC, DEFAULT_CONTROL_TOPIC
from connect.config.output_config import OUTPUT_PREFIX, OUTPUTS, OutputConfig
from connect.errors import ConfigError

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
NODE_KEY: Final = "icefloe.topics.reserved"
_STORAGE_KEYS: Final = ("config.storage.topic", "status.storage.topic", "offset.storage.topic")


def node_topics(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the topics that the node's properties reserve.

    Args:
        properties: node properties; placeholders may be unresolved.
    """
    listed = (name.strip() for name in properties.get(NODE_KEY, "").split(","))
    storage = (properties.get(key, "").strip() for key in _STORAGE_KEYS)
    named = {name for name in (*listed, *storage) if name}
    return INTERNAL_TOPICS | {DEFAULT_CONTROL_TOPIC} | named


def control_topics(
    configs: Iterable[Mapping[str, str]], resolve: Callable[[str], str]
) -> frozenset[str]:
    """Return the control topics of connectors.

    Args:
        configs: stored configurations.
        resolve: resolves placeholders; names that cannot be resolved are omitted.
    """
    topics = set()
    for config in configs:
        topic = config.get(CONTROL_TOPIC, "")
        try:
            name = resolve(topic).strip()
        except ConfigError:
            continue
        topics.add(name or DEFAULT_CONTROL_TOPIC)
    return frozenset(topics)


def output_topics(configs: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Return the topics to which connectors send rows of outputs, or aggregates."""
    return frozenset(
        topic
        for config in configs
        for key in (
            AGGREGATE_TOPIC,
            *(
                f"{OUTPUT_PREFIX}{name.strip()}.topic"
                for name in config.get(OUTPUTS, "").split(",")
            ),
        )
        if (topic := config.get(key, "").strip())
    )


def source_topics(
    configs: Iterable[Mapping[str, str]], resolve: Callable[[str], str]
) -> frozenset[str]:
    """Return the topics that connectors read by name, without those of ``topics.regex``."""
    topics: set[str] = set()
    for config in configs:
        try:
            listed = resolve(config.get("topics", "")).split(",")
        except ConfigError:
            continue
        topics |= {name.strip() for name in listed}
    return frozenset(topics - {""})


def refuse_reserved(
    topics: Iterable[str],
    dead_letter_topic: str | None,
    reserved: frozenset[str],
    outputs: Iterable[OutputConfig] = (),
    *,
    aggregate_topic: str | None = None,
) -> None:
    """Raise an error if a connector uses a reserved topic.

    Args:
        topics: the topics that it reads by name.
        dead_letter_topic: its dead letter topic.
        reserved: the reserved topics.
        outputs: its outputs.
        aggregate_topic: the topic of its aggregates.

    Raises:
        ConfigError: ``topic_reserved``; the message contains the key and the topic.
    """
    for key, names in (
        ("topics", topics),
        ("errors.deadletterqueue.topic.name", [dead_letter_topic] if dead_letter_topic else ()),
        (AGGREGATE_TOPIC, [aggregate_topic] if aggregate_topic else ()),
        *((f"{OUTPUT_PREFIX}{o.name}.topic", (o.topic,)) for o in outputs if o.topic),
    ):
        for name in names:
            if name in reserved:
                raise ConfigError(
                    f"{key} names {name}, {WHY}; name another topic",
                    code="topic_reserved",
                    topic=name,
                )


WHY: Final = "a topic for control events, configurations or states"

"""Topics that no connector may read or send dead letters to.

Rules of this file:
- Records of these topics carry authority: configurations with their secrets, states of
  connectors, announcements of files. A table must not receive them, and no record that a
  connector read may be written to them.
- Reserved are the nodes' storage topics, the broker's internal topics, the default control topic,
  the control topic of every stored connector, and what the operator lists.
- A connector's own control topic is checked with its other keys (``together``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from connect.config.keys.iceberg_keys import CONTROL_TOPIC, DEFAULT_CONTROL_TOPIC
from connect.errors import ConfigError

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
NODE_KEY: Final = "icefloe.topics.reserved"
_STORAGE_KEYS: Final = ("config.storage.topic", "status.storage.topic", "offset.storage.topic")


def node_topics(properties: Mapping[str, str]) -> frozenset[str]:
    """Topics reserved by a node's properties alone.

    Args:
        properties: of the node, placeholders resolved or not.
    """
    listed = (name.strip() for name in properties.get(NODE_KEY, "").split(","))
    storage = (properties.get(key, "").strip() for key in _STORAGE_KEYS)
    named = {name for name in (*listed, *storage) if name}
    return INTERNAL_TOPICS | {DEFAULT_CONTROL_TOPIC} | named


def control_topics(
    configs: Iterable[Mapping[str, str]], resolve: Callable[[str], str]
) -> frozenset[str]:
    """The control topics of connectors.

    Args:
        configs: as stored.
        resolve: turns placeholders into values; a name it cannot resolve is left out.
    """
    found = set()
    for config in configs:
        given = config.get(CONTROL_TOPIC, "")
        try:
            name = resolve(given).strip()
        except ConfigError:
            continue
        found.add(name or DEFAULT_CONTROL_TOPIC)
    return frozenset(found)


def source_topics(
    configs: Iterable[Mapping[str, str]], resolve: Callable[[str], str]
) -> frozenset[str]:
    """The topics that connectors read by name; those of a ``topics.regex`` are not among them."""
    found: set[str] = set()
    for config in configs:
        try:
            listed = resolve(config.get("topics", "")).split(",")
        except ConfigError:
            continue
        found |= {name.strip() for name in listed}
    return frozenset(found - {""})


def refuse_reserved(
    topics: Iterable[str], dead_letter_topic: str | None, reserved: frozenset[str]
) -> None:
    """Stop a connector that is about to start with a reserved topic.

    Args:
        topics: that it reads by name.
        dead_letter_topic: that it writes to.
        reserved: topics that it may not use.

    Raises:
        ConfigError: ``topic_reserved``, with the key and the topic.
    """
    for key, names in (
        ("topics", topics),
        ("errors.deadletterqueue.topic.name", [dead_letter_topic] if dead_letter_topic else ()),
    ):
        for name in names:
            if name in reserved:
                raise ConfigError(
                    f"{key} names {name}, {WHY}; name another topic",
                    code="topic_reserved",
                    topic=name,
                )


WHY: Final = "a topic that holds control events, configurations or states"

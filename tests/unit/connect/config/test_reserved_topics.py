"""Topics that carry authority, and the check at a connector's start."""

from __future__ import annotations

import pytest

from connect.config.reserved_topics import (
    control_topics,
    node_topics,
    refuse_reserved,
    source_topics,
)
from connect.errors import ConfigError

NODE = {
    "config.storage.topic": "c",
    "status.storage.topic": "s",
    "offset.storage.topic": "o",
    "icefloe.topics.reserved": "java-control, audit",
}


def resolve(value: str) -> str:
    """A provider that knows one secret."""
    if value == "${file:x:gone}":
        raise ConfigError("no such key")
    return value.replace("${file:x:topic}", "control-secret")


def test_node_topics_are_reserved() -> None:
    """Storage topics, the broker's own, the default control topic and the operator's list."""
    topics = node_topics(NODE)
    assert {"c", "s", "o", "java-control", "audit", "control-iceberg"} <= topics
    assert "__consumer_offsets" in topics
    assert "" not in node_topics({})


def test_control_topics_of_connectors_are_reserved() -> None:
    """By their resolved names; unresolvable ones are left out."""
    key = "iceberg.control.topic"
    configs = [{key: "a"}, {}, {key: "${file:x:topic}"}, {key: "${file:x:gone}"}]
    assert control_topics(configs, resolve) == {"a", "control-iceberg", "control-secret"}


def test_source_topics_are_resolved_and_stripped() -> None:
    """Empty names are left out."""
    configs = [{"topics": "a, b"}, {"topics.regex": "x.*"}, {"topics": "${file:x:gone}"}]
    assert source_topics(configs, resolve) == {"a", "b"}


@pytest.mark.parametrize(("topics", "letters"), [(("a", "control"), None), (("a",), "control")])
def test_a_connector_does_not_start_with_a_reserved_topic(
    topics: tuple[str, ...], letters: str | None
) -> None:
    """Also if the topic was reserved after the connector was stored."""
    with pytest.raises(ConfigError) as refused:
        refuse_reserved(topics, letters, frozenset({"control"}))
    assert refused.value.code == "topic_reserved"
    refuse_reserved(("a",), None, frozenset({"control"}), aggregate_topic="results")
    with pytest.raises(ConfigError, match=r"icefloe\.aggregate\.topic names control"):
        refuse_reserved(("a",), None, frozenset({"control"}), aggregate_topic="control")

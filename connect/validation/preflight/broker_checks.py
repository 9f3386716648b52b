"""Checks of a configuration against the Kafka brokers. They do not create topics.

Rules of this file:
- A successful check does not prove that the connector may read a topic that it can describe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from connect.config.aggregation import TOPIC, Aggregation
from connect.config.connector import ConnectorConfig
from connect.config.source_group import group_key
from connect.errors import IcefloeError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import client_properties, require_transactions
from connect.model.layout import TopicPartition
from connect.protocol.control_topic import CONTROL_TOPIC_CONFIG
from connect.protocol.source_partitions import source_partitions
from connect.validation.preflight.live_checks import Check

CONTROL = "iceberg.control.topic"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_SHOWN_MAX = 5


def broker_checks(
    config: ConnectorConfig, node: Mapping[str, str], *, each_s: float, excluded: frozenset[str]
) -> Iterator[Check]:
    """Return the checks for the brokers.

    Args:
        config: the configuration with resolved placeholders.
        node: node properties with resolved placeholders.
        each_s: timeout of a check in seconds.
        excluded: topics that ``topics.regex`` never matches.
    """
    # the clients of tasks, and of the herder, which creates topics
    reading = client_properties(
        node, config.consumer_overrides, config.kafka_overrides, prefix="admin."
    )
    creating = client_properties(node, prefix="admin.")
    servers = reading.get("bootstrap.servers", "")
    question = f"Asked the brokers at {servers} (within {each_s:g} s)"
    key = "topics" if config.topics else "topics.regex"
    topics = ", ".join(config.topics[:_SHOWN_MAX]) or f"those that match {config.topics_regex}"
    yield Check(
        key, f"{question} for topics {topics}", partial(_sources, config, reading, each_s, excluded)
    )
    group = config.connect_group_id
    yield Check(
        group_key(config.raw) or "name",
        f"{question} for the offsets of consumer group {group}",
        partial(_offsets, config, reading, each_s, excluded),
    )
    question = f"Asked the brokers at {creating.get('bootstrap.servers', '')} (within {each_s:g} s)"
    yield Check(
        CONTROL,
        f"{question} for topic {config.control_topic}",
        partial(_control, config, creating, each_s),
    )
    writing = client_properties(node, config.producer_overrides, prefix="producer.")
    servers = writing.get("bootstrap.servers", "")
    yield Check(
        CONTROL,
        f"Asked the brokers at {servers} (within {each_s:g} s) for transactions",
        partial(_transactions, writing, node.get("group.id", "icefloe"), each_s),
    )
    if config.aggregation is not None:
        yield Check(
            TOPIC,
            f"{question} for topic {config.aggregation.topic}",
            partial(_results, config.aggregation, creating, each_s),
        )
    if topic := config.errors.dead_letter_topic:
        yield Check(
            DEAD_LETTER_TOPIC,
            f"{question} for topic {topic}",
            partial(_check_dead_letter_topic, config, creating, each_s),
        )


def _sources(
    config: ConnectorConfig, kafka: Mapping[str, str], each_s: float, excluded: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Check that the source topics exist and can be described."""
    existing = KafkaAdmin(kafka, timeout_s=each_s).topics()
    if config.topics_regex is not None:
        if not source_partitions(config, existing, excluded=excluded):
            yield (
                "topics.regex",
                f"it matches none of the {len(existing)} topics that can be described",
            )
        return
    for topic in config.topics:
        if topic not in existing:
            yield (
                "topics",
                f"{topic} does not exist, or cannot be described (ACL Describe on Topic {topic})",
            )


def _offsets(
    config: ConnectorConfig, kafka: Mapping[str, str], each_s: float, excluded: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Check that the offsets of the consumer group can be read."""
    admin = KafkaAdmin(kafka, timeout_s=each_s)
    partitions = source_partitions(config, admin.topics(), excluded=excluded)
    partitions = partitions[:1] or [TopicPartition(config.control_topic, 0)]
    admin.committed(config.connect_group_id, partitions)
    yield from ()


def _control(
    config: ConnectorConfig, kafka: Mapping[str, str], each_s: float
) -> Iterator[tuple[str, str]]:
    """Check that the control topic is not compacted, or can be created."""
    admin, topic = KafkaAdmin(kafka, timeout_s=each_s), config.control_topic
    if topic not in admin.topics():
        if (why := _refusal(admin, topic, 1, CONTROL_TOPIC_CONFIG)) is not None:
            yield CONTROL, f"it does not exist, and {why}"
    elif "compact" in re.split(r"\s*,\s*", _policy(admin, topic)):
        yield CONTROL, "its cleanup.policy is compact, which would remove events; set it to delete"


def _transactions(
    kafka: Mapping[str, str], group_id: str, each_s: float
) -> Iterator[tuple[str, str]]:
    """Check that the brokers take a transactional producer; nothing is written."""
    require_transactions(kafka, group_id, each_s)
    yield from ()


def _results(
    aggregation: Aggregation, kafka: Mapping[str, str], each_s: float
) -> Iterator[tuple[str, str]]:
    """Check that the topic of the results is compacted, or can be created."""
    admin, topic = KafkaAdmin(kafka, timeout_s=each_s), aggregation.topic
    if topic not in admin.topics():
        config = {"cleanup.policy": "compact"}
        if (why := _refusal(admin, topic, aggregation.topic_partitions, config)) is not None:
            yield TOPIC, f"it does not exist, and {why}"
    elif "compact" not in re.split(r"\s*,\s*", _policy(admin, topic)):
        yield (
            TOPIC,
            (
                "its cleanup.policy is not compact, so that the broker would delete the results of "
                "groups that do not change; set it to compact"
            ),
        )


def _check_dead_letter_topic(
    config: ConnectorConfig, kafka: Mapping[str, str], each_s: float
) -> Iterator[tuple[str, str]]:
    """Check that the dead letter topic exists or can be created."""
    admin, topic = KafkaAdmin(kafka, timeout_s=each_s), config.errors.dead_letter_topic or ""
    if topic not in admin.topics():
        factor = config.errors.dead_letter_replication_factor
        key = "errors.deadletterqueue.topic.replication.factor"
        why = _refusal(admin, topic, 1, {}, replication_factor=factor, replication_key=key)
        if why is not None:
            yield DEAD_LETTER_TOPIC, f"it does not exist, and {why}"


def _policy(admin: KafkaAdmin, topic: str) -> str:
    """Return ``cleanup.policy`` of a topic, or an empty text if it cannot be read."""
    try:
        return admin.topic_config(topic).get("cleanup.policy", "")
    except IcefloeError:
        return ""


def _refusal(
    admin: KafkaAdmin,
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    *,
    replication_factor: int = -1,
    replication_key: str = "",
) -> str | None:
    """Return the reason why the brokers would not create a topic, or None."""
    try:
        admin.ensure_topic(
            topic,
            partitions,
            config,
            replication_factor=replication_factor,
            replication_key=replication_key,
            is_trial=True,
        )
    except RetriableError as error:
        if error.code != "topic_refused":
            raise
        return error.message
    return None

"""What the admin client makes of the broker's description of topics."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import TopicMetadata

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import partition_counts


def described(count: int, code: int | None = None) -> TopicMetadata:
    """A topic of the broker's answer."""
    topic = TopicMetadata()
    topic.partitions = dict.fromkeys(range(count))
    topic.error = None if code is None else KafkaError(code)
    return topic


def test_a_topic_with_an_error_is_not_left_out() -> None:
    """A group is deleted after all its offsets were read: a topic must not be missing in them."""
    gone = described(0, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert partition_counts({"a": described(2), "gone": gone}) == {"a": 2}
    unknown = described(0, KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(RetriableError, match="does not describe topic b") as refused:
        partition_counts({"a": described(2), "b": unknown})
    assert refused.value.coordinates == {"topic": "b"}

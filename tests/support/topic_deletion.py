"""Deletion of topics, as an operator does it with Kafka's tools."""

from __future__ import annotations

from connect.gateways.kafka.kafka_admin import KafkaAdmin

TIMEOUT_S = 60.0


def delete_topic(admin: KafkaAdmin, name: str) -> None:
    """Delete a topic; return when the broker has accepted it."""
    admin._admin.delete_topics([name], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)

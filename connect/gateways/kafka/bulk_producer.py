"""Producing many records fast, in order and without transactions: for demos and measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import librdkafka_config
from connect.gateways.kafka.kafka_errors import mapped

QUEUE_RECORDS_MAX = 200_000
FLUSH_TIMEOUT_S = 120.0
PARTITION_BY_KEY = -1


class BulkProducer:
    """An idempotent producer of whole batches; not thread-safe.

    Args:
        properties: Java-named client properties.
        linger_ms: how long a record waits for others before it is sent.
    """

    def __init__(self, properties: Mapping[str, str], *, linger_ms: float = 20) -> None:
        self._failed: KafkaError | None = None
        own: dict[str, Any] = {
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "batch.num.messages": 20_000,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
            "queue.buffering.max.kbytes": 262_144,
            "partitioner": "murmur2_random",
        }
        settings = librdkafka_config(properties, "producer", **own)
        settings.setdefault("compression.type", "lz4")
        with mapped("producer"):
            self._producer = Producer(settings)

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Queue records of one partition, in this order, waiting while the queue is full.

        Their timestamp is the time of queueing.

        Raises:
            RetriableError: an earlier or this batch could not be delivered.
        """
        self._queue(topic, [{"value": value} for value in values], partition)

    def send_keyed(self, topic: str, records: Sequence[tuple[bytes | None, bytes]]) -> None:
        """Queue records with keys; their partitions are those that Kafka's Java producer chooses.

        Args:
            topic: where to; it exists.
            records: key and value of each.

        Raises:
            RetriableError: an earlier record or one of these could not be delivered.
        """
        batch = [{"key": key, "value": value} for key, value in records]
        self._queue(topic, batch, PARTITION_BY_KEY)

    def _queue(self, topic: str, batch: list[dict[str, bytes | None]], partition: int) -> None:
        # with a full queue, a batch would be queued in part and out of order
        while len(self._producer) + len(batch) > QUEUE_RECORDS_MAX:
            self._producer.poll(0.01)
        with mapped(f"producing to {topic}"):
            self._producer.produce_batch(topic, batch, partition, self._delivered)
            self._producer.poll(0)
        self._raise_failure(topic)

    def finish(self, topic: str) -> None:
        """Return when every record is acknowledged.

        Raises:
            RetriableError: some are not.
        """
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        self._raise_failure(topic)
        if left:
            raise RetriableError(
                f"producing to {topic}: {left} records were not acknowledged", code="not_delivered"
            )

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed = error

    def _raise_failure(self, topic: str) -> None:
        if self._failed is not None:
            with mapped(f"producing to {topic}"):
                raise KafkaException(self._failed)

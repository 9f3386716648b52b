"""Produces generated records at a rate.

Rules of this file:
- The rate is that of the whole run: after a pause of the broker the generator catches up.
- Records with equal keys are in one partition, as with Kafka's Java producer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from connect.clock import SystemClock
from connect.errors import ConfigError
from connect.gateways.kafka.bulk_producer import BulkProducer
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import client_properties
from connect.gateways.schema_registry.registry_client import SchemaNotFound, SchemaRegistry
from connect.operations.datagen.record_spec import RecordSpec
from connect.operations.datagen.record_values import RecordEncoder, RecordValues, avro_schema

CHUNK_RECORDS: Final = 1_000
PAUSE_MS: Final = 50


def generate(
    spec: RecordSpec,
    kafka: Mapping[str, str],
    registry: Mapping[str, str],
    *,
    is_stopping: Callable[[], bool] = lambda: False,
    clock: SystemClock | None = None,
) -> int:
    """Produce the records of a specification; return their number.

    Args:
        spec: what to generate.
        kafka: properties as those of a node.
        registry: options of the schema registry's client, for Avro.
        is_stopping: ends the run after the present chunk.
        clock: time.

    Raises:
        ConfigError: ``datagen_schema``, the registry refuses the schema; or the specification,
            the broker's login or the registry's address is wrong.
        RetriableError: broker or registry does not answer.
    """
    clock = clock or SystemClock()
    values = RecordValues(spec)
    encoder = RecordEncoder()
    if spec.format == "avro":
        schema = avro_schema(spec)
        client = SchemaRegistry(registry)
        try:
            schema_id = client.register(f"{spec.topic}-value", json.dumps(schema))
        except SchemaNotFound as error:
            raise ConfigError(
                f"the schema registry refuses the schema: {error}", code="datagen_schema"
            ) from error
        finally:
            client.close()
        encoder = RecordEncoder(schema_id, schema)
    admin = KafkaAdmin(client_properties(kafka, prefix="admin."))
    try:
        if spec.topic not in admin.topics():
            admin.ensure_topic(
                spec.topic, partitions=spec.partitions, replication_factor=spec.replication_factor
            )
    finally:
        admin.close()
    producer = BulkProducer(client_properties(kafka, prefix="producer."))
    started_ms, sent = clock.monotonic_ms(), 0
    while not is_stopping() and (not spec.count or sent < spec.count):
        due = CHUNK_RECORDS
        if spec.rate:
            due = int((clock.monotonic_ms() - started_ms) * spec.rate / 1_000) + 1 - sent
        size = min(CHUNK_RECORDS, due, spec.count - sent if spec.count else CHUNK_RECORDS)
        if size <= 0:
            clock.sleep_ms(PAUSE_MS)
            continue
        now_ms = clock.now_ms()
        keyed_values = (values.next(number, now_ms) for number in range(sent, sent + size))
        producer.send_keyed(
            spec.topic, [(key, encoder.encode(value)) for key, value in keyed_values]
        )
        sent += size
    producer.finish(spec.topic)
    return sent

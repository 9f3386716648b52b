"""Writes events of two Avro schemas to one topic: python produce_events.py TOPIC.

Each schema is registered under the subject TOPIC-NAME, as Confluent's serializers do with the
strategy TopicRecordNameStrategy.
"""

from __future__ import annotations

import io
import json
import struct
import sys
from typing import Any

import fastavro
import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP_SERVERS = "127.0.0.1:9092"
REGISTRY = "http://127.0.0.1:8081"
SCHEMAS = {
    "app.SignedUp": {"user": "string", "plan": "string"},
    "app.Bought": {"user": "string", "cents": "long"},
}
EVENTS = [
    ("app.SignedUp", {"user": "ada", "plan": "free"}),
    ("app.Bought", {"user": "bob", "cents": 1250}),
    ("app.SignedUp", {"user": "cleo", "plan": "pro"}),
]


def main(topic: str) -> None:
    """Register the schemas and write the events."""
    schemas: dict[str, Any] = {}
    ids: dict[str, int] = {}
    for name, columns in SCHEMAS.items():
        fields = [{"name": column, "type": kind} for column, kind in columns.items()]
        schema = {"type": "record", "name": name, "fields": fields}
        answer = httpx.post(
            f"{REGISTRY}/subjects/{topic}-{name}/versions", json={"schema": json.dumps(schema)}
        )
        ids[name] = answer.raise_for_status().json()["id"]
        schemas[name] = fastavro.parse_schema(schema)
    kafka = {"bootstrap.servers": BOOTSTRAP_SERVERS}
    admin = AdminClient(kafka)
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)
    errors: list[str] = []
    producer = Producer(kafka)
    for name, event in EVENTS:
        data = io.BytesIO(struct.pack(">bI", 0, ids[name]))
        data.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(data, schemas[name], event)
        producer.produce(
            topic, data.getvalue(), on_delivery=lambda error, _: error and errors.append(str(error))
        )
    if producer.flush(60) or errors:
        sys.exit(f"the broker has not acknowledged all records: {errors[:1]}")
    print(f"{len(EVENTS)} records in {topic}")


if __name__ == "__main__":
    main(sys.argv[1])

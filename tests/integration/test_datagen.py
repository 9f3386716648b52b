"""``icefloe datagen`` against a real broker and a schema registry."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from connect.clock import SystemClock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.gateways.schema_registry.registry_client import SchemaRegistry
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.operations.datagen.generator import generate
from connect.operations.datagen.record_spec import RecordSpec
from tests.support.command_line import icefloe
from tests.support.fakes.schema_registry import SchemaRegistryServer
from tests.support.stack import unique_name

pytestmark = pytest.mark.kafka
PARTITIONS = 3


class SteppedClock(SystemClock):
    """Time that passes in pauses only."""

    passed_ms = 0

    def monotonic_ms(self) -> int:
        """What was slept so far."""
        return self.passed_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Let time pass."""
        self.passed_ms += duration_ms


def spec(topic: str, **more: Any) -> dict[str, Any]:
    fields = {
        "account": {"type": "integer", "min": 1, "max": 20},
        "number": {"type": "sequence"},
        "name": {"fake": "person.full_name"},
    }
    return {
        "topic": topic,
        "partitions": PARTITIONS,
        "key": "account",
        "count": 500,
        "fields": fields,
        **more,
    }


def records(kafka: dict[str, str], admin: KafkaAdmin, topic: str) -> list[KafkaRecord]:
    """Every record of a topic."""
    partitions = [TopicPartition(topic, p) for p in range(admin.topics()[topic])]
    ends = {tp: end for tp, (_, end) in admin.watermarks(partitions).items()}
    reader, records = LogReader(kafka), list[KafkaRecord]()
    reader.assign(dict.fromkeys(partitions, 0))
    while any(reader.positions()[tp] < end for tp, end in ends.items()):
        records += reader.poll(100)  # the test's timeout bounds it
    reader.close()
    return records


def test_json_records_with_equal_keys_are_in_one_partition(
    tmp_path: Path, kafka_properties: dict[str, str], admin: KafkaAdmin
) -> None:
    """The topic is created; every record is produced once and in order."""
    topic, file = unique_name("generated"), tmp_path / "spec.json"
    file.write_text(json.dumps(spec(topic)))
    server = kafka_properties["bootstrap.servers"]
    done = icefloe("datagen", "-f", str(file), "--bootstrap-server", server)
    assert (done.status, done.stdout.strip()) == (0, f"500 records in {topic}"), done.stderr
    produced = records(kafka_properties, admin, topic)
    values = [json.loads(record.value or b"") for record in produced]
    assert sorted(value["number"] for value in values) == list(range(500))
    assert admin.topics()[topic] == PARTITIONS
    places: dict[bytes | None, set[int]] = {}
    for record, value in zip(produced, values, strict=True):
        assert record.key == str(value["account"]).encode()
        places.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set.union(*places.values())) == PARTITIONS


def test_avro_records_name_their_registered_schema(
    kafka_properties: dict[str, str], admin: KafkaAdmin
) -> None:
    """The registry has the schema; the rate bounds how many are sent, by the clock."""
    topic, clock = unique_name("generated"), SteppedClock()
    record_spec = RecordSpec.model_validate(spec(topic, format="avro", count=50, rate=100))
    with SchemaRegistryServer() as registry:
        options = {"schema.registry.url": registry.url}
        assert generate(record_spec, kafka_properties, options, clock=clock) == 50
        schema = json.loads(SchemaRegistry(options).version(f"{topic}-value", None).text)
    assert 450 <= clock.passed_ms <= 550
    produced = records(kafka_properties, admin, topic)
    assert {(record.value or b"")[:5] for record in produced} == {b"\0\0\0\0\x01"}
    numbers = []
    for record in produced:
        read: Any = fastavro.schemaless_reader(io.BytesIO((record.value or b"")[5:]), schema, None)
        numbers.append(read["number"])
    assert sorted(numbers) == list(range(50))

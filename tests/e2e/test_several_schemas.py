"""Several schemas in one topic, each to its own table: the configurations of the guide."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.support.fakes.schema_registry import SchemaRegistryServer
from tests.support.running_stack import RunningStack, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
PAGE = Path(__file__).parents[2] / "docs/how-to/several-schemas.md"
KINDS: dict[str, Any] = {
    name: {
        "type": "record",
        "name": f"app.{name}",
        "fields": [{"name": "id", "type": "long"}, {"name": field, "type": "string"}],
    }
    for name, field in (("SignedUp", "mail"), ("Bought", "item"))
}
EVENTS = [("SignedUp", {"id": 1, "mail": "a"}), ("Bought", {"id": 2, "item": "b"})]


def documented(section: str) -> dict[str, str]:
    """The configuration of a section of the page."""
    text = PAGE.read_text("utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = [json.loads(code) for code in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    (config,) = (each for each in found if isinstance(each, dict))
    return config


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


def framed(number: int, schema: Any, value: Any) -> bytes:
    """A message as a serializer writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + out.getvalue()


def write_subjects(running: RunningStack, registry: SchemaRegistryServer, topic: str) -> None:
    """Each record type under the subjects of both strategies."""
    for name, value in EVENTS:
        registry.register(f"{topic}-app.{name}", json.dumps(KINDS[name]))
        number = registry.register(f"app.{name}", json.dumps(KINDS[name]))
        running.produce(topic, framed(number, KINDS[name], value))


def write_union(running: RunningStack, registry: SchemaRegistryServer, topic: str) -> None:
    """One subject whose schema refers to the record types."""
    references = []
    for name, kind in KINDS.items():
        registry.register(f"app.{name}", json.dumps(kind))
        references.append({"name": f"app.{name}", "subject": f"app.{name}", "version": 1})
    union = json.dumps([f"app.{name}" for name in KINDS])
    number = registry.register(f"{topic}-value", union, references=references)
    for name, value in EVENTS:
        running.produce(topic, framed(number, list(KINDS.values()), (f"app.{name}", value)))


def write_headers(running: RunningStack, registry: SchemaRegistryServer, topic: str) -> None:
    """Plain JSON with a header."""
    del registry
    for name, value in EVENTS:
        running.produce(topic, value, headers=[("event-type", f"app.{name}".encode())])


WAYS = {
    "A subject per record type": write_subjects,
    "A union": write_union,
    "A type header": write_headers,
}


def test_each_type_has_its_own_table(running: RunningStack, registry: SchemaRegistryServer) -> None:
    """With the columns of that type."""
    names = {section: unique_name("types") for section in WAYS}
    for section, write in WAYS.items():
        config, topic = documented(section), running.topic("types")
        write(running, registry, topic)
        config["topics"] = topic
        template = config["iceberg.tables.name-template"]
        config["iceberg.tables.name-template"] = template.replace("lake", names[section])
        if "value.converter.schema.registry.url" in config:
            config["value.converter.schema.registry.url"] = registry.url
        running.create(names[section], {**running.connector(), **config})
    for section, name in names.items():
        for kind, value in EVENTS:
            table = f"{name}.app_{kind.lower()}"
            rows = running.rows(table, 1, name)
            assert pick(rows, *value) == [tuple(value.values())], section
            assert rows[0].keys() - value.keys() <= {"event_type"}
    running.delete(*names.values())

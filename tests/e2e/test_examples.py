"""Every connector in ``examples``, on the input and with the tables that its README shows."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka.admin import NewTopic
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.fakes.schema_registry import SchemaRegistryServer
from tests.support.running_stack import INTERVAL_MS, RunningStack, duckdb_rows

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples"
REGISTRY = "http://127.0.0.1:8081"
Rows = list[dict[str, str]]


@dataclass
class DocumentedExample:
    """What the README shows of an example.

    Attributes:
        static: tables that are there before, by name.
        topics: values of the records, by topic.
        tables: what must come out, by name.
    """

    static: dict[str, Rows] = field(default_factory=dict)
    topics: dict[str, list[Any]] = field(default_factory=dict)
    tables: dict[str, Rows] = field(default_factory=dict)


def readme() -> dict[str, DocumentedExample]:
    """All examples by name."""
    examples: dict[str, DocumentedExample] = {}
    for section in re.split(
        r"^## ", (EXAMPLES / "README.md").read_text("utf-8"), flags=re.MULTILINE
    )[1:]:
        displayed = examples[section.splitlines()[0]] = DocumentedExample()
        for topic, lines in re.findall(r"^Topic `(.*?)`.*?:\n\n```json\n(.*?)```", section, _MULTI):
            displayed.topics[topic] = [json.loads(line) for line in lines.splitlines()]
        for kind, name, text in re.findall(
            r"^(Static table|Table) `(.*?)`:\n\n((?:\|.*\n)+)", section, re.MULTILINE
        ):
            (displayed.static if kind.startswith("Static") else displayed.tables)[name] = cells(
                text
            )
    return examples


_MULTI = re.MULTILINE | re.DOTALL


def cells(text: str) -> Rows:
    """A Markdown table's rows, as texts."""
    header, _, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
    )
    return [dict(zip(header, line, strict=True)) for line in lines]


def reported(value: Any) -> str:
    """A value as the README writes it."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def avro(registry: SchemaRegistryServer, value: Mapping[str, Any]) -> bytes:
    """A record as a serializer writes it that names subjects by topic and record."""
    ((name, row),) = value.items()
    kinds = {str: "string", int: "long"}
    fields = [{"name": field, "type": kinds[type(inner)]} for field, inner in row.items()]
    schema = {"type": "record", "name": name, "fields": fields}
    number = registry.register(f"app-events-{name}", json.dumps(schema))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return struct.pack(">bI", 0, number) + out.getvalue()


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    """A registry in the place of the one at ``REGISTRY``."""
    with SchemaRegistryServer() as server:
        yield server


def catalog(running: RunningStack) -> Catalog:
    """The embedded catalog under the name that the examples have for it."""
    return load_catalog("demo", **running.stack.catalog_properties)


def started(
    running: RunningStack, registry: SchemaRegistryServer, name: str, displayed: DocumentedExample
) -> None:
    """Make what an example needs, write its input and create it as it is."""
    for table, rows in displayed.static.items():
        kinds = [LongType() if text.isdecimal() else StringType() for text in rows[0].values()]
        columns = zip(rows[0], kinds, strict=True)
        schema = Schema(
            *(
                NestedField(i, column, kind, required=False)
                for i, (column, kind) in enumerate(columns, start=1)
            )
        )
        arrow = schema.as_arrow()
        values = {
            column: [int(row[column]) if row[column].isdecimal() else row[column] for row in rows]
            for column in rows[0]
        }
        running.table(table, catalog(running), schema=schema).append(
            arrow.empty_table().from_pydict(values, arrow)
        )
    content = json.loads((EXAMPLES / f"{name}.json").read_text("utf-8"))
    config = {
        key: value.replace(REGISTRY, registry.url) for key, value in content["config"].items()
    }
    for topic, values in displayed.topics.items():
        running._admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
        is_avro = "Avro" in config["value.converter"]
        running.produce(topic, *(avro(registry, v) if is_avro else v for v in values))
    running.create(name, {**config, "iceberg.control.commit.interval-ms": INTERVAL_MS})


def test_the_examples_do_what_their_readme_shows(
    running: RunningStack, registry: SchemaRegistryServer
) -> None:
    """Every table has exactly the documented rows, and nothing has failed."""
    examples = readme()
    assert sorted(examples) == sorted(path.stem for path in EXAMPLES.glob("*.json"))
    for name, displayed in examples.items():
        started(running, registry, name, displayed)
    for name, displayed in examples.items():
        for table, rows in displayed.tables.items():
            running.wait_until(
                lambda table=table, rows=rows: found(running, table, list(rows[0])) == rows,
                lambda name=name, table=table, rows=rows: (
                    f"{table}: {found(running, table, list(rows[0]))} {running.status(name)}"
                ),
            )
        running.wait_until_running(name)
    running.delete(*examples)


def found(running: RunningStack, table: str, columns: list[str]) -> Rows:
    """The rows of a table in the order of their texts."""
    opened = catalog(running)
    if not opened.table_exists(table):
        return []
    quoted = [f'"{column}"' for column in columns]
    rows = duckdb_rows(opened.load_table(table), *quoted)  # PyIceberg reads no equality deletes
    texts = sorted([reported(value) for value in row] for row in rows)
    return [dict(zip(columns, row, strict=True)) for row in texts]

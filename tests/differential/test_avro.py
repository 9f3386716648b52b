"""Avro by column gives what Avro by record gives, and both what fastavro wrote."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestamptzType

from connect.errors import RecordError
from connect.records.converters.avro.avro_data import avro_reader
from connect.records.converters.avro.avro_schema import BadSchema, parse_avro
from connect.records.converters.payload_errors import Malformed
from connect.records.tables.table_creation import check_type
from connect.records.tables.type_inference import type_of
from tests.differential.avro_cases import SchemaGenerator, encode, plain
from tests.differential.both_paths import ALL, both
from tests.differential.mutations import mutated
from tests.differential.support import config, plan, source

AVRO = "io.confluent.connect.avro.AvroConverter"


def connector(folder: Path, schema: Any, **more: str) -> Any:
    """A connector that reads bare Avro of a schema."""
    file = folder / "schema.avsc"
    file.write_text(json.dumps(schema))
    return config(
        **{
            "value.converter": AVRO,
            "value.converter.schemas.enable": None,
            "value.converter.schema.file": str(file),
            **ALL,
            **more,
        }
    )


def table_of(schema: Any) -> Schema | None:
    """The table that auto-creation would make."""
    try:
        kind = type_of(avro_reader(parse_avro(json.dumps(schema)), {}).schema, force_optional=True)
        check_type(kind, case_insensitive=False)
    except (RecordError, BadSchema):
        return None
    assert isinstance(kind, StructType)
    return assign_fresh_schema_ids(Schema(*kind.fields))


@pytest.mark.parametrize("seed", range(24))
def test_random_avro_data_is_read_alike_by_both_paths(seed: int, tmp_path: Path) -> None:
    """Random schemas, some data broken: the same rows and refusals."""
    chance = random.Random(seed)
    maker = SchemaGenerator(chance)
    schema = maker.record(chance.randrange(1, 6))
    table = table_of(schema)
    if table is None:
        pytest.skip("no table for this schema")
    values = [encode(schema, maker.value(schema)) for _ in range(60)]
    records = [mutated(value, chance) for value in values]
    other = Schema(*(NestedField(i, f"f{i - 1}", _other(chance), required=False) for i in (1, 2)))
    for fields in (table, other):
        plans = [plan(tmp_path, fields)]
        by_column, by_record = both(connector(tmp_path, schema), plans, [source(records)])
        assert by_column == by_record
    evolving = connector(tmp_path, schema, **{"iceberg.tables.evolve-schema-enabled": "true"})
    by_column, by_record = both(evolving, [plan(tmp_path, other)], [source(records)])
    assert by_column == by_record
    texts = [NestedField(1000 + i, f"f{i - 1}__text", StringType(), required=False) for i in (1, 2)]
    keys = {"iceberg.tables.evolve-schema-enabled": "true", "iceberg.tables.type-conflict": "text"}
    plans = [plan(tmp_path, Schema(*other.fields, *texts, *table.fields[2:]))]
    by_column, by_record = both(connector(tmp_path, schema, **keys), plans, [source(records)])
    assert by_column == by_record


def _other(chance: random.Random) -> Any:
    return chance.choice([LongType(), StringType(), TimestamptzType()])


@pytest.mark.parametrize("depth", range(3))
def test_nulls_of_columns_with_defaults_are_read_alike(depth: int, tmp_path: Path) -> None:
    """Kafka Connect's default of an optional field, at any depth and in lists."""
    amount = [{"type": "int", "connect.default": 7}, "null"]
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": amount}]}
    kind = (amount, ["null", record], {"type": "array", "items": record})[depth]
    schema = {"type": "record", "name": "T", "fields": [{"name": "f", "type": kind}]}
    table = table_of(schema)
    assert table is not None
    values = [None if n % 2 else n for n in range(40)]
    rows: list[Any] = [values, [{"a": v} for v in values], [[{"a": v}] for v in values]][depth]
    records = [encode(schema, {"f": row}) for row in rows]
    plans = [plan(tmp_path, table)]
    by_column, by_record = both(connector(tmp_path, schema), plans, [source(records)])
    assert by_column == by_record
    assert "7" in str(by_record["rows"])


@pytest.mark.parametrize("seed", range(12))
def test_the_reference_path_reads_the_values_of_fastavro(seed: int) -> None:
    """Without logical types."""
    chance = random.Random(seed)
    maker = SchemaGenerator(chance)
    schema = plain(maker.record(4))
    reader = avro_reader(parse_avro(json.dumps(schema)), {})
    for _ in range(30):
        data = encode(schema, maker.value(schema))
        theirs = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema))
        try:
            _, ours = reader.read(data)
        except Malformed:  # a connect.type that the value does not fit
            continue
        assert repr(_comparable(ours, schema)) == repr(theirs)


def _comparable(value: Any, schema: Any) -> Any:
    """A value without schemas, unions unwrapped."""
    if isinstance(schema, list):
        if value is None:
            return None
        rest = [branch for branch in schema if branch != "null"]
        if len(rest) == 1 and len(schema) == 2:
            return _comparable(value, rest[0])
        inner = [(n, v) for n, v in value.values.items() if v is not None]
        return _comparable(inner[0][1], inner[0][0]) if inner else None
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {
            f["name"]: _comparable(value.values[f["name"]], f["type"]) for f in schema["fields"]
        }
    if kind == "array":
        return [_comparable(item, schema["items"]) for item in value]
    if kind == "map":
        return {k: _comparable(item, schema["values"]) for k, item in value.items()}
    if kind == "float":
        return float(value)
    return getattr(value, "millis", value)

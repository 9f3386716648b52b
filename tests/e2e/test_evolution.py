"""Several tasks that change one table's schema at the same moment."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StructType

from connect.gateways.catalog_properties import client_config
from tests.support.running_stack import RunningStack
from tests.support.stack import RestCatalog, unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
PARTITIONS = 4
ROUNDS = 2
EACH = 25
DIGITS = (6, 9, 12, 18)


def test_several_tasks_may_widen_one_table(
    running: RunningStack, rest_catalog: RestCatalog
) -> None:
    """No record is lost, no column is duplicated, each has the widest requested type.

    Each round brings new fields of all tasks at once, some of them the same ones with other types.
    """
    name = unique_name("evolution")
    table = f"evolution.{name.replace('-', '_')}"
    client = client_config(rest_catalog.properties).properties
    catalog = load_catalog("iceberg", **client, type="rest")
    running.table(table, catalog, schema=_narrow())
    topic = running.topic("evolution", partitions=PARTITIONS)
    config = {
        **running.connector(topics=topic, iceberg__tables=table, tasks__max=str(PARTITIONS)),
        **{f"iceberg.catalog.{key}": value for key, value in rest_catalog.properties.items()},
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "icefloe.tasks.per.worker": str(PARTITIONS),
    }
    running.create(name, config)
    sent: dict[int, dict[str, Any]] = {}
    for turn in range(ROUNDS):
        for partition in range(PARTITIONS):
            first = len(sent)
            rows = [_row(turn, partition, first + i) for i in range(EACH)]
            sent |= {row["id"]: row for row in rows}
            schema = _schema(turn, partition)
            running.produce(
                topic,
                *({"schema": schema, "payload": _payload(row)} for row in rows),
                partition=partition,
            )
        rows = running.rows(table, len(sent), name, catalog)
    made = catalog.load_table(table).schema()
    assert {field.name: str(field.field_type) for field in made.fields if field.name != "own"} == {
        "id": "long",
        **{f"price{turn}": "decimal(18, 2)" for turn in range(ROUNDS)},
        **{f"count{turn}": "long" for turn in range(ROUNDS)},
        **{f"ratio{turn}": "double" for turn in range(ROUNDS)},
    }
    own = made.find_field("own").field_type
    assert isinstance(own, StructType)
    assert sorted((field.name, str(field.field_type)) for field in own.fields) == sorted(
        [
            ("note", "long"),
            *((_own(t, p), "string") for t in range(ROUNDS) for p in range(PARTITIONS)),
        ]
    )
    assert {row["id"]: _present(row) for row in rows} == sent
    assert len(catalog.load_table(table).schemas()) > ROUNDS * PARTITIONS  # each task changed it
    running.delete(name)


def _narrow() -> Schema:
    """The table as it is before: its decimals are too short for every task."""
    prices = [
        NestedField(10 + turn, f"price{turn}", DecimalType(4, 2), required=False)
        for turn in range(ROUNDS)
    ]
    own = StructType(NestedField(3, "note", LongType(), required=False))
    return Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "own", own, required=False),
        *prices,
    )


def _own(turn: int, partition: int) -> str:
    return f"of{partition}_{turn}"


def _row(turn: int, partition: int, number: int) -> dict[str, Any]:
    is_wide = partition % 2 == 1
    return {
        "id": number,
        f"price{turn}": Decimal(10 ** DIGITS[partition] - 1 - number) / 100,
        f"count{turn}": 2**40 + number if is_wide else number,
        f"ratio{turn}": 0.1 if is_wide else 0.5,
        "own": {_own(turn, partition): f"n{number}"},
    }


def _schema(turn: int, partition: int) -> dict[str, Any]:
    is_wide = partition % 2 == 1
    decimal = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    }
    inner = {"type": "string", "optional": True, "field": _own(turn, partition)}
    kinds: list[dict[str, Any]] = [
        {"field": "id", "type": "int64"},
        {"field": f"price{turn}", **decimal},
        {"field": f"count{turn}", "type": "int64" if is_wide else "int32"},
        {"field": f"ratio{turn}", "type": "double" if is_wide else "float"},
        {"field": "own", "type": "struct", "fields": [inner]},
    ]
    return {"type": "struct", "fields": [{"optional": True, **kind} for kind in kinds]}


def _payload(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the envelope's payload has it: decimals are base64 of their unscaled number."""
    displayed: dict[str, Any] = json.loads(json.dumps(row, default=_unscaled))
    return displayed


def _unscaled(value: Decimal) -> str:
    number = int(value.scaleb(2))
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big")).decode()


def _present(row: dict[str, Any]) -> dict[str, Any]:
    """What of a row is not null."""
    values = {key: value for key, value in row.items() if value is not None}
    values["own"] = {key: value for key, value in row["own"].items() if value is not None}
    return values

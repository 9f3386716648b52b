"""Rows of the tables of docs/reference/json-types.md, tried: what a JSON value becomes."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.model.records import KafkaRecord
from connect.records.record_path import ReferencePath
from connect.records.tables.schema_changes import common_type
from connect.records.tables.table_creation import schema_for_record
from connect.validation.parse import parse
from tests.support.sources import ROOT

PAGE = (ROOT / "docs/reference/json-types.md").read_text("utf-8")
_CODE = re.compile(r"`([^`]*)`")


@cache
def path(schemas: str) -> tuple[ConnectorConfig, ReferencePath]:
    """A connector that reads JSON, with or without schemas, and its converters."""
    config = parse(
        {
            "name": "c",
            "connector.class": "IcebergSinkConnector",
            "topics": "t",
            "iceberg.tables": "n.t",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://catalog",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": schemas,
        }
    )
    return config, ReferencePath(config)


def rows(title: str) -> list[tuple[str, ...]]:
    """Return the cells of a section's table, without its head."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in lines[2:]]


def code(cell: str) -> str:
    """Return the text in backticks; empty if there is none."""
    found = _CODE.search(cell)
    return found[1] if found else ""


def displayed(kind: IcebergType) -> str:
    """Return a type as the page writes it: without field ids, and optional if not said."""
    return re.sub(r"\d+: (\w+): optional ", r"\1: ", str(kind))


def new_type(document: str, schemas: str = "false") -> IcebergType:
    """Return the type of the first column of the table that a record creates."""
    config, reads = path(schemas)
    (record,) = reads.read(KafkaRecord("t", 0, 1, 0, 0, None, document.encode()))
    return schema_for_record(record, config).fields[0].field_type


@pytest.mark.parametrize(("value", "column"), rows("New columns without a schema"))
def test_a_value_without_schema_has_the_type_of_the_page(value: str, column: str) -> None:
    """A column, none (the record creates no table), or a code."""
    document = f'{{"c": {code(value)}}}'
    if column != "none" and not column.startswith("rejected"):
        assert displayed(new_type(document)) == code(column)
        return
    with pytest.raises(RecordError) as refused:
        new_type(document)
    assert refused.value.code == ("no_schema" if column == "none" else code(column))


@pytest.mark.parametrize(("first", "second", "column"), rows("Two types for one new column"))
def test_two_values_have_a_common_type(first: str, second: str, column: str) -> None:
    """In order of the records; a list takes its first item instead."""
    types = [new_type(f'{{"c": {code(cell)}}}') for cell in (first, second)]
    assert displayed(common_type(*types)) == code(column)


@pytest.mark.parametrize(("kind", "name", "column"), rows("New columns with a schema"))
def test_a_schema_decides(kind: str, name: str, column: str) -> None:
    """Also for a null."""
    field: dict[str, Any] = {"field": "c", "type": code(kind), "optional": True}
    if name:
        field |= {"name": code(name), "parameters": {"scale": "2"}}
    envelope = {"schema": {"type": "struct", "fields": [field]}, "payload": {"c": None}}
    assert displayed(new_type(json.dumps(envelope), "true")) == code(column)


def column_type(text: str) -> IcebergType:
    """Return a type as the page writes it."""
    nested = {
        "list<long>": ListType(2, LongType(), element_required=False),
        "map<string, long>": MapType(2, StringType(), 3, LongType(), value_required=False),
        "struct<a: long>": StructType(NestedField(2, "a", LongType(), required=False)),
    }
    return (
        nested.get(text)
        or NestedField.model_validate(
            {"id": 1, "name": "c", "required": False, "type": text}
        ).field_type
    )


def converted(column: str, value: str) -> str | None:
    """Convert a value to a column; return the code of its error, None without an error."""
    schema = Schema(NestedField(1, "c", column_type(column), required=False))
    _, reads = path("false")
    (record,) = reads.read(KafkaRecord("t", 0, 1, 0, 0, None, f'{{"c": {value}}}'.encode()))
    try:
        assert reads.row(record, schema)["c"] is not None
    except RecordError as error:
        return error.code
    return None


@pytest.mark.parametrize(("column", "accepts", "rejects"), rows("Existing columns"))
def test_an_existing_column_takes_what_the_page_says(
    column: str, accepts: str, rejects: str
) -> None:
    """And no more."""
    for value in _CODE.findall(accepts):
        assert (value, converted(code(column), value)) == (value, None)
    values = _CODE.findall(rejects)
    for value, reason in zip(values[::2], values[1::2], strict=True):
        assert (value, converted(code(column), value)) == (value, reason)


def test_the_page_has_every_table() -> None:
    """A renamed section would leave its rows without a test."""
    counts = [
        len(rows(title))
        for title in (
            "New columns without a schema",
            "Two types for one new column",
            "New columns with a schema",
            "Existing columns",
        )
    ]
    assert all(count >= 7 for count in counts)

"""Variants and default values of tables of format version 3, as DuckDB and PyIceberg read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.model.table_types import VariantType
from tests.differential.support import config, run_batches, source
from tests.support.readers import Sql, duckdb_sql
from tests.support.table_harness import TableHarness
from tests.support.tables import announced, reference, table_commit
from tests.support.upserts import committed
from worker.batch.pipeline_spec import TablePlan

PLAIN = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "last", StringType(), required=False),
)
DEFAULTS = (
    NestedField(3, "s", StringType(), initial_default="text", write_default="text", required=False),
    NestedField(4, "n", IntegerType(), initial_default=7, write_default=8, required=False),
    NestedField(5, "day", DateType(), initial_default="2024-02-29", required=False),
)
DOCUMENTS: list[Any] = [
    {"a": {"b": [1, 2.5, None, True]}, "text": "x" * 100, "ü": "straße"},
    [1, [2, {"c": "d"}]],
    "text",
    2**62,
    -0.5,
    False,
    {},
    [],
    {f"f{n}": n for n in range(300)},
]


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> Iterator[CatalogGateway]:
    """A catalog in a local folder."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    yield gateway
    gateway.close()


@pytest.fixture
def duck() -> Iterator[Sql]:
    """Runs SQL in DuckDB."""
    with duckdb_sql() as sql:
        yield sql


def write(catalog: CatalogGateway, table: Table, values: list[dict[str, Any]], at: int = 0) -> str:
    """Rows as a worker writes them, committed; return the table as DuckDB names it."""
    plan = TablePlan.of(table, name=".".join(table.name()), catalog="iceberg", io_properties={})
    records = [json.dumps(value).encode() for value in values]
    result = run_batches(config(**{"iceberg.tables": plan.name}), [plan], [source(records)])
    assert result.error is None
    event = announced(reference(table), result.files[plan.name], offset=at)
    committed(TableHarness(catalog, table).committer().commit(table_commit([event])))
    return f"iceberg_scan('{catalog.load(table.name()).metadata_location}')"


def test_duckdb_reads_variants(catalog: CatalogGateway, duck: Sql) -> None:
    """Documents of every kind, and paths in them."""
    schema = Schema(*PLAIN.fields, NestedField(3, "v", VariantType(), required=False))
    table = catalog.create(("db", "variants"), schema, properties={"format-version": "3"})
    rows = [{"id": n, "v": document, "last": "z"} for n, document in enumerate(DOCUMENTS)]
    place = write(catalog, table, [*rows, {"id": 98}, {"id": 99, "v": None}])
    found = duck(f"select typeof(v), v::json::varchar, v is null from {place} order by id")
    assert {row[0] for row in found} == {"VARIANT"}
    assert [json.loads(row[1]) for row in found[: len(rows)]] == DOCUMENTS
    assert [row[2] for row in found[-3:]] == [False, True, True]
    assert duck(f"select v.a.b, v.text, last from {place} where id = 0") == [
        [[1, 2.5, None, True], "x" * 100, "z"]
    ]


def test_duckdb_and_pyiceberg_read_default_values(catalog: CatalogGateway, duck: Sql) -> None:
    """Of files that lack the column; a null in a record stays null."""
    table = catalog.create(("db", "defaults"), PLAIN, properties={"format-version": "3"})
    write(catalog, table, [{"id": 1, "last": "old"}])
    schema = Schema(*PLAIN.fields, *DEFAULTS, schema_id=1)
    updates = [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=1)]
    table = catalog.commit(catalog.load(table.name()), [], updates)
    place = write(catalog, table, [{"id": 2}, {"id": 3, "s": None}, {"id": 4, "s": "own"}], at=1)
    wanted = [
        [1, "text", 7, date(2024, 2, 29)],
        [2, "text", 8, None],
        [3, None, 8, None],
        [4, "own", 8, None],
    ]
    assert duck(f"select id, s, n, day from {place} order by id") == wanted
    read = catalog.load(table.name()).scan().to_arrow().sort_by("id").to_pylist()
    assert [[row[name] for name in ("id", "s", "n", "day")] for row in read] == wanted

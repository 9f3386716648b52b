"""One connector configuration against every kind of local catalog and store."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from connect.gateways.catalog_properties import client_config
from tests.support.row_lineage import lineage_of
from tests.support.running_stack import RunningStack, duckdb_rows, pick
from tests.support.stack import RestCatalog, S3Server, unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
RECORDS = [{"id": n, "name": f"n{n % 3}", "day": f"2026-01-{n % 2 + 1:02}"} for n in range(40)]

VERSIONS = {"sqlite": "2", "postgres": "3", "rest": "3", "s3": "2"}
"""Format versions: one on a server and one on a database have row ids."""


KINDS = [
    # other tests have many connectors to the first one
    *(pytest.param(kind, marks=pytest.mark.matrix) for kind in ("sqlite", "postgres")),
    *("rest", "s3"),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """A kind, and what of it has to run."""
    fixtures = {"postgres": "postgres", "rest": "rest_catalog", "s3": "s3_server"}
    name = fixtures.get(request.param)
    return request.param, request.getfixturevalue(name) if name else None


def test_tables_are_created_widened_and_read_back(
    running: RunningStack, kind: tuple[str, Any]
) -> None:
    """Auto-create with spec, sort order, location, version; a new column later; rows once."""
    name = unique_name("catalog")
    table = f"catalogs.{name.replace('-', '_')}"
    properties = _properties(running, *kind)
    topic = running.topic("catalog", partitions=2)
    for partition in range(2):
        running.produce(topic, *RECORDS[partition::2], partition=partition)
    config = {
        **running.connector(topics=topic, iceberg__tables=table),
        **{f"iceberg.catalog.{key}": value for key, value in properties.items()},
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.tables.auto-create-props.format-version": VERSIONS[kind[0]],
        "iceberg.tables.default-partition-by": "name,bucket(id, 4)",
        "iceberg.tables.default-sort-by": "day desc nulls first,bucket(8, id)",
        "iceberg.tables.default-location": properties["warehouse"] + "/at/${namespace}/${table}",
    }
    running.create(name, config)
    catalog = load_catalog("iceberg", **client_config(properties).properties, type=_client(kind[0]))
    rows = running.rows(table, 40, name, catalog)
    assert pick(rows, "id", "name", "day") == pick(RECORDS, "id", "name", "day")
    running.produce(topic, {"id": 40, "name": "n0", "day": "2026-02-01", "more": 1.5})
    rows = running.rows(table, 41, name, catalog)
    assert [row["more"] for row in rows if row["id"] >= 40] == [1.5]
    loaded = catalog.load_table(table)
    assert str(loaded.format_version) == VERSIONS[kind[0]]
    if loaded.format_version == 3:
        ids = [
            n for first, count in lineage_of(loaded).values() for n in range(first, first + count)
        ]
        assert sorted(ids) == list(range(41))
    assert [field.name for field in loaded.spec().fields] == ["name", "id_bucket"]
    assert [str(field) for field in loaded.sort_order().fields] == [
        "3 DESC NULLS FIRST",
        "bucket[8](1) ASC NULLS FIRST",
    ]
    assert loaded.location().endswith("/at/" + table.replace(".", "/"))
    files = loaded.inspect.files().to_pylist()
    assert all(file["file_path"].startswith(f"{loaded.location()}/data/") for file in files)
    assert {file["sort_order_id"] for file in files} == {0}  # they are not sorted
    if kind[0] != "s3":  # DuckDB's S3 client is not installed
        assert duckdb_rows(loaded, "id", "name") == pick(rows, "id", "name")
    running.delete(name)


def _client(kind: str) -> str:
    return "rest" if kind == "rest" else "sql"


def _properties(running: RunningStack, kind: str, part: Any) -> dict[str, str]:
    embedded = running.stack.catalog_properties
    if kind == "postgres":
        return {**embedded, "uri": str(part)}
    if isinstance(part, RestCatalog):
        return part.properties
    if isinstance(part, S3Server):
        return {**embedded, **part.properties, "warehouse": f"{part.warehouse}/catalogs"}
    return embedded

"""Descriptions of tables for lineage events: when they are sent, and what they leave out."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from connect.model.table_description import COLUMNS_MAX, ColumnDescription, TableDescription
from connect.redaction.secret_values import KNOWN
from coordinator.commit.rules.table_descriptions import TableDescriptions, described
from tests.support.tables import connector

ID = NestedField(1, "id", LongType(), required=True, doc="of the order")
PLACE = StructType(NestedField(3, "city", StringType()), NestedField(4, "at", TimestamptzType()))
NESTED = Schema(
    ID,
    NestedField(2, "place", PLACE),
    NestedField(5, "tags", ListType(6, StringType())),
    NestedField(7, "counts", MapType(8, StringType(), 9, LongType())),
)


def reported(**settings: str) -> tuple[TableDescriptions, list[TableDescription]]:
    """Descriptions of a connector, and what they reported as the node reads it."""
    found: list[TableDescription] = []
    config = connector("c", ["db.t"], **settings)
    by_event = TableDescriptions.reporting(
        config, lambda _, event: found.append(TableDescription.from_json(event))
    )
    return by_event, found


def test_a_table_is_reported_when_it_is_new_or_has_changed() -> None:
    """Not after every commit."""
    descriptions, found = reported()
    for _ in range(3):
        descriptions.committed("db.t", "/w/t", Schema(ID))
    descriptions.committed("db.t", "/w/t", NESTED)
    descriptions.committed("db.t", "/moved/t", NESTED)
    descriptions.committed("db.u", "/w/u", NESTED)
    assert [(table.name, table.location) for table in found] == [
        ("db.t", "/w/t"),
        ("db.t", "/w/t"),
        ("db.t", "/moved/t"),
        ("db.u", "/w/u"),
    ]
    assert found[0].columns == (ColumnDescription("id", "long", "of the order"),)
    assert found[0].format == "iceberg"


def test_nested_columns_are_described() -> None:
    """With OpenLineage's names of elements, keys and values."""
    assert tuple(described(NESTED.fields))[1:] == (
        ColumnDescription(
            "place",
            "struct",
            None,
            (ColumnDescription("city", "string"), ColumnDescription("at", "timestamptz")),
        ),
        ColumnDescription("tags", "array", None, (ColumnDescription("_element", "string"),)),
        ColumnDescription(
            "counts",
            "map",
            None,
            (ColumnDescription("key", "string"), ColumnDescription("value", "long")),
        ),
    )


def test_a_description_is_bounded() -> None:
    """Columns above the bound are left out, nested ones counted."""
    wide = StructType(*(NestedField(n, f"n{n}", LongType()) for n in range(2, COLUMNS_MAX + 9)))
    first, *others = described(Schema(NestedField(1, "wide", wide), ID).fields)
    assert (len(first.fields), others) == (COLUMNS_MAX - 1, [])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"uri": "http://catalog:8181/api?token=t-1"}, "http://catalog:8181/api"),
        (
            {"uri": "postgresql+psycopg2://u:p@db:5432/iceberg"},
            "postgresql+psycopg2://db:5432/iceberg",
        ),
        ({"uri": "lineage-catalog-secret-1"}, None),
        ({"uri": "", "warehouse": "/w"}, "/w"),
    ],
)
def test_the_catalog_is_named_without_secrets(given: dict[str, str], expected: str | None) -> None:
    """Neither user, password nor query; not at all if its address is a secret."""
    KNOWN.add("lineage-catalog-secret-1")
    settings = {f"iceberg.catalog.{name}": value for name, value in given.items()}
    descriptions, found = reported(**settings)
    descriptions.committed("db.t", "/w/t", Schema(ID))
    assert found[0].catalog == expected

"""Columns of copies: field ids by the name mapping of the table."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema, parse_mapping_from_json
from pyiceberg.types import (
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from coordinator.commit.row_changes.copied_columns import with_field_ids
from coordinator.row_deletes.limits import NotResolved

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(
        2,
        "tags",
        ListType(
            3,
            StructType(NestedField(4, "a", StringType(), required=False)),
            element_required=False,
        ),
        required=False,
    ),
    NestedField(
        5,
        "counts",
        MapType(
            6,
            StringType(),
            7,
            ListType(8, LongType(), element_required=False),
            value_required=False,
        ),
        required=False,
    ),
)


def without_metadata(field: pa.Field) -> pa.Field:
    """A field as a file without field ids has it."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([without_metadata(each) for each in kind])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(without_metadata(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(without_metadata(kind.key_field), without_metadata(kind.item_field))
    return pa.field(field.name, kind, field.nullable)


def test_all_columns_get_the_ids_of_the_mapping() -> None:
    """Nested ones, too, as PyIceberg assigns them to files without field ids."""
    plain = pa.schema([without_metadata(f) for f in schema_to_pyarrow(SCHEMA)])
    mapping = create_mapping_from_schema(SCHEMA)
    made = with_field_ids(plain, mapping)
    assert made.equals(plain)
    assert pyarrow_to_schema(made) == pyarrow_to_schema(plain, mapping) == SCHEMA


def mapping(*fields: dict[str, Any]) -> Any:
    """A name mapping."""
    return parse_mapping_from_json(json.dumps(fields))


ID = {"field-id": 1, "names": ["id", "key"]}


def test_a_column_is_found_by_any_of_its_names() -> None:
    """A renamed column keeps its old name in the mapping; the file keeps its own."""
    made = with_field_ids(pa.schema([("key", pa.int64())]), mapping(ID))
    assert made.names == ["key"]
    assert made.field("key").metadata == {b"PARQUET:field_id": b"1"}


@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        ([("id", pa.int64()), ("more", pa.int64())], [ID]),
        ([("id", pa.int64()), ("more", pa.int64())], [ID, {"names": ["more"]}]),
        ([("id", pa.int64()), ("key", pa.int64())], [ID]),
        ([("id", pa.list_(pa.int64()))], [ID]),
        ([("id", pa.list_(pa.int64(), 2))], [ID]),
    ],
    ids=["no entry", "no id", "the same id", "no element", "another type"],
)
def test_a_column_without_an_id_of_its_own_is_refused(columns: Any, fields: Any) -> None:
    """With some ids in the file, readers would no longer find it by its name."""
    with pytest.raises(NotResolved) as caught:
        with_field_ids(pa.schema(columns), mapping(*fields))
    assert caught.value.reason == "file_form"

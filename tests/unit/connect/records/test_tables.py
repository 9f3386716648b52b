"""Tables from records: inference, creation, specs, evolution; the recordings hold the rest."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from connect.errors import RecordError
from connect.model.records import ConnectSchema, Struct
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.row_converter import ConversionOptions, RowConverter
from connect.records.tables.schema_changes import (
    SchemaChanges,
    apply_changes,
    common_type,
    merge,
)
from connect.records.tables.schema_evolution import changes
from connect.records.tables.table_creation import schema_for_record
from connect.records.tables.type_inference import infer_type
from tests.support.table_records import config, record, struct

CONFIG = config(evolve_schema_enabled="true")


NAMES = st.text("abcxyz_", min_size=1, max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(NAMES, VALUES, max_size=5)
BASE = Schema(NestedField(1, "id", LongType(), required=False))


@given(RECORDS)
def test_evolution_settles(value: dict[str, Any]) -> None:
    """A record soon asks for nothing more, and the ids that were there stay.

    The type of a new list is its first item's, so what other items have comes one round later.
    """
    after, last = BASE, 1
    for _ in range(10):
        requested = changes(after, record(value), CONFIG)
        after, last = apply_changes(after, requested, last)
        if not requested:
            break
    assert not requested
    assert after.find_field("id").field_id == 1
    assert len(set(_ids(after))) == len(_ids(after)) == last


def _ids(schema: Schema) -> list[int]:
    return list(schema._lazy_id_to_field)


@given(st.lists(RECORDS, max_size=4))
def test_merged_changes_serve_every_record(values: list[dict[str, Any]]) -> None:
    """After the merged changes of a batch, no record of it requires further changes."""
    requested = merge(*(changes(BASE, record(v), CONFIG) for v in values), config=CONFIG)
    after, _ = apply_changes(BASE, requested, 1)
    for value in values:
        left = changes(after, record(value), CONFIG)
        assert not left.retypes
        # a column that is a scalar in one record and a struct in another stays what it is
        assert not {path for path in left.adds if len(path) == 1}


@given(RECORDS)
def test_changes_travel(value: dict[str, Any]) -> None:
    """Changes survive serialization to JSON."""
    requested = changes(BASE, record(value), CONFIG)
    assert SchemaChanges.from_json(requested.to_json()) == requested


@given(RECORDS)
def test_created_tables_take_their_record(value: dict[str, Any]) -> None:
    """A table made for a record stores that record, except where a list mixes kinds."""
    try:
        schema = schema_for_record(record(value), CONFIG)
    except RecordError as error:
        assert error.code == "no_schema"  # noqa: PT017 - either outcome is right
        return
    try:
        row = RowConverter(schema, ConversionOptions()).row(value)
    except Unconvertible as refusal:
        assert "element" in refusal.path  # noqa: PT017 - as above
        return
    assert {name for name, v in row.items() if v is not None} <= value.keys()


def test_evolution_by_schema() -> None:
    """A schema widens, relaxes and adds in one go; ids rise from the last one given."""
    table = Schema(
        NestedField(1, "a", IntegerType(), required=True),
        NestedField(2, "d", DecimalType(5, 2), required=True),
        identifier_field_ids=[1],
    )
    schema = struct(
        a=ConnectSchema("int64"),
        d=ConnectSchema("bytes", optional=True, name="org.apache.kafka.connect.data.Decimal"),
        new=struct(x=ConnectSchema("string"), y=ConnectSchema("int32", optional=True)),
    )
    value = Struct(schema, {"a": 2**40, "d": Decimal("123456.78"), "new": None})
    requested = changes(table, record(value, schema), CONFIG)
    assert requested.retypes == {("a",): LongType(), ("d",): DecimalType(8, 2)}
    assert requested.optionals == (("d",),)
    after, last = apply_changes(table, requested, 10)
    assert last == 13
    assert after == Schema(
        NestedField(1, "a", LongType(), required=True),
        NestedField(2, "d", DecimalType(8, 2), required=False),
        NestedField(
            11,
            "new",
            StructType(
                NestedField(12, "x", StringType(), required=True),
                NestedField(13, "y", IntegerType(), required=False),
            ),
            required=False,
        ),
        identifier_field_ids=[1],
    )


LACKED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", StringType(), required=True),
    NestedField(3, "s", StructType(NestedField(4, "x", LongType(), required=True)), required=True),
)
WITHOUT = struct(s=struct(y=ConnectSchema("int64", optional=True)))


def lacked(table: Schema, *keys: str, key: Any = None, **more: str) -> set[tuple[str, ...]]:
    """The columns that a record without ``id``, ``v`` and ``s.x`` makes optional."""
    value = Struct(WITHOUT, {"s": Struct(WITHOUT.fields[0][1], {"y": 1})})
    given = replace(record(value, WITHOUT), key=key)
    settings = config(
        evolve_schema_enabled="true",
        **more,
        **({"default_id_columns": ",".join(keys)} if keys else {}),
    )
    return set(changes(table, given, settings, table_name="db.t").optionals)


def test_a_required_column_that_a_schema_lacks_becomes_optional() -> None:
    """At any depth. Key columns and columns with a write default stay required."""
    assert lacked(LACKED) == {("id",), ("v",), ("s", "x")}
    identified = Schema(*LACKED.fields, identifier_field_ids=[1])
    assert lacked(identified) == {("v",), ("s", "x")}
    assert lacked(Schema(*LACKED.fields, identifier_field_ids=[4])) == {("id",), ("v",)}
    default = NestedField(5, "d", LongType(), required=True, write_default=7)
    assert ("d",) not in lacked(Schema(*LACKED.fields, default))
    optional = struct(id=ConnectSchema("int64", optional=True), v=ConnectSchema("string"))
    given = record(Struct(optional, {"id": 1, "v": "x"}), optional)
    assert ("id",) not in changes(identified, given, CONFIG).optionals


def test_configured_and_message_keys_stay_required() -> None:
    """The key of a row identifies it in later changes."""
    assert lacked(LACKED, "id") == {("v",), ("s", "x")}
    upserts = {"upsert_mode_enabled": "true"}
    assert lacked(LACKED, key={"id": 1}, **upserts) == {("v",), ("s", "x")}
    assert lacked(LACKED, "v", key={"id": 1}, **upserts) == {("id",), ("s", "x")}


def test_a_record_without_schema_makes_no_column_optional() -> None:
    """A missing field says nothing about the rows of the source."""
    assert not changes(LACKED, record({"s": {"y": None}}), CONFIG)


def test_new_columns_are_bounded() -> None:
    """The limit of new columns applies to records and batches, and counts nested columns."""
    few = config(max_new_columns="3")
    changes(BASE, record({"a": 1, "s": {"b": 2}}), few)
    with pytest.raises(RecordError) as refused:
        changes(BASE, record({"a": 1, "s": {"b": 2, "c": 3}}), few)
    assert refused.value.code == "too_many_columns"
    each = [changes(BASE, record({f"n{i}": 1}), few) for i in range(4)]
    with pytest.raises(RecordError):
        merge(*each, config=few)


def test_only_as_many_new_columns_are_checked_as_a_table_can_have() -> None:
    """An object with too many names is rejected at the first name above the limit."""
    value = {**{f"c{i}": 1 for i in range(20)}, "": "an invalid name that is never checked"}
    with pytest.raises(RecordError) as refused:
        changes(Schema(), record(value), config(max_new_columns="10"))
    assert refused.value.code == "too_many_columns"


@pytest.mark.parametrize(
    ("value", "keys", "code"),
    [
        ({"": 1}, {}, "bad_column_name"),
        ({"s.a": 1}, {}, "bad_column_name"),
        ({"q": 1, "Q": 2}, {"schema_case_insensitive": "true"}, "ambiguous_name"),
        ({"q": {"x": 1, "X": 2}}, {"schema_case_insensitive": "true"}, "ambiguous_name"),
    ],
)
def test_names_a_table_cannot_have(value: Any, keys: dict[str, str], code: str) -> None:
    """Refused before anything is changed."""
    table = Schema(NestedField(1, "s", StructType(NestedField(2, "a", LongType()))))
    with pytest.raises(RecordError) as refused:
        changes(table, record(value), config(**keys))
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (IntegerType(), LongType(), LongType()),
        (LongType(), DoubleType(), DoubleType()),
        (LongType(), StringType(), StringType()),
        (DecimalType(3, 2), DecimalType(5, 0), DecimalType(7, 2)),
        (DecimalType(38, 0), DecimalType(38, 38), DecimalType(38, 0)),
        (
            StructType(NestedField(0, "a", LongType(), required=False)),
            StructType(NestedField(0, "b", LongType(), required=False)),
            StructType(
                NestedField(0, "a", LongType(), required=False),
                NestedField(0, "b", LongType(), required=False),
            ),
        ),
        (
            ListType(0, IntegerType(), element_required=True),
            ListType(0, LongType(), element_required=False),
            ListType(0, LongType(), element_required=False),
        ),
        (
            MapType(0, StringType(), 0, IntegerType(), value_required=True),
            MapType(0, StringType(), 0, StringType(), value_required=True),
            MapType(0, StringType(), 0, StringType(), value_required=True),
        ),
        (LongType(), StructType(), LongType()),
    ],
)
def test_common_types(first: IcebergType, second: IcebergType, both: IcebergType) -> None:
    """The wider type, string with any other type, else the first type."""
    assert common_type(first, second) == both


def test_deep_values_are_no_crash() -> None:
    """A value with a thousand levels is rejected."""
    value: Any = 1
    for _ in range(5000):
        value = [value]
    with pytest.raises(RecordError) as refused:
        infer_type(value)
    assert refused.value.code == "too_deep"
    with pytest.raises(RecordError):
        changes(BASE, record({"n": value}), CONFIG)


def lists(levels: int) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(levels - 1):
        value = [value]
    return value


def schemas(levels: int) -> ConnectSchema:
    schema = ConnectSchema("int64", optional=True)
    for _ in range(levels):
        schema = ConnectSchema("array", value_schema=schema, optional=True)
    return schema


@pytest.mark.parametrize("levels", [41, 200, 700])
def test_no_record_makes_a_column_that_readers_cannot_open(levels: int) -> None:
    """PyArrow opens no file with 100 levels, and DuckDB and Spark's Arrow read 64 at most."""
    inner = {"x": {"a": lists(levels)}}
    schema = struct(id=ConnectSchema("int64"), x=schemas(levels))
    for deep in (
        record({"id": 1, "x": lists(levels)}),
        record(inner),
        record(Struct(schema, {"id": 1, "x": None}), schema),
    ):
        for attempt in (schema_for_record, partial(changes, BASE)):
            with pytest.raises(RecordError) as refused:
                attempt(deep, CONFIG)
            assert refused.value.code == "too_deep"


def test_columns_of_forty_levels_can_be_read() -> None:
    """Their files are written and read; a field below counts its place in the table."""
    schema = schema_for_record(record({"x": lists(40)}), CONFIG)
    column = pa.array([lists(40)], schema_to_pyarrow(schema).field("x").type)
    file = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": column}), file)
    assert pq.read_table(file.getvalue())["x"].to_pylist() == [lists(40)]
    assert changes(BASE, record({"x": lists(40)}), CONFIG)
    table = schema_for_record(record({"x": {"a": 1}}), CONFIG)
    assert changes(table, record({"x": {"b": lists(39)}}), CONFIG)
    with pytest.raises(RecordError):
        changes(table, record({"x": {"b": lists(40)}}), CONFIG)


@pytest.mark.parametrize("value", [None, {}, {"a": None}, {"a": []}, "x", [1], 5])
def test_records_that_give_no_table(value: Any) -> None:
    """A value without column type creates no column."""
    with pytest.raises(RecordError):
        schema_for_record(record(value), CONFIG)


def test_a_name_that_reads_like_a_nested_one_makes_no_table() -> None:
    """The record is refused; no error of the library ends the task."""
    with pytest.raises(RecordError) as refused:
        schema_for_record(record({"a.b": 1, "a": {"b": 2}}), CONFIG)
    assert refused.value.code == "bad_column_name"


@pytest.mark.parametrize(
    ("present", "requested", "result"),
    [
        (DecimalType(9, 2), DecimalType(12, 2), DecimalType(12, 2)),
        (DecimalType(18, 2), DecimalType(12, 2), DecimalType(18, 2)),
        (DecimalType(9, 3), DecimalType(12, 2), DecimalType(9, 3)),
        (IntegerType(), LongType(), LongType()),
        (LongType(), LongType(), LongType()),
        (StringType(), LongType(), StringType()),
        (FloatType(), DoubleType(), DoubleType()),
        (LongType(), DoubleType(), LongType()),
    ],
)
def test_nothing_is_ever_narrowed(
    present: IcebergType, requested: IcebergType, result: IcebergType
) -> None:
    """A column that another writer widened meanwhile, or replaced, stays as it is by now."""
    schema = Schema(NestedField(1, "c", present, required=False))
    changed, _ = apply_changes(schema, SchemaChanges({}, {("c",): requested}), 1)
    assert changed.find_field("c").field_type == result


def test_no_changes_is_false() -> None:
    """No changes are false, so that callers can test them."""
    assert not SchemaChanges({}, {})
    assert not changes(BASE, record({"id": 1}), CONFIG)

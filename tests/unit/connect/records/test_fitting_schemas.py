"""What is decided once per pair of schemas is what each record asks for."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StructType

from connect.errors import RecordError
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.tables.schema_evolution import FittingSchemas, changes
from connect.records.tables.type_inference import type_of
from tests.differential.support import config

CONNECTOR = config(**{"iceberg.tables.evolve-schema-enabled": "true"})
DECIMAL = ConnectSchema(
    "bytes",
    optional=True,
    name="org.apache.kafka.connect.data.Decimal",
    parameters={"scale": "2"},
)
SCALARS = [
    DECIMAL,
    *(ConnectSchema(kind, optional=True) for kind in ("int32", "int64", "float32", "string")),
    ConnectSchema("float64"),
]
NAMES = ("a", "b", "c")


def nested(inner: st.SearchStrategy[ConnectSchema]) -> st.SearchStrategy[ConnectSchema]:
    lists = inner.map(lambda s: ConnectSchema("array", optional=True, value_schema=s))
    key = ConnectSchema("string")
    maps = inner.map(lambda s: ConnectSchema("map", optional=True, key_schema=key, value_schema=s))
    return structs(inner) | lists | maps


def structs(inner: st.SearchStrategy[ConnectSchema]) -> st.SearchStrategy[ConnectSchema]:
    fields = st.lists(
        st.tuples(st.sampled_from(NAMES), inner), min_size=1, max_size=3, unique_by=lambda f: f[0]
    )
    return fields.map(lambda f: ConnectSchema("struct", optional=True, fields=tuple(f)))


SCHEMAS = structs(st.recursive(st.sampled_from(SCALARS), nested, max_leaves=5))


def value_of(schema: ConnectSchema, draw: Any) -> Any:
    """A value as a converter gives it, sometimes with less or more of a schema."""
    if draw(st.integers(0, 9)) == 9:
        return None
    if schema is DECIMAL:
        return draw(st.sampled_from([Decimal("1.25"), Decimal("12345678.25"), Decimal(0)]))
    if schema.type == "struct":
        more = ConnectSchema("struct", fields=(*schema.fields, ("z", ConnectSchema("string"))))
        values = {name: value_of(inner, draw) for name, inner in schema.fields}
        form = draw(st.integers(0, 9))
        return values if form == 9 else Struct(more if form == 8 else schema, values)
    if schema.type in ("array", "map"):
        assert schema.value_schema is not None
        items = [value_of(schema.value_schema, draw) for _ in range(draw(st.integers(0, 2)))]
        return items if schema.type == "array" else dict(zip(NAMES, items, strict=False))
    return 1.5 if schema.type.startswith("float") else 1


def narrow(kind: IcebergType) -> IcebergType:
    """The type with decimals of six digits, which a record may ask to widen."""
    if isinstance(kind, StructType):
        return StructType(
            *(f.model_copy(update={"field_type": narrow(f.field_type)}) for f in kind.fields)
        )
    if isinstance(kind, ListType):
        return ListType(-1, narrow(kind.element_type), element_required=kind.element_required)
    if isinstance(kind, MapType):
        value = narrow(kind.value_type)
        return MapType(-1, kind.key_type, -1, value, value_required=kind.value_required)
    return DecimalType(6, 2) if isinstance(kind, DecimalType) else kind


def table_of(schema: ConnectSchema) -> Schema:
    kind = narrow(type_of(schema, force_optional=False))
    assert isinstance(kind, StructType)
    return assign_fresh_schema_ids(Schema(*kind.fields))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(stored=SCHEMAS, other=SCHEMAS, is_other=st.booleans(), data=st.data())
def test_a_record_that_fits_asks_for_no_change(
    stored: ConnectSchema, other: ConnectSchema, is_other: bool, data: st.DataObject
) -> None:
    """For any schema, also with other schemas inside than it declares."""
    table, asked = table_of(stored), other if is_other else stored
    fitting = FittingSchemas(CONNECTOR)
    value = value_of(asked, data.draw)
    record = SinkRecord("t", 0, 0, None, value=value, value_schema=asked)
    found = [fitting.fits(table, record, None, "db.t") for _ in range(3)]
    try:
        asks = bool(changes(table, record, CONNECTOR, table_name="db.t"))
    except RecordError:
        asks = True
    assert not (asks and any(found))


def test_most_records_are_decided_by_their_schema() -> None:
    """All but the first one of a schema, and those with more digits than their column."""
    inner = ConnectSchema("struct", optional=True, fields=(("d", DECIMAL),))
    listed = ConnectSchema("array", optional=True, value_schema=inner)
    schema = ConnectSchema("struct", fields=(("d", DECIMAL), ("s", inner), ("l", listed)))
    table, fitting = table_of(schema), FittingSchemas(CONNECTOR)

    def fits(number: str) -> bool:
        struct = Struct(inner, {"d": Decimal(number)})
        values = {"d": Decimal("1.25"), "s": struct, "l": [struct, None]}
        record = SinkRecord("t", 0, 0, None, value=Struct(schema, values), value_schema=schema)
        return fitting.fits(table, record, None, "db.t")

    assert [fits(n) for n in ("1.25", "1.25", "12345678.25", "2")] == [False, True, False, True]
    smaller = Schema(NestedField(1, "d", DecimalType(6, 2), required=False))
    record = SinkRecord("t", 0, 0, None, value=Struct(schema, {}), value_schema=schema)
    assert not any(fitting.fits(smaller, record, None, "db.t") for _ in range(3))

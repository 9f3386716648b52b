"""Tables to create: partition specs, sort orders, locations; the recordings hold the rest."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, TimestampType

from connect.errors import ConfigError, IcefloeError, RecordError
from connect.model.records import ConnectSchema, Struct
from connect.records.tables.partition_spec import parse_terms, spec_for
from connect.records.tables.sort_order import sort_order_for
from connect.records.tables.table_creation import table_for
from connect.records.tables.table_location import check_location, location_for
from tests.support.table_records import config, record, struct

SOURCE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "ts_day", StringType(), required=False),
)


@pytest.mark.parametrize(
    ("terms", "kind"),
    [
        (["bucket(16, id)"], ConfigError),
        (["bucket(id, 0)"], ConfigError),
        (["bucket(id, 99999999999)"], ConfigError),
        (["identity(id)"], ConfigError),
        (["hour(ts)", "year(ts)"], ConfigError),
        (["id", "id"], ConfigError),
        (["day(id)"], RecordError),
        (["nothing"], RecordError),
        (["day(ts)"], RecordError),
    ],
)
def test_bad_specs_are_errors(terms: list[str], kind: type[IcefloeError]) -> None:
    """Errors that do not depend on the record are configuration errors, others record errors."""
    with pytest.raises(kind) as refused:
        spec_for(terms, SOURCE)
    assert refused.value.code == "partition_spec"


def test_a_time_of_a_text_names_the_transformation() -> None:
    """Records of JSON have texts where tables need timestamps."""
    for term in ("hour(ts_day)", "day(ts_day)"):
        with pytest.raises(RecordError, match="convert it with the transformation ParseTimestamp"):
            spec_for([term], SOURCE)


def test_specs_equal_those_of_icebergs_builder() -> None:
    """Names, transforms and ids."""
    spec = spec_for(["id", "bucket(id, 4)", "hours(ts)", "truncate(id,10)"], SOURCE)
    assert [(f.name, str(f.transform), f.source_id, f.field_id) for f in spec.fields] == [
        ("id", "identity", 1, 1000),
        ("id_bucket", "bucket[4]", 1, 1001),
        ("ts_hour", "hour", 2, 1002),
        ("id_trunc", "truncate[10]", 1, 1003),
    ]
    assert parse_terms(["", ""]) == ()


def test_a_field_in_a_list_is_refused_for_partitioning_and_sorting() -> None:
    """A row has many values of it; Iceberg's Java library could not load the table."""
    within = Schema(
        NestedField(
            field_id=1,
            name="tags",
            field_type=ListType(element_id=2, element=StringType()),
            required=False,
        )
    )
    for build in (spec_for, sort_order_for):
        with pytest.raises(RecordError, match=r"'tags\.element' is inside a list"):
            build(["tags.element"], within)


def test_sort_orders_have_the_syntax_of_spark() -> None:
    """Directions, nulls and transforms of ORDER BY; Iceberg's defaults."""
    order = sort_order_for(
        ["id desc", "ts", "bucket(16, id) DESC NULLS FIRST", "truncate(id,10) nulls last"], SOURCE
    )
    assert [str(field) for field in order.fields] == [
        "1 DESC NULLS LAST",
        "2 ASC NULLS FIRST",
        "bucket[16](1) DESC NULLS FIRST",
        "truncate[10](1) ASC NULLS LAST",
    ]
    assert order.order_id == 1
    assert sort_order_for([""], SOURCE).is_unsorted


@pytest.mark.parametrize(
    ("terms", "kind", "why"),
    [
        (["id down"], ConfigError, "expected <column"),
        (["id nulls"], ConfigError, "expected <column"),
        (["id desc asc"], ConfigError, "expected <column"),
        (["zorder(id)"], ConfigError, "unknown transform 'zorder'"),
        (["bucket(16, 4)", "bucket(0, id)"], ConfigError, "a number above 0"),
        (["id", "id desc"], ConfigError, "it repeats 'id'"),
        (["day(id)"], RecordError, "does not support long"),
        (["nothing desc"], RecordError, "the table has no column 'nothing'"),
    ],
)
def test_bad_sort_orders_are_errors(terms: list[str], kind: type[IcefloeError], why: str) -> None:
    """Each invalid term is an error with a reason."""
    with pytest.raises(kind) as refused:
        sort_order_for(terms, SOURCE)
    assert refused.value.code == "sort_order"
    assert why in refused.value.message


def test_locations_of_tables_are_distinct() -> None:
    """Levels are joined by dots, so no table is inside another one."""
    template = "s3://lake/${namespace}/${table}/"
    assert location_for(template, ("a", "b", "t")) == "s3://lake/a.b/t"
    assert location_for("/lake/fixed place", ("a", "x/y")) == "/lake/fixed place"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("lake/${table}", "give a URI"),
        ("s3:///${table}", "give a URI"),
        ("s3://lake/${topic}", "the only variables are ${namespace} and ${table}"),
        ("s3://lake/../${table}", "contains .."),
    ],
)
def test_bad_locations_are_errors(template: str, why: str) -> None:
    """The error of a template contains the template."""
    with pytest.raises(ConfigError) as refused:
        check_location(template)
    assert why in refused.value.message
    assert repr(template) in refused.value.message


@pytest.mark.parametrize("name", ["a/../../b", "x y", "$"])
def test_records_choose_no_location(name: str) -> None:
    """A table name from a record cannot leave the folder or use the folder of another table."""
    with pytest.raises(RecordError) as refused:
        location_for("s3://lake/${table}", ("db", name))
    assert refused.value.code == "table_location"


def test_new_tables() -> None:
    """Schema, spec, properties and identifier fields come from record and configuration."""
    schema = struct(id=ConnectSchema("int64"), name=ConnectSchema("string", optional=True))
    creating = config(
        auto_create_enabled="true",
        default_id_columns="id,name",
        default_partition_by="bucket(id, 4)",
        default_sort_by="name desc",
        default_location="s3://lake/${namespace}/${table}",
        **{"auto_create_props.format_version": "2"},
    )
    new = table_for("a.b.t", record(Struct(schema, {"id": 1, "name": None}), schema), creating)
    assert new.identifier == ("a", "b", "t")
    assert new.schema.identifier_field_ids == [1]  # an optional column identifies nothing
    assert [f.name for f in new.spec.fields] == ["id_bucket"]
    assert [str(f) for f in new.sort_order.fields] == ["2 DESC NULLS LAST"]
    assert new.location == "s3://lake/a.b/t"
    assert new.properties == {
        "write.parquet.compression-codec": "zstd",
        "format-version": "2",
    }
    with pytest.raises(RecordError) as refused:
        table_for("db.t", record({"other": 1}), creating)
    assert refused.value.code == "id_columns"

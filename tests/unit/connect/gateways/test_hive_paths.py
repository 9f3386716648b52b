"""Folders of partitions: names that Hive, Spark, DuckDB and PyArrow read alike."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from connect.errors import CommitRefused
from connect.gateways.parquet.hive_paths import (
    check_partitions,
    columns_in_folders,
    is_too_long,
    partition_path,
)
from connect.records.tables.partition_spec import spec_for

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "dt", DateType(), required=False),
    NestedField(3, "ts", TimestamptzType(), required=False),
    NestedField(4, "place", StringType(), required=False),
    NestedField(5, "ok", BooleanType(), required=False),
)
DAY = (dt.date(2026, 11, 24) - dt.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("term", "value", "folder"),
    [
        ("dt", DAY, "dt=2026-11-24"),
        ("dt", -1, "dt=1969-12-31"),
        ("dt", 4_000_000, "dt=epoch-day+4000000"),
        ("day(ts)", DAY, "ts_day=2026-11-24"),
        ("hour(ts)", DAY * 24 + 7, "ts_hour=2026-11-24-07"),
        ("month(dt)", 682, "dt_month=2026-11"),
        ("year(dt)", 56, "dt_year=2026"),
        ("place", "a=b/c:d%", "place=a%3Db%2Fc%3Ad%25"),
        ("place", "\x00\n\x7f", "place=%00%0A%7F"),
        ("place", "..", "place=.."),
        ("place", "fr é'ü +", "place=fr é%27ü +"),
        ("place", "", "place=__HIVE_DEFAULT_PARTITION__"),
        ("place", None, "place=__HIVE_DEFAULT_PARTITION__"),
        ("id", -7, "id=-7"),
        ("ok", False, "ok=false"),
    ],
)
def test_a_value_has_one_text(term: str, value: Any, folder: str) -> None:
    """The one that Spark writes."""
    spec = spec_for((term,), SCHEMA)
    assert partition_path(SCHEMA, spec, {1000: value}) == folder


def test_columns_of_several_terms_are_nested() -> None:
    """In the order of the terms; without terms there is no folder."""
    spec = spec_for(("dt", "place"), SCHEMA)
    assert partition_path(SCHEMA, spec, {1000: DAY, 1001: "x"}) == "dt=2026-11-24/place=x"
    assert partition_path(SCHEMA, spec_for((), SCHEMA), {}) == ""
    assert columns_in_folders(SCHEMA, spec_for(("dt", "day(ts)"), SCHEMA)) == {"dt"}


def test_a_long_value_is_noticed_before_the_commit() -> None:
    """Neither file systems nor S3 would take the name afterwards."""
    assert not is_too_long("s3://b/t", "place=" + "é" * 120, "x.parquet")
    assert is_too_long("s3://b/t", "place=" + "é" * 125, "x.parquet")
    assert is_too_long("s3://b/t", "/".join(["place=" + "a" * 200] * 5), "x.parquet")


def test_a_table_has_a_column_that_is_in_its_files() -> None:
    """A file without columns has no rows."""
    schema = Schema(NestedField(1, "dt", DateType(), required=False))
    with pytest.raises(CommitRefused, match="every column"):
        check_partitions(schema, spec_for(("dt",), schema))
    check_partitions(schema, spec_for(("month(dt)",), schema))

"""Spark with Delta reads the tables, and writes to them between two commits."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from coordinator.commit.table_logs.delta_files import delta_file
from coordinator.commit.table_logs.log_committer import LogCommitter
from tests.support.delta_tables import DeltaRig
from tests.support.readers import interpreted
from tests.support.spark_marks import SPARK_MARKS
from tests.support.tables import QuickClock, announced, reference, table_commit, written_file
from tests.support.upserts import DeltaUpserts, committed, counted, row
from worker.spark.session import Session

# the default suite reads Delta tables with two other programs, and Iceberg tables with Spark
pytestmark = [*SPARK_MARKS, pytest.mark.matrix]
REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
ROWS: tuple[dict[str, Any], ...] = (
    {
        "id": 1,
        "flag": True,
        "small": -(2**31),
        "day": dt.date(9999, 12, 31),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC),
        "text": "a b/c%3A=é",
        "price": Decimal("-12345678.90"),
        "ratio": 1.5,
        "raw": b"\x00\xff",
        "tags": ["a", None],
        "counts": [("x", 1)],
        "place": {"city": "Oslo", "zip": None},
    },
    {"id": 2},
)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "flag", BooleanType(), required=False),
    NestedField(3, "small", IntegerType(), required=False),
    NestedField(4, "day", DateType(), required=False),
    NestedField(5, "at", TimestamptzType(), required=False),
    NestedField(6, "text", StringType(), required=False),
    NestedField(7, "price", DecimalType(12, 2), required=False),
    NestedField(8, "ratio", DoubleType(), required=False),
    NestedField(9, "raw", BinaryType(), required=False),
    NestedField(10, "tags", ListType(11, StringType(), element_required=False), required=False),
    NestedField(
        12,
        "counts",
        MapType(13, StringType(), 14, LongType(), value_required=False),
        required=False,
    ),
    NestedField(
        15,
        "place",
        StructType(
            NestedField(16, "city", StringType(), required=False),
            NestedField(17, "zip", StringType(), required=False),
        ),
        required=False,
    ),
)


@pytest.fixture(scope="module")
def spark(spark_session: Session) -> Any:
    """A session that reads and writes Delta tables."""
    return interpreted(spark_session.spark)


def spark_rows(spark: Any, location: str) -> list[dict[str, Any]]:
    """The rows as Spark reads them."""
    table: pa.Table = spark.read.format("delta").load(location).toArrow()
    return table.to_pylist()


def test_spark_reads_values_of_every_kind(spark: Any, tmp_path: Path) -> None:
    """Also nulls, and columns within columns."""
    rig = DeltaRig(str(tmp_path / "lake"), schema=SCHEMA)
    committer = LogCommitter(rig.store(), delta_file, rig.config, QuickClock())
    event = announced(reference(rig.table), [written_file(rig.table, list(ROWS))], offset=0)
    committed(committer.commit(table_commit([event])))
    names = [field.name for field in SCHEMA.fields]
    expected = [{name: row.get(name) for name in names} for row in ROWS]
    assert sorted(spark_rows(spark, rig.location), key=lambda r: r["id"]) == expected


@pytest.mark.parametrize("spec", [None, REGION], ids=["plain", "partitioned"])
def test_spark_and_commits_take_turns(
    spark: Any, tmp_path: Path, spec: PartitionSpec | None
) -> None:
    """Spark sees each change by key, and its appends, deletes and compactions stay."""
    t = DeltaUpserts(str(tmp_path / "lake"), spec, ("id", "region") if spec else ("id",))
    location, names = t.table.location(), ["id", "region", "value"]
    committer = t.log_committer()

    def agree() -> None:
        t.check()
        assert counted(spark_rows(spark, location), names) == counted(t.rows, names)

    committed(committer.commit(t.round(([row(n, n, "eu") for n in range(6)], []))))
    t.check()
    committed(committer.commit(t.round(([row(1, 11, "eu")], [row(2, 0, "eu")]))))
    agree()
    more = [row(n, n, "us") for n in range(10, 13)]
    frame = spark.createDataFrame(
        [(r["id"], r["region"], r["value"]) for r in more], "id int, region string, value bigint"
    )
    frame.write.format("delta").mode("append").save(location)
    t.rows += more
    t.check()
    spark.read.format("delta").load(location).createOrReplaceTempView("changed")
    spark.sql("DELETE FROM changed WHERE id = 3")
    t.rows = [r for r in t.rows if r["id"] != 3]
    agree()
    committed(committer.commit(t.round(([row(10, 100, "us"), row(4, 44, "eu")], []))))
    agree()
    compacted = spark.read.format("delta").load(location).repartition(1).write.format("delta")
    compacted.option("dataChange", "false").mode("overwrite").save(location)
    agree()
    committed(committer.commit(t.round(([row(5, 55, "eu")], [row(11, 0, "us")]))))
    agree()

"""Types, partition values and statistics of Delta tables, as independent readers see them."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connect.errors import CommitRefused
from coordinator.commit.table_logs.delta_files import delta_file
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.delta_tables import DeltaRig, delta_duckdb
from tests.support.tables import (
    QuickClock,
    announced,
    partition_of,
    reference,
    table_commit,
    written_file,
)
from worker.batch.pipeline_spec import PipelineLimits, TablePlan
from worker.write.parquet_writer import Writers
from worker.write.table_writer import TableWriter

UTC = dt.UTC
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
ZERO = Decimal(0)
VALUES: dict[str, tuple[IcebergType, list[Any]]] = {
    "boolean": (BooleanType(), [True, False]),
    "int": (IntegerType(), [-(2**31), 2**31 - 1]),
    "long": (LongType(), [-(2**63), 2**63 - 1]),
    "date": (DateType(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "timestamptz": (
        TimestamptzType(),
        [
            dt.datetime(1, 12, 31, 23, 59, 59, 999_999, UTC),  # zero times of other languages
            dt.datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        ],
    ),
    "timestamp": (TimestampType(), [AT.replace(year=999, tzinfo=None), AT.replace(tzinfo=None)]),
    "string": (StringType(), ["a b/c%3A=é", "z'\"\\:?#+&" + "x" * 40]),
    "decimal": (DecimalType(12, 2), [Decimal("-12345678.90"), Decimal("0.01")]),
    "large_decimal": (
        DecimalType(38, 10),
        [Decimal("-1234567890123456789.0123456789"), Decimal(0)],
    ),
}
PLAIN: dict[str, tuple[IcebergType, list[Any]]] = {
    "float": (FloatType(), [1.5, float("inf")]),
    "double": (DoubleType(), [-0.0, float("nan")]),
    "binary": (BinaryType(), [b"\x00\xff", b""]),
}


def rig_of(tmp_path: Path, columns: dict[str, IcebergType], *parts: str) -> DeltaRig:
    """A table with an id and columns, partitioned by some of them."""
    fields = [NestedField(1, "id", LongType(), required=False)]
    fields += [
        NestedField(10 + 10 * n, name, kind, required=False)
        for n, (name, kind) in enumerate(columns.items())
    ]
    schema = Schema(*fields)
    spec = PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, 1000 + n, IdentityTransform(), name)
            for n, name in enumerate(parts)
        )
    )
    return DeltaRig(str(tmp_path / "lake"), schema=schema, spec=spec)


def commit(rig: DeltaRig, *files: Any) -> None:
    """Commit files, one at each control offset."""
    named = reference(rig.table)
    worker = LogCommitter(rig.store(), delta_file, rig.config, QuickClock())
    events = [announced(named, [file], offset=n) for n, file in enumerate(files)]
    assert isinstance(outcome := worker.commit(table_commit(events)), TableCommitted), outcome


@pytest.mark.parametrize("name", [name for name in VALUES if "decimal" not in name])
def test_partition_values_are_read_back(tmp_path: Path, name: str) -> None:
    """Of each type, and null, by delta-rs and DuckDB."""
    kind, values = VALUES[name]
    rig = rig_of(tmp_path, {"p": kind}, "p")
    files, rows = [], []
    for n, value in enumerate([*values, None]):
        row = {"id": n, "p": value}
        partition = partition_of(rig.table, {"p": internal(value)})
        files.append(written_file(rig.table, [row], partition=partition))
        rows.append((n, value))
    commit(rig, *files)
    assert readers(rig, "id, p") == [rows, rows]


def test_values_and_statistics_are_read_back(tmp_path: Path) -> None:
    """Of each type, with filters that prune files by the statistics."""
    given = VALUES | PLAIN
    rig = rig_of(tmp_path, {f"c_{name}": kind for name, (kind, _) in given.items()})
    rows = [
        {"id": n, **{f"c_{name}": values[n] for name, (_, values) in given.items()}}
        for n in range(2)
    ]
    rows.append({"id": 2, **dict.fromkeys(rows[0].keys() - {"id"})})
    commit(rig, *(written_file(rig.table, [row]) for row in rows))
    columns = [f"c_{name}" for name in VALUES]
    wanted = [tuple(row[c] for c in ("id", *columns)) for row in rows]
    assert readers(rig, ", ".join(["id", *columns])) == [wanted, wanted]
    plain = rig.now().to_pyarrow_table().sort_by("id").to_pylist()
    assert [repr(r["c_double"]) for r in plain] == ["-0.0", "nan", "None"]
    assert [r["c_binary"] for r in plain] == [b"\x00\xff", b"", None]
    with delta_duckdb() as duck:
        for name in VALUES:
            for n in range(2):
                query = f"select id from delta_scan('{rig.location}') where c_{name} = ?"
                assert duck.execute(query, [rows[n][f"c_{name}"]]).fetchall() == [(n,)], name
        query = f"select id from delta_scan('{rig.location}') where c_double > 100"
        assert duck.execute(query).fetchall() == [(1,)]  # NaN is above all numbers


@pytest.mark.parametrize("column", ["d", "t"])
def test_a_partition_outside_of_the_years_of_dates_is_refused(tmp_path: Path, column: str) -> None:
    """A number in the wrong unit is one. After a commit, the library opens the table no more."""
    rig = rig_of(tmp_path, {"d": DateType(), "t": TimestampType()}, column)
    partition = partition_of(rig.table, {"d": 20_000_000, "t": -(10**17)})
    file = written_file(rig.table, [{"id": 1}], partition=partition)
    worker = LogCommitter(rig.store(), delta_file, rig.config, QuickClock())
    event = announced(reference(rig.table), [file], offset=0)
    outcome = worker.commit(table_commit([event]))
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("delta_unsupported", False)
    assert rig.ids() == []


def test_a_decimal_cannot_be_a_partition(tmp_path: Path) -> None:
    """One of the readers misreads negative ones."""
    with pytest.raises(CommitRefused, match="partition column p has type decimal"):
        rig_of(tmp_path, {"p": DecimalType(5, 2)}, "p")


def test_nested_columns_and_odd_names_are_read_back(tmp_path: Path) -> None:
    """A file holds a column by its own name, also where Iceberg would store another one."""
    inner = StructType(
        NestedField(21, "key", LongType(), required=False),
        NestedField(22, "é-1", StringType(), required=False),
    )
    columns: dict[str, IcebergType] = {
        "my-own": inner,
        "1st": ListType(41, inner_copy(42), element_required=False),
        "m:ap": MapType(51, StringType(), 52, LongType(), value_required=False),
    }
    rig = rig_of(tmp_path, columns)
    row = {
        "id": 1,
        "my-own": {"key": 5, "é-1": "x"},
        "1st": [{"key": 6, "é-1": None}, None],
        "m:ap": [("a", 1), ("b", None)],
    }
    commit(rig, raw_file(rig, row))
    (found,) = rig.now().to_pyarrow_table().to_pylist()
    assert found == row
    with delta_duckdb() as duck:
        query = f"""select "my-own"."é-1", "1st"[1]."key" from delta_scan('{rig.location}')
            where "my-own"."key" = 5"""
        assert duck.execute(query).fetchall() == [("x", 6)]
    (added,) = [action["add"] for action in rig.log(1) if "add" in action]
    assert json.loads(added["stats"]) == {
        "numRecords": 1,
        "minValues": {"id": 1},
        "maxValues": {"id": 1},
        "nullCount": {"id": 0, "my-own": {"key": 0, "é-1": 0}},
    }


def test_delta_rs_finds_rows_by_every_column(tmp_path: Path) -> None:
    """It finds none by a column without bounds if another column has them."""
    kinds = (LongType(), DoubleType(), BooleanType(), BinaryType(), StringType())
    for places in ((0, 1, 2, 3, 4), (0, 1, 2, 4)):
        columns = [NestedField(n + 1, f"c{n}", kinds[n], required=False) for n in places]
        rig = DeltaRig(str(tmp_path / str(len(places))), schema=Schema(*columns))
        rows = {0: 7, 1: 1.5, 2: True, 3: b"x", 4: "t"}
        commit(rig, raw_file(rig, {f"c{n}": rows[n] for n in places}))
        readable = rig.now().to_pyarrow_dataset()
        for n in places:
            assert readable.count_rows(pc.field(f"c{n}") == rows[n]) == 1, (places, n)
        (added,) = [action["add"] for action in rig.log(1) if "add" in action]
        assert ("minValues" in json.loads(added["stats"])) == (3 not in places)


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf")])
def test_only_finite_floats_have_bounds(tmp_path: Path, value: float) -> None:
    """The worker counts NaN, which Parquet leaves out of its bounds; JSON has no infinity."""
    columns = [
        NestedField(1, "c0", LongType(), required=False),
        NestedField(2, "c1", DoubleType(), required=False),
    ]
    rig = DeltaRig(str(tmp_path), schema=Schema(*columns))
    file = raw_file(rig, {"c0": 7, "c1": value})
    assert list(file.nan_value_counts.values()) == [int(math.isnan(value))]
    commit(rig, file)
    (added,) = [action["add"] for action in rig.log(1) if "add" in action]
    stats = json.loads(added["stats"])
    assert stats.get("maxValues") == ({"c0": 7, "c1": 1.5} if value == 1.5 else None)
    assert rig.now().to_pyarrow_dataset().count_rows(pc.field("c0") == 7) == 1


def inner_copy(first: int) -> StructType:
    """The struct of the list's elements."""
    return StructType(
        NestedField(first + 1, "key", LongType(), required=False),
        NestedField(first + 2, "é-1", StringType(), required=False),
    )


def raw_file(rig: DeltaRig, row: dict[str, Any]) -> Any:
    """A file that the worker's writer wrote."""
    plan = TablePlan.of(rig.table, name="db.events", catalog="delta", io_properties={})
    writer = TableWriter(plan, lambda: "0.parquet")
    writers = Writers(PipelineLimits())
    writers.add(writer, pa.Table.from_pylist([row], schema=writer.arrow_schema))
    ((_, file),) = writers.finish()
    return file


@pytest.mark.parametrize(
    ("kind", "stored"),
    [(UUIDType(), StringType()), (FixedType(4), BinaryType()), (TimeType(), None)],
)
def test_types_that_delta_lacks_are_replaced_or_refused(
    tmp_path: Path, kind: IcebergType, stored: IcebergType | None
) -> None:
    """When a table is created."""
    if stored is None:
        with pytest.raises(CommitRefused, match="which Delta does not have"):
            rig_of(tmp_path, {"c": kind})
    else:
        assert rig_of(tmp_path, {"c": kind}).table.schema().find_type("c") == stored


def internal(value: Any) -> Any:
    """A value in Iceberg's internal form."""
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    return value


def readers(rig: DeltaRig, columns: str) -> list[list[tuple[Any, ...]]]:
    """Rows as delta-rs and DuckDB read them, by id."""
    names = columns.split(", ")
    table = rig.now().to_pyarrow_table().sort_by("id").select(names)
    of_library = [tuple(row.values()) for row in table.to_pylist()]
    with delta_duckdb() as duck:
        query = f"select {columns} from delta_scan('{rig.location}') order by id"
        return [of_library, duck.execute(query).fetchall()]

"""Rows of data files in the sort order of their table, against a sort of Python values."""

from __future__ import annotations

import gc
import json
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
)
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from connect.errors import ConfigError
from control_schemas.events import ContentFile, FileContent
from coordinator.commit.metadata.content_files import FileConverter
from tests.differential.support import config, plan, run_batches, source
from tests.support.transform_values import TRANSFORMS, VALUES, column, transformed
from worker.batch.pipeline_spec import ChangePlan, PipelineLimits, TablePlan
from worker.task.tables.table_plans import check_usable, plan_of, without_credentials
from worker.write.row_order import RowOrder, SortedGroups

DIRECTIONS = [
    (SortDirection.ASC, NullOrder.NULLS_FIRST),
    (SortDirection.ASC, NullOrder.NULLS_LAST),
    (SortDirection.DESC, NullOrder.NULLS_FIRST),
    (SortDirection.DESC, NullOrder.NULLS_LAST),
]
ORDER_ID = 3
PAIRS = [
    pytest.param(kind, values, transform, id=f"{transform}-{kind}")
    for kind, values in [
        *VALUES,
        (FloatType(), st.floats(width=32)),
        (DoubleType(), st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, -math.inf])),
    ]
    for transform in TRANSFORMS
    if transform.can_transform(kind)
]
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "kind", StringType()),
    NestedField(3, "amount", DoubleType()),
)
BY_KIND = SortOrder(
    SortField(2, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
    SortField(3, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
    order_id=ORDER_ID,
)


def ranked(value: Any) -> Any:
    """A value as Python compares it in Iceberg's order."""
    if isinstance(value, float):
        sign = math.copysign(1, value)
        return (sign, sign * math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def python_sorted(
    count: int, fields: Sequence[tuple[Callable[[int], Any], SortDirection, NullOrder]]
) -> list[int]:
    """Positions of rows by a stable sort; a field gives the transformed value of a row."""
    rows = list(range(count))
    for value, direction, null_order in reversed(fields):
        nulls = [row for row in rows if value(row) is None]
        others = [row for row in rows if value(row) is not None]
        others.sort(key=lambda row: ranked(value(row)), reverse=direction is SortDirection.DESC)
        rows = nulls + others if null_order is NullOrder.NULLS_FIRST else others + nulls
    return rows


def arrow_sorted(order: RowOrder, rows: pa.Table) -> list[int]:
    """Values of the last column, with positions, after the sort of a row group."""
    found: list[int] = SortedGroups(order).add(rows)["n"].to_pylist()
    return found


@pytest.mark.parametrize(("kind", "values", "transform"), PAIRS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_each_transform_sorts_as_pyiceberg_does(
    kind: IcebergType, values: st.SearchStrategy[Any], transform: Any, data: st.DataObject
) -> None:
    """Of every type, in both directions, with nulls at both ends; equal rows keep their order."""
    few = data.draw(st.lists(values, min_size=1, max_size=8))
    chosen = data.draw(st.lists(st.none() | st.sampled_from(few), min_size=1, max_size=30))
    direction, null_order = data.draw(st.sampled_from(DIRECTIONS))
    schema = Schema(NestedField(1, "c", kind), NestedField(2, "n", LongType()))
    order = RowOrder(SortOrder(SortField(1, transform, direction, null_order)), schema)
    rows = pa.table({"c": column(kind, chosen), "n": pa.array(range(len(chosen)), pa.int64())})
    by = [transformed(transform, kind, value) for value in chosen]
    expected = python_sorted(len(chosen), [(by.__getitem__, direction, null_order)])
    assert arrow_sorted(order, rows) == expected


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_several_fields_sort_one_after_the_other(data: st.DataObject) -> None:
    """Each field has its own direction and place of nulls; columns come in several chunks."""
    count = data.draw(st.integers(1, 40))
    fields, columns, sort_fields = [], [], []
    for place in range(data.draw(st.integers(1, 4))):
        kind, values = data.draw(st.sampled_from(VALUES))
        can = [t for t in TRANSFORMS if t.can_transform(kind)]
        transform = data.draw(st.sampled_from(can))
        direction, null_order = data.draw(st.sampled_from(DIRECTIONS))
        few = data.draw(st.lists(values, min_size=1, max_size=3))
        exactly = {"min_size": count, "max_size": count}
        chosen = data.draw(st.lists(st.none() | st.sampled_from(few), **exactly))
        by = [transformed(transform, kind, value) for value in chosen]
        fields.append((by.__getitem__, direction, null_order))
        columns.append((NestedField(place + 1, f"c{place}", kind), column(kind, chosen)))
        sort_fields.append(SortField(place + 1, transform, direction, null_order))
    number = NestedField(99, "n", LongType())
    schema = Schema(*(field for field, _ in columns), number)
    arrays = {f.name: array for f, array in columns} | {"n": pa.array(range(count), pa.int64())}
    whole = pa.table(arrays)
    cut = data.draw(st.integers(0, count))
    rows = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    order = RowOrder(SortOrder(*sort_fields), schema)
    assert arrow_sorted(order, rows) == python_sorted(count, fields)


@pytest.mark.parametrize(("kind", "form"), [(FloatType(), "<f"), (DoubleType(), "<d")])
def test_floating_point_numbers_in_the_order_of_the_specification(
    kind: IcebergType, form: str
) -> None:
    """From -NaN to NaN, with -0 before 0; the stored bits do not change."""
    ordered = [-math.nan, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]
    schema = Schema(NestedField(1, "c", kind))
    order = RowOrder(SortOrder(SortField(1, IdentityTransform())), schema)
    rows = pa.table({"c": column(kind, ordered[::-1])})
    found = SortedGroups(order).add(rows)["c"].to_pylist()
    assert [struct.pack(form, v) for v in found] == [struct.pack(form, v) for v in ordered]


def test_texts_sort_by_the_bytes_of_utf_8() -> None:
    """Not by UTF-16, where a character beyond U+FFFF comes before U+FF5E."""
    texts = ["\N{FULLWIDTH TILDE}", "\N{GRINNING FACE}", "z", "", "é", "Z"]
    order = RowOrder(
        SortOrder(SortField(1, IdentityTransform())), Schema(NestedField(1, "c", StringType()))
    )
    found = SortedGroups(order).add(pa.table({"c": texts}))["c"].to_pylist()
    assert found == sorted(texts, key=str.encode)


def test_a_field_of_a_struct_sorts() -> None:
    """A null struct counts as a null value."""
    schema = Schema(
        NestedField(1, "st", StructType(NestedField(2, "ts", TimestamptzType()))),
        NestedField(3, "n", LongType()),
    )
    inner = pa.array(
        [{"ts": 9}, None, {"ts": 5}, {"ts": None}], pa.struct([("ts", pa.timestamp("us", "UTC"))])
    )
    rows = pa.table({"st": inner, "n": pa.array(range(4), pa.int64())})
    order = RowOrder(
        SortOrder(
            SortField(2, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_FIRST),
        ),
        schema,
    )
    assert arrow_sorted(order, rows) == [1, 3, 0, 2]


def test_a_file_keeps_one_row_of_its_row_groups() -> None:
    """Not the rows or the keys of a row group, for as long as the file is open."""
    schema = Schema(NestedField(1, "c", StringType()), NestedField(2, "n", LongType()))
    groups = SortedGroups(RowOrder(SortOrder(SortField(1, IdentityTransform())), schema))
    gc.collect()
    before = pa.total_allocated_bytes()
    for start in (0, 50_000):
        texts = [f"text {(start + i) * 7919 % 100_003}" for i in range(50_000)]
        added = groups.add(pa.table({"c": texts, "n": pa.array(range(50_000), pa.int64())}))
        assert added["c"].to_pylist() == sorted(texts)
        assert pa.total_allocated_bytes() - before > 1_000_000
        del added
    assert pa.total_allocated_bytes() - before < 10_000
    assert groups.sort_order_id == 0


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (SortField(1, UnknownTransform("zorder(4)")), "transform is not known"),
        (SortField(9, IdentityTransform()), "no such column"),
        (SortField(2, IdentityTransform()), "no order"),
        (SortField(1, DayTransform()), "does not support"),
    ],
)
def test_an_order_that_cannot_be_applied_makes_a_table_unusable(
    field: SortField, why: str, tmp_path: Path
) -> None:
    """The driver notices it before the first record; no file is written unsorted."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "items", ListType(3, LongType(), element_required=False)),
    )
    with pytest.raises(ConfigError, match=why) as refused:
        check_usable(sorting(plan(tmp_path, schema), SortOrder(field)))
    assert refused.value.code == "sort_order"


# ------------------------------------------------------------------ files


def sorting(planned: TablePlan, order: SortOrder, changes: ChangePlan | None = None) -> TablePlan:
    """The plan of a table whose rows are sorted."""
    values = {name: getattr(planned, name) for name in planned.__slots__}
    return TablePlan(**{**values, "sort_json": order.model_dump_json(), "changes": changes})


def payments(count: int) -> list[bytes]:
    """Records whose kinds and amounts come in no order."""
    return [
        json.dumps(
            {
                "id": i,
                "kind": None if i % 7 == 0 else f"k{i * 5 % 11}",
                "amount": None if i % 5 == 0 else i * 37 % 101 / 4,
            }
        ).encode()
        for i in range(count)
    ]


def read(file: ContentFile) -> list[dict[str, Any]]:
    """The rows of a file, in its order."""
    rows: list[dict[str, Any]] = pq.read_table(file.file_path.removeprefix("file://")).to_pylist()
    return rows


def by_kind(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order ``BY_KIND``."""
    order = python_sorted(
        len(rows),
        [
            (lambda row: rows[row]["kind"], SortDirection.DESC, NullOrder.NULLS_LAST),
            (lambda row: rows[row]["amount"], SortDirection.ASC, NullOrder.NULLS_FIRST),
        ],
    )
    return [rows[place] for place in order]


@pytest.mark.parametrize("reference_only", [False, True])
def test_files_are_sorted_and_have_the_id_of_the_order(
    reference_only: bool, tmp_path: Path
) -> None:
    """On both paths. Rows, counts and bounds are those of the unsorted file; pages have bounds."""
    planned = plan(tmp_path, SCHEMA)
    results = [
        run_batches(config(), [each], [source(payments(500))], reference_only=reference_only)
        for each in (planned, sorting(planned, BY_KIND))
    ]
    [plain], [ordered] = (result.files["db.t1"] for result in results)
    assert (plain.sort_order_id, ordered.sort_order_id) == (0, ORDER_ID)
    assert [row["id"] for row in read(plain)] == list(range(500))
    assert read(ordered) == by_kind(read(plain))
    for metric in (
        "record_count",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
        "partition",
        "content",
    ):
        assert getattr(ordered, metric) == getattr(plain, metric), metric
    has_index = [
        pq.read_metadata(file.file_path.removeprefix("file://"))
        .row_group(0)
        .column(1)
        .has_column_index
        for file in (plain, ordered)
    ]
    assert has_index == [False, True]
    assert ordered.column_sizes is not None
    assert plain.column_sizes is not None
    assert ordered.column_sizes.keys() == plain.column_sizes.keys()


def test_each_partition_has_its_own_sorted_file(tmp_path: Path) -> None:
    """Rows of several blocks of a Spark task are sorted together."""
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "bucket"))
    planned = sorting(plan(tmp_path, SCHEMA, spec=spec), BY_KIND)
    values = payments(400)
    batches = [source(values[start : start + 50], start=start) for start in range(0, 400, 50)]
    limits = PipelineLimits(block_rows=50)
    files = run_batches(config(), [planned], batches, limits=limits).files["db.t1"]
    assert len(files) == 3
    for file in files:
        rows = read(file)
        assert rows == by_kind(sorted(rows, key=lambda row: row["id"]))
        assert file.sort_order_id == ORDER_ID


def test_a_file_of_several_row_groups_is_sorted_within_each(tmp_path: Path) -> None:
    """Memory stays bounded, so it has no id of the order."""
    planned = sorting(plan(tmp_path, SCHEMA), BY_KIND)
    values = payments(300)
    batches = [source(values[start : start + 100], start=start) for start in range(0, 300, 100)]
    limits = PipelineLimits(block_rows=100, group_rows=100)
    [file] = run_batches(config(), [planned], batches, limits=limits).files["db.t1"]
    assert file.sort_order_id == 0
    whole = pq.ParquetFile(file.file_path.removeprefix("file://"))
    assert whole.num_row_groups == 3
    for group in range(3):
        rows = whole.read_row_group(group).to_pylist()
        assert {row["id"] // 100 for row in rows} == {group}
        assert rows == by_kind(sorted(rows, key=lambda row: row["id"]))


def test_row_groups_that_follow_each_other_are_one_order(tmp_path: Path) -> None:
    """Such as those of a stream in the order of its ids; equal rows at the edge are in order."""
    by_id = SortOrder(SortField(1, TruncateTransform(300)), order_id=ORDER_ID)
    planned = sorting(plan(tmp_path, SCHEMA), by_id)
    limits = PipelineLimits(block_rows=100, group_rows=100)
    for starts, expected in (([0, 100, 200, 300], ORDER_ID), ([300, 0, 100, 200], 0)):
        batches = [
            source([f'{{"id":{i}}}'.encode() for i in range(start, start + 100)], start=start)
            for start in starts
        ]
        [file] = run_batches(config(), [planned], batches, limits=limits).files["db.t1"]
        assert pq.read_metadata(file.file_path.removeprefix("file://")).num_row_groups == 4
        assert file.sort_order_id == expected


def test_rows_that_waited_on_the_disk_are_sorted(tmp_path: Path) -> None:
    """Together with those in memory."""
    names = [f"db.k{i}" for i in range(11)]
    plans = [sorting(plan(tmp_path, SCHEMA, name=name), BY_KIND) for name in names]
    connector = config(**{"iceberg.tables": None, "iceberg.tables.name-template": "db.${kind}"})
    values = [value for value in payments(3000) if b"null" not in value[: value.index(b"amount")]]
    limits = PipelineLimits(block_rows=100, buffered_bytes_max=20_000)
    result = run_batches(connector, plans, [source(values)], limits=limits)
    assert sum(f.record_count for files in result.files.values() for f in files) == len(values)
    for files in result.files.values():
        [file] = files
        assert file.sort_order_id == ORDER_ID
        assert read(file) == by_kind(sorted(read(file), key=lambda row: row["id"]))


def test_an_order_of_void_fields_sorts_nothing(tmp_path: Path) -> None:
    """All rows are equal in it, so every file is in this order."""
    order = SortOrder(SortField(1, VoidTransform()), order_id=ORDER_ID)
    planned = sorting(plan(tmp_path, SCHEMA), order)
    [file] = run_batches(config(), [planned], [source(payments(20))]).files["db.t1"]
    assert file.sort_order_id == ORDER_ID
    assert [row["id"] for row in read(file)] == list(range(20))


def test_the_newest_record_of_a_key_stays_when_rows_are_sorted(tmp_path: Path) -> None:
    """Sorting comes after the choice of the newest; files of equality deletes are not sorted."""
    connector = config(
        **{"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}
    )
    changes = ChangePlan((1,), PartitionSpec().model_dump_json())
    # the older record of each key comes later in the order of the table
    values = [
        json.dumps({"id": i % 10, "kind": f"k{9 - i // 10}", "amount": -i}).encode()
        for i in range(40)
    ]
    planned = sorting(plan(tmp_path, SCHEMA), BY_KIND, changes)
    result = run_batches(connector, [planned], [source(values)])
    files = {file.content: file for file in result.files["db.t1"]}
    data, deletes = files[FileContent.DATA], files[FileContent.EQUALITY_DELETES]
    assert [(row["id"], row["amount"]) for row in read(data)] == [
        (i, -30 - i) for i in reversed(range(10))
    ]
    assert (data.sort_order_id, deletes.sort_order_id) == (ORDER_ID, 0)
    assert deletes.record_count == 10


def test_the_key_decides_for_each_table_and_manifests_have_the_id(tmp_path: Path) -> None:
    """A table with an order is sorted with the key, unless its own key says otherwise."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    names = ["db.on", "db.off", "db.none"]
    orders = [BY_KIND, BY_KIND, UNSORTED_SORT_ORDER]
    tables = [
        catalog.create_table(name, SCHEMA, sort_order=order)
        for name, order in zip(names, orders, strict=True)
    ]
    keys = {
        "iceberg.tables": "db.none",
        "iceberg.tables.sort-enabled": "true",
        "iceberg.table.db.off.sort-enabled": "false",
    }
    connector = config(**keys)
    found = {}
    for name, table in zip(names, tables, strict=True):
        planned = plan_of(table, name, connector)
        one = config(**{**keys, "iceberg.tables": name})
        [file] = run_batches(one, [planned], [source(payments(50))]).files[name]
        converter = FileConverter(table.schema(), table.specs(), table.spec().spec_id)
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(converter.data_file(file))
        assert table.scan().to_arrow().num_rows == 50
        found[name] = table.inspect.files()["sort_order_id"].to_pylist()
        assert plan_of(table, name, config(**{"iceberg.tables": name})).sort_json is None
    assert found == {"db.on": [tables[0].sort_order().order_id], "db.off": [0], "db.none": [0]}
    assert tables[0].sort_order().order_id > 0
    catalog.close()


def test_a_changed_order_is_another_description_of_a_table(tmp_path: Path) -> None:
    """So a batch that was sorted by the former order runs again."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t1", SCHEMA, sort_order=BY_KIND)
    connector = config(**{"iceberg.table.db.t1.sort-enabled": "true"})
    before = without_credentials(plan_of(table, "db.t1", connector))
    assert without_credentials(plan_of(table.refresh(), "db.t1", connector)) == before
    with table.update_sort_order() as update:
        update.asc("id", IdentityTransform(), NullOrder.NULLS_LAST)
    assert without_credentials(plan_of(table.refresh(), "db.t1", connector)) != before
    catalog.close()

"""Which files and manifests may hold a key: never no for one that does."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestFile,
    construct_partition_summaries,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
    parse_transform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from coordinator.commit.row_changes.source_files import TableFiles
from coordinator.row_deletes.deleted_keys import DeletedKeys, internal
from coordinator.row_deletes.limits import ResolveBudget
from coordinator.row_deletes.parquet_rows import KeyColumns, storage_type
from coordinator.row_deletes.round_deletes import EVERYWHERE, RoundDeletes
from tests.support.tables import QuickClock

_INTS = st.sampled_from([-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 1]) | st.integers(-99, 99)
_LONGS = _INTS | st.sampled_from([-(2**63), -(2**63) + 1, -(2**31) - 1, 2**31, 2**63 - 1])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS = (st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))).map(  # noqa: DTZ001
    lambda at: (at.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
)
_DAYS = _MICROS.map(lambda us: us // 86_400_000_000)
_TEXTS = st.sampled_from(["", "a", "\ud7ff", "\ue000", "\U0010ffff", "ab" * 9])
KINDS: dict[PrimitiveType, st.SearchStrategy[Any]] = {
    IntegerType(): _INTS,
    LongType(): _LONGS,
    StringType(): _TEXTS,
    BinaryType(): st.sampled_from([b"", b"\xff" * 3, b"ab", b"\x00"]),
    BooleanType(): st.booleans(),
    DateType(): _DAYS,
    TimeType(): st.integers(0, 86_399_999_999),
    TimestampType(): _MICROS,
    TimestamptzType(): _MICROS,
    DecimalType(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
}
"""Types of keys, and values in Iceberg's internal form."""
TRANSFORMS: tuple[Transform[Any, Any], ...] = (
    IdentityTransform(),
    BucketTransform(16),
    TruncateTransform(1),
    TruncateTransform(10),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
    parse_transform("zorder"),  # of a later version of the specification
)


class Case(NamedTuple):
    """A table whose spec has changed, the rows of one file, and keys, the first row's included."""

    kind: PrimitiveType
    history: list[tuple[Transform[Any, Any], bool]]
    rows: list[Any]
    keys: list[Any]
    is_wrapping: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A key column of any type, and fields of its spec, of which some were dropped or replaced."""
    kind = draw(st.sampled_from(list(KINDS)))
    allowed = [each for each in TRANSFORMS if each.can_transform(kind) or "zorder" in str(each)]
    history = draw(st.lists(st.tuples(st.sampled_from(allowed), st.booleans()), max_size=4))
    values = st.none() | KINDS[kind]
    rows = draw(st.lists(values, min_size=1, max_size=3))
    keys = [*draw(st.lists(values, max_size=2)), rows[0]]
    return Case(kind, history, rows, keys, draw(st.booleans()))


def spec_of(case: Case) -> PartitionSpec:
    """The spec as format version 1 has it: a dropped field stays, without values."""
    fields = [
        PartitionField(1, 1000 + n, VoidTransform() if is_dropped else transform, f"part_{n}")
        for n, (transform, is_dropped) in enumerate(case.history)
    ]
    return PartitionSpec(*fields)


def partition_value(case: Case, part: PartitionField, value: Any) -> Any:
    """The partition of a row; Java's arithmetic wraps, other writers' may not."""
    if not part.transform.can_transform(case.kind):
        return "any"
    result = part.transform.transform(case.kind)(value)
    bits = {IntegerType(): 32, LongType(): 64}.get(case.kind)
    if bits and isinstance(part.transform, TruncateTransform) and result is not None:
        limit = 2 ** (bits - 1)
        if case.is_wrapping or result < -limit:
            return (result + limit) % (2 * limit) - limit
    return result


def table_of(kind: PrimitiveType, spec: PartitionSpec) -> Table:
    """A table without files."""
    schema = Schema(NestedField(1, "id", kind, required=False))
    metadata = new_table_metadata(schema, PartitionSpec(), SortOrder(), "file:///t")
    metadata = metadata.model_copy(update={"partition_specs": [spec]})
    return Table(("db", "t"), metadata, "file:///t/m", PyArrowFileIO(), NoopCatalog("none"))


def file_of(case: Case, spec: PartitionSpec) -> DataFile:
    """A file of the rows that have the first row's partition; bounds as a writer gives them."""
    parts = [
        tuple(partition_value(case, part, value) for part in spec.fields) for value in case.rows
    ]
    rows = [row for row, values in zip(case.rows, parts, strict=True) if values == parts[0]]
    present = [row for row in rows if row is not None]
    bounds = {1: to_bytes(case.kind, min(present))} if present else {}
    file = DataFile.from_args(
        2,
        content=DataFileContent.DATA,
        file_path="file:///t/data/a.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*parts[0]),
        record_count=len(rows),
        file_size_in_bytes=1,
        null_value_counts={1: len(rows) - len(present)},
        lower_bounds=bounds,
        upper_bounds={1: to_bytes(case.kind, max(present))} if present else {},
    )
    file.spec_id = 0
    return file


def manifest_of(table: Table, spec: PartitionSpec, file: DataFile) -> ManifestFile:
    """A manifest of one file."""
    summaries = construct_partition_summaries(spec, table.schema(), [file.partition])
    return ManifestFile.from_args(partition_spec_id=0, partitions=summaries)


_LEAST = Case(
    IntegerType(), [(TruncateTransform(10), False)], [-(2**31)], [-(2**31)], is_wrapping=True
)
_VOID = Case(
    LongType(), [(VoidTransform(), False), (IdentityTransform(), True)], [7], [7], is_wrapping=False
)


@example(_LEAST)
@example(_VOID)
@settings(max_examples=200, deadline=None)
@given(cases())
def test_a_file_that_holds_a_key_is_never_excluded(case: Case) -> None:
    """By its bounds, its partition, or the partitions of its manifest."""
    spec = spec_of(case)
    table, file = table_of(case.kind, spec), file_of(case, spec)
    arrow = storage_type(schema_to_pyarrow(case.kind))
    columns = KeyColumns((1,), (arrow,))
    keys = pa.array(case.keys, internal(pa.array([], arrow)).type).cast(arrow)
    deleted = DeletedKeys([(0, [keys])])
    files = TableFiles(table, frozenset(), QuickClock())
    deletes = RoundDeletes((), open, lambda _: {}, ResolveBudget(QuickClock(), math.inf))
    deletes._keys = {EVERYWHERE: [(columns, deleted)]}
    assert files.source(file, -1).may_have(columns, deleted)
    assert files.may_list(manifest_of(table, spec, file), deletes)


def test_a_file_without_the_key_is_excluded() -> None:
    """By its bounds, and by its partition; a manifest by its partitions."""
    case = Case(LongType(), [(TruncateTransform(10), False)], [25], [31], is_wrapping=False)
    spec = spec_of(case)
    table, file = table_of(case.kind, spec), file_of(case, spec)
    columns = KeyColumns((1,), (pa.int64(),))
    deleted = DeletedKeys([(0, [pa.array(case.keys, pa.int64())])])
    files = TableFiles(table, frozenset(), QuickClock())
    deletes = RoundDeletes((), open, lambda _: {}, ResolveBudget(QuickClock(), 1))
    deletes._keys = {EVERYWHERE: [(columns, deleted)]}
    assert not files.source(file, -1).may_have(columns, deleted)
    assert not files.may_list(manifest_of(table, spec, file), deletes)

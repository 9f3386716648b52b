"""Data files: sizes, layout, properties, metrics, and what readers make of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import json
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from connect.gateways.catalog.table_properties import ignored
from connect.gateways.storage.file_metrics import FooterReader
from control_schemas.events import ContentFile
from tests.differential.support import config, plan, rows_of, run_batches, source
from tests.support.property_values import NASTY, TUNING
from worker.batch.descriptors import BatchResult
from worker.pipeline.pipeline import PipelineLimits, TablePlan
from worker.write.table_writer import repeating_columns

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
)
ALL_TYPES = Schema(
    NestedField(1, "i", IntegerType(), required=True),
    NestedField(2, "l", LongType()),
    NestedField(3, "f", FloatType()),
    NestedField(4, "d", DoubleType()),
    NestedField(5, "b", BooleanType()),
    NestedField(6, "s", StringType()),
    NestedField(7, "bin", BinaryType()),
    NestedField(8, "fix", FixedType(4)),
    NestedField(9, "u", UUIDType()),
    NestedField(10, "dec", DecimalType(9, 2)),
    NestedField(11, "dec18", DecimalType(18, 2)),
    NestedField(12, "dec38", DecimalType(38, 2)),
    NestedField(13, "date", DateType()),
    NestedField(14, "time", TimeType()),
    NestedField(15, "ts", TimestampType()),
    NestedField(16, "a.b", TimestamptzType()),
    NestedField(17, "st", StructType(NestedField(18, "x y", LongType(), required=True))),
    NestedField(19, "li", ListType(20, StringType(), element_required=False)),
    NestedField(21, "ma", MapType(22, StringType(), 23, LongType(), value_required=False)),
)
ONE_OF_ALL = (
    b'{"i":1,"l":2,"f":1.5,"d":-2.5,"b":true,"s":"text of more than sixteen characters",'
    b'"bin":"AQID","fix":"AQIDBA==","u":"3d7e7a06-7ee5-4b7e-9b1f-1f0a6a2f3b11","dec":1.25,'
    b'"dec18":"-1.25","dec38":"123456789012345678901234567890.12","date":"2024-01-02",'
    b'"time":"03:04:05.25","ts":"2024-01-02T03:04:05","a.b":"2024-01-02T03:04:05.123Z",'
    b'"st":{"x y":1},"li":["a",null],"ma":{"k":1}}'
)
SMALL = b'{"i":-1,"s":"","d":0.0,"st":null,"li":[],"ts":"0001-01-01T00:00:00"}'


def numbered(count: int, *, kind: str = "a", start: int = 0) -> pa.RecordBatch:
    """Records ``{"id":n,"kind":..}``."""
    values = [f'{{"id":{i},"kind":"{kind}"}}'.encode() for i in range(start, start + count)]
    return source(values, start=start)


def footer(file: ContentFile) -> Any:
    return pq.read_metadata(file.file_path.removeprefix("file://"))


def write(
    folder: Path,
    values: Sequence[bytes],
    schema: Schema = SCHEMA,
    *,
    spec: PartitionSpec | None = None,
    limits: PipelineLimits | None = None,
    **properties: str,
) -> tuple[ContentFile, ...]:
    planned = plan(folder, schema, spec=spec or PartitionSpec(), properties=properties)
    result = run_batches(config(), [planned], [source(values)], limits=limits)
    assert result.error is None
    return result.files["db.t1"]


def test_files_roll_at_their_target_size(tmp_path: Path) -> None:
    """A file ends at the target size of its table; no row is lost or duplicated."""
    planned = plan(tmp_path, SCHEMA, properties={"write.target-file-size-bytes": "1000"})
    limits = PipelineLimits(block_rows=100, group_rows=100)
    batches = [numbered(100, start=s) for s in range(0, 1000, 100)]
    result = run_batches(config(), [planned], batches, limits=limits)
    files = result.files["db.t1"]
    assert len(files) > 2
    assert len({f.file_path for f in files}) == len(files)
    assert sorted(r["id"] for r in rows_of(result, "db.t1")) == list(range(1000))
    for file in files:
        read = footer(file)
        assert file.record_count == read.num_rows
        assert (
            file.file_size_in_bytes == Path(file.file_path.removeprefix("file://")).stat().st_size
        )
        assert len(file.split_offsets or ()) == read.num_row_groups


def _many_small(folder: Path, limits: PipelineLimits) -> tuple[BatchResult, dict[str, int]]:
    """Write 8,000 rows into 20 tables, half of them into the last; also count the row groups."""
    names = [f"db.t{i}" for i in range(20)]
    values = [
        f'{{"id":{i},"kind":"db.t{min(i % 40, 19)}","pad":"{i:0100d}"}}'.encode()
        for i in range(8000)
    ]
    wide = Schema(*SCHEMA.fields, NestedField(3, "pad", StringType()))
    plans = [plan(folder, wide, name=name) for name in names]
    connector = config(
        **{
            "iceberg.tables": None,
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "kind",
        }
    )
    result = run_batches(connector, plans, [source(values)], limits=limits)
    assert sum(f.record_count for n in names for f in result.files[n]) == 8000
    return result, {n: sum(footer(f).num_row_groups for f in result.files[n]) for n in names}


def test_buffered_rows_are_bounded(tmp_path: Path) -> None:
    """Over all tables; without room on the disk the largest buffer is written first."""
    limits = PipelineLimits(block_rows=500, buffered_bytes_max=200_000, spilled_bytes_max=0)
    _, groups = _many_small(tmp_path, limits)
    assert groups["db.t19"] > 3
    assert groups["db.t1"] <= 2


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def test_rows_of_many_tables_wait_on_the_disk(tmp_path: Path) -> None:
    """Each table gets one file with one row group, in the records' order; no other file is left."""
    spill = tmp_path / "spill"
    spill.mkdir()
    limits = PipelineLimits(block_rows=500, buffered_bytes_max=200_000, open_files_max=2)
    with _temporary_files_in(spill):
        result, groups = _many_small(tmp_path, limits)
    assert set(groups.values()) == {1}
    assert {len(files) for files in result.files.values()} == {1}
    for name in groups:
        ids = [row["id"] for row in rows_of(result, name)]
        assert ids == sorted(ids)
    assert list(spill.iterdir()) == []


def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    """Rows that do not fit on the disk go to their files."""
    with _temporary_files_in(tmp_path / "missing"):
        _, groups = _many_small(
            tmp_path, PipelineLimits(block_rows=500, buffered_bytes_max=200_000)
        )
    assert groups["db.t19"] > 3


def test_open_files_are_bounded(tmp_path: Path) -> None:
    """Above the bound, the least recently used file ends; its partition gets another one."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))
    limits = PipelineLimits(block_rows=10, group_rows=1, open_files_max=2)
    values = [f'{{"id":{i},"kind":"{"abcd"[i % 4]}"}}'.encode() for i in range(40)]
    files = write(tmp_path, values, spec=spec, limits=limits)
    assert sum(f.record_count for f in files) == 40
    assert {f.partition[0].value for f in files} == set("abcd")
    assert len(files) > 4


@pytest.mark.parametrize(
    ("codec", "stored"),
    [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("gzip", "GZIP"), ("uncompressed", "UNCOMPRESSED")],
)
def test_the_codec_and_level_of_the_table_are_used(codec: str, stored: str, tmp_path: Path) -> None:
    """Zstd without the property."""
    properties = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": "2"}
    [file] = write(tmp_path, [b'{"id":1}'], **properties)
    assert footer(file).row_group(0).column(0).compression == stored
    [file] = write(tmp_path, [b'{"id":1}'])
    assert footer(file).row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("value", NASTY)
def test_invalid_tuning_properties_have_no_effect(value: str, tmp_path: Path) -> None:
    """Rows are written with any values of the properties."""
    values = [b'{"id":1}'] * 3
    files = write(tmp_path, values, **dict.fromkeys(TUNING, value))
    assert sum(file.record_count for file in files) == 3


def test_an_invalid_codec_is_replaced_by_zstd(tmp_path: Path) -> None:
    """Also an invalid level."""
    properties = {"write.parquet.compression-codec": "lzma", "write.parquet.compression-level": "2"}
    [file] = write(tmp_path, [b'{"id":1}'], **properties)
    assert footer(file).row_group(0).column(0).compression == "ZSTD"
    assert ignored(properties) == {"write.parquet.compression-codec": "lzma"}


def test_an_aborted_task_deletes_its_files(tmp_path: Path) -> None:
    """The writers end without a warning in the log."""
    planned = plan(tmp_path, SCHEMA)
    limits = PipelineLimits(block_rows=100, group_rows=10)
    result = run_batches(
        config(), [planned], [numbered(100), source([b"{"], start=100)], limits=limits
    )
    assert result.error is not None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    gc.collect()  # pytest fails on warnings of the collection


def test_files_are_below_the_data_path(tmp_path: Path) -> None:
    """Hashed for object stores, with partition folders."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))
    value = [b'{"id":1,"kind":"a"}']
    [file] = write(tmp_path, value, spec=spec)
    assert file.file_path.startswith(f"file://{tmp_path}/db.t1/data/kind=a/")
    [file] = write(tmp_path, value, spec=spec, **{"write.data.path": f"file://{tmp_path}/else/"})
    assert file.file_path.startswith(f"file://{tmp_path}/else/kind=a/")
    hashed = {"write.object-storage.enabled": "true"}
    [file] = write(tmp_path, value, spec=spec, **hashed)
    folders = file.file_path.removeprefix(f"file://{tmp_path}/db.t1/data/").split("/")
    assert folders[-2] == "kind=a"
    assert all(set(f) <= {"0", "1"} for f in folders[:-2])
    hashed["write.object-storage.partitioned-paths"] = "false"
    [file] = write(tmp_path, value, spec=spec, **hashed)
    assert "kind=a" not in file.file_path


LONG_VALUES = ["x" * 300, "é/" * 60, "y" * 5_000]


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
@pytest.mark.parametrize("properties", [{}, {"write.object-storage.enabled": "true"}])
def test_a_partition_value_may_be_longer_than_a_name_in_the_store(
    table_format: str, properties: dict[str, str], tmp_path: Path
) -> None:
    """Its file has no folder of its own; the partition is in the metadata. No record waits."""
    schema = Schema(NestedField(1, "kind", StringType(), required=False))
    by_kind = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "kind"))
    planned = replace(
        plan(tmp_path, schema, spec=by_kind, properties=properties), table_format=table_format
    )
    kinds = ["short", *LONG_VALUES]
    values = [json.dumps({"kind": kind}).encode() for kind in kinds]
    files = run_batches(config(), [planned], [source(values)]).files["db.t1"]
    assert sorted(file.partition[0].value for file in files) == sorted(kinds)
    for file in files:
        [row] = pq.read_table(file.file_path.removeprefix("file://"), partitioning=None).to_pylist()
        assert row == {"kind": file.partition[0].value}
        assert ("kind=" in file.file_path) == (row["kind"] == "short")


def test_a_location_provider_class_of_a_property_is_not_imported(tmp_path: Path) -> None:
    """A location provider that a table property names is not loaded into the worker."""
    named = {"write.py-location-provider.impl": "no.such.Module"}
    [file] = write(tmp_path, [b'{"id":1}'], **named)
    assert "/data/" in file.file_path


def test_a_file_has_field_ids(tmp_path: Path) -> None:
    """Columns have Iceberg's ids and compatible names, and there is no Arrow schema."""
    [file] = write(tmp_path, [ONE_OF_ALL], ALL_TYPES)
    path = file.file_path.removeprefix("file://")
    stored = pq.ParquetFile(path).schema_arrow
    assert stored.field("a_x2Eb").metadata[b"PARQUET:field_id"] == b"16"
    assert stored.field("st").type[0].name == "x_x20y"
    assert b"ARROW:schema" not in (footer(file).metadata or {})


def test_metrics_equal_those_of_pyiceberg(tmp_path: Path) -> None:
    """Counts, sizes and bounds that PyIceberg reads from the same footer."""
    [file] = write(tmp_path, [ONE_OF_ALL, SMALL, ONE_OF_ALL], ALL_TYPES)
    ids = parquet_path_to_id_mapping(sanitize_column_names(ALL_TYPES))
    default = "write.metadata.metrics.default"
    one_column = {default: "none", "write.metadata.metrics.column.s": "full"}
    for properties in ({}, {default: "counts"}, one_column):
        collectors = compute_statistics_plan(ALL_TYPES, properties)
        theirs = data_file_statistics_from_parquet_metadata(
            footer(file), collectors, ids
        ).to_serialized_dict()
        ours = FooterReader(collectors, ids).read(footer(file))
        for name in ("column_sizes", "value_counts", "null_value_counts", "split_offsets"):
            assert getattr(ours, name) == theirs[name], name
        assert ours.lower_bounds.items() >= theirs["lower_bounds"].items()
        assert ours.upper_bounds.items() >= theirs["upper_bounds"].items()


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("a" * 15 + "\ud7ffzzz", "a" * 15 + "\ue000"),
        ("\ud7ff" * 17, "\ud7ff" * 15 + "\ue000"),
        ("a" + "\U0010ffff" * 16, "b"),
        ("\U0010ffff" * 17, None),
        ("\ud7ff" * 16, "\ud7ff" * 16),
    ],
)
def test_upper_bounds_of_texts_are_characters(tmp_path: Path, text: str, bound: str | None) -> None:
    """The number after U+D7FF is none; without a greater text there is no bound."""
    [file] = write(tmp_path, [json.dumps({"id": 1, "kind": text}).encode()])
    assert file.upper_bounds.get(2) == (bound and bound.encode())


def test_nanosecond_timestamps_have_their_type_and_bounds(tmp_path: Path) -> None:
    """Of format version 3; a column of type unknown is in no file."""
    schema = Schema(
        NestedField(1, "ts", TimestampNanoType(), required=False),
        NestedField(2, "tz", TimestamptzNanoType(), required=False),
        NestedField(3, "none", UnknownType(), required=False),
    )
    values = [
        b'{"ts":"1969-12-31T23:59:59.999999999","tz":"1970-01-01T00:00:00.000000001Z"}',
        b"{}",
    ]
    [file] = write(tmp_path, values, schema)
    assert (file.lower_bounds, file.null_value_counts) == (
        {1: (-1).to_bytes(8, "little", signed=True), 2: (1).to_bytes(8, "little")},
        {1: 1, 2: 1},
    )
    logical = [str(footer(file).schema.column(i).logical_type) for i in range(2)]
    assert footer(file).num_columns == 2
    assert ["timeUnit=nanoseconds" in text for text in logical] == [True, True]
    assert ["isAdjustedToUTC=true" in text for text in logical] == [False, True]


def test_dates_of_any_year_have_bounds(tmp_path: Path) -> None:
    """Years that Python's dates do not know are written and bounded."""
    schema = Schema(NestedField(1, "d", DateType()), NestedField(2, "t", TimestampType()))
    values = [b'{"d":"+12024-01-01","t":"-0044-03-15T00:00:00"}', b'{"d":0,"t":0}']
    [file] = write(tmp_path, values, schema)
    assert file.upper_bounds is not None
    assert file.lower_bounds is not None
    assert int.from_bytes(file.upper_bounds[1], "little", signed=True) == 19_723 + 25 * 146_097
    assert int.from_bytes(file.lower_bounds[2], "little", signed=True) < -6 * 10**16


def test_pyiceberg_reads_every_type_as_it_was_written(tmp_path: Path) -> None:
    """PyIceberg reads a committed table of every type as it was sent."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "i_bucket"),
        PartitionField(15, 1001, DayTransform(), "ts_day"),
    )
    # set by the owner of a table, this must not change how files are written
    disguise = {"icefloe.format": "parquet"}
    table = catalog.create_table("db.t1", ALL_TYPES, partition_spec=spec, properties=disguise)
    planned = TablePlan.of(table, name="db.t1", catalog="c", io_properties={})
    assert planned.table_format == "iceberg"
    result = run_batches(config(), [planned], [source([ONE_OF_ALL, SMALL])])
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in result.files["db.t1"]:
            append.append_data_file(as_data_file(file))
    read = {row["i"]: row for row in catalog.load_table("db.t1").scan().to_arrow().to_pylist()}
    assert read[1]["u"] == uuid.UUID("3d7e7a06-7ee5-4b7e-9b1f-1f0a6a2f3b11")
    assert read[1]["dec38"] == Decimal("123456789012345678901234567890.12")
    assert read[1]["fix"] == b"\x01\x02\x03\x04"
    assert read[1]["a.b"] == dt.datetime(2024, 1, 2, 3, 4, 5, 123000, dt.UTC)
    assert (read[1]["st"], read[1]["li"], read[1]["ma"]) == ({"x y": 1}, ["a", None], [("k", 1)])
    assert (read[-1]["st"], read[-1]["li"], read[-1]["l"]) == (None, [], None)
    found = catalog.load_table("db.t1").scan(row_filter="ts < '1970-01-01T00:00:00'").to_arrow()
    assert found["i"].to_pylist() == [-1]
    catalog.close()


def as_data_file(file: ContentFile) -> DataFile:
    """The file as PyIceberg's own writer would hand it over."""
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.file_path,
        file_format=FileFormat.PARQUET,
        partition=Record(*(f.value for f in file.partition)),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        split_offsets=list(file.split_offsets or ()),
        sort_order_id=file.sort_order_id,
    )
    data_file.spec_id = file.spec_id or 0
    return data_file


def test_only_repetitive_columns_get_a_dictionary() -> None:
    """At any depth; booleans get none."""
    count = 100
    rows = pa.table(
        {
            "unique": pa.array(range(count)),
            "few": pa.array([i % 3 for i in range(count)]),
            "flag": pa.array([True] * count),
            "inner": pa.array([{"few": "a", "unique": i} for i in range(count)]),
            "items": pa.array([["a", "b"]] * count),
        }
    )
    assert repeating_columns(rows) == ["few", "inner.few", "items.list.element"]


def test_long_values_are_judged_by_as_many_as_a_dictionary_holds() -> None:
    """A larger dictionary is not written, and hashing all values costs more than it saves."""
    long = [f"{n:04d}" * 500 for n in range(5_000)]
    soon = [long[n % 100] for n in range(15_000)]
    rows = pa.table({"late": [*long, *long, *long], "soon": soon})
    assert repeating_columns(rows) == ["soon"]

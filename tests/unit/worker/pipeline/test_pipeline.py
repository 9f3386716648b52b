"""The pipeline as its caller sees it: routing, outcomes, requests, refusals."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from connect.errors import InvariantViolation, RecordError
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.records.tables.schema_changes import SchemaChanges
from control_schemas.events import ContentFile, FileContent, PartitionField
from tests.differential.support import config, plan, rows_of, run_batches, source
from tests.support.pipeline_lines import SCHEMA, TP, ids, lines
from worker.batch.descriptors import (
    DESCRIPTOR_SCHEMA,
    BatchResult,
    DeadLetter,
    PartitionProgress,
    collect,
    dead_letter_row,
    file_rows,
    progress_row,
    to_batch,
)
from worker.batch.error_rows import error_row
from worker.pipeline.pipeline import PipelineLimits, PipelineSpec, run

DYNAMIC = {
    "iceberg.tables": None,
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "kind",
}
TWO = {"iceberg.tables": "db.t1,db.t2"}
REGEX = {
    **TWO,
    "iceberg.tables.route-field": "kind",
    "iceberg.table.db.t1.route-regex": "a|b",
    "iceberg.table.db.t2.route-regex": "b.*",
}


def both_tables(folder: Path) -> list[Any]:
    return [plan(folder, SCHEMA, name=name) for name in ("db.t1", "db.t2")]


def test_static_tables_get_every_record(tmp_path: Path) -> None:
    """Without a route field, every table gets every record; each record counts once."""
    result = run_batches(config(**TWO), both_tables(tmp_path), [source(lines("a", "b"))])
    assert (ids(result, "db.t1"), ids(result, "db.t2")) == ([1, 2], [1, 2])
    assert result.progress[TP] == PartitionProgress(2, 0, 0, 2, 1_700_000_000_001)


def test_timestamps_of_the_far_future_do_not_move_the_valid_through_time(tmp_path: Path) -> None:
    """A record dated 2100 is written and counted; its timestamp is ignored."""
    records = source(lines("a", "b", "c"))
    stamps = [1_700_000_000_000_000, 4_102_444_800_000_000, 1_700_000_000_500_000]
    column = records.schema.get_field_index("timestamp")
    dated = records.set_column(
        column, records.schema.field(column), pa.array(stamps, pa.timestamp("us", "UTC"))
    )
    result = run_batches(config(), [plan(tmp_path, SCHEMA)], [dated])
    assert result.progress[TP] == PartitionProgress(3, 0, 0, 3, 1_700_000_000_500, future=1)
    far = config(**{"iceberg.control.vtts.future-max-ms": "31536000000"})
    alone = run_batches(far, [plan(tmp_path, SCHEMA)], [dated.slice(1, 1)])
    assert alone.progress[TP] == PartitionProgress(1, 0, 0, 1, None, future=1)


def test_records_at_or_below_the_valid_through_time_are_late(tmp_path: Path) -> None:
    """They are written, and counted as late; without a VTTS or a timestamp none is late."""
    records = source(lines("a", "b", "c", "d"))
    stamps = [1_700_000_000_000_000, 1_700_000_000_001_999, 1_700_000_000_002_000, -1_000]
    column = records.schema.get_field_index("timestamp")
    dated = records.set_column(
        column, records.schema.field(column), pa.array(stamps, pa.timestamp("us", "UTC"))
    )
    spec = PipelineSpec(config(), (plan(tmp_path, SCHEMA),))
    for claimed_ms, late in ((None, 0), (1_699_999_999_999, 0), (1_700_000_000_001, 2)):
        claimed = dataclasses.replace(spec, valid_through_ms=claimed_ms)
        given = dated.select(list(claimed.columns()))
        result = collect(pa.Table.from_batches(list(run(claimed)(iter([given])))))
        assert result.progress[TP].late == late
        assert result.progress[TP].written == 4


def test_a_route_regex_selects_the_table(tmp_path: Path) -> None:
    """The regex must match the whole text; numbers are matched as text."""
    values = lines("a", "b", "bc", "xa", None, 7)
    unmatched = {"iceberg.tables.unmatched": "drop"}
    connector = config(**REGEX, **unmatched)
    result = run_batches(connector, both_tables(tmp_path), [source(values)])
    assert (ids(result, "db.t1"), ids(result, "db.t2")) == ([1, 2], [2, 3])
    assert result.progress[TP] == PartitionProgress(6, 3, 0, 3, 1_700_000_000_005)


def test_a_record_without_a_table_fails_the_task_by_default(tmp_path: Path) -> None:
    """The error has the coordinates of the record."""
    result = run_batches(config(**REGEX), both_tables(tmp_path), [source(lines("a", "z", "y"))])
    assert result.error is not None
    assert (result.error.stage, result.error.code) == ("ROUTE", "unmatched")
    assert result.error.coordinates["offset"] == 1
    assert not result.files
    assert not list(tmp_path.rglob("*.parquet"))


def test_records_without_a_table_become_dead_letters_if_configured(tmp_path: Path) -> None:
    """With any tolerance."""
    connector = config(**REGEX, **{"iceberg.tables.unmatched": "dead-letter"})
    result = run_batches(
        connector, both_tables(tmp_path), [source(lines("a", "z"), keys=[None, b"k"])]
    )
    [letter] = result.dead_letters
    assert (letter.record.offset, letter.record.key, letter.error.code) == (1, b"k", "unmatched")
    assert result.progress[TP] == PartitionProgress(2, 0, 1, 1, 1_700_000_000_001)


def test_the_route_field_contains_the_table_name(tmp_path: Path) -> None:
    """In upper or lower case."""
    result = run_batches(
        config(**DYNAMIC), both_tables(tmp_path), [source(lines("db.t1", "DB.T2", "db.t1"))]
    )
    assert (ids(result, "db.t1"), ids(result, "db.t2")) == ([1, 3], [2])


def test_unknown_tables_are_requested(tmp_path: Path) -> None:
    """A table that is not in the plan is requested once, and the files are not used."""
    values = lines("db.t1", "db.new", "db.new", "db.other")
    result = run_batches(config(**DYNAMIC), both_tables(tmp_path), [source(values)])
    assert {r.table: r.schema_json for r in result.table_requests} == {
        "db.new": None,
        "db.other": None,
    }
    assert not result.is_usable
    assert not list(tmp_path.rglob("*.parquet"))


def test_an_auto_create_request_contains_the_schema(tmp_path: Path) -> None:
    """The schema of the first record."""
    connector = config(
        **DYNAMIC,
        **{
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.default-partition-by": "kind",
            "iceberg.tables.default-sort-by": "id desc",
            "iceberg.tables.default-location": "s3://lake/${namespace}/${table}",
        },
    )
    result = run_batches(connector, both_tables(tmp_path), [source(lines("db.new"))])
    [request] = result.table_requests
    assert request.schema_json is not None
    schema = Schema.model_validate_json(request.schema_json)
    assert [(f.name, str(f.field_type)) for f in schema.fields] == [
        ("id", "long"),
        ("kind", "string"),
    ]
    assert json.loads(request.spec_json or "")["fields"][0]["transform"] == "identity"
    assert SortOrder.model_validate_json(request.sort_json or "") == SortOrder(
        SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST)
    )
    assert request.location == "s3://lake/db/new"
    assert "write.parquet.compression-codec" in request.properties


def test_names_of_missing_tables_are_unmatched(tmp_path: Path) -> None:
    """Without auto-create."""
    connector = config(**DYNAMIC, **{"iceberg.tables.unmatched": "drop"})
    result = run_batches(
        connector,
        both_tables(tmp_path),
        [source(lines("db.t1", "db.none"))],
        absent=frozenset({"db.none"}),
    )
    assert result.is_usable
    assert result.progress[TP] == PartitionProgress(2, 1, 0, 1, 1_700_000_000_001)


def test_new_fields_are_requested_with_schema_evolution(tmp_path: Path) -> None:
    """Without it they are ignored."""
    values = [
        *lines("a"),
        b'{"id":2,"n":{"m":1}}',
        b'{"id":3,"x":null,"y":[]}',
        b'{"id":4,"z":"t"}',
    ]
    ignoring = run_batches(config(), [plan(tmp_path, SCHEMA)], [source(values)])
    assert ids(ignoring, "db.t1") == [1, 2, 3, 4]
    connector = config(**{"iceberg.tables.evolve-schema-enabled": "true"})
    asking = run_batches(connector, [plan(tmp_path, SCHEMA)], [source(values)])
    [request] = asking.schema_requests
    paths = [path for text in request.changes for path in SchemaChanges.from_json(text).adds]
    assert (request.table, request.schema_id, paths) == ("db.t1", 0, [("n",), ("z",)])
    assert not asking.is_usable


def test_the_first_refused_record_is_named(tmp_path: Path) -> None:
    """Without tolerance it ends the task, with all its coordinates."""
    values = [*lines("a"), b'{"id":"x"}', b"nonsense"]
    result = run_batches(config(), [plan(tmp_path, SCHEMA)], [source(values, start=40)])
    assert result.error is not None
    assert result.error.coordinates == {
        "topic": "t",
        "partition": 0,
        "offset": 41,
        "column": "id",
        "table": "db.t1",
    }


def test_a_record_goes_to_all_its_tables_or_none(tmp_path: Path) -> None:
    """A record that one of its tables refuses is written to no table."""
    strict = Schema(NestedField(1, "id", LongType(), required=True))
    plans = [plan(tmp_path, SCHEMA, name="db.t1"), plan(tmp_path, strict, name="db.t2")]
    connector = config(**TWO, **{"errors.tolerance": "all"})
    result = run_batches(connector, plans, [source([b'{"id":1}', b'{"kind":"a"}'])])
    assert (ids(result, "db.t1"), ids(result, "db.t2")) == ([1], [1])
    assert [letter.record.offset for letter in result.dead_letters] == [1]


def test_tombstones_are_dropped_and_counted(tmp_path: Path) -> None:
    """Records without value are dropped, per partition."""
    batches = [
        source([None, b'{"id":1}', None], partition=0),
        source([None], partition=1, start=7),
    ]
    result = run_batches(config(), [plan(tmp_path, SCHEMA)], batches)
    assert result.progress[TP].dropped == 2
    assert result.progress[TopicPartition("t", 1)] == PartitionProgress(
        1, 1, 0, 0, 1_700_000_000_000
    )


def test_keys_are_converted(tmp_path: Path) -> None:
    """A key that its converter refuses makes the record a dead letter."""
    connector = config(
        **{
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "errors.tolerance": "all",
        }
    )
    keys = [None, b"1", b'"k"', b'{"a":1}', b"no", b'{"a":', b'"\xff"']
    values = [b'{"id":%d}' % i for i in range(len(keys))]
    result = run_batches(connector, [plan(tmp_path, SCHEMA)], [source(values, keys=keys)])
    assert ids(result, "db.t1") == [0, 1, 2, 3]
    assert {letter.error.stage for letter in result.dead_letters} == {"KEY_CONVERTER"}


@pytest.mark.parametrize(
    "more",
    [
        {"value.converter.schemas.enable": "true"},
        {"iceberg.tables.schema-case-insensitive": "true"},
    ],
)
def test_records_without_a_column_path_are_written(more: dict[str, str], tmp_path: Path) -> None:
    """Envelopes and case-insensitive names use the reference path."""
    value = b'{"id":1,"KIND":"a"}'
    if "value.converter.schemas.enable" in more:
        field = '{"field":"id","type":"int64","optional":true}'
        schema = f'{{"type":"struct","fields":[{field}]}}'
        value = f'{{"schema":{schema},"payload":{{"id":1}}}}'.encode()
    result = run_batches(config(**more), [plan(tmp_path, SCHEMA)], [source([value])])
    assert ids(result, "db.t1") == [1]


def test_only_needed_columns_are_read(tmp_path: Path) -> None:
    """Keys and headers are read for converters and dead letters only."""
    plans = (plan(tmp_path, SCHEMA),)
    basic = ("value", "topic", "partition", "offset", "timestamp")
    assert PipelineSpec(config(), plans).columns() == basic
    tolerant = PipelineSpec(config(**{"errors.tolerance": "all"}), plans)
    assert tolerant.columns() == (*basic, "key", "headers")


def test_the_function_can_be_pickled(tmp_path: Path) -> None:
    """Spark sends it to the executors."""
    spec = PipelineSpec(config(), (plan(tmp_path, SCHEMA),))
    function = pickle.loads(pickle.dumps(run(spec)))
    [batch] = function(iter([source(lines("a")).select(list(spec.columns()))]))
    assert batch.schema == DESCRIPTOR_SCHEMA
    assert ids(collect(pa.Table.from_batches([batch])), "db.t1") == [1]


def test_a_task_without_records_returns_no_descriptors(tmp_path: Path) -> None:
    """A task without records describes nothing."""
    assert run_batches(config(), [plan(tmp_path, SCHEMA)], []) == BatchResult()


FILE = ContentFile(
    content=FileContent.DATA,
    file_path="s3://b/x.parquet",
    file_format="PARQUET",
    spec_id=3,
    partition=(
        PartitionField(1000, "d", "date", 7),
        PartitionField(1001, "b", "binary", b"\x00\xff"),
        PartitionField(1002, "n", "string", None),
    ),
    record_count=2,
    file_size_in_bytes=10,
    column_sizes={1: 5},
    value_counts={1: 2},
    null_value_counts={1: 0},
    nan_value_counts={},
    lower_bounds={1: b"\x00"},
    upper_bounds={1: b"\xff"},
    split_offsets=(4,),
)


def table_of(*rows: tuple[str, bytes]) -> pa.Table:
    return pa.Table.from_batches([to_batch(rows)])


def test_descriptors_survive_the_way_to_the_driver() -> None:
    """Files, counts, dead letters and errors are unchanged."""
    record = KafkaRecord("t", 1, 5, None, -1, None, b"\xff", (("h", None), ("h", b"\x00")))
    error = RecordError("no", stage="ROUTE", code="unmatched", topic="t", partition=1, offset=5)
    result = collect(
        table_of(
            *file_rows([("db.t", FILE, 0)]),
            progress_row(TP, PartitionProgress(3, 1, 1, 1, 9)),
            progress_row(TP, PartitionProgress(1, 0, 0, 1, None)),
            dead_letter_row(DeadLetter(record, error)),
            error_row(error),
        )
    )
    assert result.files == {"db.t": (FILE,)}
    assert result.progress == {TP: PartitionProgress(4, 1, 1, 2, 9)}
    [letter] = result.dead_letters
    assert letter.record == record
    for reported in (letter.error, result.error):
        assert reported is not None
        assert (reported.message, reported.stage, reported.code) == ("no", "ROUTE", "unmatched")
        assert reported.coordinates == error.coordinates


def test_the_error_at_the_lowest_position_is_reported() -> None:
    """Several Spark tasks have errors."""
    rows = [
        error_row(RecordError("x", topic="t", partition=p, offset=o))
        for p, o in ((1, 1), (0, 9), (0, 3))
    ]
    error = collect(table_of(*rows)).error
    assert error is not None
    assert (error.coordinates["partition"], error.coordinates["offset"]) == (0, 3)


def test_unknown_descriptors_are_a_bug() -> None:
    """A descriptor of an unknown kind is refused."""
    with pytest.raises(InvariantViolation):
        collect(table_of(("mystery", b"{}")))


def test_blocks_are_small_when_tables_share_no_columns(tmp_path: Path) -> None:
    """A block has room for the fields of all tables."""
    plans = [
        plan(
            tmp_path,
            Schema(
                NestedField(1, "kind", StringType()),
                *(NestedField(i, f"c{t}_{i}", LongType()) for i in range(2, 60)),
            ),
            name=f"db.t{t}",
        )
        for t in range(60)
    ]
    values = [f'{{"kind":"db.t{i % 60}","c{i % 60}_7":{i}}}'.encode() for i in range(600)]
    limits = PipelineLimits(block_cells=60 * 58 * 300)
    result = run_batches(config(**DYNAMIC), plans, [source(values)], limits=limits)
    assert {len(files) for files in result.files.values()} == {1}
    assert [row["c3_7"] for row in rows_of(result, "db.t3")] == list(range(3, 600, 60))

"""Tables of format version 3 that the committer wrote, judged by Iceberg's Java library."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
)

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.model.table_types import VariantType
from connect.records.tables.schema_changes import SchemaChanges, apply_changes
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommitted
from coordinator.maintenance.expired_files import expired_files
from tests.differential.support import config, run_batches, source
from tests.support.java_reader import JavaReader
from tests.support.readers import Sql
from tests.support.row_lineage import entry_paths, lineage_of
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import unique_name
from tests.support.table_harness import TableHarness
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    equality_delete,
    reference,
    table_commit,
    written_file,
)
from worker.batch.pipeline_spec import TablePlan

pytestmark = [*SPARK_MARKS, pytest.mark.java]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
V3 = {"format-version": "3"}
MERGE_SOON = {**V3, "commit.manifest.min-count-to-merge": "2"}
MERGE_ON_READ = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
LINEAGE = "_row_id, _last_updated_sequence_number"


def _create(
    catalog: CatalogGateway,
    schema: Schema = SCHEMA,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    **properties: str,
) -> Table:
    name = unique_name(f"v3_{uuid4().hex[:8]}").replace("-", "_")
    return catalog.create(("db", name), schema, spec, properties={**V3, **properties})


def _committer(catalog: CatalogGateway, table: Table) -> Committer:
    return Committer(catalog, connector("c", [".".join(table.name())]), QuickClock())


def _append(committer: Committer, table: Table, *files: list[dict[str, Any]], offset: int) -> None:
    written = [written_file(table, rows) for rows in files]
    event = announced(reference(table), written, offset=offset)
    outcome = committer.commit(table_commit([event]))
    assert isinstance(outcome, TableCommitted), outcome


def _rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"n{n}"} for n in ids]


def _lineage(spark: Sql, name: str, order: str = "id, name") -> list[list[Any]]:
    found = spark(f"select id, {LINEAGE} from {name} order by {order}")
    row_ids = [row[1] for row in found]
    assert None not in row_ids
    assert len(set(row_ids)) == len(row_ids), found
    return found


def test_row_ids_are_those_that_java_assigns(catalog: CatalogGateway, spark: Sql) -> None:
    """The same appends by Spark give the same ids and sequence numbers."""
    table = _create(catalog)
    ours = f"rest.db.{table.name()[-1]}"
    theirs = f"{ours}_java"
    spark(
        f"create table {theirs} (id bigint, name string) using iceberg "
        "tblproperties ('format-version' = '3')"
    )
    committer = _committer(catalog, table)
    for offset, ids in enumerate(((1, 2, 3), (4,), (5, 6))):
        _append(committer, table, _rows(*ids), offset=offset)
        values = ", ".join(f"({n}L, 'n{n}')" for n in ids)
        spark(f"insert into {theirs} select /*+ coalesce(1) */ * from values {values}")
    assert _lineage(spark, ours) == _lineage(spark, theirs)
    mine, javas = (catalog.load(("db", n.rpartition(".")[2])) for n in (ours, theirs))
    assert mine.metadata.next_row_id == javas.metadata.next_row_id == 6
    assert [(s.first_row_id, s.added_rows) for s in mine.metadata.snapshots] == [
        (s.first_row_id, s.added_rows) for s in javas.metadata.snapshots
    ]


def test_commits_between_changes_by_spark_keep_row_ids_and_deletion_vectors(
    catalog: CatalogGateway, spark: Sql, duck: Sql
) -> None:
    """Manifests of Spark's deletion vectors and rewritten files are merged without a loss."""
    table = _create(catalog, **MERGE_SOON, **MERGE_ON_READ)
    name = f"rest.db.{table.name()[-1]}"
    short = ".".join(table.name())
    committer = _committer(catalog, table)
    _append(committer, table, _rows(1, 2, 3), _rows(4, 5), offset=0)
    spark(f"delete from {name} where id = 2")
    spark(f"update {name} set name = 'new' where id = 4")
    before = _lineage(spark, name)
    _append(committer, table, _rows(6), offset=1)
    spark(f"delete from {name} where id = 1")
    _append(committer, table, _rows(7), offset=2)
    committer = _committer(catalog, table)  # it reads the manifests
    _append(committer, table, _rows(8), offset=3)
    now = _lineage(spark, name)
    assert [row[0] for row in now] == [3, 4, 5, 6, 7, 8]
    assert [row for row in now if row[0] in (3, 4, 5)] == [r for r in before if r[0] > 2]
    spark(
        f"call rest.system.rewrite_data_files(table => '{short}', "
        "options => map('rewrite-all', 'true'))"
    )
    spark(f"call rest.system.rewrite_manifests('{short}')")
    assert _lineage(spark, name) == now
    _append(committer, table, _rows(9), offset=4)
    assert [row for row in _lineage(spark, name) if row[0] < 9] == now
    content = [[n, "new" if n == 4 else f"n{n}"] for n in (3, 4, 5, 6, 7, 8, 9)]
    assert spark(f"select id, name from {name} order by id") == content
    location = catalog.load(table.name()).metadata_location
    assert duck(f"select id, name from iceberg_scan('{location}') order by id") == content


def test_expired_snapshots_leave_deletion_vectors_that_are_read(
    catalog: CatalogGateway, spark: Sql
) -> None:
    """One Puffin file holds vectors of two data files; only one of the vectors is replaced."""
    one_task = {"write.delete.distribution-mode": "none"}
    table = _create(catalog, **MERGE_ON_READ, **one_task)
    name = f"rest.db.{table.name()[-1]}"
    committer = _committer(catalog, table)
    _append(committer, table, _rows(1, 2, 3), _rows(4, 5, 6), offset=0)
    spark(f"delete from {name} where id in (1, 4)")
    spark(f"delete from {name} where id = 2")
    before = catalog.load(table.name())
    head = before.current_snapshot()
    assert head is not None
    listed = {s.snapshot_id: set(entry_paths(before, s)) for s in before.metadata.snapshots}
    replaced = set(entry_paths(before, head, status=2))
    assert replaced & listed[head.snapshot_id]  # else nothing is tested
    after = before.metadata.model_copy(update={"snapshots": [head]})
    removed = {s.snapshot_id for s in before.metadata.snapshots} - {head.snapshot_id}
    expired = expired_files(before.metadata, removed, after, before.io)
    assert not set(expired.content) & listed[head.snapshot_id]
    assert expired.is_complete


def test_row_level_commits_have_new_row_ids(catalog: CatalogGateway, spark: Sql, duck: Sql) -> None:
    """A key written in each of three batches is one row, with the id of its last version."""
    table = _create(catalog)
    name = f"rest.db.{table.name()[-1]}"
    committer = _committer(catalog, table)
    for start in (0, 3):
        events = [
            announced(
                reference(table),
                [written_file(table, [{"id": 0, "name": f"v{n}"}, {"id": n + 1, "name": "x"}])],
                deletes=[equality_delete(table, 0)],
                offset=n,
                batch=n + 1,
            )
            for n in range(start, start + 3)
        ]
        outcome = committer.commit(table_commit(events))
        assert isinstance(outcome, TableCommitted), outcome
    wanted = [[0, "v5"], *([n + 1, "x"] for n in range(6))]
    assert spark(f"select id, name from {name} order by id") == wanted
    table = catalog.load(table.name())
    assert duck(f"select id, name from iceberg_scan('{table.metadata_location}') order by id") == (
        wanted
    )
    assert _lineage(spark, name)[0] == [0, 10, 6]
    starts = sorted(lineage_of(table).values())
    assert starts == [(n * 2, 2) for n in range(6)]


DEFAULTS = {
    "s": "text",
    "n": 7,
    "d": "1.50",
    "day": "2024-02-29",
    "ts": "2024-01-02T03:04:05Z",
    "u": "3d7e7a06-7ee5-4b7e-9b1f-1f0a6a2f3b11",
}
NANOS = [
    "2024-01-02T03:04:05.123456789",
    "2024-01-02T03:04:05.123456788",
    "1969-12-31T23:59:59.999999999",
    "2262-04-11T23:47:16.854775807",
]


@pytest.mark.parametrize(
    "term",
    [
        None,
        "hour",
        *(
            pytest.param(term, marks=pytest.mark.matrix)
            for term in ("identity", "day", "month", "year", "bucket[5]", "void")
        ),
    ],
)
def test_nanosecond_timestamps_are_read_by_java(
    catalog: CatalogGateway, java: JavaReader, term: str | None
) -> None:
    """All digits, in partitions of every transform; a filter finds one of two neighbours."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "ts", TimestampNanoType(), required=False),
        NestedField(3, "tz", TimestamptzNanoType(), required=False),
    )
    spec = PartitionSpec(
        *(
            PartitionField(source, 998 + source, parse_transform(term), f"p{source}")
            for source in ((2, 3) if term else ())
        )
    )
    table = _create(catalog, schema, spec)
    values: list[dict[str, Any]] = [
        {"id": n, "ts": text, "tz": f"{text}Z"} for n, text in enumerate(NANOS)
    ]
    _write(catalog, table, [*values, {"id": 9}])
    wanted = [(n, text, f"{text}Z") for n, text in enumerate(NANOS)]
    if term == "identity":  # Java's reader does not convert partition values of the type
        wanted = [(n, _nanos(text), _nanos(text)) for n, text in enumerate(NANOS)]
    found = java.rows(table.name())
    assert sorted((r["id"], r["ts"], r["tz"]) for r in found if r["ts"]) == wanted
    assert [r["id"] for r in found if r["ts"] is None] == [9]
    for column, text in (("ts", NANOS[0]), ("tz", f"{NANOS[2]}Z")):
        [row] = java.rows(table.name(), where=(column, text))
        assert row[column] == (_nanos(text.rstrip("Z")) if term == "identity" else text)


def _nanos(text: str) -> int:
    return int(np.datetime64(text, "ns").astype(np.int64))


def test_duckdb_and_pyiceberg_read_nanosecond_timestamps(
    catalog: CatalogGateway, duck: Sql
) -> None:
    """DuckDB 1.5 knows timestamp_ns only, not timestamptz_ns."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "ts", TimestampNanoType(), required=False),
    )
    table = _create(catalog, schema)
    _write(catalog, table, [{"id": n, "ts": text} for n, text in enumerate(NANOS)])
    table = catalog.load(table.name())
    wanted = [[n, _nanos(text)] for n, text in enumerate(NANOS)]
    place = f"iceberg_scan('{table.metadata_location}')"
    assert duck(f"select id, epoch_ns(ts) from {place} order by id") == wanted
    read = table.scan().to_arrow().sort_by("id")
    assert read["ts"].type == pa.timestamp("ns")
    assert read["ts"].cast(pa.int64()).to_pylist() == [nanos for _, nanos in wanted]


def _write(
    catalog: CatalogGateway, table: Table, values: list[dict[str, Any]], offset: int = 0
) -> None:
    """Rows as a worker writes them from JSON, and a coordinator commits them."""
    plan = TablePlan.of(table, name=".".join(table.name()), catalog="iceberg", io_properties={})
    records = [json.dumps(value).encode() for value in values]
    result = run_batches(config(**{"iceberg.tables": plan.name}), [plan], [source(records)])
    assert result.error is None
    event = announced(reference(table), result.files[plan.name], offset=offset)
    outcome = _committer(catalog, table).commit(table_commit([event]))
    assert isinstance(outcome, TableCommitted), outcome


def test_missing_fields_have_the_write_default_and_old_files_the_initial_one(
    catalog: CatalogGateway, java: JavaReader, spark: Sql
) -> None:
    """Java adds the columns; a null in a record stays null; evolution adds columns as before."""
    table = _create(catalog)
    _write(catalog, table, [{"id": 1, "name": "old"}])
    java.add_columns(table.name(), DEFAULTS)
    table = catalog.load(table.name())
    _write(
        catalog, table, [{"id": 2, "name": "all"}, {"id": 3, "s": None}, {"id": 4, "s": "own"}], 1
    )
    java.set_write_default(table.name(), "s", "newer")
    table = catalog.load(table.name())
    changes = SchemaChanges({("more",): StringType()}, {})
    schema, _ = apply_changes(table.schema(), changes, table.metadata.last_column_id)
    assert [f.write_default for f in schema.fields[:-1]] == [
        f.write_default for f in table.schema().fields
    ]
    _write(catalog, table, [{"id": 5}], 2)
    found = {row["id"]: row for row in java.rows(table.name())}
    assert {n: row["s"] for n, row in found.items()} == {
        1: "text",
        2: "text",
        3: None,
        4: "own",
        5: "newer",
    }
    plain = {1: 7, 2: 7, 3: 7, 4: 7, 5: 7}
    assert {n: row["n"] for n, row in found.items()} == plain
    for name in ("d", "day", "ts", "u"):
        assert len({row[name] for row in found.values()}) == 1, name
    assert found[5]["day"] == "2024-02-29"
    name = f"rest.db.{table.name()[-1]}"
    assert spark(f"select id, n from {name} order by id") == [[n, 7] for n in sorted(plain)]


DOCUMENTS: list[Any] = [
    {"a": {"b": [1, 2.5, None, True]}, "text": "x" * 100, "ü": "straße"},
    [1, [2, {"c": "d"}]],
    "text",
    2**62,
    -0.5,
    False,
    {},
    [],
    {f"f{n}": n for n in range(300)},
]


def test_variants_are_read_by_spark_and_java(
    catalog: CatalogGateway, java: JavaReader, spark: Sql
) -> None:
    """Documents of every kind; paths in them; rows of Spark and of Icefloe in one table."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "v", VariantType(), required=False),
        NestedField(3, "last", StringType(), required=False),
    )
    table = _create(catalog, schema)
    name = f"rest.db.{table.name()[-1]}"
    rows: list[dict[str, Any]] = [
        {"id": n, "v": document, "last": "z"} for n, document in enumerate(DOCUMENTS)
    ]
    _write(catalog, table, [*rows, {"id": 98}, {"id": 99, "v": None}])
    spark(f"insert into {name} values (100, parse_json('[1]'), 'spark')")
    found = spark(f"select id, to_json(v), v is null from {name} order by id")
    assert [json.loads(text) for _, text, _ in found[: len(rows)]] == DOCUMENTS
    assert [row[2] for row in found[len(rows) :]] == [True, True, False]
    inner = f"select variant_get(v, '$.a.b[1]', 'double'), last from {name} where id = 0"
    assert spark(inner) == [[2.5, "z"]]
    assert len({row[1] for row in _lineage(spark, name, "id, last")}) == len(found)
    read = {row["id"]: row["v"] for row in java.rows(table.name())}
    assert (read[98], read[99]) == (None, None)
    assert "straße" in read[0]
    _write(catalog, catalog.load(table.name()), [{"id": 101, "v": {"more": 1}}], 1)
    assert spark(f"select to_json(v) from {name} where id = 101") == [['{"more":1}']]


def test_java_reads_metadata_of_catalogs_without_a_server(
    sql_catalog_properties: dict[str, str], spark_session: Any
) -> None:
    """A new table and one with snapshots; Java's reader returns the rows with their ids."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    table = gateway.create(("db", "t"), SCHEMA, properties=V3)
    harness = TableHarness(gateway, table)
    parser = spark_session.spark._jvm.org.apache.iceberg.TableMetadataParser

    def parsed() -> Any:
        loaded = harness.reloaded()
        with loaded.io.new_input(loaded.metadata_location).open() as file:
            return parser.fromJson(loaded.metadata_location, file.read().decode())

    assert (parsed().formatVersion(), parsed().nextRowId()) == (3, 0)
    committer = harness.committer()
    _append(committer, table, _rows(1, 2), offset=0)
    _append(committer, table, _rows(3), offset=1)
    assert parsed().nextRowId() == 3
    assert parsed().currentSnapshot().firstRowId() == 2
    place = harness.reloaded().metadata_location
    frame = spark_session.spark.read.format("iceberg").load(place)
    found = frame.select("id", "_row_id", "_last_updated_sequence_number").orderBy("id").collect()
    assert [list(row) for row in found] == [[1, 0, 1], [2, 1, 1], [3, 2, 2]]
    gateway.close()

"""Deletion vectors of the committer, judged by Iceberg's Java library, DuckDB and PyIceberg."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.records.tables.delete_specs import unpartitioned_spec_added
from coordinator.commit.committer import Committer
from coordinator.row_deletes.vector_format import vector_bytes, vector_of
from tests.support.java_reader import JavaReader
from tests.support.readers import Sql, duckdb_sql, spark_sql
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import RestCatalog, unique_name
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    partition_of,
    reference,
    table_commit,
    written_file,
)
from tests.support.upserts import committed, delete_file, vector_files, vectors_of

pytestmark = [*SPARK_MARKS, pytest.mark.java]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
PROPERTIES = {
    "format-version": "3",
    "commit.manifest.min-count-to-merge": "3",
    "write.delete.distribution-mode": "none",
    **{f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")},
}
LINEAGE = "_row_id, _last_updated_sequence_number"


@pytest.fixture(scope="module")
def catalog(rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    """The Java REST catalog, which all readers share."""
    gateway = open_catalog("iceberg", rest_catalog.properties)
    yield gateway
    gateway.close()


@pytest.fixture(scope="module")
def spark(spark_session: Any, rest_catalog: RestCatalog) -> Sql:
    """Runs SQL in Spark; tables are ``rest.db.<name>``."""
    return spark_sql(spark_session.spark, rest_catalog)


@pytest.fixture(scope="module")
def java(spark_session: Any, rest_catalog: RestCatalog) -> Iterator[JavaReader]:
    """Iceberg's own reader."""
    reader = JavaReader(spark_session.spark, rest_catalog.uri)
    yield reader
    reader.close()


@pytest.fixture
def duck() -> Iterator[Sql]:
    """Runs SQL in DuckDB."""
    with duckdb_sql() as sql:
        yield sql


class Changes:
    """A table of format version 3, and a connector with upserts.

    Args:
        catalog: where the table is.
        spec: of the table.
    """

    def __init__(
        self, catalog: CatalogGateway, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    ) -> None:
        self.catalog = catalog
        name = unique_name(f"dv_{uuid4().hex[:8]}").replace("-", "_")
        table = catalog.create(("db", name), SCHEMA, spec, properties=PROPERTIES)
        if spec.fields:
            table = catalog.commit(table, *unpartitioned_spec_added(table))
        self.identifier = table.name()
        self.sql = f"rest.db.{name}"
        upsert = {"iceberg__tables__upsert_mode_enabled": "true"}
        config = connector("c", [".".join(table.name())], **upsert)
        self.committer = Committer(catalog, config, QuickClock())
        self.offset = 0

    def round(self, *steps: tuple[dict[int, str], Sequence[int]]) -> None:
        """Commit steps of rows to write, and keys to delete; every written key is deleted, too."""
        table = self.table()
        events = []
        for rows, gone in steps:
            written = [{"id": key, "name": text} for key, text in rows.items()]
            parts: dict[Any, list[dict[str, Any]]] = {}
            for each in written:
                values = partition_of(table, each) if table.spec().fields else ()
                parts.setdefault(values, []).append(each)
            files = [written_file(table, p, partition=values) for values, p in parts.items()]
            keys = [{"id": key} for key in (*rows, *gone)]
            deletes = [delete_file(table, keys, ["id"])] if keys else []
            events.append(
                announced(reference(table), files, deletes, offset=self.offset, batch=self.offset)
            )
            self.offset += 1
        committed(self.committer.commit(table_commit(events)))

    def append(self, rows: dict[int, str]) -> None:
        """Commit rows without deletes."""
        table = self.table()
        file = written_file(table, [{"id": key, "name": text} for key, text in rows.items()])
        event = announced(reference(table), [file], offset=self.offset, batch=self.offset)
        self.offset += 1
        committed(self.committer.commit(table_commit([event])))

    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load(self.identifier)


def same_rows(t: Changes, wanted: dict[int, str], spark: Sql, duck: Sql, java: JavaReader) -> None:
    """All readers have these rows."""
    content = [[key, wanted[key]] for key in sorted(wanted)]
    assert spark(f"select id, name from {t.sql} order by id") == content
    table = t.table()
    place = f"iceberg_scan('{table.metadata_location}')"
    assert duck(f"select id, name from {place} order by id") == content
    assert sorted([r["id"], r["name"]] for r in java.rows(t.identifier)) == content
    assert sorted([r["id"], r["name"]] for r in table.scan().to_arrow().to_pylist()) == content
    for key in (min(wanted), max(wanted)):
        assert spark(f"select name from {t.sql} where id = {key}") == [[wanted[key]]]


def lineage(t: Changes, spark: Sql) -> dict[int, tuple[int, int]]:
    """Row id and sequence number of each key."""
    found = spark(f"select id, {LINEAGE} from {t.sql}")
    assert len({row[1] for row in found}) == len(found)
    return {row[0]: (row[1], row[2]) for row in found}


@pytest.mark.parametrize("kind", ["plain", "partitioned"])
def test_all_readers_read_the_rows_that_are_left(
    catalog: CatalogGateway, spark: Sql, duck: Sql, java: JavaReader, kind: str
) -> None:
    """Upserts and deletes over several commits, and several steps of one; merged manifests."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    t = Changes(catalog, UNPARTITIONED_PARTITION_SPEC if kind == "plain" else spec)
    rows = {n: f"n{n % 3}" for n in range(30)}
    t.round((rows, []))
    before = lineage(t, spark)
    for n in range(4):
        steps: list[tuple[dict[int, str], list[int]]] = [
            ({n: "n1", 20 + n: "n2"}, [10 + n]),
            ({n: "n2", 40 + n: "n0"}, [3]),
        ]
        t.round(*steps)
        for written, gone in steps:
            rows = {key: text for key, text in rows.items() if key not in gone} | written
    same_rows(t, rows, spark, duck, java)
    now = lineage(t, spark)
    assert {k: now[k] for k in range(4, 10)} == {k: before[k] for k in range(4, 10)}
    assert not {now[k][0] for k in (0, 1, 2, 20, 23, 40)} & {ids[0] for ids in before.values()}
    assert spark(f"select count(*) from {t.sql}.delete_files where file_format != 'PUFFIN'") == [
        [0]
    ]


POSITIONS = {
    "few": [1, 5, 9_000],
    "runs": [*range(100, 900), *range(70_000, 70_010)],
    "many": sorted(random.Random(3).sample(range(100_000), 30_000)),
    "every second": list(range(0, 100_000, 2)),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_vector_is_that_of_spark(catalog: CatalogGateway, spark: Sql, name: str) -> None:
    """The same deletes give the same bytes, fields of the entry and counters of the snapshot."""
    positions = POSITIONS[name]
    ours, theirs = Changes(catalog), Changes(catalog)
    for t in (ours, theirs):
        t.append(dict.fromkeys(range(100000), "x"))
    ours.round(({}, positions))
    view = f"gone_{uuid4().hex}"
    keys = f"from_json('{positions}', 'array<bigint>')"  # one literal for the parser
    spark(f"create temporary view {view} as select explode({keys}) as id")
    spark(f"delete from {theirs.sql} where id in (select id from {view})")
    (left, [mine]), (right, [javas]) = (
        (t.table(), list(vector_files(t.table()).values())) for t in (ours, theirs)
    )
    blobs = []
    for table, file in ((left, mine), (right, javas)):
        with table.io.new_input(file["file_path"]).open() as stream:
            stream.seek(file["content_offset"])
            blobs.append(stream.read(file["content_size_in_bytes"]))
    assert list(vector_of(blobs[1])) == list(vector_of(blobs[0])) == positions
    assert vector_bytes(vector_of(blobs[1])) == blobs[0] == blobs[1]
    own = {"file_path", "referenced_data_file", "file_size_in_bytes"}
    assert {k: v for k, v in mine.items() if k not in own} == {
        k: v for k, v in javas.items() if k not in own
    }
    counters = [
        {
            key: value
            for key, value in t.current_snapshot().summary.additional_properties.items()
            if key.split("-")[0] in {"added", "removed", "deleted", "total", "changed"}
        }
        for t in (left, right)
    ]
    assert counters[0] == counters[1]
    operations = {t.current_snapshot().summary.operation for t in (left, right)}
    assert len(operations) == 1


def test_vectors_of_spark_and_of_icefloe_are_merged(
    catalog: CatalogGateway, spark: Sql, duck: Sql, java: JavaReader
) -> None:
    """Each merges those of the other; compactions by Spark remove them."""
    t = Changes(catalog)
    rows = dict.fromkeys(range(20), "a")
    t.round((rows, []))
    for n in range(3):
        spark(f"delete from {t.sql} where id = {n}")
        t.round(({10 + n: "b", 30 + n: "c"}, [5 + n]))
        rows = {k: v for k, v in rows.items() if k not in (n, 5 + n)}
        rows |= {10 + n: "b", 30 + n: "c"}
        same_rows(t, rows, spark, duck, java)
    spark(f"update {t.sql} set name = 'd' where id = 15")
    rows[15] = "d"
    t.round(({16: "e"}, [17]))
    rows[16] = "e"
    del rows[17]
    same_rows(t, rows, spark, duck, java)
    assert len(vectors_of(t.table())) >= 1
    now = lineage(t, spark)
    spark(
        f"call rest.system.rewrite_data_files(table => '{'.'.join(t.identifier)}', "
        "options => map('rewrite-all', 'true'))"
    )
    assert lineage(t, spark) == now
    t.round(({18: "f"}, [19, 30]))
    rows[18] = "f"
    del rows[19], rows[30]
    same_rows(t, rows, spark, duck, java)

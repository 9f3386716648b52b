"""Deletion vectors of the committer, judged by Iceberg's Java library, DuckDB and PyIceberg."""

from __future__ import annotations

import random
from uuid import uuid4

import pytest
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
)
from pyiceberg.transforms import IdentityTransform

from connect.gateways.catalog.catalog import CatalogGateway
from coordinator.row_deletes.vector_format import vector_bytes, vector_of
from tests.support.changed_tables import Changes, identities, same_rows
from tests.support.java_reader import JavaReader
from tests.support.readers import Sql
from tests.support.spark_marks import SPARK_MARKS
from tests.support.upserts import vector_files, vectors_of

pytestmark = [*SPARK_MARKS, pytest.mark.java]


@pytest.mark.parametrize("kind", ["plain", pytest.param("partitioned", marks=pytest.mark.matrix)])
def test_all_readers_read_the_rows_that_are_left(
    catalog: CatalogGateway, spark: Sql, duck: Sql, java: JavaReader, kind: str
) -> None:
    """Upserts and deletes over several commits, and several steps of one; merged manifests."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    t = Changes(catalog, UNPARTITIONED_PARTITION_SPEC if kind == "plain" else spec)
    rows = {n: f"n{n % 3}" for n in range(30)}
    t.round((rows, []))
    before = identities(t, spark)
    for n in range(4):
        steps: list[tuple[dict[int, str], list[int]]] = [
            ({n: "n1", 20 + n: "n2"}, [10 + n]),
            ({n: "n2", 40 + n: "n0"}, [3]),
        ]
        t.round(*steps)
        for written, gone in steps:
            rows = {key: text for key, text in rows.items() if key not in gone} | written
    same_rows(t, rows, spark, duck, java)
    now = identities(t, spark)
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


@pytest.mark.parametrize(
    "name",
    [
        "runs",
        *(pytest.param(name, marks=pytest.mark.matrix) for name in POSITIONS if name != "runs"),
    ],
)
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


@pytest.mark.matrix  # contract tests merge vectors of the connector
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
    now = identities(t, spark)
    spark(
        f"call rest.system.rewrite_data_files(table => '{'.'.join(t.identifier)}', "
        "options => map('rewrite-all', 'true'))"
    )
    assert identities(t, spark) == now
    t.round(({18: "f"}, [19, 30]))
    rows[18] = "f"
    del rows[19], rows[30]
    same_rows(t, rows, spark, duck, java)

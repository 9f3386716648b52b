"""Copy-on-write in tables of format version 3, judged by Spark's own, and by Iceberg's readers."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.transforms import IdentityTransform

from connect.gateways.catalog.catalog import CatalogGateway
from tests.support.changed_tables import LINEAGE, Changes, identities, same_rows
from tests.support.java_reader import JavaReader
from tests.support.readers import Sql
from tests.support.row_lineage import next_row_id
from tests.support.spark_marks import SPARK_MARKS
from tests.support.upserts import vectors_of

pytestmark = [*SPARK_MARKS, pytest.mark.java]

COPY_ON_WRITE = "copy-on-write"
BY_SPARK = {f"write.{kind}.mode": COPY_ON_WRITE for kind in ("delete", "update", "merge")}
ONE_FILE = {f"write.{kind}.distribution-mode": "none" for kind in ("merge", "update")}


def copies(catalog: CatalogGateway, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Changes:
    """A table with copy-on-write by a connector, and by Spark."""
    return Changes(catalog, spec, COPY_ON_WRITE, **BY_SPARK, **ONE_FILE)


def java_identities(t: Changes, java: JavaReader) -> dict[int, tuple[int, int]]:
    """Row id and sequence number of each key, as Java's own reader reads them."""
    return {
        r["id"]: (r["_row_id"], r["_last_updated_sequence_number"])
        for r in java.rows(t.identifier, with_lineage=True)
    }


def merge(t: Changes, spark: Sql, written: dict[int, str], gone: list[int]) -> None:
    """Replace, insert and delete rows by Spark's MERGE."""
    values = [f"({key}L, '{text}', false)" for key, text in written.items()]
    values += [f"({key}L, '', true)" for key in gone]
    spark(
        f"merge into {t.sql} t using "
        f"(select * from values {', '.join(values)} as v(id, name, is_gone)) s "
        "on t.id = s.id when matched and s.is_gone then delete "
        "when matched then update set t.name = s.name "
        "when not matched and not s.is_gone then insert (id, name) values (s.id, s.name)"
    )


def test_rows_have_the_identities_that_a_merge_by_spark_gives(
    catalog: CatalogGateway, spark: Sql, java: JavaReader
) -> None:
    """Of equal tables: kept rows keep both, in copies of copies too; changed rows are new."""
    ours, theirs = copies(catalog), copies(catalog)
    for t in (ours, theirs):
        t.append({n: f"n{n}" for n in range(8)})
        t.append({n: f"n{n}" for n in range(8, 12)})
    rounds: list[tuple[dict[int, str], list[int]]] = [
        ({1: "a", 20: "b"}, [2]),
        ({3: "c", 9: "d"}, [20]),
        ({1: "e"}, [4, 11]),
    ]
    for number, (written, gone) in enumerate(rounds, start=3):
        before = identities(ours, spark)
        ours.round((written, gone))
        merge(theirs, spark, written, gone)
        now, javas = identities(ours, spark), identities(theirs, spark)
        assert now == java_identities(ours, java)
        assert javas == java_identities(theirs, java)
        kept = before.keys() - written.keys() - set(gone)
        assert {k: now[k] for k in kept} == {k: before[k] for k in kept}
        assert {k: javas[k][1] for k in javas} == {k: now[k][1] for k in now}
        assert {now[k][1] for k in written} == {number}
        # Spark updates a row, which keeps its id; an upsert deletes a row and inserts another
        assert not {now[k][0] for k in written} & {row_id for row_id, _ in before.values()}
    never_changed = [0, 5, 6, 7, 8, 10]
    assert {k: now[k] for k in never_changed} == {k: javas[k] for k in never_changed}
    assert {k: now[k] for k in never_changed} == {
        **{k: (k, 1) for k in (0, 5, 6, 7)},
        **{k: (k, 2) for k in (8, 10)},
    }
    same = "select id, name from {} order by id"
    assert spark(same.format(ours.sql)) == spark(same.format(theirs.sql))


def columns_of_copies(t: Changes) -> set[tuple[Any, ...]]:
    """The columns for identities in the data files of a table."""
    table, out = t.table(), set()
    for task in table.scan().plan_files():
        with table.io.new_input(task.file.file_path).open() as stream:
            schema = pq.ParquetFile(stream).schema
            columns = [schema.column(place) for place in range(len(schema.names))]
            out |= {
                (c.path, c.physical_type, c.max_definition_level, str(c.logical_type))
                for c in columns
                if c.path.startswith("_")
            }
    return out


def test_a_copy_has_the_columns_and_metrics_of_one_by_spark(
    catalog: CatalogGateway, spark: Sql
) -> None:
    """Names, types and field ids; counts and bounds in the manifest; ids that a snapshot takes."""
    ours, theirs = copies(catalog), copies(catalog)
    for t in (ours, theirs):
        t.append({n: f"n{n}" for n in range(8)})
    ours.round(({}, [2]))
    spark(f"delete from {theirs.sql} where id = 2")
    assert columns_of_copies(ours) == columns_of_copies(theirs)
    assert len(columns_of_copies(ours)) == 2
    counted = (
        "select record_count, content, value_counts, null_value_counts, lower_bounds, "
        "upper_bounds, sort_order_id from {}.files"
    )
    assert spark(counted.format(ours.sql)) == spark(counted.format(theirs.sql))
    assert next_row_id(ours.table()) == next_row_id(theirs.table())
    left, right = (
        [(s.first_row_id, s.added_rows) for s in t.table().metadata.snapshots]
        for t in (ours, theirs)
    )
    assert left == right
    assert identities(ours, spark) == identities(theirs, spark)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["plain", "partitioned"])
def test_changes_by_spark_and_by_icefloe_keep_each_others_identities(
    catalog: CatalogGateway, spark: Sql, duck: Sql, java: JavaReader, kind: str
) -> None:
    """Copies of each, vectors of each, and a compaction; all readers agree."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    t = copies(catalog, UNPARTITIONED_PARTITION_SPEC if kind == "plain" else spec)
    rows = {n: f"n{n % 3}" for n in range(20)}
    t.round((rows, []))
    known = identities(t, spark)

    def check(*changed: int) -> None:
        nonlocal known
        same_rows(t, rows, spark, duck, java)
        now = identities(t, spark)
        assert now == java_identities(t, java)
        kept = rows.keys() & known.keys() - set(changed)
        assert {key: now[key] for key in kept} == {key: known[key] for key in kept}
        used = {row_id for row_id, _ in known.values()}
        assert not {now[key][0] for key in now.keys() - known.keys()} & used
        known = now

    check()
    spark(f"update {t.sql} set name = 'n1' where id = 3")
    rows[3] = "n1"
    check(3)
    t.round(({4: "n2", 30: "n0"}, [5]), ({30: "n1"}, [6]))
    rows |= {4: "n2", 30: "n1"}
    del rows[5], rows[6]
    check(4)
    spark(f"alter table {t.sql} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    spark(f"delete from {t.sql} where id in (7, 10)")
    del rows[7], rows[10]
    assert vectors_of(t.table())
    check()
    t.round(({8: "n0", 11: "n1"}, [9]))
    rows |= {8: "n0", 11: "n1"}
    del rows[9]
    check(8, 11)
    t.committer = t.new_committer(iceberg__tables__copy_on_write_max_bytes="1")
    t.round(({12: "n1"}, [13]))
    rows[12] = "n1"
    del rows[13]
    check(12)
    t.committer = t.new_committer()
    t.round(({14: "n2"}, [0]))
    rows[14] = "n2"
    del rows[0]
    check(14)
    spark(
        f"call rest.system.rewrite_data_files(table => '{'.'.join(t.identifier)}', "
        "options => map('rewrite-all', 'true'))"
    )
    check()
    t.round(({15: "n0"}, [16]))
    rows[15] = "n0"
    del rows[16]
    check(15)


def test_an_upgraded_table_is_copied_as_by_spark(
    catalog: CatalogGateway, spark: Sql, java: JavaReader
) -> None:
    """Its rows have no ids before the first commit of version 3, which gives them some."""
    ours, theirs = (Changes(catalog, mode=COPY_ON_WRITE, **BY_SPARK, **V2) for _ in range(2))
    for t in (ours, theirs):
        t.append({n: f"n{n}" for n in range(6)})
        t.append({n: f"n{n}" for n in range(6, 9)})
        catalog.commit(t.table(), [], [UpgradeFormatVersionUpdate(format_version=3)])
        found = spark(f"select {LINEAGE} from {t.sql}")
        assert {row[0] for row in found} == {None}
    ours.round(({}, [2]))
    spark(f"delete from {theirs.sql} where id = 2")
    now, javas = identities(ours, spark), identities(theirs, spark)
    assert now == java_identities(ours, java)
    assert now.keys() == javas.keys() == set(range(9)) - {2}
    assert None not in {each for both in (*now.values(), *javas.values()) for each in both}
    # by the specification, rows that did not change keep the sequence number of their file;
    # Spark stores no number where it reads no row id
    copied, others = (0, 1, 3, 4, 5), (6, 7, 8)
    assert ({now[k][1] for k in copied}, {now[k][1] for k in others}) == ({1}, {2})
    assert ({javas[k][1] for k in copied}, {javas[k][1] for k in others}) == ({3}, {2})
    ours.round(({7: "x"}, [0]))
    after = identities(ours, spark)
    assert {k: after[k] for k in (1, 3, 4, 5, 6, 8)} == {k: now[k] for k in (1, 3, 4, 5, 6, 8)}
    assert after == java_identities(ours, java)


V2 = {"format-version": "2"}

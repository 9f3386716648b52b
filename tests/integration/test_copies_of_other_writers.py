"""Copy-on-write of files that Spark wrote or imported; Spark, Java and other readers judge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.transforms import IdentityTransform

from connect.gateways.catalog.catalog import CatalogGateway
from coordinator.commit.iceberg.committer import Committer
from tests.support.changed_tables import LINEAGE, Changes, identities, same_rows
from tests.support.java_reader import JavaReader
from tests.support.readers import Sql
from tests.support.row_lineage import lineage_of
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import unique_name
from tests.support.tables import QuickClock, announced, connector, reference, table_commit
from tests.support.upserts import committed, delete_file, delete_paths, named_files

pytestmark = [*SPARK_MARKS, pytest.mark.java]

V2 = {"format-version": "2"}
COPIES = {
    "iceberg__tables__upsert_mode_enabled": "true",
    "iceberg__tables__write_mode": "copy-on-write",
}
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


def write_mode(table: Table) -> str | None:
    """How the last commit removed rows."""
    return table.current_snapshot().summary.additional_properties.get("icefloe.write-mode")


@pytest.mark.parametrize(
    "granularity", ["file", pytest.param("partition", marks=pytest.mark.matrix)]
)
def test_position_deletes_of_spark_are_applied(
    catalog: CatalogGateway, spark: Sql, duck: Sql, java: JavaReader, granularity: str
) -> None:
    """In version 2 and after an upgrade, in turn with Spark's merge-on-read and copy-on-write."""
    by_spark = {"write.delete.granularity": granularity}
    t = Changes(catalog, mode="copy-on-write", **V2, **by_spark)
    rows = {n: f"n{n % 3}" for n in range(20)}
    t.append({n: rows[n] for n in range(10)})
    t.append({n: rows[n] for n in range(10, 20)})

    def spark_deletes(*keys: int) -> None:
        spark(f"delete from {t.sql} where id in {keys}")
        for key in keys:
            del rows[key]

    spark_deletes(3, 7, 13)
    named = [named_files(t.table(), path) for path in delete_paths(t.table())]
    assert sorted(map(len, named)) == ([1, 1] if granularity == "file" else [2])
    t.round(({1: "x", 30: "y"}, [4]))
    rows |= {1: "x", 30: "y"}
    del rows[4]
    assert write_mode(t.table()) == "copy-on-write"
    same_rows(t, rows, spark, duck, java)
    assert len(delete_paths(t.table())) == 1  # of the file that was not copied
    spark_deletes(1, 5, 14)
    t.round(({15: "z"}, [6]))
    rows[15] = "z"
    del rows[6]
    assert write_mode(t.table()) == "copy-on-write"
    same_rows(t, rows, spark, duck, java)
    spark_deletes(0, 16)
    catalog.commit(t.table(), [], [UpgradeFormatVersionUpdate(format_version=3)])
    t.append({40: "q"})
    rows[40] = "q"
    before = identities(t, spark)
    t.round(({2: "w", 30: "v"}, [17]))
    rows |= {2: "w", 30: "v"}
    del rows[17]
    assert write_mode(t.table()) == "copy-on-write"
    same_rows(t, rows, spark, duck, java)
    now = identities(t, spark)
    kept = before.keys() & rows.keys() - {2, 30}
    assert {key: now[key] for key in kept} == {key: before[key] for key in kept}
    assert delete_paths(t.table()) == []


@pytest.mark.matrix
def test_spark_leaves_position_deletes_of_files_that_it_copies(
    catalog: CatalogGateway, spark: Sql, duck: Sql, java: JavaReader
) -> None:
    """Icefloe removes those that name no data file any more; readers see the same rows."""
    ours, theirs = (Changes(catalog, mode="copy-on-write", **V2) for _ in range(2))
    rows = {n: f"n{n}" for n in range(6)}
    for t in (ours, theirs):
        t.append(rows)
        spark(f"delete from {t.sql} where id = 2")
        assert len(delete_paths(t.table())) == 1
    ours.round(({}, [4]))
    spark(f"alter table {theirs.sql} set tblproperties ('write.delete.mode' = 'copy-on-write')")
    spark(f"delete from {theirs.sql} where id = 4")
    left = {key: text for key, text in rows.items() if key not in (2, 4)}
    for t in (ours, theirs):
        same_rows(t, left, spark, duck, java)
    assert (len(delete_paths(ours.table())), len(delete_paths(theirs.table()))) == (0, 1)


@pytest.mark.matrix
def test_position_deletes_of_a_partition_are_applied(
    catalog: CatalogGateway, spark: Sql, duck: Sql, java: JavaReader
) -> None:
    """A copy stays in its partition, and no delete of another file is lost."""
    t = Changes(catalog, BY_NAME, "copy-on-write", **V2)
    rows = {n: f"n{n % 2}" for n in range(12)}
    t.round((rows, []))
    for gone, changed in ((2, 4), (3, 5), (6, 7)):
        spark(f"delete from {t.sql} where id = {gone}")
        t.round(({changed: "n0"}, []))
        rows[changed] = "n0"
        del rows[gone]
        assert write_mode(t.table()) == "copy-on-write"
        same_rows(t, rows, spark, duck, java)


def new_table(spark: Sql, catalog: CatalogGateway, columns: str, **properties: str) -> Table:
    """A table of format version 3 that Spark creates."""
    name = unique_name("other_writer").replace("-", "_")
    with_version = {"format-version": "3", **properties}
    texts = ", ".join(f"'{key}' = '{value}'" for key, value in with_version.items())
    spark(f"create table rest.db.{name} ({columns}) using iceberg tblproperties ({texts})")
    return catalog.load(("db", name))


def remove(catalog: CatalogGateway, table: Table, keys: Sequence[int], offset: int) -> Table:
    """Commit deletes of keys by copies; return the table."""
    table = catalog.load(table.name())
    deletes = [delete_file(table, [{"id": key} for key in keys], ["id"])]
    event = announced(reference(table), [], deletes, offset=offset)
    config = connector("c", [".".join(table.name())], **COPIES)
    committed(Committer(catalog, config, QuickClock()).commit(table_commit([event])))
    table = catalog.load(table.name())
    assert write_mode(table) == "copy-on-write"
    return table


def stored_variants(table: Table) -> dict[int, Any]:
    """The parts of the variant ``v`` of each key, and the columns that the files have for it."""
    out = {}
    for path in lineage_of(table):
        with table.io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            names = [c.path for c in map(file.schema.column, range(len(file.schema)))]
            columns = [name for name in names if name.startswith("v.")]
            assert "v (Variant(1))" in str(file.metadata.schema)
            for each in file.read(["id", "v"]).to_pylist():
                out[each["id"]] = each["v"], columns
    return out


@pytest.mark.matrix
@pytest.mark.parametrize("is_shredded", [False, True], ids=["whole", "shredded"])
def test_variants_of_spark_are_copied(
    catalog: CatalogGateway, spark: Sql, java: JavaReader, *, is_shredded: bool
) -> None:
    """Spark and Java read the same values and row ids; the stored bytes are the same."""
    shredded = {"write.parquet.shred-variants": str(is_shredded).lower()}
    table = new_table(spark, catalog, "id bigint, v variant, s struct<w: variant>", **shredded)
    name = f"rest.db.{table.name()[-1]}"
    documents = [{"a": n, "b": [n, "text", None], "c": {"d": f"n{n}"}} for n in range(6)]
    values = [f"({n}L, '{json.dumps(d)}')" for n, d in enumerate(documents)]
    spark(
        f"insert into {name} select /*+ coalesce(1) */ id, parse_json(v), "
        "if(id = 3, null, named_struct('w', parse_json(v))) "
        f"from values {', '.join([*values, '(6L, cast(null as string))'])} as t(id, v)"
    )
    read = f"select id, to_json(v), to_json(s.w), v is null, {LINEAGE} from {name} order by id"
    paths = f"select id from {name} where variant_get(v, '$.c.d', 'string') >= 'n4' order by id"
    left, stored = {row[0]: row for row in spark(read)}, stored_variants(catalog.load(table.name()))
    known = {row["id"]: row for row in java.rows(table.name(), with_lineage=True)}
    assert json.loads(left[5][1]) == documents[5]
    has_parts = any("typed_value" in each for each in stored[1][1])
    assert has_parts == is_shredded
    for offset, key in enumerate((1, 4)):
        table = remove(catalog, table, [key], offset)
        for model in (left, stored, known):
            del model[key]
        assert spark(read) == [left[n] for n in sorted(left)]
        assert stored_variants(table) == stored
        found = {row["id"]: row for row in java.rows(table.name(), with_lineage=True)}
        assert found == known
    assert spark(paths) == [[5]]


@pytest.mark.matrix
def test_imported_files_get_the_field_ids_of_the_name_mapping(
    catalog: CatalogGateway, spark: Sql, java: JavaReader, tmp_path: Path
) -> None:
    """Of nested columns, too; before a rename and after it; row ids stay."""
    columns = "id bigint, name string, tags array<struct<a: string>>, m map<string, int>"
    table = new_table(spark, catalog, columns)
    name = f"rest.db.{table.name()[-1]}"
    folder = tmp_path / "imported"
    spark(
        f"insert overwrite directory '{folder}' using parquet select /*+ coalesce(1) */ id, "
        "concat('n', id) as name, array(named_struct('a', concat('a', id))) as tags, "
        "map('k', cast(id as int)) as m from range(6)"
    )
    spark(
        f"call rest.system.add_files(table => '{'.'.join(table.name())}', "
        f"source_table => '`parquet`.`{folder}`')"
    )
    assert catalog.load(table.name()).name_mapping() is not None
    read = f"select *, {LINEAGE} from {name} order by id"
    left = {row[0]: row for row in spark(read)}
    assert left[2][:2] == [2, "n2"]
    table = remove(catalog, table, [1], 0)
    del left[1]
    assert spark(read) == [left[n] for n in sorted(left)]
    spark(f"alter table {name} rename column name to title")
    assert spark(read) == [left[n] for n in sorted(left)]
    table = remove(catalog, table, [4], 1)
    del left[4]
    assert spark(read) == [left[n] for n in sorted(left)]
    found = {row["id"]: row for row in java.rows(table.name(), with_lineage=True)}
    assert found.keys() == left.keys()
    assert {n: (r["title"], r["_row_id"]) for n, r in found.items()} == {
        n: (r[1], r[4]) for n, r in left.items()
    }
    assert table.scan().to_arrow().num_rows == len(left)

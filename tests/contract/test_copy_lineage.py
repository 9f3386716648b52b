"""Copy-on-write of format version 3: identities of rows, vectors, upgraded tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.types import LongType, NestedField, TimestampNanoType

from connect.gateways.catalog.catalog import open_catalog
from connect.model.table_types import VariantType
from control_schemas.events import ContentFile
from coordinator.commit.iceberg.committer import Committer
from coordinator.row_deletes.limits import DEFAULT_LIMITS
from tests.differential.support import config, run_batches, source
from tests.support.row_lineage import (
    RowIdentity,
    identities_of,
    lineage_of,
    next_row_id,
    records_of,
)
from tests.support.running_stack import duckdb_rows
from tests.support.stack import RestCatalog
from tests.support.table_harness import Racing
from tests.support.tables import announced, connector, data_file_named, reference, table_commit
from tests.support.upserts import (
    COPIES_NOT_USED,
    VECTORS_NOT_USED,
    LineageUpserts,
    SlowClock,
    Upserts,
    VectorUpserts,
    committed,
    delete_file,
    head_of,
    live_paths,
    metric,
    position_deletes,
    row,
    vectors_of,
)
from worker.batch.pipeline_spec import TablePlan

LINEAGE_IDS = (2_147_483_540, 2_147_483_539)
FEW_BYTES = {"iceberg__tables__copy_on_write_max_bytes": "1"}


def identities(t: Upserts) -> dict[int, RowIdentity]:
    """The identity of each row by its key."""
    found = identities_of(t.reloaded(), vectors_of(t.reloaded()))
    by_key = {values[0]: identity for values, identity in found}
    assert len(by_key) == len(found)
    return by_key


def test_rows_keep_their_identity_in_copies_of_copies(lineage_copies: LineageUpserts) -> None:
    """The columns of the first copy are read by the second one; a new version is a new row."""
    t, committer = lineage_copies, lineage_copies.committer()
    committed(committer.commit(t.round(([row(n, n) for n in range(6)], []))))
    for n in range(3):
        committed(committer.commit(t.round(([row(n, 10 + n)], []))))
        t.check()
    assert identities(t) == {
        **{n: RowIdentity(n, 1) for n in (3, 4, 5)},
        0: RowIdentity(6, 2),
        1: RowIdentity(12, 3),
        2: RowIdentity(18, 4),
    }
    table = t.reloaded()
    # a snapshot takes ids for a new row, for a copy, and for what is left in rewritten manifests
    added_rows = [6, 1 + 5, 1 + 4 + 1, 1 + 3 + 1]
    assert [s.added_rows for s in table.metadata.snapshots] == added_rows
    assert next_row_id(table) == sum(added_rows)


def test_a_copy_keeps_the_ids_of_rows_after_a_gap(lineage_copies: LineageUpserts) -> None:
    """Positions count in the source, over all its row groups, with the rows that are deleted."""
    t = lineage_copies
    committer = t.committer()
    table = t.reloaded()
    [file] = t.data_files([row(n, n) for n in range(100)])
    with table.io.new_input(file.file_path).open() as stream:
        content = pq.read_table(stream)
    with table.io.new_output(file.file_path).create(overwrite=True) as out:
        pq.write_table(content, out, row_group_size=10, store_schema=False)
    file = dataclasses.replace(
        file, file_size_in_bytes=len(table.io.new_input(file.file_path)), split_offsets=None
    )
    event = announced(reference(table), [file], offset=t.offset, batch=t.offset)
    t.offset += 1
    t.rows = [row(n, n) for n in range(100)]
    committed(committer.commit(table_commit([event])))
    t.check()
    gone = [0, *range(20, 35), 57, 99]
    committed(committer.commit(t.round(([], [row(n, 0) for n in gone]))))
    t.check()
    assert identities(t) == {n: RowIdentity(n, 1) for n in range(100) if n not in gone}


def test_a_copy_leaves_out_what_a_vector_marks(lineage_copies: LineageUpserts) -> None:
    """The vector is removed with its file; the commit beyond the limit is counted and named."""
    t = lineage_copies
    committed(t.committer().commit(t.round(([row(n, n) for n in range(6)], []))))
    t.check()
    committed(t.committer(**FEW_BYTES).commit(t.round(([], [row(1, 0), row(4, 0)]))))
    assert head_of(t)[COPIES_NOT_USED] == "bytes"
    assert head_of(t)["icefloe.write-mode"] == "deletion-vectors"
    assert metric("copy_on_write_fallbacks", ("c", ".".join(t.name), "bytes")) == 1
    assert len(vectors_of(t.reloaded())) == 1
    committed(t.committer().commit(t.round(([row(0, 9)], []))))
    t.check()
    assert head_of(t)["removed-dvs"] == "1"
    assert head_of(t)["total-delete-files"] == head_of(t)["total-position-deletes"] == "0"
    kept = {n: RowIdentity(n, 1) for n in (2, 3, 5)}
    assert identities(t) == {**kept, 0: RowIdentity(6, 3)}


def test_a_file_whose_other_rows_are_marked_is_removed(lineage_copies: LineageUpserts) -> None:
    """No row is left for a copy."""
    t = lineage_copies
    committed(t.committer().commit(t.round(([row(1, 1), row(2, 2)], []))))
    committed(t.committer(**FEW_BYTES).commit(t.round(([], [row(1, 0)]))))
    committed(t.committer().commit(t.round(([row(2, 3)], []))))
    t.check()
    assert head_of(t)["deleted-data-files"] == head_of(t)["added-data-files"] == "1"


def other_vector(t: Upserts, key: int) -> None:
    """Another connector marks a row in a vector."""
    deletes = [delete_file(t.reloaded(), [row(key, 0)], ["id"])]
    event = announced(reference(t.table), [], deletes, offset=0, batch=1)
    other = connector(f"v{key}", [".".join(t.name)], **VectorUpserts.defaults)
    committed(Committer(t.catalog, other, t.clock).commit(table_commit([event])))
    t.rows = [r for r in t.rows if r["id"] != key]


def test_a_copy_is_made_again_if_its_source_got_a_vector(lineage_copies: LineageUpserts) -> None:
    """Between two attempts; the first copy has rows that another writer deleted meanwhile."""
    t = lineage_copies
    committed(t.committer().commit(t.round(([row(n, n) for n in range(6)], []))))
    t.check()
    racing = Racing(t.catalog, [lambda: other_vector(t, 3), lambda: other_vector(t, 4)])
    committed(t.committer(racing).commit(t.round(([row(0, 9)], []))))
    t.check()
    assert identities(t) == {
        **{n: RowIdentity(n, 1) for n in (1, 2, 5)},
        0: RowIdentity(6, 4),
    }


def test_beyond_the_limits_of_both_equality_deletes_are_used(
    lineage_copies: LineageUpserts,
) -> None:
    """They still apply to copies, which keep the sequence number of their source."""
    t = lineage_copies
    committed(t.committer().commit(t.round(([row(n, n) for n in range(4)], []))))
    both = {**FEW_BYTES, "iceberg__tables__deletion_vectors_max_bytes": "1"}
    committed(t.committer(**both).commit(t.round(([row(1, 11)], []))))
    assert (head_of(t)[COPIES_NOT_USED], head_of(t)[VECTORS_NOT_USED]) == ("bytes", "bytes")
    assert head_of(t)["total-equality-deletes"] == "1"
    committed(t.committer().commit(t.round(([row(2, 22)], []))))
    table = t.reloaded()
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)


def upgraded(rest_catalog: RestCatalog) -> Upserts:
    """A table with a copy, and with format version 3 since then."""
    t = Upserts(open_catalog("iceberg", rest_catalog.properties))
    committer = t.committer()
    committed(committer.commit(t.round(([row(n, n) for n in range(4)], []))))
    committed(committer.commit(t.round(([row(7, 7), row(8, 8)], []))))
    committed(committer.commit(t.round(([row(0, 10)], []))))
    t.catalog.commit(t.reloaded(), [], [UpgradeFormatVersionUpdate(format_version=3)])
    return t


def test_rows_without_row_ids_get_them_with_the_copy(rest_catalog: RestCatalog) -> None:
    """Of an upgraded table; they keep the sequence number of their file."""
    t = upgraded(rest_catalog)
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    t.check()
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    now = identities(t)
    assert {key: each.sequence_number for key, each in now.items()} == {
        **dict.fromkeys((2, 3), 1),
        **dict.fromkeys((7, 8), 2),
        0: 3,
        1: 4,
    }
    ids = {each.row_id for each in now.values()}
    assert len(ids) == 6
    assert max(ids) < (next_row_id(t.reloaded()) or 0)
    committed(t.committer().commit(t.round(([row(2, 12), row(7, 17)], []))))
    t.check()
    after = identities(t)
    assert {key: after[key] for key in (0, 1, 3, 8)} == {key: now[key] for key in (0, 1, 3, 8)}
    t.catalog.close()


def test_row_ids_that_another_commit_gave_meanwhile_are_kept(rest_catalog: RestCatalog) -> None:
    """A copy made before has none, and is made again."""
    t = upgraded(rest_catalog)
    seen: list[dict[int, RowIdentity]] = []

    def append() -> None:
        LineageUpserts.foreign(t, [row(9, 9)])
        t.rows.append(row(9, 9))
        seen.append(identities(t))

    racing = Racing(t.catalog, [append])
    committed(t.committer(racing).commit(t.round(([row(1, 11)], []))))
    t.check()
    before, now = seen[0], identities(t)
    assert {key: now[key] for key in (0, 2, 3, 7, 8, 9)} == {
        key: before[key] for key in (0, 2, 3, 7, 8, 9)
    }
    assert now[1].row_id not in {each.row_id for each in before.values()}
    t.catalog.close()


def test_position_deletes_of_version_2_are_left_out(rest_catalog: RestCatalog) -> None:
    """Of an upgraded table; row ids count the deleted rows, too."""
    t = upgraded_with_position_deletes(rest_catalog)
    LineageUpserts.foreign(t, [row(9, 9)])  # gives row ids to the table
    t.rows.append(row(9, 9))
    marked = {path: [0] for path, (_, rows) in lineage_of(t.reloaded()).items() if rows == 4}
    before = {r[0]: i for r, i in identities_of(t.reloaded(), marked)}
    assert before.keys() == {1, 2, 3, 9}
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    assert head_of(t)["removed-position-delete-files"] == "1"
    t.check()
    now = identities(t)
    assert {key: now[key] for key in (2, 3, 9)} == {key: before[key] for key in (2, 3, 9)}
    t.catalog.close()


def test_a_vector_counts_where_position_deletes_name_its_file_too(
    rest_catalog: RestCatalog,
) -> None:
    """It has taken them in, and a copy leaves out what it marks."""
    t = upgraded_with_position_deletes(rest_catalog)
    committed(t.committer(**FEW_BYTES).commit(t.round(([row(1, 11)], []))))
    assert head_of(t)["icefloe.write-mode"] == "deletion-vectors"
    committed(t.committer().commit(t.round(([row(2, 12)], []))))
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    t.check()
    t.catalog.close()


def upgraded_with_position_deletes(rest_catalog: RestCatalog) -> Upserts:
    """A table whose first row is deleted by position."""
    t = Upserts(open_catalog("iceberg", rest_catalog.properties))
    committer = t.committer()
    committed(committer.commit(t.round(([row(n, n) for n in range(4)], []))))
    [path] = live_paths(t.reloaded())
    deletes = [position_deletes(t, {path: [0]})]
    event = announced(reference(t.table), [], deletes, offset=t.offset, batch=t.offset)
    t.offset += 1
    committed(committer.commit(table_commit([event])))
    t.rows = t.rows[1:]
    t.catalog.commit(t.reloaded(), [], [UpgradeFormatVersionUpdate(format_version=3)])
    return t


def test_copies_and_vectors_share_the_time_of_a_commit(lineage_copies: LineageUpserts) -> None:
    """Vectors that had no time left are tried by the next commit, copies after a pause."""
    t = lineage_copies
    t.clock = clock = SlowClock()
    clock.is_slow = False
    committer = t.committer()
    committed(committer.commit(t.round(([row(n, n) for n in range(4)], []))))
    clock.is_slow = True
    committed(committer.commit(t.round(([row(1, 11)], []))))
    assert (head_of(t)[COPIES_NOT_USED], head_of(t)[VECTORS_NOT_USED]) == ("time", "time")
    clock.is_slow = False
    committed(committer.commit(t.round(([row(2, 12)], []))))
    assert head_of(t)[COPIES_NOT_USED] == "time"
    assert head_of(t)["icefloe.write-mode"] == "deletion-vectors"
    clock.slept_ms.append(DEFAULT_LIMITS.pause_ms)
    committed(committer.commit(t.round(([row(3, 13)], []))))
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    found = duckdb_rows(t.reloaded(), "id", "value")
    assert found == sorted((r["id"], r["value"]) for r in t.rows)


def with_column(t: Upserts, *columns: NestedField) -> None:
    """Add columns to a table, as an engine does."""
    schema = Schema(*t.reloaded().schema().fields, *columns, schema_id=1)
    updates = [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=1)]
    t.catalog.commit(t.reloaded(), [], updates)


def test_columns_of_version_3_are_copied(lineage_copies: LineageUpserts) -> None:
    """Nanoseconds with their bounds; a column that old files lack keeps its default for them."""
    t = lineage_copies
    committed(t.committer().commit(t.round(([row(1, 1), row(2, 2)], []))))
    with_column(
        t,
        NestedField(4, "at", TimestampNanoType(), required=False),
        NestedField(5, "n", LongType(), required=False, initial_default=7, write_default=7),
    )
    new = {**row(3, 3), "at": datetime.fromisoformat("2026-01-02T03:04:05.000006"), "n": 8}
    committed(t.committer().commit(t.round(([new, {**new, "id": 4}], [row(1, 0)]))))
    t.rows = [{**r, "at": r.get("at"), "n": r.get("n", 7)} for r in t.rows]
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    committed(t.committer().commit(t.round(([], [row(4, 0)]))))
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    Upserts.check(t)
    table = t.reloaded()
    bounds = [task.file.lower_bounds for task in table.scan().plan_files()]
    nanos = int(new["at"].replace(tzinfo=UTC).timestamp()) * 10**9 + 6_000
    assert [from_bytes(LongType(), b[4]) for b in bounds if 4 in b] == [nanos]
    identified = {values[0]: identity for values, identity in identities_of(table)}
    assert identified[2] == RowIdentity(1, 1)
    assert identified[3].sequence_number == 2


def test_variants_are_copied(lineage_copies: LineageUpserts) -> None:
    """Kept rows have the same bytes, marks, metrics and identities."""
    t = lineage_copies
    with_column(t, NestedField(4, "v", VariantType(), required=False))
    table = t.reloaded()
    plan = TablePlan.of(table, name=".".join(t.name), catalog="iceberg", io_properties={})
    records = [json.dumps({**row(n, n), "v": {"a": n}}).encode() for n in range(3)]
    written = run_batches(config(**{"iceberg.tables": plan.name}), [plan], [source(records)])
    files = written.files[plan.name]
    event = announced(reference(table), files, offset=t.offset, batch=t.offset)
    t.offset += 1
    committed(t.committer().commit(table_commit([event])))
    left = variants_of(t)
    for key in (1, 0):
        committed(t.committer().commit(t.round(([], [row(key, 0)]))))
        del left[key]
        assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
        assert variants_of(t) == left
    assert duckdb_rows(t.reloaded(), "id", "v.a::int") == [(2, 2)]
    assert identities(t) == {2: RowIdentity(2, 1)}
    head = t.reloaded().current_snapshot()
    [file] = [
        entry["data_file"]
        for manifest in records_of(t.reloaded(), head.manifest_list)
        for entry in records_of(t.reloaded(), manifest["manifest_path"])
        if entry["status"] != 2
    ]
    assert {each["key"] for each in file["value_counts"]} == {1, 2, 3, *LINEAGE_IDS}
    assert {each["key"] for each in file["lower_bounds"]} == {1, 2, 3, *LINEAGE_IDS}


def variants_of(t: Upserts) -> dict[int, dict[str, bytes]]:
    """The bytes of the variant of each key, which are marked as one."""
    out = {}
    for path in lineage_of(t.reloaded()):
        with t.reloaded().io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            assert str(file.metadata.schema).count("(Variant(1))") == 1
            out |= {each["id"]: each["v"] for each in file.read(["id", "v"]).to_pylist()}
    return out


def test_files_without_field_ids_get_those_of_the_name_mapping(
    lineage_copies: LineageUpserts,
) -> None:
    """Readers find all columns by id then; a copy of the copy has the same ones."""
    t = lineage_copies
    map_names(t)
    commit_imported(t, "no ids")
    t.rows = [row(1, 10), row(2, 20), row(3, 30)]
    for key in (1, 3):
        committed(t.committer().commit(t.round(([row(key, key)], []))))
        assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
        t.check()
        assert duckdb_rows(t.reloaded(), "id", "value") == sorted(
            (r["id"], r["value"]) for r in t.rows
        )
    assert identities(t)[2] == RowIdentity(1, 1)


def test_a_copy_is_made_again_if_the_name_mapping_changed_meanwhile(
    lineage_copies: LineageUpserts,
) -> None:
    """Between two attempts; the ids of the columns are those of the new mapping."""
    t = lineage_copies
    map_names(t)
    commit_imported(t, "no ids")

    def changes() -> None:
        map_names(t, {"value": "other"})
        t.foreign([row(9, 9)])

    racing = Racing(t.catalog, [changes])
    committed(t.committer(racing).commit(t.round(([row(1, 11)], []))))
    assert head_of(t)[COPIES_NOT_USED] == "file_form"
    assert len(lineage_of(t.reloaded())) == 3


def test_copies_that_a_commit_does_not_use_are_not_counted(lineage_copies: LineageUpserts) -> None:
    """Some are written before the file that cannot be copied; the commit uses vectors."""
    t = lineage_copies
    committed(t.committer().commit(t.round(([row(5, 50), row(7, 70)], []))))
    commit_imported(t, "same name")
    committed(t.committer().commit(t.round(([row(6, 60), row(8, 80)], []))))
    committed(t.committer().commit(t.round(([], [row(1, 0), row(5, 0), row(6, 0)]))))
    assert head_of(t)[COPIES_NOT_USED] == "file_form"
    assert head_of(t)["icefloe.write-mode"] == "deletion-vectors"
    table = ("c", ".".join(t.name))
    assert metric("copy_on_write_files", table) == metric("copy_on_write_bytes", table) == 0
    assert metric("copy_on_write_fallbacks", (*table, "file_form")) == 1
    assert metric("deletion_vectors", table) == 3


def map_names(t: Upserts, renamed: Mapping[str, str] = {}) -> None:
    """Give the table a name mapping."""
    mapping = [
        {"field-id": n, "names": [renamed.get(name, name)]}
        for n, name in enumerate(("id", "region", "value"), 1)
    ]
    names = {"schema.name-mapping.default": json.dumps(mapping)}
    t.catalog.commit(t.reloaded(), [], [SetPropertiesUpdate(updates=names)])


@pytest.mark.parametrize("kind", ["not mapped", "same name", "other type"])
def test_files_that_cannot_have_row_ids_use_vectors(
    lineage_copies: LineageUpserts, kind: str
) -> None:
    """With one field id in a file, readers would no longer find its other columns by name."""
    t = lineage_copies
    if kind == "not mapped":
        map_names(t, {"region": "area"})
    commit_imported(t, kind)
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    assert head_of(t)[COPIES_NOT_USED] == "file_form"
    assert head_of(t)["icefloe.write-mode"] == "deletion-vectors"
    if kind != "not mapped":  # else PyIceberg does not read the file
        found = t.reloaded().scan().to_arrow().to_pylist()
        assert sorted((r["id"], r["value"]) for r in found) == [(1, 11), (2, 20), (3, 30)]
    assert len(lineage_of(t.reloaded())) == 2


def commit_imported(t: Upserts, kind: str) -> None:
    """Announce and commit a file of ``imported``."""
    event = announced(reference(t.table), [imported(t, kind)], offset=t.offset, batch=t.offset)
    t.offset += 1
    committed(t.committer().commit(table_commit([event])))


def imported(t: Upserts, kind: str) -> ContentFile:
    """Write a file as a client of another kind might."""
    has_ids = kind in {"same name", "other type"}
    fields = [("id", pa.int32(), 1), ("region", pa.string(), 2), ("value", pa.int64(), 3)]
    if kind == "same name":
        fields.append(("_row_id", pa.int64(), 77))
    if kind == "other type":
        fields.append(("_row_id", pa.int32(), 2_147_483_540))
    schema = pa.schema(
        [
            pa.field(name, of, metadata={"PARQUET:field_id": str(n)} if has_ids else None)
            for name, of, n in fields
        ]
    )
    path = f"{t.table.location()}/data/imported.parquet"
    with t.table.io.new_output(path).create() as out:
        rows = pa.Table.from_pylist([row(1, 10), row(2, 20), row(3, 30)], schema)
        pq.write_table(rows, out, store_schema=False)
    size = len(t.table.io.new_input(path))
    return dataclasses.replace(data_file_named(path), record_count=3, file_size_in_bytes=size)

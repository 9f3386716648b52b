"""Files whose columns another client has dropped and added again before their commit."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from control_schemas.events import ContentFile
from coordinator.commit.commit_retries import ATTEMPTS_MAX
from coordinator.commit.iceberg import replaced_columns
from coordinator.commit.multi_table_commit import JointCommitter
from coordinator.kernel.effects import TableCommit, TableCommitted, TableFailed
from tests.support.table_harness import Late, Racing, TableHarness, paths_of
from tests.support.tables import announced, reference, table_commit, written_file
from tests.support.upserts import VectorUpserts, committed, position_deletes, row


def replaced(harness: TableHarness, name: str, kind: IcebergType) -> None:
    """Another client drops a column and adds it again."""
    client: Table = harness.catalog._client().load_table(harness.table.name())
    with client.update_schema() as change:
        change.delete_column(name)
    with client.update_schema() as change:
        change.add_column(name, kind)


def renamed(harness: TableHarness, before: str, name: str) -> None:
    """Another client renames a column."""
    client: Table = harness.catalog._client().load_table(harness.table.name())
    with client.update_schema() as change:
        change.rename_column(before, name)
    harness.table = harness.reloaded()


def changed(harness: TableHarness, name: str, kind: IcebergType | None) -> None:
    """Another client drops a column, or adds one."""
    client: Table = harness.catalog._client().load_table(harness.table.name())
    with client.update_schema() as change:
        if kind is None:
            change.delete_column(name)
        else:
            change.add_column(name, kind)
    harness.table = harness.reloaded()


def refused(harness: TableHarness, commit: TableCommit) -> str:
    outcome = harness.committer().commit(commit)
    assert isinstance(outcome, TableFailed), outcome
    return outcome.code


def stored(harness: TableHarness) -> set[Path]:
    """Files in the table's data folder."""
    return set(Path(harness.table.location().removeprefix("file://"), "data").rglob("*.parquet"))


def commit_of(harness: TableHarness, file: ContentFile, offset: int = 0) -> TableCommit:
    return table_commit([announced(reference(harness.table), [file], offset=offset)])


def rows(harness: TableHarness) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = harness.reloaded().scan().to_arrow().to_pylist()
    return found


@pytest.mark.parametrize("properties", [{}, {"write.metadata.metrics.default": "none"}], ids=str)
def test_values_under_a_former_id_are_written_again(
    harness: TableHarness, properties: Mapping[str, str]
) -> None:
    """Readers find them; the announced file is deleted, and is not committed a second time."""
    table = harness.table
    with table.transaction() as change:
        change.set_properties(**properties)
    file = written_file(table, [{"id": 1, "name": "a"}, {"id": 2, "name": None}])
    if properties:
        file = replace(
            file, value_counts={}, null_value_counts={}, lower_bounds={}, upper_bounds={}
        )
    replaced(harness, "name", StringType())
    committer = harness.committer()
    committed(committer.commit(commit_of(harness, file)))
    assert rows(harness) == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    [task] = harness.reloaded().scan(row_filter="name = 'a'").plan_files()
    assert task.file.file_path != file.file_path
    assert harness.reloaded().scan(row_filter="name = 'b'").to_arrow().num_rows == 0
    assert not table.io.new_input(file.file_path).exists()
    outcome = committer.commit(commit_of(harness, file, offset=1))
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    outcome = harness.committer().commit(commit_of(harness, file, offset=2))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "announced_file_missing"
    assert len(rows(harness)) == 2


def test_files_without_values_in_the_column_are_committed_as_they_are(
    harness: TableHarness,
) -> None:
    """And later files, which have the new id."""
    before = written_file(harness.table, [{"id": 1, "name": None}])
    replaced(harness, "name", LongType())
    harness.table = harness.reloaded()
    after = written_file(harness.table, [{"id": 2, "name": 5}])
    committer = harness.committer()
    committed(committer.commit(commit_of(harness, before)))
    committed(committer.commit(commit_of(harness, after, offset=1)))
    paths = {task.file.file_path for task in harness.reloaded().scan().plan_files()}
    assert paths == {before.file_path, after.file_path}


def test_a_promoted_type_is_read_and_another_fails_the_table(harness: TableHarness) -> None:
    """A text is no number: the table fails with the column's name, and nothing is lost."""
    replaced(harness, "name", IntegerType())
    harness.table = harness.reloaded()
    number = written_file(harness.table, [{"id": 1, "name": 2**31 - 1}])
    replaced(harness, "name", LongType())
    committed(harness.committer().commit(commit_of(harness, number)))
    assert rows(harness) == [{"id": 1, "name": 2**31 - 1}]
    replaced(harness, "name", StringType())
    harness.table = harness.reloaded()
    text = written_file(harness.table, [{"id": 2, "name": "x"}])
    replaced(harness, "name", LongType())
    outcome = harness.committer().commit(commit_of(harness, text, offset=1))
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("column_replaced", False)
    assert "name" in outcome.message
    assert harness.table.io.new_input(text.file_path).exists()


def test_nested_columns(harness: TableHarness) -> None:
    """Structs and lists get the new ids at every depth."""
    inner = StructType(NestedField(100, "b", LongType(), required=False))
    kind = StructType(
        NestedField(101, "a", StringType(), required=False),
        NestedField(102, "list", ListType(103, inner, element_required=False), required=False),
    )
    replaced(harness, "name", kind)
    harness.table = harness.reloaded()
    line = {"id": 1, "name": {"a": "x", "list": [{"b": 5}, None]}}
    file = written_file(harness.table, [line])
    replaced(harness, "name", kind)
    committed(harness.committer().commit(commit_of(harness, file)))
    assert rows(harness) == [line]


def test_a_schema_that_changes_during_the_commit(harness: TableHarness) -> None:
    """The commit begins again with the new schema."""
    file = written_file(harness.table, [{"id": 1, "name": "a"}])
    change = partial(replaced, harness, "name", StringType())
    racing = TableHarness(Racing(harness.catalog, [change]), harness.table)
    committed(racing.committer().commit(commit_of(harness, file)))
    assert rows(harness) == [{"id": 1, "name": "a"}]


def test_columns_that_are_added_during_the_commit(harness: TableHarness) -> None:
    """Each costs an attempt; tasks that add columns all the time do not stop the commits."""
    file = written_file(harness.table, [{"id": 1, "name": "a"}])
    more = [partial(changed, harness, f"more{n}", LongType()) for n in range(ATTEMPTS_MAX - 1)]
    racing = TableHarness(Racing(harness.catalog, more), harness.table)
    committed(racing.committer().commit(commit_of(harness, file)))
    assert [line["name"] for line in rows(harness)] == ["a"]


def test_rows_that_are_changed_by_key(vectors: VectorUpserts) -> None:
    """The copy is a source of deletes as any file; a replaced key fails the table."""
    t = vectors
    first = t.round(([row(1, 10), row(2, 20)], []))
    harness = TableHarness(t.catalog, t.table)
    replaced(harness, "value", LongType())
    committed(t.committer().commit(first))
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    found = sorted((r["id"], r["value"]) for r in rows(harness))
    assert found == [(1, 11), (2, 20)]
    late = t.round(([row(2, 21)], []))
    replaced(harness, "id", IntegerType())
    outcome = t.committer().commit(late)
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "column_replaced"


def test_containers_without_values(harness: TableHarness) -> None:
    """An empty list, and a struct of nulls, are no nulls."""
    kind = StructType(
        NestedField(101, "a", StringType(), required=False),
        NestedField(102, "list", ListType(103, LongType(), element_required=False), required=False),
    )
    replaced(harness, "name", kind)
    harness.table = harness.reloaded()
    lines: list[dict[str, Any]] = [
        {"id": 1, "name": {"a": None, "list": []}},
        {"id": 2, "name": {"a": None, "list": None}},
        {"id": 3, "name": None},
    ]
    file = written_file(harness.table, lines)
    replaced(harness, "name", kind)
    committed(harness.committer().commit(commit_of(harness, file)))
    assert rows(harness) == lines


def test_a_value_that_is_a_struct_now_fails_the_table(harness: TableHarness) -> None:
    """A null does not."""
    file = written_file(harness.table, [{"id": 1, "name": "x"}])
    empty = written_file(harness.table, [{"id": 2, "name": None}])
    struct = StructType(NestedField(100, "a", StringType(), required=False))
    replaced(harness, "name", struct)
    assert refused(harness, commit_of(harness, file)) == "column_replaced"
    committed(harness.committer().commit(commit_of(harness, empty)))
    harness.table = harness.reloaded()
    null = written_file(harness.table, [{"id": 3, "name": None}])
    replaced(harness, "name", StringType())
    committed(harness.committer().commit(commit_of(harness, null, offset=1)))


def test_a_renamed_column_is_not_the_dropped_one(harness: TableHarness) -> None:
    """Neither one that took its name, nor one that had another name when it was dropped."""
    changed(harness, "b", StringType())
    both = written_file(harness.table, [{"id": 1, "name": "a", "b": "b"}])
    changed(harness, "name", None)
    renamed(harness, "b", "name")
    renamed(harness, "name", "c")
    other = written_file(harness.table, [{"id": 2, "c": "c"}])
    renamed(harness, "c", "name")
    committed(harness.committer().commit(commit_of(harness, both)))
    assert rows(harness) == [{"id": 1, "name": "b"}]
    renamed(harness, "name", "c")
    changed(harness, "c", None)
    changed(harness, "name", StringType())
    committed(harness.committer().commit(commit_of(harness, other, offset=1)))
    assert paths_of(harness.reloaded()) == sorted([both.file_path, other.file_path])
    assert {line["name"] for line in rows(harness)} == {None}


def test_a_copy_is_deleted_with_its_commit_and_committed_once(harness: TableHarness) -> None:
    """A failure leaves no copy, and a copy that is announced is in the table already."""
    first = written_file(harness.table, [{"id": 1, "name": "a"}])
    gone = written_file(harness.table, [{"id": 2, "name": "b"}])
    harness.table.io.delete(gone.file_path)
    replaced(harness, "name", StringType())
    before = stored(harness)
    event = announced(reference(harness.table), [first, gone], offset=0)
    assert refused(harness, table_commit([event])) == "announced_file_missing"
    assert stored(harness) == before
    committer = harness.committer()
    committed(committer.commit(commit_of(harness, first)))
    [path] = paths_of(harness.reloaded())
    again = replace(first, file_path=path)
    outcome = committer.commit(commit_of(harness, again, offset=1))
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert paths_of(harness.reloaded()) == [path]


def test_a_copy_that_lands_late_is_in_the_table_once(harness: TableHarness) -> None:
    """Also if the file that it was made of, which is still there, is announced again."""
    file = written_file(harness.table, [{"id": 1, "name": "a"}])
    replaced(harness, "name", StringType())
    late = Late(harness.catalog)
    committer = TableHarness(late, harness.table).committer()
    assert isinstance(committer.commit(commit_of(harness, file)), TableFailed)
    late.land()
    for offset in range(2):
        outcome = committer.commit(commit_of(harness, file, offset=offset))
        assert isinstance(outcome, TableCommitted)
        assert outcome.snapshot_id is None
    assert rows(harness) == [{"id": 1, "name": "a"}]


def test_a_copy_is_deleted_if_the_request_for_all_tables_is_not_sent(
    harness: TableHarness,
) -> None:
    """Because another file of the table is missing."""
    file = written_file(harness.table, [{"id": 1, "name": "a"}])
    gone = written_file(harness.table, [{"id": 2, "name": None}])
    harness.table.io.delete(gone.file_path)
    replaced(harness, "name", StringType())
    before = stored(harness)
    commit = table_commit([announced(reference(harness.table), [file, gone], offset=0)])
    with ThreadPoolExecutor(1) as pool:
        joint = JointCommitter(harness.committer(), harness.catalog)
        [outcome] = joint.commit_together([commit], pool)
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "announced_file_missing"
    assert stored(harness) == before


def test_deletes_that_name_a_former_path_fail_the_table(harness: TableHarness) -> None:
    """The rows that they delete would be in the copy."""
    file = written_file(harness.table, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    deletes = position_deletes(harness, {file.file_path: [0]})
    replaced(harness, "name", StringType())
    before = stored(harness)
    event = announced(reference(harness.table), [file], [deletes], offset=0)
    assert refused(harness, table_commit([event])) == "column_replaced"
    assert stored(harness) == before


def test_a_file_without_metrics_that_is_no_parquet(harness: TableHarness) -> None:
    """The table fails with the reason."""
    file = written_file(harness.table, [{"id": 1, "name": "a"}])
    with harness.table.io.new_output(file.file_path).create(overwrite=True) as out:
        out.write(b"no file")
    replaced(harness, "name", StringType())
    assert refused(harness, commit_of(harness, replace(file, value_counts=None))) == (
        "column_replaced"
    )


def test_schemas_of_a_table_are_not_kept(harness: TableHarness) -> None:
    """Only its replaced columns are, however often the schema changes."""
    for number in range(3):
        replaced(harness, "name", StringType())
        file = written_file(harness.reloaded(), [{"id": number, "name": "x"}])
        committed(harness.committer().commit(commit_of(harness, file, offset=number)))
    _, former = replaced_columns._known.pop(harness.table.metadata.table_uuid)
    assert len(former) == 3
    assert len(rows(harness)) == 3

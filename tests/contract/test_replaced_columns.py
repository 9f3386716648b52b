"""Files whose columns another client has dropped and added again before their commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
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
from coordinator.kernel.effects import TableCommit, TableCommitted, TableFailed
from tests.support.table_harness import Racing, TableHarness
from tests.support.tables import announced, reference, table_commit, written_file
from tests.support.upserts import VectorUpserts, committed, row


def replaced(harness: TableHarness, name: str, kind: IcebergType) -> None:
    """Another client drops a column and adds it again."""
    client: Table = harness.catalog._client().load_table(harness.table.name())
    with client.update_schema() as change:
        change.delete_column(name)
    with client.update_schema() as change:
        change.add_column(name, kind)


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

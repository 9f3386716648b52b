"""Which announced files a commit adds."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from connect.errors import CommitRefused
from control_schemas.events import ContentFile, FileContent, TableReference
from coordinator.commit.rules.file_selection import select
from coordinator.kernel.effects import Envelope
from tests.support.tables import announced, table_commit

TABLE = TableReference("iceberg", ("db",), "t", UUID(int=7))
ROOT = "s3://bucket/wh/db/t"


def _file(path: str = "data/a.parquet", records: int = 1) -> ContentFile:
    full = path if "://" in path or path.startswith(("/", "file:")) else f"{ROOT}/{path}"
    return ContentFile(FileContent.DATA, full, "PARQUET", 0, (), records, 100)


def _delete(path: str) -> ContentFile:
    return replace(_file(path), content=FileContent.EQUALITY_DELETES, equality_ids=(1,))


def _select(*envelopes: Envelope, location: str = ROOT, **properties: str) -> object:
    named = {k.replace("_", "."): v for k, v in properties.items()}
    return select(table_commit(envelopes), {}, location, named)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (ROOT, "s3a://bucket/wh/db/t/data/a"),
        ("s3n://bucket/wh/db/t/", f"{ROOT}/data/a"),
        ("file:///wh/t", "file:/wh/t/data/a"),
        ("/wh/t", "file:///wh/t/a"),
        ("file:/wh/t", "/wh//t/./a"),
        (ROOT, f"{ROOT}/data/p=100%25/q?x#y"),
    ],
)
def test_spellings_of_one_location_are_equal(location: str, path: str) -> None:
    """Schemes and slashes that mean the same location."""
    selection = _select(announced(TABLE, [_file(path)], offset=0), location=location)
    assert selection.files == 1


@pytest.mark.parametrize(
    "path",
    [
        "s3://bucket/wh/db/t2/a",
        "s3://bucket/wh/db/t",
        "s3://other/wh/db/t/a",
        f"{ROOT}/../t2/a",
        f"{ROOT}/data/../../t2/a",
        "gs://bucket/wh/db/t/a",
        "/wh/db/t/a",
        "https://bucket/wh/db/t/a",
        f"{ROOT}/data/a?/../../../t2/a",
        f"{ROOT}/data/a#/../../../t2/a",
    ],
)
def test_locations_outside_the_table_are_refused(path: str) -> None:
    """A sibling, a parent, another bucket or another scheme."""
    with pytest.raises(CommitRefused) as refused:
        _select(announced(TABLE, [_file(path)], offset=0))
    assert refused.value.code == "file_outside_table"


@pytest.mark.parametrize("path", ["file:/wh/t/a?/../../x", "/wh/t/a#/../../x", "file:///wh/t/.."])
def test_local_paths_outside_the_table_are_refused(path: str) -> None:
    """A question mark does not end a local path."""
    with pytest.raises(CommitRefused):
        _select(announced(TABLE, [_file(path)], offset=0), location="file:///wh/t")


def test_the_data_path_of_the_table_is_allowed() -> None:
    """``write.data.path`` may be another folder."""
    file = _file("s3://cold/t/a")
    assert _select(announced(TABLE, [file], offset=0), write_data_path="s3://cold/t").files == 1


def _names(*envelopes: Envelope) -> list[list[str]]:
    steps = _select(*envelopes).steps
    return [[f.file_path[-1] for f in (*s.data_files, *s.delete_files)] for s in steps]


def test_steps_are_ordered_by_layout_then_batch() -> None:
    """A newer layout comes later, with any batch numbers; the round does not matter."""
    old, new = UUID(int=1), UUID(int=2)
    assert _names(
        announced(TABLE, [_file("1")], offset=0, batch=2, commit_id=new, layout=1),
        announced(TABLE, [_file("2")], offset=1, batch=5, commit_id=old, layout=1),
        announced(TABLE, [_file("4")], offset=2, batch=1, commit_id=new, layout=2),
        announced(TABLE, [_file("3")], [_delete("x")], offset=3, batch=0, commit_id=new, layout=2),
        announced(TABLE, [_file("5")], offset=4, batch=1, commit_id=old, layout=2),
    ) == [["1"], ["2"], ["3", "x"], ["4", "5"]]


def test_steps_of_two_tasks_are_ordered_by_the_time_of_their_records() -> None:
    """Their numbers have no order, so equal ones are two steps; a task's own steps keep theirs."""
    deletes = [_delete("x")]
    assert _names(
        announced(TABLE, [_file("3")], deletes, offset=0, batch=7, task=0, time_ms=50),
        announced(TABLE, [_file("1")], offset=1, batch=7, task=1, time_ms=40),
        announced(TABLE, [_file("4")], offset=2, batch=8, task=0, time_ms=20),
        announced(TABLE, [_file("5")], offset=3, batch=9, task=0),
        announced(TABLE, [_file("6")], offset=4, batch=2**40, task=1, time_ms=50),
        announced(TABLE, [_file("0")], offset=5, batch=1, task=2),
    ) == [["0"], ["1"], ["3", "x"], ["4"], ["5"], ["6"]]


def test_a_round_without_batch_numbers_is_one_step() -> None:
    """The Java sink has no batch numbers: its rounds keep the order of announcement."""
    old, new = UUID(int=1), UUID(int=2)
    assert _names(
        announced(TABLE, [_file("1")], offset=0, commit_id=old),
        announced(TABLE, [_file("3")], [_delete("x")], offset=1, commit_id=new),
        announced(TABLE, [_file("2")], offset=2, commit_id=old),
    ) == [["1", "2"], ["3", "x"]]


def test_without_deletes_there_is_one_step() -> None:
    """Appends need no order."""
    envelopes = [announced(TABLE, [_file(str(n))], offset=n, batch=n) for n in range(3)]
    selection = _select(*envelopes)
    assert (len(selection.steps), selection.files, selection.records, selection.is_row_level) == (
        1,
        3,
        3,
        False,
    )


def test_the_floor_is_per_control_partition() -> None:
    """A control offset has a meaning only in its partition."""
    envelopes = [
        announced(TABLE, [_file("a")], offset=4, partition=0),
        announced(TABLE, [_file("b")], offset=4, partition=1),
        announced(TABLE, [_file("c")], offset=9, partition=2),
    ]
    selection = select(table_commit(envelopes), {0: 5, 1: 4}, ROOT, {})
    assert [f.file_path[-1] for f in selection.steps[0].data_files] == ["b", "c"]


def test_the_location_of_an_empty_file_is_not_checked() -> None:
    """A file without rows adds nothing."""
    assert _select(announced(TABLE, [_file("/x", records=0)], offset=0)).steps == ()

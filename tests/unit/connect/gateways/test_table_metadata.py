"""Metadata of tables, read and changed as PyIceberg does, with less work."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.exceptions import ValidationError as PyIcebergValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType

from connect.gateways.catalog.table_metadata import (
    changed_metadata,
    referenced_only,
    table_metadata,
    table_response,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "names", ListType(3, StringType(), element_required=False), required=False),
    NestedField(4, "day", StringType(), required=False, doc='a "snapshot-log":[ in a text'),
    schema_id=0,
    identifier_field_ids=[1],
)
SPEC = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "day"), spec_id=0)


def with_snapshots(count: int, **properties: str) -> TableMetadata:
    """A table with a branch and a tag at its last snapshot."""
    metadata = new_table_metadata(SCHEMA, SPEC, UNSORTED_SORT_ORDER, "file:///t", properties)
    for number in range(1, count + 1):
        metadata = update_table_metadata(metadata, commit(number), metadata_location=f"m{number}")
    return metadata


def commit(number: int) -> tuple[TableUpdate, ...]:
    """The updates of a commit."""
    summary = Summary(operation=Operation.APPEND, **{"total-records": str(number)})
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": number,
            "parent-snapshot-id": number - 1 if number > 1 else None,
            "sequence-number": number,
            "timestamp-ms": 4_000_000_000_000 + number,
            "manifest-list": f"file:///t/{number}.avro",
            "schema-id": 0,
            "summary": summary,
        }
    )
    return (
        AddSnapshotUpdate(snapshot=snapshot),
        moved("main", SnapshotRefType.BRANCH, number),
        moved("icefloe-c", SnapshotRefType.TAG, number),
        SetPropertiesUpdate(updates={"offsets": f'{{"0":{number}}}'}),
    )


def moved(name: str, kind: SnapshotRefType, snapshot_id: int) -> TableUpdate:
    """An update of a reference."""
    ref = {"ref-name": name, "type": kind, "snapshot-id": snapshot_id}
    return SetSnapshotRefUpdate.model_validate(ref)


def answer(metadata: TableMetadata) -> bytes:
    """What a REST catalog answers."""
    content = {
        "metadata-location": "file:///t/m.json",
        "metadata": json.loads(metadata.model_dump_json()),
        "config": {"token": "t"},
    }
    return json.dumps(content, separators=(",", ":")).encode()


@pytest.mark.parametrize("count", [0, 1, 5])
def test_metadata_is_read_as_pyiceberg_reads_it(count: int) -> None:
    """A file and an answer, with and without snapshots."""
    metadata = with_snapshots(count)
    text = metadata.model_dump_json()
    assert table_metadata(text.encode()) == TableMetadataUtil.parse_raw(text) == metadata
    body = answer(metadata)
    assert table_response(body) == TableResponse.model_validate_json(body)


@pytest.mark.parametrize("has_main", [True, False])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_without_history_only_named_snapshots_are_made(
    separators: tuple[str, str], *, has_main: bool
) -> None:
    """The same as dropping them afterwards, for each spelling, and for a branch that is implied."""
    metadata = with_snapshots(5)
    content = json.loads(answer(metadata))
    if not has_main:
        del content["metadata"]["refs"]["main"]
    body = json.dumps(content, separators=separators).encode()
    short = table_response(body, with_history=False).metadata
    assert short == referenced_only(TableResponse.model_validate_json(body).metadata)
    assert [s.snapshot_id for s in short.snapshots] == [5]
    assert [entry.snapshot_id for entry in short.snapshot_log] == [5]
    assert "main" in short.refs


def test_a_property_with_the_text_of_the_log_changes_nothing() -> None:
    """Its brackets and quotes are within a string."""
    tricky = {"a": '"snapshot-log":[', "b": '{"snapshot-log":[{"x":"]"}]}'}
    metadata = with_snapshots(3, **tricky)
    short = table_response(answer(metadata), with_history=False).metadata
    assert short == referenced_only(metadata)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'"x"', b"{}", b'{"metadata": 3}', b"\xff"])
def test_other_text_raises_what_pyiceberg_raises(text: bytes) -> None:
    """For an answer and for a file."""
    for with_history in (True, False):
        with pytest.raises(ValidationError):
            table_response(text, with_history=with_history)
    with pytest.raises((PyIcebergValidationError, UnicodeDecodeError)):
        table_metadata(text)


def test_snapshots_of_another_form_raise_what_pyiceberg_raises() -> None:
    """They are not dropped unread."""
    content = json.loads(answer(with_snapshots(2)))
    for wrong in ([3], "x", [{"snapshot-id": "x"}], None):
        content["metadata"]["snapshots"] = wrong
        body = json.dumps(content).encode()
        with pytest.raises(ValidationError):
            table_response(body)


def test_equal_schemas_are_one_object() -> None:
    """Of two tables, and of two loads of one."""
    first, second = (table_metadata(with_snapshots(n).model_dump_json().encode()) for n in (1, 2))
    assert first.schema() is second.schema()


@pytest.mark.parametrize(
    "updates",
    [
        commit(4),
        (),
        (SetPropertiesUpdate(updates={"a": "b"}),),
        (RemovePropertiesUpdate(removals=["offsets"]),),
        (*commit(4), RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [1, 2]})),
    ],
)
def test_a_change_has_pyicebergs_result(updates: tuple[TableUpdate, ...]) -> None:
    """With and without an entry in the log of metadata files, and the argument stays as it was."""
    metadata = with_snapshots(3)
    before = metadata.model_dump_json()
    for location in (None, "file:///t/m3.json"):
        expected = update_table_metadata(metadata, updates, metadata_location=location)
        found = changed_metadata(metadata, updates, location)
        assert without_time(found) == without_time(expected)
        assert (found.last_updated_ms == metadata.last_updated_ms) == (not updates)
    assert metadata.model_dump_json() == before


def test_a_change_that_does_not_fit_raises_what_pyiceberg_raises() -> None:
    """A snapshot that is there already."""
    with pytest.raises(ValueError, match="already exists"):
        changed_metadata(with_snapshots(3), commit(3))


def without_time(metadata: TableMetadata) -> dict[str, Any]:
    """Everything but the time of the last change."""
    content: dict[str, Any] = json.loads(metadata.model_dump_json())
    del content["last-updated-ms"]
    return content

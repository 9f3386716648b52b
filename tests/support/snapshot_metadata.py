"""Metadata of tables with given snapshots, branches and tags, for tests of maintenance."""

from __future__ import annotations

from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

NOW_MS = 1_000_000


def metadata(snapshots: list[dict[str, Any]], refs: dict[str, dict[str, Any]]) -> TableMetadata:
    """A table with these snapshots; each is an id, a parent, a time and perhaps a summary."""
    empty = new_table_metadata(
        Schema(NestedField(1, "id", LongType(), required=False)),
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        "file:///nowhere",
    )
    content = empty.model_dump(mode="json", by_alias=True)
    content["last-sequence-number"] = len(snapshots)
    content["snapshots"] = [
        {
            "snapshot-id": snapshot["id"],
            "parent-snapshot-id": snapshot["parent"],
            "sequence-number": number,
            "timestamp-ms": snapshot["ms"],
            "manifest-list": f"file:///nowhere/{snapshot['id']}.avro",
            "summary": {"operation": "append", **snapshot.get("summary", {})},
        }
        for number, snapshot in enumerate(snapshots, start=1)
    ]
    content["refs"] = refs
    content["current-snapshot-id"] = refs.get("main", {}).get("snapshot-id")
    return TableMetadataUtil.parse_obj(content)


def line(count: int, step_ms: int = 100, **more: Any) -> list[dict[str, Any]]:
    """Snapshots 1 to ``count``, each the parent of the next, the newest now."""
    return [
        {
            "id": n,
            "parent": n - 1 or None,
            "ms": NOW_MS - (count - n) * step_ms,
            **more,
        }
        for n in range(1, count + 1)
    ]


def branch(snapshot_id: int, **more: Any) -> dict[str, Any]:
    """A branch."""
    return {"snapshot-id": snapshot_id, "type": "branch", **more}


def tag(snapshot_id: int) -> dict[str, Any]:
    """A tag."""
    return {"snapshot-id": snapshot_id, "type": "tag"}

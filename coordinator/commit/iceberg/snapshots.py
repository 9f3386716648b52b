"""One snapshot, ready to be committed: manifests, list, summary, preconditions.

Rules of this file:
- The snapshot id is given and stays the same for every attempt of the same content.
- Timestamps never go back: Java cannot load a table whose log does. A clock that is more than a
  minute behind the table is an error, because one of the two is wrong.
- Control offsets, mirror, tag and data move in one commit or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from connect.errors import RetriableError
from connect.gateways.catalog.table_properties import location_provider
from coordinator.commit.iceberg.floor import FloorKeys, TableState
from coordinator.commit.metadata.avro_files import PreparedListWriter
from coordinator.commit.metadata.manifests import (
    ManifestSet,
    avro_codec,
    last_sequence_number,
    manifest_set,
    with_sequence_number,
)
from coordinator.commit.metadata.pending_files import PendingFiles
from coordinator.commit.metadata.prepared_manifests import AddedManifests
from coordinator.commit.metadata.row_lineage import has_row_lineage, next_row_id, with_row_ids
from coordinator.commit.row_changes.row_change import RemovedRows
from coordinator.commit.rules.file_selection import Selection

CLOCK_SKEW_MS_MAX = 60_000
_VALID_THROUGH_US_MIN = -62_135_596_800_000_000
_VALID_THROUGH_US_MAX = 253_402_300_799_999_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOTALS_PREFIX = "total-"
_TOTAL = re.compile("[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """What a commit adds, independent of the state of the table.

    Attributes:
        snapshot_id: chosen before the first attempt.
        commit_uuid: part of the names of the files written.
        selection: files by step.
        summary: the sink's snapshot properties.
        properties: table properties set in the same commit.
    """

    snapshot_id: int
    commit_uuid: str
    selection: Selection
    summary: Mapping[str, str]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StagedUpdate:
    """One attempt.

    Attributes:
        snapshot: what is added.
        updates: the change sent to the catalog.
        requirements: what must still be true when it is applied.
        manifests: what the list holds, as the next commit would read it.
    """

    snapshot: Snapshot
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    manifests: tuple[ManifestFile, ...]


def stage(
    table: Table,
    state: TableState,
    keys: FloorKeys,
    content: SnapshotContent,
    *,
    added: AddedManifests,
    existing: Sequence[ManifestFile],
    files: PendingFiles,
    written: list[str],
    attempt: int,
    now_ms: int,
    expired: Sequence[int] = (),
    removed: RemovedRows | None = None,
) -> StagedUpdate:
    """Merge manifests where due, make the list, and put the change together.

    Args:
        table: as it was loaded.
        state: what it says about this connector.
        keys: branch and tag.
        content: what is added.
        added: its manifests.
        existing: manifests of the head.
        files: get what is made, and write it later.
        written: gets the paths of merged manifests and list, also where writing fails.
        attempt: number of the attempt, for file names.
        now_ms: wall clock.
        expired: snapshots that the commit removes.
        removed: what is removed with rows, and added in ``added``; None for delete files by key.

    Raises:
        RetriableError: ``clock_off``.
    """
    metadata = table.metadata
    timestamp_ms = _timestamp_ms(table, now_ms)
    has_steps = content.selection.is_row_level and removed is None
    steps = len(content.selection.steps) if has_steps else 1
    sequence_number = last_sequence_number(table) + steps
    prefix = f"{content.commit_uuid}-{attempt}-m"
    manifests = manifest_set(table, content.snapshot_id, prefix, files, written)
    listed = [*_merged(manifests, existing, added), *(removed.changed if removed else ())]
    # The writer fills numbers in where they are missing, and shares values with what it is given:
    # manifests of the new files must stay without one, for another attempt may need another number.
    numbered = tuple(with_sequence_number(m, sequence_number) for m in listed)
    path = location_provider(table.location(), metadata.properties).new_metadata_location(
        f"snap-{content.snapshot_id}-{attempt}-{content.commit_uuid}.avro"
    )
    written.append(path)
    parent_id = None if state.head is None else state.head.snapshot_id
    list_writer = PreparedListWriter(
        files.new_output(path),
        content.snapshot_id,
        parent_id,
        sequence_number,
        avro_codec(metadata.properties),
    )
    numbered, lineage = _with_lineage(metadata, list_writer, numbered)
    with list_writer as writer:
        writer.add_manifests(list(numbered))
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": content.snapshot_id,
            "parent-snapshot-id": parent_id,
            "manifest-list": path,
            "sequence-number": sequence_number,
            "timestamp-ms": timestamp_ms,
            "summary": _summary(content, added, state.head, removed),
            "schema-id": metadata.current_schema_id,
            **lineage,
        }
    )
    updates = _updates(metadata, keys, content, snapshot, state=state, expired=expired)
    return StagedUpdate(snapshot, updates, _requirements(metadata, keys, state), numbered)


def _requirements(
    metadata: TableMetadata, keys: FloorKeys, state: TableState
) -> tuple[TableRequirement, ...]:
    present = None if state.is_branch_missing else state.replaced or state.head
    refs = {keys.branch: None if present is None else present.snapshot_id, **state.required_refs}
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        # the columns of the files were compared with this schema (``replaced_columns``)
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        *(
            AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": expected})
            for ref, expected in refs.items()
        ),
    )


def _merged(
    manifests: ManifestSet, existing: Sequence[ManifestFile], added: AddedManifests
) -> Iterator[ManifestFile]:
    """Yield the manifests that a list holds, merged where due."""
    for kind, new in ((ManifestContent.DATA, added.data), (ManifestContent.DELETES, added.deletes)):
        live = [m for m in existing if m.content == kind and _is_live(m)]
        yield from manifests.merge(kind, new, live)


def _with_lineage(
    metadata: TableMetadata, writer: PreparedListWriter, manifests: tuple[ManifestFile, ...]
) -> tuple[tuple[ManifestFile, ...], Mapping[str, int]]:
    """Return what the list holds, and the snapshot's fields of row lineage."""
    if not has_row_lineage(metadata):
        return manifests, {}
    first_row_id = next_row_id(metadata)
    writer.assigning_row_ids(first_row_id)
    assigned, after = with_row_ids(manifests, first_row_id)
    return assigned, {"first-row-id": first_row_id, "added-rows": after - first_row_id}


def _updates(
    metadata: TableMetadata,
    keys: FloorKeys,
    content: SnapshotContent,
    snapshot: Snapshot,
    *,
    state: TableState,
    expired: Sequence[int],
) -> tuple[TableUpdate, ...]:
    updates: list[TableUpdate] = []
    tag = metadata.refs.get(keys.tag)
    is_own_tag = tag is None or tag.snapshot_ref_type == SnapshotRefType.TAG
    if state.replaced is not None and state.head is not None:
        # a catalog refuses a reference to a snapshot that expired since the table was loaded, but
        # it takes a new snapshot with a parent, and with files, that are gone
        name = keys.tag if is_own_tag else keys.branch
        kind = SnapshotRefType.TAG if is_own_tag else SnapshotRefType.BRANCH
        updates.append(_ref(metadata, name, kind, state.head.snapshot_id))
    updates += [
        AddSnapshotUpdate(snapshot=snapshot),
        _ref(metadata, keys.branch, SnapshotRefType.BRANCH, content.snapshot_id),
    ]
    if is_own_tag:
        updates.append(_ref(metadata, keys.tag, SnapshotRefType.TAG, content.snapshot_id))
    if content.properties:
        updates.append(SetPropertiesUpdate(updates=dict(content.properties)))
    if expired:
        updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(expired)}))
    return tuple(updates)


def instant_text(microseconds: int) -> str:
    """``2026-01-02T03:04:05.678Z``, rounded down; years before 1 and after 9999 are cut off."""
    bounded = min(max(microseconds, _VALID_THROUGH_US_MIN), _VALID_THROUGH_US_MAX)
    moment = _EPOCH + timedelta(microseconds=bounded)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z".rjust(24, "0")


def instant_us(text: str | None) -> int | None:
    """The inverse, for any ISO instant; None when it is none."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _timestamp_ms(table: Table, now_ms: int) -> int:
    log = table.metadata.snapshot_log
    last_ms = max(table.metadata.last_updated_ms, log[-1].timestamp_ms if log else 0)
    if last_ms > now_ms + CLOCK_SKEW_MS_MAX:
        raise RetriableError(
            f"the table was changed {last_ms - now_ms} ms in the future of this machine's clock",
            code="clock_off",
        )
    return max(now_ms, last_ms)


def _summary(
    content: SnapshotContent,
    added: AddedManifests,
    parent: Snapshot | None,
    removed: RemovedRows | None,
) -> Summary:
    has_deletes = content.selection.is_row_level
    if removed is not None:
        has_deletes = bool(removed.changed or added.deletes)
    if not has_deletes:
        operation = Operation.APPEND
    elif added.data:
        operation = Operation.OVERWRITE
    else:
        operation = Operation.DELETE
    summary = Summary(
        operation=operation,
        **added.metrics.to_dict(),
        **{"changed-partition-count": str(added.partitions)},
        **content.summary,
        **(removed.summary if removed else {}),
    )
    before: Mapping[str, str] | None = None
    if parent is not None:
        parent_properties = {} if parent.summary is None else parent.summary.additional_properties
        # A total that is no number is left out from then on, as Java does.
        before = {"": ""} | {
            k: v
            for k, v in parent_properties.items()
            if k.startswith(_TOTALS_PREFIX) and _TOTAL.fullmatch(v)
        }
    return update_snapshot_summaries(summary, before)


def _ref(
    metadata: TableMetadata, name: str, kind: SnapshotRefType, snapshot_id: int
) -> SetSnapshotRefUpdate:
    """Move a reference and keep the retention its owner gave it."""
    ref = metadata.refs.get(name)
    return SetSnapshotRefUpdate.model_validate(
        {
            "ref-name": name,
            "type": kind,
            "snapshot-id": snapshot_id,
            "min-snapshots-to-keep": ref.min_snapshots_to_keep if ref else None,
            "max-snapshot-age-ms": ref.max_snapshot_age_ms if ref else None,
            "max-ref-age-ms": ref.max_ref_age_ms if ref else None,
        }
    )


def _is_live(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()

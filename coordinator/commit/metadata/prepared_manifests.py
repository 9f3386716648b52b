"""Manifests of announced files: written once, kept until a snapshot that lists them is committed.

Rules of this file:
- A manifest is used again unchanged or not at all. Its entries name no snapshot and, in an append,
  no sequence number: both are inherited from the manifest list, so any snapshot can list it.
- In a row-level commit the entries carry sequence numbers. Such a manifest is used again only while
  the table's last sequence number and the order of the steps are the same.
- A manifest that an attempt with an unknown outcome lists is never deleted.
- Files that no snapshot can list are deleted: when they are replaced, and when the session ends.
- A manifest that a client deleted meanwhile is written again: a table must not list a missing file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeAlias
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import UpdateMetrics

from connect.errors import RetriableError
from connect.gateways.storage.object_store import delete_files, verify_written
from control_schemas.events import ContentFile
from coordinator.commit.metadata.content_files import FileConverter
from coordinator.commit.metadata.manifests import (
    NewFile,
    avro_codec,
    last_sequence_number,
    manifest_set,
)
from coordinator.commit.metadata.pending_files import PendingFiles
from coordinator.commit.metadata.row_lineage import copy_of, writer_version
from coordinator.commit.rules.file_selection import Selection, SequenceStep

GROUPS_MAX = 16
"""Sets of manifests kept for one table; more are written again as one."""

_ADDED_SNAPSHOT_ID: Final = 6  # place among the fields of a ``ManifestFile``
Shape: TypeAlias = "tuple[UUID, int, frozenset[int], int, str, int]"


@dataclass(frozen=True, slots=True)
class AttemptId:
    """What manifests are written for.

    Attributes:
        snapshot_id: of the snapshot that will list them.
        commit_uuid: of the commit; part of the names of the files written.
        number: of the attempt, for the names too.
    """

    snapshot_id: int
    commit_uuid: str
    number: int


@dataclass(slots=True)
class AddedManifests:
    """Manifests of the new files, as one snapshot lists them.

    They have no sequence number: each attempt gives them that of its snapshot.
    """

    data: list[ManifestFile] = field(default_factory=list)
    deletes: list[ManifestFile] = field(default_factory=list)
    metrics: UpdateMetrics = field(default_factory=UpdateMetrics)
    partitions: int = 0


@dataclass(slots=True)
class _ManifestGroup:
    """Manifests that were written together.

    Attributes:
        steps: what they hold.
        base: the table's last sequence number when the steps were numbered; None in an append.
        commit_uuid: of the commit that wrote them or last found them in the store.
        is_in_doubt: an attempt with an unknown outcome lists them.
        is_written: the store certainly has them.
    """

    steps: tuple[SequenceStep, ...]
    base: int | None
    commit_uuid: str
    metrics: UpdateMetrics = field(default_factory=UpdateMetrics)
    partitions: set[Any] = field(default_factory=set)
    data: list[ManifestFile] = field(default_factory=list)
    deletes: list[ManifestFile] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    is_in_doubt: bool = False
    is_written: bool = False

    @property
    def sizes(self) -> dict[str, int | None]:
        """Path and length of each manifest."""
        return {m.manifest_path: m.manifest_length for m in (*self.data, *self.deletes)}


@dataclass(slots=True)
class PreparedManifests:
    """The manifests of one table that no snapshot of it lists yet; used under the table's lock.

    Attributes:
        is_sent: an attempt that lists them was sent, and did not certainly fail.
    """

    is_sent: bool = False
    _groups: list[_ManifestGroup] = field(default_factory=list)
    _shape: Shape | None = None
    _io: FileIO | None = None

    def keep(self, selection: Selection) -> None:
        """Delete what holds other files than these: skipped, or already in the table."""
        self._note_doubt()
        by_path = {f.file_path: f for f in _files(selection.steps)}
        self._drop([g for g in self._groups if not _is_within(g, by_path)])

    def add(
        self, table: Table, selection: Selection, attempt: AttemptId, files: PendingFiles
    ) -> AddedManifests:
        """Manifests of all files of a commit; only those that are missing are made.

        ``confirm`` or ``drop_unwritten`` must follow.

        Args:
            table: as it was loaded.
            selection: the files.
            attempt: the one that will list them.
            files: get the manifests that are made, and write them later.

        Raises:
            CommitRefused: a file fits no spec of the table.
            RetriableError: ``storage_unavailable``.
        """
        self._note_doubt()
        self._io = table.io
        shape = _shape(table)
        base = last_sequence_number(table) if selection.is_row_level else None
        if shape != self._shape:
            self._drop(self._groups)
            self._shape = shape
        missing = self._missing(selection, base, attempt.commit_uuid)
        if missing and len(self._groups) >= GROUPS_MAX:
            self._drop(self._groups)
            missing = selection.steps
        if missing:
            self._groups.append(self._made(table, missing, base, attempt, files))
        return self._added(attempt.snapshot_id)

    def confirm(self) -> None:
        """Note that all manifests were written."""
        for group in self._groups:
            group.is_written = True

    def drop_unwritten(self) -> None:
        """Delete the manifests of an attempt whose files could not be written."""
        self._drop([group for group in self._groups if not group.is_written])

    def landed(self, listed: Sequence[ManifestFile] | None) -> None:
        """A snapshot that lists the files is in the table; what it merged away is deleted.

        Args:
            listed: its manifests; None if those of another attempt may be in the table instead.
        """
        self.is_sent = listed is None
        self._note_doubt()
        kept = {m.manifest_path for m in listed or ()}
        for group in self._groups:
            group.written = [path for path in group.written if path not in kept]
        self._drop(self._groups)

    def discard(self) -> bool:
        """Delete everything that no snapshot can list; whether the store did so."""
        self._note_doubt()
        return self._drop(self._groups)

    def _note_doubt(self) -> None:
        if self.is_sent:
            for group in self._groups:
                group.is_in_doubt = True
            self.is_sent = False

    def _missing(
        self, selection: Selection, base: int | None, commit_uuid: str
    ) -> tuple[SequenceStep, ...]:
        """The steps without manifests, after groups that are of no use were dropped."""
        by_path = {f.file_path: f for f in _files(selection.steps)}
        useful = []
        at = 0
        for group in self._groups:
            until = at + len(group.steps)
            is_placed = base is None or selection.steps[at:until] == group.steps
            if group.base != base or not is_placed or not _is_within(group, by_path):
                if base is None:
                    continue
                break
            if not self._is_there(group, commit_uuid):
                if base is None:
                    continue
                break
            useful.append(group)
            at = until
        self._drop([g for g in self._groups if all(g is not u for u in useful)])
        if base is not None:
            return selection.steps[at:]
        held = {f.file_path for group in useful for f in _files(group.steps)}
        left = (f for f in _files(selection.steps) if f.file_path not in held)
        step = SequenceStep(tuple(left), ())
        return (step,) if step.data_files else ()

    def _is_there(self, group: _ManifestGroup, commit_uuid: str) -> bool:
        """Whether the store still holds the manifests; it is asked once per commit."""
        if group.commit_uuid == commit_uuid:
            return True
        assert self._io is not None
        try:
            verify_written(self._io, group.sizes)
        except RetriableError as error:
            if isinstance(error.__cause__, OSError):  # the store did not answer
                raise
            return False
        group.commit_uuid = commit_uuid
        return True

    def _made(
        self,
        table: Table,
        steps: tuple[SequenceStep, ...],
        base: int | None,
        attempt: AttemptId,
        files: PendingFiles,
    ) -> _ManifestGroup:
        metadata = table.metadata
        convert = FileConverter(
            metadata.schema(),
            metadata.specs(),
            metadata.default_spec_id,
            writer_version(metadata),
            metadata.schemas,
        )
        out = _ManifestGroup(steps, base, attempt.commit_uuid)
        first_number = 0 if base is None else base + 1 + sum(len(g.steps) for g in self._groups)
        new: tuple[list[NewFile], list[NewFile]] = ([], [])
        for number, step in enumerate(steps, start=first_number):
            announced = step.data_files, step.delete_files
            for each, chosen in zip(announced, new, strict=True):
                for file in each:
                    data_file = convert.data_file(file)
                    out.metrics.add_file(data_file)
                    out.partitions.add((data_file.spec_id, data_file.partition))
                    chosen.append(NewFile(data_file, None if base is None else number))
        prefix = f"{attempt.commit_uuid}-{attempt.number}-n"
        manifests = manifest_set(table, attempt.snapshot_id, prefix, files, out.written)
        out.data = manifests.add(ManifestContent.DATA, new[0])
        out.deletes = manifests.add(ManifestContent.DELETES, new[1])
        return out

    def _added(self, snapshot_id: int) -> AddedManifests:
        out = AddedManifests()
        partitions: set[Any] = set()
        for group in self._groups:
            out.data += (_listed_by(m, snapshot_id) for m in group.data)
            out.deletes += (_listed_by(m, snapshot_id) for m in group.deletes)
            partitions |= group.partitions
            for name, count in vars(group.metrics).items():
                setattr(out.metrics, name, getattr(out.metrics, name) + count)
        out.partitions = len(partitions)
        return out

    def _drop(self, groups: Sequence[_ManifestGroup]) -> bool:
        dropped = list(groups)
        self._groups = [g for g in self._groups if all(g is not d for d in dropped)]
        certain = chain.from_iterable(g.written for g in dropped if not g.is_in_doubt)
        paths = list(certain)
        return not paths or (self._io is not None and delete_files(self._io, paths) > 0)


def _shape(table: Table) -> Shape:
    """Return what a manifest's content depends on, apart from its files."""
    metadata = table.metadata
    return (
        metadata.table_uuid,
        metadata.current_schema_id,
        frozenset(metadata.specs()),
        metadata.default_spec_id,
        avro_codec(metadata.properties),
        writer_version(metadata),
    )


def _files(steps: Sequence[SequenceStep]) -> list[ContentFile]:
    return [f for s in steps for f in (*s.data_files, *s.delete_files)]


def _is_within(group: _ManifestGroup, by_path: dict[str, ContentFile]) -> bool:
    return all(by_path.get(f.file_path) == f for f in _files(group.steps))


def _listed_by(manifest: ManifestFile, snapshot_id: int) -> ManifestFile:
    """The manifest as a snapshot's list names it."""
    out = copy_of(manifest)
    out[_ADDED_SNAPSHOT_ID] = snapshot_id
    return out

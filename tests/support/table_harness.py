"""A table in a catalog, and committers of one connector for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.types import LongType, NestedField, StringType

from connect.errors import CommitConflict, CommitStateUnknown
from connect.gateways.catalog.catalog import CatalogGateway
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommit
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    made_up_file,
    reference,
    table_commit,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
MIRROR = "icefloe.offsets.control-iceberg.connect-c"
_EXPIRY = "iceberg__maintenance__expire_snapshots__"
EXPIRING = {
    f"{_EXPIRY}enabled": "true",
    f"{_EXPIRY}max_age_ms": "0",
    f"{_EXPIRY}min_snapshots_to_keep": "3",
}
"""Settings of a connector that keeps three snapshots."""


class Racing:
    """A catalog in which others commit between the attempts of ours.

    Args:
        inner: the catalog.
        others: what they do, each before one of our commits.
    """

    def __init__(self, inner: CatalogGateway, others: Iterable[Callable[[], object]]) -> None:
        self._inner = inner
        self._others = list(others)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def commit(self, *change: object, **options: object) -> Table:
        """Apply the next change of another writer, if one is left; then commit ours."""
        if self._others:
            self._others.pop(0)()
        return self._inner.commit(*change, **options)


class Unanswered(Racing):
    """A catalog that does not answer its first commit.

    Args:
        inner: the catalog.
        is_applied: whether it applies that commit.
    """

    def __init__(self, inner: CatalogGateway, *, is_applied: bool) -> None:
        super().__init__(inner, [])
        self._is_applied = is_applied
        self._has_answered = False

    def commit(self, *change: object, **options: object) -> Table:
        """Commit; the first time without an answer."""
        if self._has_answered:
            return super().commit(*change, **options)
        self._has_answered = True
        if self._is_applied:
            super().commit(*change, **options)
        raise CommitStateUnknown("no answer")


class Late(Racing):
    """A catalog that does not answer from its first commit on, until it applies that commit.

    Args:
        inner: the catalog.
    """

    def __init__(self, inner: CatalogGateway) -> None:
        super().__init__(inner, [])
        self._first: Callable[[], object] | None = None
        self._is_away = False

    def commit(self, *change: object, **options: object) -> Table:
        """Commit; the first time later."""
        if self._first is not None:
            return super().commit(*change, **options)
        self._first = partial(super().commit, *change, **options)
        self._is_away = True
        raise CommitStateUnknown("no answer")

    def load(self, *identifier: object, **options: object) -> Table:
        """Load a table, unless the catalog does not answer."""
        if self._is_away:
            raise CommitStateUnknown("away")
        return self._inner.load(*identifier, **options)

    def land(self) -> None:
        """Apply the first commit, and answer again."""
        assert self._first is not None
        self._first()
        self._is_away = False


class ReadPaths(Racing):
    """A catalog whose tables note which files are read.

    Args:
        inner: the catalog.
    """

    def __init__(self, inner: CatalogGateway) -> None:
        super().__init__(inner, [])
        self.paths: list[str] = []

    @property
    def manifests(self) -> list[str]:
        """The manifests of ``paths``."""
        return [path for path in self.paths if path.endswith(".avro") and "/snap-" not in path]

    def load(self, *identifier: object, **options: object) -> Table:
        """Load a table."""
        table = self._inner.load(*identifier, **options)
        table.io = _NotedIO(table.io, self.paths)
        return table


class _NotedFile(InputFile):
    """A file that notes when it is opened."""

    def __init__(self, inner: InputFile, paths: list[str]) -> None:
        super().__init__(inner.location)
        self._inner, self._paths = inner, paths

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self._inner.exists()

    def open(self, seekable: bool = True) -> InputStream:
        """Note and open the file."""
        self._paths.append(self.location)
        return self._inner.open(seekable)


class _NotedIO:
    """File access that notes which files are read."""

    def __init__(self, inner: FileIO, paths: list[str]) -> None:
        self._inner, self._paths = inner, paths

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def new_input(self, path: str) -> InputFile:
        """Return a file."""
        return _NotedFile(self._inner.new_input(path), self._paths)


class Refusing(Racing):
    """A catalog that refuses every commit.

    Args:
        inner: the catalog.
    """

    def __init__(self, inner: CatalogGateway) -> None:
        super().__init__(inner, [])

    def commit(self, *_: object, **__: object) -> Table:
        """Refuse."""
        raise CommitConflict("no")


@dataclass
class TableHarness:
    """A catalog, a table in it, and committers of one connector."""

    catalog: CatalogGateway
    table: Table
    name: str = "c"

    def committer(self, *, clock: QuickClock | None = None, **more: object) -> Committer:
        """A coordinator's committer, without memory of the others."""
        settings = more.pop("settings", {})
        config = connector(self.name, [".".join(self.table.name())], **settings)
        return Committer(self.catalog, config, clock or QuickClock(), **more)

    def files(self, count: int = 1, **more: object) -> list:
        """Made-up data files."""
        return [made_up_file(self.table, **more) for _ in range(count)]

    def round(self, offset: int, count: int = 1, **more: object) -> object:
        """A commit with one announcement of ``count`` files at a control offset."""
        return table_commit(
            [announced(reference(self.table), self.files(count), offset=offset)], **more
        )

    def untimed_round(self, offset: int, count: int = 1) -> TableCommit:
        """As ``round``, with files without a creation time in their names."""
        folder = f"{self.table.location()}/data"
        files = [
            made_up_file(self.table, file_path=f"{folder}/{uuid4().hex}.parquet")
            for _ in range(count)
        ]
        return table_commit([announced(reference(self.table), files, offset=offset)])

    def reloaded(self) -> Table:
        """The table as the catalog has it at present."""
        return self.catalog.load(self.table.name())

    def change(self, *updates: object) -> Table:
        """Commit a change of another writer."""
        table = self.reloaded()
        uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
        return self.catalog.commit(table, [uuid], updates)


def stale_numbers(table: Table) -> list[str]:
    """What is wrong with the sequence numbers of the snapshots that are kept.

    A new manifest has the number of its snapshot. Its entries inherit that number, or as steps of a
    row-level commit have numbers of their own above the parent's.
    """
    out = []
    last = 0
    for snapshot in sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0):
        number = snapshot.sequence_number or 0
        is_append = snapshot.summary is not None and snapshot.summary.operation.value == "append"
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            if manifest.sequence_number != number:
                out.append(f"manifest {manifest.sequence_number} of snapshot {number}")
            for entry in manifest.fetch_manifest_entry(table.io):
                own = entry.sequence_number or 0
                is_new = entry.snapshot_id == snapshot.snapshot_id
                if is_new and not (own == number or (not is_append and last < own < number)):
                    out.append(f"entry {own} of snapshot {number} after {last}")
        last = number
    return out


def paths_of(table: Table) -> list[str]:
    """Paths of all files of the current snapshot, each as often as it is there."""
    head = table.current_snapshot()
    if head is None:
        return []
    return sorted(
        entry.data_file.file_path
        for manifest in head.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    )

"""An Iceberg catalog and its store in memory, whose answers may be lost, late or wrong.

Rules of this file:
- A change is applied on condition that its requirements hold, as catalogs do it. A request that is
  under way is applied at any later moment, or never.
- Metadata, manifests and lists are those that the production committer writes and PyIceberg reads.
- Before each request and after it, other actors may act (``between``).
- A killed session changes nothing any more: no request of it arrives, and it deletes no file.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)
from pyiceberg.types import LongType, NestedField, StringType

from connect.errors import CommitConflict, CommitRefused, CommitStateUnknown, RetriableError
from connect.gateways.catalog.rest_commits import TableChange
from connect.gateways.catalog.table_metadata import changed_metadata, referenced_only

SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
_CHECKED: Final = (AssertTableUUID, AssertCurrentSchemaId)
MERGING: Final = {"commit.manifest.min-count-to-merge": "3"}


Change = tuple[str, Sequence[TableRequirement], Sequence[TableUpdate]]
"""The name of a table, and a conditional change of it."""


class KilledError(BaseException):
    """The process of a session is killed."""


class _Written(io.BytesIO):
    def __init__(self, files: dict[str, bytes], path: str) -> None:
        super().__init__()
        self._files, self._path = files, path

    def close(self) -> None:
        """Store the content."""
        if not self.closed:
            self._files[self._path] = self.getvalue()
        super().close()


class _File(InputFile, OutputFile):
    def __init__(self, files: dict[str, bytes], path: str) -> None:
        super().__init__(path)
        self._files = files

    def __len__(self) -> int:
        if not self.exists():
            raise FileNotFoundError(self.location)
        return len(self._files[self.location])

    def exists(self) -> bool:
        """Whether it is in the store."""
        return self.location in self._files

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - of the interface
        """Return its content."""
        if not self.exists():
            raise FileNotFoundError(self.location)
        return io.BytesIO(self._files[self.location])

    def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002 - of the interface
        """Return a stream whose content is stored at its end."""
        return _Written(self._files, self.location)

    def to_input_file(self) -> InputFile:
        """Return itself."""
        return self


class MemoryIO(FileIO):
    """Files in memory, as one session sees them.

    Args:
        files: path -> content; shared by all sessions.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self._files = files
        self.is_dead = False

    def new_input(self, location: str) -> InputFile:
        """Open a file to read."""
        return _File(self._files, location)

    def new_output(self, location: str) -> OutputFile:
        """Open a file to write."""
        return _File({} if self.is_dead else self._files, location)

    def delete(self, location: Any) -> None:
        """Delete a file."""
        if not self.is_dead and self._files.pop(location, None) is None:
            raise FileNotFoundError(location)


@dataclass(slots=True)
class Tables:
    """Tables, their files, and the requests that are under way.

    Attributes:
        chance: decides faults.
        fault_ratio: of requests.
        is_conditional: False is a planted defect: requirements are not checked.
        is_whole: whether a change of several tables is applied whole or not at all.
        on_applied: called with the name of a table after each change of it.
    """

    chance: random.Random
    fault_ratio: float
    is_conditional: bool = True
    is_whole: bool = True
    on_applied: Callable[[str], None] = lambda _: None
    files: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, TableMetadata] = field(default_factory=dict)
    locations: dict[str, str] = field(default_factory=dict)
    under_way: list[list[Change]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _listed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _versions: int = 0

    def create(self, name: str) -> None:
        """Create a table."""
        made = new_table_metadata(
            schema=SCHEMA,
            partition_spec=UNPARTITIONED_PARTITION_SPEC,
            sort_order=UNSORTED_SORT_ORDER,
            location=f"file:///lake/db/{name}",
            properties=MERGING,
            table_uuid=UUID(int=len(self.metadata) + 1),
        )
        self._put(name, made.model_copy(update={"last_updated_ms": 1}))

    def table(self, name: str, files: FileIO) -> Table:
        """Return a table as it is now."""
        return Table(("db", name), self.metadata[name], self.locations[name], files, catalog=None)  # type: ignore[arg-type] # nothing asks it

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply changes if their requirements hold.

        Raises:
            CommitConflict: one does not.
        """
        after = {}
        for name, requirements, updates in changes:
            if self.is_conditional:
                self._check(name, requirements, updates)
            try:
                after[name] = changed_metadata(self.metadata[name], updates, self.locations[name])
            except ValueError as error:
                raise CommitConflict(str(error)) from error
        for name, metadata in after.items():
            self._put(name, metadata)
            self.on_applied(name)

    def count(self, what: str) -> None:
        """Note that something happened."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def land_some(self) -> None:
        """Let requests under way arrive, in any order."""
        self.chance.shuffle(self.under_way)
        while self.under_way and self.chance.random() < 0.5:
            self.land()

    def land(self) -> None:
        """Let one request arrive."""
        try:
            self.apply(self.under_way.pop())
        except CommitConflict:
            self.count("late, refused")
        else:
            self.count("late, applied")

    def paths(self, name: str, snapshot_id: int | None = None) -> list[str]:
        """Return the data files of a snapshot, by default the head, each as often as it is listed.

        Raises:
            FileNotFoundError: a manifest of it was deleted.
        """
        metadata = self.metadata[name]
        wanted = metadata.current_snapshot_id if snapshot_id is None else snapshot_id
        snapshot = None if wanted is None else metadata.snapshot_by_id(wanted)
        if snapshot is None:
            return []
        files = MemoryIO(self.files)
        return [
            path for manifest in snapshot.manifests(files) for path in self._paths(manifest, files)
        ]

    def _paths(self, manifest: ManifestFile, files: FileIO) -> Iterator[str]:
        path = manifest.manifest_path
        if path not in self.files:
            raise FileNotFoundError(path)
        if path not in self._listed:
            entries = manifest.fetch_manifest_entry(files)
            self._listed[path] = tuple(entry.data_file.file_path for entry in entries)
        yield from self._listed[path]

    def _put(self, name: str, metadata: TableMetadata) -> None:
        self._versions += 1
        self.metadata[name] = metadata
        self.locations[name] = f"{metadata.location}/metadata/{self._versions}.metadata.json"

    def _check(
        self,
        name: str,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
    ) -> None:
        metadata = self.metadata[name]
        for each in requirements:
            if isinstance(each, AssertRefSnapshotId):
                ref = metadata.refs.get(each.ref)
                holds = (None if ref is None else ref.snapshot_id) == each.snapshot_id
            else:
                assert isinstance(each, _CHECKED)
                holds = _validates(each, metadata)
            if not holds:
                raise CommitConflict(f"requirement failed: {each}")
        for update in updates:
            number = update.snapshot.sequence_number if isinstance(update, AddSnapshotUpdate) else 0
            if number and number <= metadata.last_sequence_number:
                raise CommitConflict("the sequence number is not above the table's last")


def _validates(requirement: ValidatableTableRequirement, metadata: TableMetadata) -> bool:
    try:
        requirement.validate(metadata)
    except CommitFailedException:
        return False
    return True


@dataclass(slots=True)
class SimulatedCatalog:
    """The catalog as one session sees it; see ``CatalogGateway``.

    Attributes:
        tables: what it holds.
        between: lets other actors act; called before and after each request.
        dies: chance to be killed at a request.
        is_reliable: it answers every request.
        request_timeout_ms: of a request.
    """

    tables: Tables
    between: Callable[[], None] = lambda: None
    dies: float = 0.0
    is_reliable: bool = False
    request_timeout_ms: int = 1_000
    io: MemoryIO = field(init=False)

    def __post_init__(self) -> None:
        """Open the store."""
        self.io = MemoryIO(self.tables.files)

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """Return a table, unless the catalog is away."""
        self._before()
        if self._is_fault() and self.tables.chance.random() < 0.5:
            raise RetriableError("the catalog is away", code="catalog_unavailable")
        table = self.tables.table(identifier[-1], self.io)
        if not with_history:
            self.tables.count("load without history")
            table.metadata = referenced_only(table.metadata)
        self._after()
        return table

    def commit(
        self,
        table: Table,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        *,
        reads_answer: bool = True,
    ) -> Table:
        """Change a table, with any fault; the answer may know only what was loaded before."""
        name = table.name()[-1]
        self._send([(name, tuple(requirements), tuple(updates))])
        after = self.tables.table(name, self.io)
        if not reads_answer:
            after.metadata = changed_metadata(table.metadata, tuple(updates))
        self._after()
        return after

    def commit_together(self, changes: Sequence[TableChange]) -> None:
        """Change several tables in one request, with any fault."""
        sent: list[Change] = [
            (change.table.name()[-1], tuple(change.requirements), tuple(change.updates))
            for change in changes
        ]
        if not self.tables.is_whole and self.tables.chance.random() < 0.3:
            lost = self.tables.chance.randrange(len(sent))
            self.tables.count("a table lost from a request for several")
            del sent[lost]
        self._send(sent)
        self._after()

    def _send(self, changes: list[Change]) -> None:
        """Apply changes and answer, or not."""
        tables, chance = self.tables, self.tables.chance
        self._before()
        if not self._is_fault():
            tables.apply(changes)
            return
        kind = chance.randrange(6)
        if kind in (0, 1, 2):
            if kind == 0:
                tables.apply(changes)
            elif kind == 1:
                tables.under_way.append(changes)
            # the same as a success that is none, whose change no reference confirms
            tables.count(f"unknown, {('applied', 'applied late', 'not applied')[kind]}")
            raise CommitStateUnknown("no answer")
        if kind == 3:
            raise CommitRefused("throttled", code="catalog_throttled")
        tables.apply(changes)
        tables.count("applied, and refused when it was sent again")
        if kind == 4:
            raise CommitConflict("the client sent it twice")
        raise CommitRefused("the token expired", code="unauthorized")

    def _before(self) -> None:
        self._may_die()
        self.tables.land_some()
        self.between()

    def _after(self) -> None:
        self.between()
        self._may_die()

    def _may_die(self) -> None:
        if self.io.is_dead or self.tables.chance.random() < self.dies:
            self.io.is_dead = True
            raise KilledError

    def _is_fault(self) -> bool:
        return not self.is_reliable and self.tables.chance.random() < self.tables.fault_ratio

"""Tests whether commits of a catalog are atomic, by concurrent commits to scratch tables.

Rules of this file:
- A catalog's answer is no proof; the snapshots that the tables hold afterwards are.
- Only scratch tables are written. They are removed at the end, also after an error.
- A commit adds a snapshot without files; one empty manifest list per table serves all snapshots.
- The races of a check end at its time limit; the report says how many were run.

Source:
    Iceberg's own ``RESTCatalogAdapter.commitTransaction`` commits table after table and says in a
    comment that it is not atomic; two transactions over the same tables in opposite order show it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyiceberg.manifest import write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import LongType, NestedField

from connect.clock import Clock
from connect.errors import CommitError, IcefloeError, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, TableChange
from connect.gateways.storage.object_store import delete_files, storage_errors

TABLES = 4
WRITERS = 4
SCRATCH_PREFIX = "icefloe_check_"
_SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
_EXAMPLES_MAX = 3


@dataclass(slots=True)
class RaceFinding:
    """Result of a number of races.

    Attributes:
        races: number of races that were run.
        landed: commits that are in their tables.
        violations: sentences, one for each result that an atomic catalog cannot have.
        refusal: the last answer that was not a success.
    """

    races: int = 0
    landed: int = 0
    violations: list[str] = field(default_factory=list)
    refusal: str = ""

    @property
    def examples(self) -> list[str]:
        """The first violations."""
        return self.violations[:_EXAMPLES_MAX]


@dataclass(frozen=True, slots=True)
class _Contender:
    """A commit to one or more tables."""

    name: str
    changes: tuple[TableChange, ...]
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Scratch:
    """Tables of the check, each with its empty manifest list."""

    identifiers: tuple[tuple[str, ...], ...]
    lists: tuple[str, ...]


class CatalogCheck:
    """Concurrent commits to one catalog.

    Args:
        catalog: the catalog; used from several threads.
        clock: time and identities.
        namespace: existing namespace for the scratch tables; None creates and removes one.
        time_ms_max: time limit of all races; None is no limit.
    """

    def __init__(
        self,
        catalog: CatalogGateway,
        clock: Clock,
        *,
        namespace: tuple[str, ...] | None = None,
        time_ms_max: int | None = None,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._until_ms = None if time_ms_max is None else clock.monotonic_ms() + time_ms_max
        self.not_removed: list[str] = []
        self._name = f"{SCRATCH_PREFIX}{clock.new_uuid().hex[:12]}"
        self._own_namespace = (self._name,) if namespace is None else None
        self._namespace = namespace or (self._name,)
        self.identifiers = tuple((*self._namespace, f"{self._name}_{n}") for n in range(TABLES))
        self._pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="race")

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """Create the scratch tables, and remove them at the end.

        Raises:
            CommitError, RetriableError: they cannot be created.
        """
        identifiers = self.identifiers
        lists: list[str] = []
        tables: list[Table] = []
        try:
            for identifier in identifiers:
                tables.append(self._catalog.create(identifier, _SCHEMA))
                lists.append(_empty_list(tables[-1]))
            yield Scratch(identifiers, tuple(lists))
        finally:
            self._pool.shutdown(wait=True)
            for identifier in identifiers:
                self._removed(".".join(identifier), lambda i=identifier: self._catalog.drop(i))  # type: ignore[misc] # a default binds the loop's value
            for table, path in zip(tables, lists, strict=False):
                delete_files(table.io, [path])
            if own := self._own_namespace:
                self._removed(".".join(own), lambda: self._catalog.drop_namespace(own))

    def _removed(self, name: str, remove: Callable[[], None]) -> None:
        try:
            remove()
        except IcefloeError as error:
            self.not_removed.append(f"{name}: {error}")

    def _races(self, count: int) -> Iterator[int]:
        """Number the races that are run before the time limit."""
        for number in range(count):
            if self._until_ms is not None and self._clock.monotonic_ms() >= self._until_ms:
                return
            yield number

    # ------------------------------------------------------------------ one table

    def single(self, scratch: Scratch, races: int) -> RaceFinding:
        """Race writers of one table that start from the same snapshot: at most one may succeed."""
        finding = RaceFinding()
        for race in self._races(races):
            base = self._load(scratch, [race % TABLES])
            contenders = [
                self._contender(f"writer {n}", scratch, base, [race % TABLES])
                for n in range(WRITERS)
            ]
            answers = self._race(contenders)
            landed = self._landed(scratch, contenders)
            finding.races += 1
            finding.landed += sum(map(len, landed))
            winners = [
                c.name for c, has_landed in zip(contenders, landed, strict=True) if has_landed
            ]
            if len(winners) > 1:
                finding.violations.append(f"{' and '.join(winners)} both landed on one snapshot")
            _note_answers(finding, contenders, answers, landed)
        return finding

    # ------------------------------------------------------------------ several tables

    def stale(self, scratch: Scratch) -> RaceFinding:
        """Send transactions with one stale table: none of the tables may change."""
        finding = RaceFinding()
        for stale in self._races(TABLES):
            base = self._load(scratch, range(TABLES))
            other = self._contender("another writer", scratch, base, [stale])
            self._race([other])
            whole = self._contender("transaction", scratch, base, range(TABLES))
            self._race([whole])
            [landed] = self._landed(scratch, [whole])
            finding.races += 1
            if landed:
                finding.violations.append(
                    f"with table {stale + 1} of {TABLES} stale, {len(landed)} were changed"
                )
        return finding

    def opposite(self, scratch: Scratch, races: int) -> RaceFinding:
        """Race two transactions over the same tables, in opposite order."""
        orders = (range(TABLES), range(TABLES - 1, -1, -1))
        return self._against(scratch, races, orders)

    def against_single(self, scratch: Scratch, races: int) -> RaceFinding:
        """Race a transaction against a commit to only its last table."""
        return self._against(scratch, races, (range(TABLES), [TABLES - 1]))

    def _against(
        self, scratch: Scratch, races: int, orders: Sequence[Sequence[int]]
    ) -> RaceFinding:
        finding = RaceFinding()
        for _ in self._races(races):
            base = self._load(scratch, range(TABLES))
            contenders = [
                self._contender(f"commit {n} of {len(order)} tables", scratch, base, order)
                for n, order in enumerate(orders, start=1)
            ]
            answers = self._race(contenders)
            landed = self._landed(scratch, contenders)
            finding.races += 1
            finding.landed += sum(map(bool, landed))
            for contender, has_landed in zip(contenders, landed, strict=True):
                table_count = len(contender.changes)
                if 0 < len(has_landed) < table_count:
                    finding.violations.append(
                        f"{contender.name} landed in {len(has_landed)} of {table_count} tables"
                    )
            _note_answers(finding, contenders, answers, landed)
        return finding

    # ------------------------------------------------------------------ races

    def _load(self, scratch: Scratch, chosen: Sequence[int]) -> dict[int, Table]:
        return {n: self._catalog.load(scratch.identifiers[n]) for n in chosen}

    def _contender(
        self, name: str, scratch: Scratch, base: dict[int, Table], order: Sequence[int]
    ) -> _Contender:
        snapshot_id = self._clock.new_snapshot_id()
        changes = tuple(self._change(base[n], scratch.lists[n], snapshot_id) for n in order)
        return _Contender(name, changes, snapshot_id)

    def _change(self, table: Table, manifest_list: str, snapshot_id: int) -> TableChange:
        metadata = table.metadata
        head = metadata.current_snapshot_id
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": head,
                "manifest-list": manifest_list,
                "sequence-number": getattr(metadata, "last_sequence_number", 0) + 1,
                "timestamp-ms": max(self._clock.now_ms(), metadata.last_updated_ms),
                "summary": Summary(operation=Operation.APPEND),
                "schema-id": metadata.current_schema_id,
            }
        )
        ref = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
        expected = {"ref": MAIN_BRANCH, "snapshot-id": head}
        return TableChange(
            table,
            (
                AssertTableUUID(uuid=metadata.table_uuid),
                AssertRefSnapshotId.model_validate(expected),
            ),
            (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(ref)),
        )

    def _race(self, contenders: Sequence[_Contender]) -> list[IcefloeError | None]:
        """Send all commits at the same moment; return the errors, None for a success."""
        start = threading.Barrier(len(contenders))

        def send(contender: _Contender) -> IcefloeError | None:
            start.wait()
            try:
                if len(contender.changes) > 1:
                    self._catalog.commit_together(contender.changes)
                else:
                    [change] = contender.changes
                    self._catalog.commit(change.table, change.requirements, change.updates)
            except (CommitError, RetriableError) as error:
                return error
            return None

        return list(self._pool.map(send, contenders))

    def _landed(
        self, scratch: Scratch, contenders: Sequence[_Contender]
    ) -> list[list[tuple[str, ...]]]:
        """Return for each contender the tables that hold its snapshot now."""
        held = {
            identifier: {s.snapshot_id for s in self._catalog.load(identifier).metadata.snapshots}
            for identifier in scratch.identifiers
        }
        return [[i for i, ids in held.items() if c.snapshot_id in ids] for c in contenders]


def _note_answers(
    finding: RaceFinding,
    contenders: Sequence[_Contender],
    answers: Sequence[IcefloeError | None],
    landed: Sequence[Sequence[tuple[str, ...]]],
) -> None:
    for contender, answer, has_landed in zip(contenders, answers, landed, strict=True):
        if answer is not None:
            finding.refusal = str(answer)
        elif not has_landed:
            finding.violations.append(f"{contender.name} got a success and is in no table")


def _empty_list(table: Table) -> str:
    """Write an empty manifest list to the table's folder; return its path."""
    path = table.location_provider().new_metadata_location(f"{SCRATCH_PREFIX}empty.avro")
    with (
        storage_errors("writing an empty manifest list"),
        write_manifest_list(
            format_version=2,
            output_file=table.io.new_output(path),
            snapshot_id=1,
            parent_snapshot_id=None,
            sequence_number=1,
            avro_compression="deflate",
        ) as writer,
    ):
        writer.add_manifests([])
    return path

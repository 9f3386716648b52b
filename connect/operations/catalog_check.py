"""Whether a catalog's commits are atomic: races on scratch tables, and what is there afterwards.

Rules of this file:
- Nothing a catalog answers is believed; what counts is which snapshots its tables hold.
- Only tables made here are written to, and they are removed whatever happens.
- The snapshots are what a sink commits, without files: one empty manifest list per table serves
  all of them.

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
    """What a number of races showed.

    Attributes:
        races: how many were run.
        landed: commits that are in their tables.
        violations: what an atomic catalog does not do, race by race, in words.
        refusal: the last answer that was no success.
    """

    races: int = 0
    landed: int = 0
    violations: list[str] = field(default_factory=list)
    refusal: str = ""

    @property
    def examples(self) -> list[str]:
        """A few violations."""
        return self.violations[:_EXAMPLES_MAX]


@dataclass(frozen=True, slots=True)
class _Contender:
    """A commit to one or more tables, and what came of it."""

    name: str
    changes: tuple[TableChange, ...]
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Scratch:
    """Tables made for the check, each with its empty manifest list."""

    identifiers: tuple[tuple[str, ...], ...]
    lists: tuple[str, ...]


class CatalogCheck:
    """Races of one catalog.

    Args:
        catalog: the catalog; used from several threads.
        clock: time and identities.
        namespace: existing one to put the scratch tables into; None makes and removes one.
        on_left: told of each scratch table or namespace that could not be removed.
    """

    def __init__(
        self,
        catalog: CatalogGateway,
        clock: Clock,
        *,
        namespace: tuple[str, ...] | None = None,
        on_left: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._on_left = on_left
        self._name = f"{SCRATCH_PREFIX}{clock.new_uuid().hex[:12]}"
        self._own_namespace = (self._name,) if namespace is None else None
        self._namespace = namespace or (self._name,)
        self._pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="race")

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """Tables to race on, removed at the end.

        Raises:
            CommitError, RetriableError: they cannot be made.
        """
        identifiers = tuple((*self._namespace, f"{self._name}_{n}") for n in range(TABLES))
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
            self._on_left(f"{name}: {error}")

    # ------------------------------------------------------------------ one table

    def single(self, scratch: Scratch, races: int) -> RaceFinding:
        """Writers of one table that all start from the same snapshot: one may win."""
        found = RaceFinding()
        for race in range(races):
            base = self._load(scratch, [race % TABLES])
            contenders = [
                self._contender(f"writer {n}", scratch, base, [race % TABLES])
                for n in range(WRITERS)
            ]
            answers = self._race(contenders)
            landed = self._landed(scratch, contenders)
            found.races += 1
            found.landed += sum(map(len, landed))
            winners = [c.name for c, there in zip(contenders, landed, strict=True) if there]
            if len(winners) > 1:
                found.violations.append(f"{' and '.join(winners)} both landed on one snapshot")
            _note_answers(found, contenders, answers, landed)
        return found

    # ------------------------------------------------------------------ several tables

    def stale(self, scratch: Scratch) -> RaceFinding:
        """Transactions with one table whose branch has moved: none of the tables may change."""
        found = RaceFinding()
        for stale in range(TABLES):
            base = self._load(scratch, range(TABLES))
            mover = self._contender("another writer", scratch, base, [stale])
            self._race([mover])
            whole = self._contender("transaction", scratch, base, range(TABLES))
            self._race([whole])
            [landed] = self._landed(scratch, [whole])
            found.races += 1
            if landed:
                found.violations.append(
                    f"with table {stale + 1} of {TABLES} stale, {len(landed)} were changed"
                )
        return found

    def opposite(self, scratch: Scratch, races: int) -> RaceFinding:
        """Two transactions over the same tables, in opposite order."""
        orders = (range(TABLES), range(TABLES - 1, -1, -1))
        return self._against(scratch, races, orders)

    def against_single(self, scratch: Scratch, races: int) -> RaceFinding:
        """A transaction against a commit to its last table alone."""
        return self._against(scratch, races, (range(TABLES), [TABLES - 1]))

    def _against(
        self, scratch: Scratch, races: int, orders: Sequence[Sequence[int]]
    ) -> RaceFinding:
        found = RaceFinding()
        for _ in range(races):
            base = self._load(scratch, range(TABLES))
            contenders = [
                self._contender(f"commit {n} of {len(order)} tables", scratch, base, order)
                for n, order in enumerate(orders, start=1)
            ]
            answers = self._race(contenders)
            landed = self._landed(scratch, contenders)
            found.races += 1
            found.landed += sum(map(bool, landed))
            for contender, there in zip(contenders, landed, strict=True):
                wanted = len(contender.changes)
                if 0 < len(there) < wanted:
                    found.violations.append(
                        f"{contender.name} landed in {len(there)} of {wanted} tables"
                    )
            _note_answers(found, contenders, answers, landed)
        return found

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
        """Send all at the same moment; what was answered, None for success."""
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
        """Of each contender the tables that hold its snapshot now."""
        held = {
            identifier: {s.snapshot_id for s in self._catalog.load(identifier).metadata.snapshots}
            for identifier in scratch.identifiers
        }
        return [[i for i, ids in held.items() if c.snapshot_id in ids] for c in contenders]


def _note_answers(
    found: RaceFinding,
    contenders: Sequence[_Contender],
    answers: Sequence[IcefloeError | None],
    landed: Sequence[Sequence[tuple[str, ...]]],
) -> None:
    for contender, answer, there in zip(contenders, answers, landed, strict=True):
        if answer is not None:
            found.refusal = str(answer)
        elif not there:
            found.violations.append(f"{contender.name} was told yes and is nowhere")


def _empty_list(table: Table) -> str:
    """An empty manifest list in the table's folder; its path."""
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

"""The operator who resets the VTTS of a stopped connector (``icefloe control vtts reset``).

Rules of this file:
- The table's state is judged by the production code (``table_state``); the attempts are those of
  ``coordinator.commit.operator_changes.valid_through_reset``, step by step.
- The tables come first, the event in the control topic is last. A crash in between leaves the reset
  undone; the operator repeats it.
- A coordinator that was frozen when the connector was stopped may continue at any moment.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from connect.errors import CommitRefused
from connect.protocol.control_offsets import offsets_text
from control_schemas.events import CommitComplete, EventHeaders
from coordinator.commit.iceberg.floor import RESET_PROPERTY, TableState, covers, merged
from coordinator.commit.operator_changes.valid_through_reset import state_to_reset
from tests.simulation.catalog import (
    MIRROR,
    RESET_MIRROR,
    VALID_THROUGH_MIRROR,
    ConflictError,
    Snapshot,
    Summary,
    Table,
    UnknownError,
)
from tests.simulation.committer import ATTEMPTS_MAX, RESTARTS_MAX, Content
from tests.simulation.task import Actor

if TYPE_CHECKING:
    from tests.simulation.world import World

TRANSACTIONAL_ID = "g-c-operator"
COORDINATOR_ID = "g-c-coordinator"
_Steps = Generator[bool, None, bool]


class Reset(Actor):
    """One run of the command, while the connector is stopped."""

    kind = "reset"
    is_quick = False

    def _run(self) -> Generator[bool, None, None]:
        world, log = self.world, self.world.log
        if "reset fences no coordinator" not in world.bugs:
            log.init(COORDINATOR_ID)
        yield False
        ends = {p: len(entries) for p, entries in enumerate(log.entries)}
        for table in world.tables.values():
            yield False
            try:
                yield from self._reset(table, ends)
            except (CommitRefused, ConflictError):
                world.count("VTTS reset failed")
                return
        epoch = log.init(TRANSACTIONAL_ID)
        yield False
        transaction = log.begin(TRANSACTIONAL_ID, epoch)
        event = CommitComplete(world.new_id(), None)  # type: ignore[arg-type] # any identity will do
        if "reset sends no event" not in world.bugs:
            headers = EventHeaders(is_reset=True)
            log.produce(TRANSACTIONAL_ID, epoch, transaction, event, headers)
        yield False
        log.commit(TRANSACTIONAL_ID, epoch, transaction)
        world.is_vtts_wrong = False  # the next tasks and coordinators have another configuration
        world.count("VTTS reset")

    def _reset(self, table: Table, ends: dict[int, int]) -> Iterator[bool]:
        world = self.world
        for _ in range(RESTARTS_MAX + 1):
            if table.is_missing or world.now_ms < world.catalog_back_at_ms:
                raise ConflictError
            state, has_floor = state_to_reset(table, table.keys)  # type: ignore[arg-type] # the table has what is read of metadata
            if not has_floor and "a table of unknown floor is not reset" in world.bugs:
                return
            is_reset = (
                covers(state.reset_offsets, ends)
                or "a table without a claim is not reset" in world.bugs
            )
            if is_reset and not state.valid_through_texts:
                return
            if (yield from self._land(table, state, ends, has_floor=has_floor)):
                return
        raise ConflictError

    def _land(
        self, table: Table, state: TableState, ends: dict[int, int], *, has_floor: bool
    ) -> _Steps:
        """Return whether the snapshot is in the table; False when its content is out of date."""
        world = self.world
        floor = dict(state.floor) if has_floor else None
        content = _NoClaim(world, floor, merged(state.reset_offsets, ends))
        snapshot_id = world.new_id()
        for _ in range(ATTEMPTS_MAX):
            base, uuid = table.base, table.uuid
            yield False
            try:
                world.attempt(table, uuid, base, snapshot_id, content)
            except (ConflictError, UnknownError):
                yield False
                if snapshot_id in table.by_id:
                    return True
                seen, _ = state_to_reset(table, table.keys)  # type: ignore[arg-type] # as above
                if "reset keeps an old floor" in world.bugs:
                    continue
                if (seen.floor, seen.reset_offsets) != (state.floor, state.reset_offsets):
                    return False
            else:
                return True
        raise ConflictError


class _NoClaim(Content):
    """A snapshot without files that resets earlier claims; ``floor`` is None if it is unknown."""

    def __init__(
        self, world: World, floor: dict[int, int] | None, reset_offsets: dict[int, int]
    ) -> None:
        super().__init__(
            world,
            steps=[],
            offsets=floor or {},
            vtts=None,
            partitions=frozenset(),
            floor=floor or {},
            topic_id=None,
            reset_offsets=reset_offsets,
        )
        self.has_floor = floor is not None

    def snapshot(self, snapshot_id: int, parent: Snapshot | None) -> Snapshot:
        made = super().snapshot(snapshot_id, parent)
        if not self.has_floor:
            made.summary = Summary({})
        if "reset leaves the claims of snapshots" not in self.world.bugs:
            made.summary.additional_properties[RESET_PROPERTY] = "a record of the future"
        return made

    def put(self, table: Table, snapshot: Snapshot) -> None:
        mirror = table.properties.get(MIRROR)
        super().put(table, snapshot)
        if not self.has_floor and mirror is None:
            del table.properties[MIRROR]
        table.claimed_us = 0
        table.properties[RESET_MIRROR] = offsets_text(self.reset_offsets)
        if "reset leaves the claim of the property" not in self.world.bugs:
            table.properties[VALID_THROUGH_MIRROR] = ""

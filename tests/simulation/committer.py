"""The committer in small: the steps of ``committer`` and ``commit_attempt``.

Rules of this file:
- The floor, its refusals and the order of files are judged by the production code
  (``table_state``, ``merged``, ``covers``, ``_ordered``); only loops and I/O are written again,
  because other actors must be able to act between any two of their steps.
- A commit yields None at each step and then its outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connect.errors import CommitRefused
from coordinator.commit.iceberg.floor import (
    FloorKeys,
    TableState,
    covers,
    may_claim,
    merged,
    table_state,
)
from coordinator.commit.rules.file_selection import _ordered
from coordinator.kernel.effects import (
    CommitOutcome,
    CoordinatorFenced,
    TableCommit,
    TableCommitted,
    TableFailed,
)
from tests.simulation import checks
from tests.simulation.catalog import (
    CATALOG_AWAY,
    TOPIC_ID,
    ConflictError,
    Snapshot,
    Table,
    UnknownError,
    own_summary,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

ATTEMPTS_MAX = 6
NOTHING: Mapping[int, int] = {}
RESTARTS_MAX = 3


class _FloorMovedError(Exception):
    """An earlier attempt of this coordinator was applied meanwhile."""


class _AwayError(Exception):
    """The catalog does not answer."""


class _FencedError(Exception):
    """Another coordinator moved the floor."""


class _Memory:
    """What is known of a table between rounds.

    Attributes:
        head_id: snapshot of the last commit, if its first attempt landed.
        valid_through_us: the last VTTS as of that commit.
    """

    __slots__ = ("floor", "head_id", "pending", "valid_through_us")

    def __init__(self) -> None:
        self.floor: dict[int, int] | None = None
        self.head_id: int | None = None
        self.valid_through_us: Any = None
        self.pending: dict[int, Mapping[int, int]] = {}


class Committer:
    """Commits of one session."""

    def __init__(self, world: World, topic_id: int, *, has_history: bool) -> None:
        self.world = world
        self.topic_id = topic_id
        self.has_history = has_history
        self.memories = {name: _Memory() for name in world.tables}

    def commit(self, commit: TableCommit, partitions: frozenset[int]) -> Iterator[Any]:
        """Yield None at each step, and the outcome at the end."""
        bugs = self.world.bugs
        outcome: CommitOutcome
        try:
            for _ in range(RESTARTS_MAX + 1):
                try:
                    outcome = yield from self._commit(commit, partitions)
                    break
                except _FloorMovedError:
                    continue
            else:
                outcome = _failed(commit, "floor_moved", is_retriable=True)
        except _FencedError:
            outcome = CoordinatorFenced(commit.table, commit.commit_id, "the floor moved")
        except CommitRefused as e:
            outcome = _failed(commit, e.code, is_retriable=False)
            if e.code == "table_replaced":
                present = self.world.tables[commit.table.name].uuid
                outcome = replace(outcome, present_uuid=present)
            if e.code == "table_missing" and "missing table treated as success" in bugs:
                outcome = TableCommitted(commit.table, commit.commit_id, None)
        except (ConflictError, UnknownError):
            outcome = _failed(commit, "commit_conflict", is_retriable=True)
        except _AwayError:
            outcome = _failed(commit, CATALOG_AWAY, is_retriable=True)
        if isinstance(outcome, TableFailed) and "commit failure swallowed" in bugs:
            outcome = TableCommitted(commit.table, commit.commit_id, None)
        yield outcome

    def _commit(self, commit: TableCommit, partitions: frozenset[int]) -> Iterator[Any]:
        world = self.world
        table = world.tables[commit.table.name]
        memory = self.memories[table.name]
        yield None
        if world.now_ms < world.catalog_back_at_ms:
            raise _AwayError
        state = self._checked(table, commit, memory)
        if memory.head_id is not None and not memory.pending and not world.bugs:
            checks.check_without_history(
                world,
                table,
                self._keys(table),
                state,
                head_id=memory.head_id,
                last_us=memory.valid_through_us,
            )
        floor = self._floor(state, memory)
        steps: dict[tuple[int, int], list[Any]] = {}
        for place, written in _ordered(commit.announcements, floor):
            where = (0, 0) if "stale and current rounds in one step" in world.bugs else place
            steps.setdefault(where, []).append(written)
        if not steps:
            return TableCommitted(commit.table, commit.commit_id, None)
        offsets = merged(floor, commit.control_offsets)
        if "control offsets by put" in world.bugs:
            last = commit.announcements[-1]
            offsets = {**floor, last.partition: last.offset + 1}
            offsets[commit.announcements[0].partition] = commit.announcements[0].offset + 1
        if [e for e in commit.announcements if e.offset >= offsets.get(e.partition, 0)]:
            world.violation(f"{table.name} gets what lies above its control offsets {offsets}")
        known: Any = state.valid_through_texts
        last_vtts = max(known, default=None)
        vtts = commit.valid_through_us
        if (
            vtts is not None
            and last_vtts is not None
            and vtts < last_vtts
            and "VTTS below the table's last" not in world.bugs
        ):
            vtts = None
        if "old rounds claim after a reset" not in world.bugs and not may_claim(
            state, commit.control_offsets
        ):
            vtts = None
        ordered = [steps[place] for place in sorted(steps)]
        snapshot_id = yield from self._land(
            table,
            commit,
            memory,
            Content(
                world,
                steps=ordered,
                offsets=offsets,
                vtts=vtts,
                partitions=partitions,
                floor=floor,
                topic_id=self.topic_id,
                round_us=commit.valid_through_us,
                reset_offsets=state.reset_offsets,
                read_to=commit.control_offsets,
            ),
        )
        memory.floor = offsets
        memory.valid_through_us = last_vtts if vtts is None else vtts
        memory.pending.clear()
        return TableCommitted(commit.table, commit.commit_id, snapshot_id)

    def _floor(self, state: TableState, memory: _Memory) -> dict[int, int]:
        bugs = self.world.bugs
        if "no floor" in bugs:
            return {}
        return merged(state.floor, {} if "no floor of its own" in bugs else memory.floor or {})

    def _keys(self, table: Table) -> FloorKeys:
        keys = table.keys if self.has_history else table.fresh_keys
        bugs = self.world.bugs
        if bugs:
            keys = replace(
                keys,
                summary="?" if "no floor in snapshots" in bugs else keys.summary,
                mirror="?" if "no mirror of the floor" in bugs else keys.mirror,
                tag="?" if "no tag" in bugs else keys.tag,
            )
        return keys

    def _checked(self, table: Table, commit: TableCommit, memory: _Memory) -> TableState:
        world = self.world
        if table.is_missing:
            raise CommitRefused("missing", code="table_missing")
        uuids = {e.event.payload.table.table_uuid for e in commit.announcements}  # type: ignore[union-attr] # DataWritten
        if uuids != {table.uuid} and "replaced table taken for the old one" not in world.bugs:
            raise CommitRefused("replaced", code="table_replaced")
        known_topic = table.properties.get(TOPIC_ID)
        if (
            known_topic
            and known_topic != str(self.topic_id)
            and "control topic re-created unnoticed" not in world.bugs
        ):
            raise CommitRefused("another topic", code="control_log_reset")
        state = table_state(table, self._keys(table))  # type: ignore[arg-type] # the table has what is read of metadata
        if memory.floor is None:
            memory.floor = dict(state.floor)
        for snapshot_id in [s for s in memory.pending if s in table.by_id]:
            memory.floor = merged(memory.floor, memory.pending.pop(snapshot_id))
        if (
            not covers(memory.floor, state.floor)
            and "moved floor unnoticed" not in world.bugs
            and "automatic rebase of a lost commit" not in world.bugs
        ):
            raise _FencedError
        return state

    def _land(  # noqa: C901 - planted bugs sit where they would
        self, table: Table, commit: TableCommit, memory: _Memory, content: Content
    ) -> Iterator[Any]:
        world = self.world
        snapshot_id = world.new_id()
        base, uuid, is_uncertain = table.base, table.uuid, False
        memory.head_id = None
        try:
            for attempt in range(ATTEMPTS_MAX):
                yield None
                try:
                    if "no precondition on the branch" in world.bugs:
                        base = table.base
                    world.attempt(table, uuid, base, snapshot_id, content)
                except ConflictError:
                    pass
                except UnknownError:
                    is_uncertain = True
                    if "files deleted on unknown" in world.bugs:
                        world.delete_files(table, content)
                    if "blind retry on unknown" in world.bugs:
                        snapshot_id, base = world.new_id(), table.base
                        continue
                else:
                    memory.head_id = None if attempt else snapshot_id
                    return snapshot_id
                yield None
                if snapshot_id in table.by_id and "no read after an error" not in world.bugs:
                    return snapshot_id
                state = self._checked(table, commit, memory)
                if self._floor(state, memory) != content.floor and not (
                    world.bugs & {"moved floor unnoticed", "automatic rebase of a lost commit"}
                ):
                    raise _FloorMovedError
                is_unnoticed = "reset unnoticed by a commit" in world.bugs
                if state.reset_offsets != content.reset_offsets and not is_unnoticed:
                    raise _FloorMovedError
                base, uuid = table.base, table.uuid
            raise ConflictError
        finally:
            if is_uncertain:
                memory.pending[snapshot_id] = content.offsets


def _failed(commit: TableCommit, code: str, *, is_retriable: bool) -> TableFailed:
    return TableFailed(commit.table, commit.commit_id, code, "", is_retriable)


class Content:
    """The content of a commit, for any parent.

    Attributes:
        has_floor: it carries control offsets.
    """

    has_floor = True

    def __init__(
        self,
        world: World,
        *,
        steps: list[list[Any]],
        offsets: dict[int, int],
        vtts: int | None,
        partitions: frozenset[int],
        floor: dict[int, int],
        topic_id: int | None,
        round_us: int | None = None,
        reset_offsets: Mapping[int, int] = NOTHING,
        read_to: Mapping[int, int] = NOTHING,
    ) -> None:
        self.world = world
        self.round_us = round_us  # VTTS of the round
        self.steps = steps
        self.offsets = offsets
        self.valid_through_us = vtts
        self.partitions = partitions
        self.floor = floor
        self.reset_offsets = reset_offsets
        self.read_to = read_to  # how far the round has read the control topic
        self.topic_id = topic_id
        files = [f for step in steps for written in step for f in written.data_files]
        self.paths = {path for path, _, _ in files}
        self.uuids = {written.table.table_uuid for step in steps for written in step}
        self.added = 0
        for _, added, _ in files:
            self.added |= added

    def snapshot(self, snapshot_id: int, parent: Snapshot | None) -> Snapshot:
        """The snapshot on a parent: deletes reach rows of earlier steps, data is added."""
        made = Snapshot(snapshot_id, parent, own_summary(self.offsets_text, self.valid_through_us))
        world = self.world
        for step in self.steps:
            for written in step:
                for key in written.delete_files:
                    made.visible &= ~world.key_bits[key]
            for written in step:
                for _, added, visible in written.data_files:
                    if made.added & added:
                        world.violation(f"twice: {world.named(made.added & added)}")
                    made.added |= added
                    made.visible |= visible
        made.offsets = {**made.offsets, **self.offsets}
        made.valid_through_us = self.valid_through_us
        return made

    def put(self, table: Table, snapshot: Snapshot) -> None:
        """Make its snapshot the head of the branch."""
        table.put_own(snapshot, self.offsets_text, self.topic_id)

    @property
    def offsets_text(self) -> str:
        """The mirror property."""
        return "{" + ",".join(f'"{p}":{o}' for p, o in self.offsets.items()) + "}"

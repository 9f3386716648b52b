"""Checks the guarantees at every commit and at the end of every run.

Rules of this file:
- Checks use only tables, logs and group offsets, never the state of actors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from connect.errors import CommitRefused
from connect.protocol import control_offsets
from control_schemas.events import DataWritten
from coordinator.commit.iceberg.floor import FloorKeys, TableState, merged, table_state
from tests.simulation import script
from tests.simulation.catalog import (
    CATALOG_AWAY,
    MIRROR,
    RESET_MIRROR,
    SUMMARY,
    TAG,
    Snapshot,
    Table,
)
from tests.simulation.kafka import COMMITTED, CONTROL_GROUP, GROUP
from tests.simulation.task import FUTURE_MAX_MS, UNCOMMITTED_ROUNDS_MAX

if TYPE_CHECKING:
    from tests.simulation.world import World

# a pure function of a text that every check reads again
parse_offsets = lru_cache(maxsize=10_000)(control_offsets.parse_offsets)
RESET_FAILURE = "table failed: control_log_reset"


def unreadable(
    world: World, table_index: int, added: int, vtts: int, partitions: frozenset[int]
) -> int:
    """Return the records with a timestamp up to a VTTS that are not in ``added``."""
    if "control_log_reset" in world.happened:  # checked at the end, see _check_reset
        return 0
    if world.is_vtts_wrong:  # the configuration accepts any timestamp
        return 0
    absent = world.routed[table_index] & ~(added | world.given_up["abc"[table_index]])
    found = 0
    if absent:
        for partition in partitions:
            for at_us, bit, _ in world.source[partition]:
                if bit & absent and at_us <= vtts:
                    found |= bit
    return found


def check_commit(
    world: World, table: Table, parent: Snapshot | None, snapshot: Snapshot, content: Any
) -> None:
    """Check a commit of the connector on its parent snapshot."""
    if content.has_floor and "control_log_reset" not in world.happened:
        mirror = parse_offsets(table.properties.get(MIRROR))
        before = mirror if parent is None else merged(mirror, parent.offsets)
        for partition, offset in before.items():
            if content.offsets.get(partition, 0) < offset:
                world.violation(
                    f"control offsets of {table.name} went back {before} -> {content.offsets}"
                )
    if "control_log_lost" not in world.happened:  # with some of an answer perhaps
        for path in content.paths & world.steps.keys():
            if not world.steps[path] <= content.paths:
                world.violation(f"a step of {table.name} is committed in part")
    _check_valid_through(world, table, snapshot, content)
    if table.is_upsert:
        _check_keys(world, snapshot)


def check_waiting(world: World, waiting: Mapping[Any, tuple[int, ...]]) -> None:
    """Check that the rounds which a task has announced, but none is committed, are bounded.

    A successor does not know what tables hold of the answer in whose middle it begins to read. A
    round that timed out may be over before its coordinator reads an answer to it, which the task
    then takes for committed. Rounds that were announced for a table which failed by itself held
    no task back. The bytes that are kept bound both (``kept_bytes_max``). A successor that starts
    without its group's offsets reads committed rounds again, and reports them as waiting until the
    catalog can be asked: those do not count.
    """
    own = sum(
        count
        for name, count in world.counts.items()
        if name.startswith("table failed: ") and not name.endswith(CATALOG_AWAY)
    )
    late = world.sessions + world.counts.get("round timed out", 0) + own
    for number, rounds in Counter(n for tasks in waiting.values() for n in tasks).items():
        bound = (UNCOMMITTED_ROUNDS_MAX + 1) * world.incarnations[number]
        if rounds < bound + late:
            continue
        committed = committed_rounds(world)
        without = sum(number in tasks for i, tasks in waiting.items() if i not in committed)
        if without >= bound + late:
            world.violation(
                f"task {number} has announced {without} rounds of which none is committed"
            )


def committed_rounds(world: World) -> set[Any]:
    """Return commit ids of rounds with a committed announcement in at least one table."""
    floors = {name: floor(table) for name, table in world.tables.items()}
    found = set()
    for partition, entries in enumerate(world.log.entries):
        for offset, (_, read) in enumerate(entries):
            payload = None if read is None else read.event.payload
            if not isinstance(payload, DataWritten):
                continue
            if offset < floors[payload.table.name].get(partition, 0):
                found.add(payload.commit_id)
    return found


def _check_valid_through(world: World, table: Table, snapshot: Snapshot, content: Any) -> None:
    """Check that the VTTS of a commit is correct and not below the last one."""
    vtts = content.valid_through_us
    before = parse_offsets(table.properties.get(RESET_MIRROR))
    is_old = before and all(at <= before.get(p, 0) for p, at in content.read_to.items())
    if is_old and vtts is not None:
        world.violation(f"a round from before the reset claims a VTTS for {table.name}")
    is_reset = world.flags & script.RESET and not world.is_vtts_wrong and not is_old
    if is_reset and vtts is None and (content.round_us or -1) >= table.claimed_us:
        world.violation(f"a claim from before the reset holds {table.name} back")
    if vtts is not None:
        check_future(world, vtts)
        if vtts < table.claimed_us:
            world.violation(f"VTTS of {table.name} went back {table.claimed_us} -> {vtts}")
        index = "abc".index(table.name)
        missing = unreadable(world, index, snapshot.added, vtts, content.partitions)
        if missing:
            world.violation(f"VTTS {vtts} of {table.name}, but {world.named(missing)} missing")


class _Referenced:
    """A table as a catalog returns it without history: the snapshots that references name."""

    def __init__(self, table: Table) -> None:
        self.refs, self.properties = table.refs, table.properties
        self.current_snapshot_id = table.current_snapshot_id
        named = {ref.snapshot_id for ref in table.refs.values()}
        self.snapshots = [table.by_id[snapshot_id] for snapshot_id in named]


def check_without_history(
    world: World,
    table: Table,
    keys: FloorKeys,
    state: TableState,
    *,
    head_id: int,
    last_us: int | None,
) -> None:
    """Check that a table says the same without its history, while our last commit is its head.

    Args:
        world: of the table.
        table: as it is.
        keys: of the connector.
        state: what the table says with its history.
        head_id: snapshot of the last commit.
        last_us: the last VTTS as of that commit, which the committer remembers.
    """
    branch, tag = table.refs.get(table.branch), table.refs.get(keys.tag)
    if branch is None or tag is None or {branch.snapshot_id, tag.snapshot_id} != {head_id}:
        return
    short = table_state(_Referenced(table), keys)  # type: ignore[arg-type] # as above
    texts: Any = short.valid_through_texts
    known: Any = state.valid_through_texts
    vtts = max((*texts, last_us) if last_us is not None else texts, default=None)
    said = (short.floor, short.reset_offsets, vtts)
    if said != (state.floor, state.reset_offsets, max(known, default=None)):
        world.violation(f"{table.name} says {said} without its history, {state} with it")


def check_future(world: World, vtts: int) -> None:
    """Check that a VTTS is not ahead of the clock: the next record would be below it."""
    if vtts > world.now_us + FUTURE_MAX_MS * 1000 and not world.is_vtts_wrong:
        world.violation(f"VTTS {vtts} is ahead of the clock")


def _check_keys(world: World, snapshot: Snapshot) -> None:
    """Check that of each key only the newest row is visible."""
    for bits in world.key_bits.values():
        added = snapshot.added & bits
        seen = snapshot.visible & bits
        if added and seen != 1 << (added.bit_length() - 1):
            world.violation(f"rows of one key: {world.named(seen)} of {world.named(added)}")


def missing(world: World) -> int:
    """Return the records that are in no table and were not skipped by an operator."""
    out = 0
    for index, (name, table) in enumerate(world.tables.items()):
        if name != world.left_missing:
            out |= world.routed[index] & ~(table.added | world.given_up[name])
    return out


def missing_named(world: World) -> str:
    """Return the first missing records, as text."""
    return world.named(missing(world))


def floor(table: Table) -> dict[int, int]:
    """Return the floor of a table in any state of its branch."""
    found = [parse_offsets(table.properties.get(MIRROR))]
    tag = table.refs.get(TAG)
    ids = [tag.snapshot_id] if tag is not None else []
    current = None if table.head_id is None else table.by_id.get(table.head_id)
    while current is not None:
        ids.append(current.snapshot_id)
        parent = current.parent_snapshot_id
        current = None if parent is None else table.by_id.get(parent)
    for snapshot_id in ids:
        known = table.by_id[snapshot_id].summary.additional_properties.get(SUMMARY)
        if isinstance(known, str):
            found.append(parse_offsets(known))
            if len(found) > 2:
                break
    return merged(*found)


def waiting(world: World) -> dict[str, int]:
    """Return the announced records that a new coordinator would commit, by table."""
    log = world.log
    stored = log.groups[CONTROL_GROUP]
    out = dict.fromkeys(world.tables, 0)
    floors = {name: floor(table) for name, table in world.tables.items()}
    for partition, entries in enumerate(log.entries):
        start = max(stored.get(partition, 0), log.starts[partition])
        for offset in range(start, len(entries)):
            transaction, read = entries[offset]
            if read is None or transaction.state != COMMITTED:
                continue
            payload = read.event.payload
            if isinstance(payload, DataWritten):
                name = payload.table.name
                if offset >= floors[name].get(partition, 0):
                    for _, added, _ in payload.data_files or ():  # type: ignore[misc] # files in small
                        out[name] |= added
    return out


def check_end(world: World) -> None:
    """Check that announced records are in their table, or that a new coordinator finds them."""
    if "control_log_reset" in world.happened:
        if world.is_healing and world.stopped is None and RESET_FAILURE not in world.counts:
            _check_reset(world)
        return
    stored = world.log.groups[GROUP]
    announced = 0
    for partition, records in enumerate(world.source):
        for _, bit, _ in records[: stored.get(partition, 0)]:
            announced |= bit
    there = waiting(world)
    for index, (name, table) in enumerate(world.tables.items()):
        accounted = table.added | there[name] | world.given_up[name] | world.gone[name]
        lost = world.routed[index] & announced & ~accounted
        if lost:
            world.violation(f"lost for ever: {world.named(lost)} of {name}")
        twice = there[name] & table.added & ~world.given_up[name]
        if twice and not _is_floor_lost(table):
            world.violation(f"will be twice: {world.named(twice)} of {name}")


def _is_floor_lost(table: Table) -> bool:
    """Return whether a coordinator would refuse to commit to the table."""
    try:
        table_state(table, table.keys)  # type: ignore[arg-type] # the table has what is read of metadata
    except CommitRefused as refusal:
        return refusal.code == "floor_lost"
    return False


def _check_reset(world: World) -> None:
    """Check that no record is missing if a re-created control topic was not detected.

    A table that was never committed to cannot know, and neither can its coordinator.
    """
    for index, (name, table) in enumerate(world.tables.items()):
        if name in world.reset_tables and name != world.left_missing:
            lost = world.routed[index] & ~(table.added | world.given_up[name])
            if lost:
                world.violation(f"control topic re-created, silent loss: {world.named(lost)}")


def floor_text(table: Table) -> str:
    """Return the mirror text that an operator writes after inspection of the table."""
    head = None if table.head_id is None else table.by_id[table.head_id]
    offsets = {} if head is None else head.offsets
    return "{" + ",".join(f'"{p}":{o}' for p, o in offsets.items()) + "}"

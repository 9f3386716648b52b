"""What happens to the tables, and what operators do about it.

Rules of this file: those of ``faults``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.refs import SnapshotRefType

from coordinator.kernel.effects import TableDecision
from coordinator.kernel.kernel import Phase
from tests.simulation import checks, script
from tests.simulation.catalog import CATALOG_AWAY, MIRROR, TAG, ConflictError, Ref, Table
from tests.simulation.coordinator import Coordinator
from tests.simulation.kafka import CONTROL_GROUP
from tests.simulation.reset import Reset

if TYPE_CHECKING:
    from tests.simulation.world import World

_COMMITTING = (Phase.COMMITTING, Phase.COMPLETING)
LATE_MS_MAX = 60  # a request does not outlive its timeout


def _table(world: World) -> Table:
    return list(world.tables.values())[world.pick(3)]


def foreign_commit(world: World) -> None:
    """Another writer appends to a table, or compacts it."""
    table = _table(world)
    if not table.is_missing and (table.branch == "main" or table.head_id is not None):
        world.count("foreign commit")
        table.put_foreign(world.new_id())


def expire(world: World) -> None:
    """Snapshots expire; sometimes the tag goes first, sometimes the mirror property."""
    table = _table(world)
    if not table.is_missing:
        is_bare = world.flags & script.BARE_TABLE and world.log.groups[CONTROL_GROUP]
        with_tag = world.pick(3) == 0
        with_mirror = bool(is_bare) and world.pick(2) == 0
        kept = len(table.by_id)
        table.expire(with_tag=with_tag, with_mirror=with_mirror)
        if len(table.by_id) < kept:
            world.count("expiry with the tag" if with_tag else "expiry")
        if MIRROR not in table.properties:  # a table that we never committed to, or laid bare
            world.happened.add(f"floor_lost {table.name}")


def set_up_tables_of_others(world: World) -> None:
    """Tables that others wrote before the connector began, and whose old snapshots expired."""
    for table in world.tables.values():
        if world.pick(2):
            for _ in range(2):
                table.put_foreign(world.new_id())
            table.expire(with_tag=False, with_mirror=False)
            world.happened.add(f"floor_lost {table.name}")
            world.count("table of others with expired snapshots")


def go_missing(world: World) -> None:
    """The catalog does not find a table for a while."""
    table = _table(world)
    table.is_missing = not table.is_missing
    world.happened.add(f"table_missing {table.name}")
    world.count("table missing" if table.is_missing else "table restored")


def go_away(world: World) -> None:
    """The catalog does not answer for a while."""
    world.catalog_back_at_ms = world.now_ms + world.pick(120)
    world.happened.add(CATALOG_AWAY)
    world.count("catalog unavailable")


def roll_back(world: World) -> None:
    """An operator sets a branch to an older snapshot."""
    table = _table(world)
    target = table.older(world.pick(3) + 1)
    head = table.older(0)
    if target is None or head is None or table.is_missing:
        return
    world.count("roll back")
    _drop_late(world, table)
    world.given_up[table.name] |= head.added & ~target.added
    first, _ = world.rolled_from.get(table.name, (head, target))  # forward is where it began
    world.rolled_from[table.name] = (first, target)
    world.happened |= {f"table_rolled_back {table.name}", f"floor_lost {table.name}"}
    table.point(target)


def delete_branch(world: World) -> None:
    """An operator deletes the branch that the connector commits to."""
    table = world.tables["b"]
    if table.branch != "main" and table.head_id is not None and not table.is_missing:
        world.count("branch deleted")
        _drop_late(world, table)
        world.given_up["b"] |= table.added
        world.happened |= {"branch_missing b", "table_rolled_back b", "floor_lost b"}
        del table.refs[table.branch]


def replace_table(world: World) -> None:
    """A table is dropped and another one made under its name."""
    table = _table(world)
    world.count("table replaced")
    world.given_up[table.name] |= table.added
    world.rolled_from.pop(table.name, None)
    table.replace(world.new_id())
    old = world.references[table.name]
    world.references[table.name] = type(old)(old.catalog, old.namespace, old.name, table.uuid)  # type: ignore[arg-type] # any identity will do
    world.happened |= {f"table_replaced {table.name}", f"table_missing {table.name}"}


def _drop_late(world: World, table: Table) -> None:
    world.late = [late for late in world.late if late[1] is not table]


def land_late(world: World) -> None:
    """A commit whose sender gave it up reaches the catalog."""
    if not world.late:
        return
    sent_ms, table, uuid, base, snapshot_id, content = world.late.pop(world.pick(len(world.late)))
    if world.now_ms - sent_ms <= LATE_MS_MAX:
        try:
            world.land(table, uuid, base, snapshot_id, content)
        except ConflictError:
            world.count("late commit refused")
        else:
            world.count("late commit applied")


# ------------------------------------------------------------------ operators


def reset_valid_through(world: World) -> None:
    """An operator stops the connector and resets its VTTS.

    The stop fences the tasks. A coordinator that is frozen, and its requests that are under way,
    may outlive the reset. It has its transactional id already, or it takes that over later.
    """
    if not world.is_vtts_wrong or (world.reset is not None and world.reset.is_alive):
        return
    for actor in (*world.tasks, world.keeper, world.leader):
        if actor is not None:
            actor.end()
    if world.flags & script.FREEZE and world.pick(2):  # it has just been started
        late = Coordinator(world, world.ready)
        world.coordinators.append(late)
        late.pause()
    for coordinator in world.coordinators:
        coordinator.is_outdated = True
        is_busy = coordinator.kernel.phase in _COMMITTING
        is_killed = not coordinator.is_paused and not is_busy and world.pick(3)
        if coordinator.is_alive and is_killed:
            coordinator.end()
        elif coordinator.is_alive:
            world.count("coordinator outlives a VTTS reset")
            coordinator.pause()
    # a stop clears the layout, and the next start makes another one: its tasks are newer
    layout = world.new_layout(world.config_log[-1].number + 1)
    world.config_log.append(layout)
    for number in range(max(len(known.tasks) for known in world.config_log)):
        world.log.init(f"g-c-{number}")
    world.note_read()
    world.ready = layout
    world.count("VTTS reset asked for")
    world.reset = Reset(world)


def decide(world: World) -> None:
    """An operator tells the coordinator to try a table again, or to give up what waits for it."""
    name = "abc"[world.pick(3)]
    action = "skip" if world.pick(4) == 0 else "retry"
    _send_decision(world, name, action)


def _send_decision(world: World, name: str, action: str) -> None:
    for coordinator in world.coordinators:
        is_failed = ("db", name) in coordinator.kernel.failures.by_table
        if is_failed and coordinator.is_alive and not coordinator.is_paused:
            world.count(f"operator: {action}")
            coordinator.given.append(TableDecision(world.references[name], action))


def repair(world: World) -> None:
    """An operator puts a table in order."""
    _restore(world, _table(world), is_forward=world.pick(2) == 0)


def _restore(world: World, table: Table, *, is_forward: bool) -> None:
    if table.is_missing:
        world.count("table restored")
        table.is_missing = False
    rolled = world.rolled_from.pop(table.name, None)
    if rolled is not None:
        head, target = rolled
        is_untouched = table.head_id == target.snapshot_id and head.snapshot_id in table.by_id
        if is_forward and is_untouched:
            world.count("rolled forward again")
            world.given_up[table.name] &= ~head.added
            table.point(head)
        else:
            world.count("roll back accepted")
            table.refs.pop(TAG, None)
    tag = table.refs.get(TAG)
    is_known = tag is not None or MIRROR in table.properties
    if table.branch != "main" and table.head_id is None and is_known:
        at = table.refs.get("main") if tag is None else tag
        if at is None:
            world.count("branch made empty")  # nothing is left of what was in it
            table.properties[MIRROR] = "{}"
        else:
            world.count("branch recreated")  # where it was, or what is left
            table.refs[table.branch] = Ref(at.snapshot_id, SnapshotRefType.BRANCH)
            world.given_up[table.name] &= ~table.added


def repair_all(world: World) -> None:
    """Everything is put in order, but perhaps for one table that is left as it is."""
    world.catalog_back_at_ms = 0
    left = "abc"[world.pick(3)] if world.pick(2) else ""
    for name, table in world.tables.items():
        if name == left and table.is_missing:
            world.count("a table stays missing")
            world.left_missing = name
        else:
            _restore(world, table, is_forward=world.pick(2) == 0)


def decide_all(world: World) -> None:
    """An operator answers for every failed table."""
    for coordinator in world.coordinators:
        for identifier, failure in list(coordinator.kernel.failures.by_table.items()):
            name = identifier[-1]
            if failure.code == "floor_lost":  # "nothing of ours is in it", or what was, is known
                mirror = checks.floor_text(world.tables[name])
                world.tables[name].properties["mirror"] = mirror
            if failure.code not in {"control_log_reset", "table_missing"} or (
                failure.code == "table_missing" and name != world.left_missing
            ):
                _send_decision(world, name, "skip" if failure.code == "table_replaced" else "retry")

"""Faults of the actors, the log and the tables, one function per move.

Rules of this file:
- A function does nothing without a target, and counts the faults that happened.
- What makes a stop or a failed table legitimate is noted in ``world.happened`` by these
  functions only; they also give up what an operator takes out of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from control_schemas.events import (
    DataComplete,
    DataWritten,
    TopicPartitionOffset,
)
from coordinator.kernel.kernel import Phase
from tests.simulation import checks, script, table_faults
from tests.simulation.catalog import TOPIC_ID
from tests.simulation.coordinator import Coordinator
from tests.simulation.kafka import COMMITTED, CONTROL_GROUP, GROUP, Transaction
from tests.simulation.reset import Reset
from tests.simulation.task import NO_HEADERS, TOPIC, Actor, Keeper, Leader

if TYPE_CHECKING:
    from tests.simulation.world import World

_COMMITTING = (Phase.COMMITTING, Phase.COMPLETING)


def set_up(world: World) -> None:
    """Create the state before the first actor: tables with a history, events of a Java sink."""
    for name, table in world.tables.items():
        if name == "b" or world.pick(2):
            table.put_foreign(world.new_id())
            if table.branch != "main":
                table.refs = {"main": table.refs[table.branch]}
    if world.flags & script.JAVA:
        _leave_announcements(world)


def _leave_announcements(world: World) -> None:
    """A killed Java sink: announced, never committed, keys at random, no headers."""
    log = world.log
    if world.flags & script.FOREIGN_GROUP and world.pick(2):
        hang_transaction(world)
    epoch = log.init("java-0")
    transaction = log.begin("java-0", epoch)
    assignments = []
    for partition in range(len(world.source)):
        for _ in range(world.pick(6) + 1):
            world.produce(partition)
        end = len(world.source[partition])
        at_us = world.source[partition][-1][0]
        assignments.append(TopicPartitionOffset(TOPIC, partition, end, at_us))
        log.groups[GROUP][partition] = end
        for _, bit, table in world.source[partition]:
            for event in world.write_step(table, [bit]):
                written = DataWritten(0, *event)  # type: ignore[arg-type] # any identity will do
                where = world.pick(len(log.entries))
                log.produce("java-0", epoch, transaction, written, NO_HEADERS, partition=where)
    complete = DataComplete(0, tuple(assignments))  # type: ignore[arg-type] # any identity will do
    where = world.pick(len(log.entries))
    log.produce("java-0", epoch, transaction, complete, NO_HEADERS, partition=where)
    log.commit("java-0", epoch, transaction)
    world.count("taken over from Java")


# ------------------------------------------------------------------ actors


def produce(world: World) -> None:
    """Records arrive."""
    partition = world.pick(len(world.source))
    for _ in range(world.pick(3) + 1):
        world.produce(partition)


def supervise(world: World) -> None:
    """The node supervises its processes."""
    world.supervise()


def crash(world: World) -> None:
    """An actor is killed."""
    actors = world.actors()
    if actors:
        ending = [c for c in world.coordinators if c in actors and c.kernel.phase in _COMMITTING]
        victim = ending[0] if ending and world.pick(2) else actors[world.pick(len(actors))]
        world.count("crash", victim)
        victim.end()


def freeze(world: World) -> None:
    """An actor is frozen in the middle; the node starts another one."""
    actors = [a for a in world.actors() if not isinstance(a, Leader | Reset)]
    if actors:
        busy = [c for c in world.coordinators if c in actors and c.commits]
        victim = busy[0] if busy and world.pick(4) else actors[world.pick(len(actors))]
        world.count("freeze", victim)
        victim.pause()
        world.supervise()


def thaw(world: World) -> None:
    """A frozen actor continues where it was."""
    everyone: list[Actor] = [*world.tasks, *world.coordinators]
    if world.keeper is not None:
        everyone.append(world.keeper)
    frozen = [a for a in everyone if a.is_paused and a.is_alive]
    if frozen:
        zombie = frozen[world.pick(len(frozen))]
        world.count("zombie", zombie)
        zombie.resume()
        if isinstance(zombie, Coordinator) and zombie.is_outdated:  # before the next one starts
            zombie.step(world.pick(12) + 1)
        if zombie is world.keeper and world.pick(2):  # and frozen again
            zombie.step(world.pick(3) + 1)
            zombie.pause()


def restart_task(world: World) -> None:
    """A task that has answered starts over and will answer the same round again."""
    answered = [t for t in world.tasks if t.is_alive and not t.is_paused and t.answered is not None]
    if answered:
        world.count("restart after an answer")
        answered[world.pick(len(answered))].end()
        world.supervise()


def change_layout(world: World) -> None:
    """Tasks are dealt again, perhaps because a partition was added."""
    if world.leader is None or not world.leader.is_alive:
        if world.pick(2) and len(world.source) < len(world.source_starts):
            world.count("partition added")
            world.source.append([])
            for _ in range(world.pick(8) + 6):
                world.produce(len(world.source) - 1)
            if world.pick(2):  # it is noticed later
                return
        world.count("layout change")
        world.leader = Leader(world)


def crash_leader(world: World) -> None:
    """The leader dies between any two of its steps."""
    if world.leader is not None and world.leader.is_alive:
        world.count("crash", world.leader)
        world.leader.end()


def finish_layout(world: World) -> None:
    """The node ends what a dead leader began."""
    newest = world.config_log[-1]
    is_whole = newest is world.ready and len(newest.partitions) == len(world.source)
    if not is_whole and (world.leader is None or not world.leader.is_alive):
        world.leader = Leader(world)


def finish(world: World) -> None:
    """A coordinator is stopped in order: it reads to the end, commits once more, and ends."""
    running = [c for c in world.coordinators if c.is_alive and not c.is_paused and not c.is_ending]
    if running:
        world.count("last commit asked for")
        running[world.pick(len(running))].is_ending = True


def keep_offsets(world: World) -> None:
    """The leader stores offsets again that no task stores."""
    if world.keeper is not None and world.keeper.is_alive:
        return
    layout = world.ready
    number = world.pick(len(layout.tasks))
    for task in world.tasks:
        if task.number == number and task.is_alive and not task.is_paused:
            if world.pick(2):
                return
            world.count("task failed")
            task.end()
    world.note_read()
    world.keeper = Keeper(world, layout, number)
    if effects := (0, 0, 0, 1, 2, 3)[world.pick(6)]:
        world.keeper.step(effects)
    if world.pick(2) == 0:  # its node is frozen
        world.keeper.pause()
    if world.pick(2):
        world.supervise()  # an operator starts the task again


# ------------------------------------------------------------------ control topic, source


def lose_config_topic(world: World) -> None:
    """Every node is down and the config topic is lost; the connector is created again."""
    for actor in (*world.tasks, *world.coordinators, world.leader, world.keeper):
        if actor is not None:
            actor.end()
    world.count("config topic lost")
    is_blind = "layout numbers from the config topic only" in world.bugs
    layout = world.new_layout(1 if is_blind else world.log.newest_layout() + 1)
    for number in range(4):  # partitions at most, so tasks of any layout
        world.log.init(f"g-c-{number}")
    world.config_log, world.ready, world.source_floor = [layout], layout, set()
    world.note_read()


def expire_source_offset(world: World) -> None:
    """The broker forgets the source offset of a partition that no task commits."""
    stored = world.log.groups[GROUP]
    partition = world.pick(len(world.source))
    reading = {tp.partition for t in world.tasks if t.is_alive for tp in t.layout.tasks[t.number]}
    if partition not in stored or partition in reading:
        return
    if partition not in world.source_floor and world.pick(4):
        world.note_read()  # the leader does so long before an offset expires, if it runs
    elif partition not in world.log.announced_partitions():
        return  # no process can know of it
    world.count("source offset expired")
    world.happened.add("offsets_lost")
    del stored[partition]


def time_out_transaction(world: World) -> None:
    """The broker aborts a transaction that took too long."""
    if world.log.open:
        ids = list(world.log.open)
        world.count("transaction timed out")
        world.log.abort(ids[world.pick(len(ids))])


def hang_transaction(world: World) -> None:
    """Another connector's transaction stays open and holds readers back."""
    world.hang_transaction(world.pick(len(world.log.entries)))


def foreign_events(world: World) -> None:
    """Other connectors' events, which the inbox passes over."""
    world.count("foreign control events")
    transaction = Transaction()
    transaction.state = COMMITTED
    entries = world.log.entries[world.pick(len(world.log.entries))]
    entries += [(transaction, None)] * (world.pick(5) + 1)


def retain(world: World) -> None:
    """Retention deletes control events that the group has passed."""
    partition = world.pick(len(world.log.entries))
    offset = world.log.groups[CONTROL_GROUP].get(partition, 0)
    # a partition may be known by its announcements alone
    if offset > world.log.starts[partition] and "offsets_lost" not in world.happened:
        world.count("committed control events deleted")
        world.log.truncate(partition, offset)


def lose_control_events(world: World) -> None:
    """Retention deletes control events that a coordinator still needs."""
    log = world.log
    partition = world.pick(len(log.entries))
    stored = log.groups[CONTROL_GROUP].get(partition)
    end = log.stable_end(partition)
    low = max(stored or 0, log.starts[partition])
    if end <= low or world.pick(3) or "offsets_lost" in world.happened:
        return
    before = checks.waiting(world)
    log.truncate(partition, low + 1 + world.pick(end - low))
    after = checks.waiting(world)
    for name, announced in before.items():
        world.gone[name] |= announced & ~after[name]
        if stored is None:  # no round was ever completed: no process can know of it
            world.given_up[name] |= announced & ~after[name]
    world.happened.add("control_log_lost")
    world.count("control events lost")


def create_topic_again(world: World) -> None:
    """The control topic is deleted and created again."""
    if world.happened & {"control_log_reset", "offsets_lost"} or world.pick(2):
        return
    for name, announced in checks.waiting(world).items():
        world.gone[name] |= announced
        # without a completed round, or a commit to the table, no process can know of it
        if world.log.groups[CONTROL_GROUP] and TOPIC_ID in world.tables[name].properties:
            world.reset_tables.add(name)
        else:
            world.given_up[name] |= announced
    world.log.create_again()
    world.happened.add("control_log_reset")
    world.count("control topic re-created")


def expire_offsets(world: World) -> None:
    """The broker forgets the control group's offsets."""
    if world.log.groups[CONTROL_GROUP] and not world.happened & {
        "control_log_lost",
        "control_log_reset",
    }:
        world.count("control group expired")
        world.log.groups[CONTROL_GROUP] = {}


def lose_source_records(world: World) -> None:
    """Source retention passes the reader."""
    partition = world.pick(len(world.source))
    records = world.source[partition]
    stored = world.log.groups[GROUP].get(partition, 0)
    if len(records) <= stored or world.pick(3):
        return
    start = stored + 1 + world.pick(len(records) - stored)
    world.source_starts[partition] = max(start, world.source_starts[partition])
    for _, bit, table in records[stored:start]:
        world.given_up["abc"[table]] |= bit
    world.happened.add("source_data_lost")
    world.count("source records lost")


MOVES: dict[str, Callable[[World], None]] = {
    function.__name__: function
    for function in (
        produce,
        supervise,
        crash,
        freeze,
        thaw,
        restart_task,
        change_layout,
        crash_leader,
        time_out_transaction,
        hang_transaction,
        foreign_events,
        retain,
        lose_control_events,
        create_topic_again,
        expire_offsets,
        lose_source_records,
        finish,
        keep_offsets,
        lose_config_topic,
        expire_source_offset,
        table_faults.foreign_commit,
        table_faults.expire,
        table_faults.go_missing,
        table_faults.go_away,
        table_faults.roll_back,
        table_faults.delete_branch,
        table_faults.replace_table,
        table_faults.land_late,
        table_faults.decide,
        table_faults.repair,
        table_faults.reset_valid_through,
    )
}

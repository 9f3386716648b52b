"""Tasks and the leader. Each ``next`` of their programs is one effect on the outside.

Rules of this file:
- An actor has one external effect per step, so that a crash, a pause or another actor can come
  between any two effects. It yields True if it has nothing to do.
- A paused actor that continues later is a zombie. Only the broker's epochs and the catalog's
  preconditions stop it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from connect.model.layout import Layout
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    EventHeaders,
    SourceRange,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from tests.simulation import script
from tests.simulation.kafka import GROUP, FencedError, LostAnswerError, OutOfRangeError
from worker.task.rounds.task_rounds import TaskRounds

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPIC = "s"
UNCOMMITTED_ROUNDS_MAX = 1
FUTURE_MAX_MS = 1
SILENCE_MS_MAX = 10_000_000
NO_HEADERS = EventHeaders()
Files = tuple[TableReference, tuple[Any, ...], tuple[Any, ...]]  # data and delete files, in small


@cache
def _step_headers(layout: int, batch: int, task: int) -> EventHeaders:
    return EventHeaders(layout=layout, batch=batch, task=task)


@cache
def _headers(layout: int, task: int) -> EventHeaders:
    return EventHeaders(layout=layout, ranges=(), task=task)


class Actor:
    """A process or thread that runs and can be killed or frozen."""

    kind = "actor"
    is_quick = True  # several of its effects may come before another actor's

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_alive = True
        self.is_paused = False
        self.program = self._run()
        world.actors_changed()

    def _run(self) -> Generator[bool, None, None]:
        raise NotImplementedError

    def end(self) -> None:
        """End the actor, by a kill or at the end of the run, and break its reference cycles."""
        self.is_alive = False
        self.program.close()
        self.world.actors_changed()

    def pause(self) -> None:
        """Freeze the actor."""
        self.is_paused = True
        self.world.actors_changed()

    def resume(self) -> None:
        """Let a frozen actor continue."""
        self.is_paused = False
        self.world.actors_changed()

    def step(self, effects: int) -> None:
        """Run up to ``effects`` effects; stop earlier if the actor is idle."""
        left = effects
        try:
            for is_idle in self.program:
                left -= 1
                if is_idle or not left:
                    return
        except (FencedError, LostAnswerError) as e:
            self.world.count("fenced" if isinstance(e, FencedError) else "answer lost", self)
        except OutOfRangeError:
            pass
        self.is_alive = False
        self.world.actors_changed()


class Task(Actor):
    """One incarnation of one task."""

    kind = "task"

    def __init__(self, world: World, layout: Layout, number: int) -> None:
        super().__init__(world)
        self.layout = layout
        self.number = number
        world.incarnations[number] += 1
        self.transactional_id = f"g-c-{number}"
        self.position: dict[int, int] = {}
        self.announced: dict[int, int] = {}
        self.claims: dict[int, int | None] = {}
        self.batch = 0
        self.files: list[tuple[int, Files]] = []
        self.answered: Any = None
        self.epoch = 0  # of its producer
        is_ahead = world.flags & script.FUTURE and not world.pick(world.clocks)
        is_set = world.is_healing and world.flags & script.RESET
        self.clock_ahead_us = 10**9 if is_ahead and not is_set else 0  # of its node
        self.rounds = TaskRounds(rounds_max=UNCOMMITTED_ROUNDS_MAX, silence_ms_max=SILENCE_MS_MAX)

    def _run(self) -> Generator[bool, None, None]:  # noqa: C901 - one loop, a yield after each effect
        world, log = self.world, self.world.log
        self.epoch = log.init(self.transactional_id)
        yield False
        if "task ignores the layout" not in world.bugs and (
            world.config_log[-1].number != self.layout.number
            or world.ready.number != self.layout.number
        ):
            return
        if not self._take_positions():
            return
        topic_id, pick, must_pause = log.topic_id, world.pick, self.rounds.must_pause
        control = [log.stable_end(p) for p in range(len(log.entries))]
        yield False
        while True:
            is_idle = True
            if not must_pause(0, has_pending=False) and pick(2):
                is_idle = not self._read(pick(3) + 1)
            if topic_id != log.topic_id:
                raise OutOfRangeError
            entries = log.entries
            for partition, position in enumerate(control):
                if position == len(entries[partition]):
                    continue
                received, control[partition] = log.read(partition, position, 6)
                for read in received:
                    payload = read.event.payload
                    if isinstance(payload, StartCommit):
                        if payload.commit_id != self.answered:
                            is_idle = False
                            yield from self._answer(payload.commit_id)
                    elif isinstance(payload, CommitComplete):
                        waiting = dict(read.headers.waiting)
                        own = [i for i, tasks in waiting.items() if self.number in tasks]
                        if "every completion counts as a commit" in world.bugs:
                            own = []
                        self.rounds.completed(payload.commit_id, own)
            yield is_idle

    def _take_positions(self) -> bool:
        """Read the committed source offsets; return False if the log no longer has them."""
        world = self.world
        offsets = world.log.groups[GROUP]
        for tp in self.layout.tasks[self.number]:
            if tp.partition not in offsets and world.was_read(tp.partition):
                world.stop("offsets_lost")
                return False
            self.position[tp.partition] = offsets.get(tp.partition, 0)
            self.claims[tp.partition] = None
        self.announced = dict(self.position)
        return self._pass_lost()

    def _pass_lost(self) -> bool:
        """Move past deleted records, which the next answer covers; False when the task stops."""
        world = self.world
        for partition, at in self.position.items():
            start = world.source_starts[partition]
            if at >= start:
                continue
            if not world.continues_after_loss:
                world.stop("source_data_lost")
                return False
            world.count("lost source records skipped")
            self.position[partition] = start
            if "lost source records are announced by no task" in world.bugs:
                self.announced[partition] = start
        return True

    def _read(self, limit: int | None) -> bool:  # noqa: C901 - the hot path, without calls
        """Read one micro-batch over all partitions, with a file per table."""
        world = self.world
        rows: dict[int, list[int]] = {}
        if "source_data_lost" in world.happened and not self._pass_lost():
            raise OutOfRangeError
        source = world.source
        for partition, start in self.position.items():
            records = source[partition]
            end = len(records)
            if start == end:
                continue
            if limit is not None and start + limit < end:
                end = start + limit
            if partition == world.slow_partition and not world.is_healing:
                end = min(end, start + (limit is None))
            for _, bit, table in records[start:end]:
                if table in rows:
                    rows[table].append(bit)
                else:
                    rows[table] = [bit]
            self.position[partition] = end
        if not rows:
            return False
        for table, bits in rows.items():
            for event in world.write_step(table, bits):
                self.files.append((self.batch, event))
        self.batch += 1
        return True

    def _open_if_closed(self) -> Iterator[bool]:
        """Open the producer of an idle task, as ``worker.task.task_fencing.confirm_place`` does.

        Nothing depends on when it was closed, so this decides whether it was.
        """
        world, log = self.world, self.world.log
        if not world.flags >> script.IDLE_SHIFT & 1 or world.pick(2):
            return
        self.epoch = log.init(self.transactional_id)
        yield False
        if "an opened producer ignores the layout" not in world.bugs and (
            world.config_log[-1].number != self.layout.number
        ):
            world.count("superseded while its producer was closed")
            raise OutOfRangeError
        yield False
        stored = log.groups[GROUP]
        if "an opened producer ignores the offsets" not in world.bugs and any(
            stored.get(partition, 0) != at for partition, at in self.announced.items()
        ):
            world.count("source offsets moved while its producer was closed")
            raise OutOfRangeError
        world.count("producer opened again")

    def _answer(self, commit_id: Any) -> Iterator[bool]:
        world, log, tid = self.world, self.world.log, self.transactional_id
        is_held_back = self.rounds.must_pause(0, has_pending=False)
        asked_at_us = world.now_us + self.clock_ahead_us
        ends = [len(records) for records in world.source]
        yield False
        if not is_held_back:  # a last read to the end; not all of it when it is interrupted
            self._read(None if world.is_healing or world.pick(4) else 1 + world.pick(2))
        self.answered = commit_id
        yield from self._open_if_closed()
        epoch = self.epoch
        ranges, assignments = [], []
        for partition, end in self.position.items():
            start = self.announced[partition]
            at_us = self._claim(partition, None if end < ends[partition] else asked_at_us)
            assignments.append(TopicPartitionOffset(TOPIC, partition, end, at_us))
            if end > start:
                n = end - start
                ranges.append(SourceRange(TOPIC, partition, start, end, n, 0, 0, n, None))
        # batches rise over restarts: the same round may be answered by a successor
        first = 0 if "batches numbered from zero" in world.bugs else sum(self.announced.values())
        transaction = log.begin(tid, epoch)
        yield False
        number, headers = self.layout.number, NO_HEADERS
        for batch, (table, data_files, delete_files) in self.files:
            if headers.batch != first + batch:
                headers = _step_headers(number, first + batch, self.number)
            written = DataWritten(commit_id, table, data_files, delete_files)
            log.produce(tid, epoch, transaction, written, headers)
            if world.flags & script.FOREIGN_GROUP and not world.pick(32) and not world.is_healing:
                world.hang_transaction(log.home)
            yield False
        headers = _headers(number, self.number)
        if ranges:
            headers = EventHeaders(layout=number, ranges=tuple(ranges), task=self.number)
        complete = DataComplete(commit_id, tuple(assignments))
        log.produce(tid, epoch, transaction, complete, headers)
        yield False
        is_answered = world.is_answered()
        log.commit(tid, epoch, transaction, GROUP, self.position)
        if not is_answered:
            world.lose_answer()
        if self.files:
            self.rounds.announced(commit_id, has_batches=True)
        self.announced = dict(self.position)
        self.files = []
        self.batch = 0

    def _claim(self, partition: int, end_seen_us: int | None) -> int | None:
        """Return the timestamp that ``worker.task.read_ledger.ReadLedger`` computes."""
        world = self.world
        known = self.claims[partition]
        start, end = self.announced[partition], self.position[partition]
        until_us = world.now_us + self.clock_ahead_us + FUTURE_MAX_MS * 1000
        if world.is_vtts_wrong or "timestamps of the future move the claim" in world.bugs:
            until_us *= 10**9
        for at_us, _, _ in world.source[partition][start:end]:
            if at_us <= until_us and (known is None or at_us - world.disorder_us > known):
                known = at_us - world.disorder_us
        if end_seen_us is not None and (known is None or end_seen_us - world.disorder_us > known):
            known = end_seen_us - world.disorder_us
        self.claims[partition] = known
        return known


class Leader(Actor):
    """Changes layouts in three steps: write, fence, ready."""

    kind = "leader"
    is_quick = False

    def _run(self) -> Generator[bool, None, None]:
        world = self.world
        old = world.config_log[-1]
        layout = world.new_layout(old.number + 1)
        world.config_log.append(layout)
        yield False
        if "layout change fences no task" not in world.bugs:
            # a leader that crashed in the middle leaves layouts that were written and never
            # fenced: every id of every layout must be taken over
            known = world.config_log
            if "layout change fences only the last layout" in world.bugs:
                known = [old, layout]
            for number in range(max(len(x.tasks) for x in known)):
                world.log.init(f"g-c-{number}")
                yield False
        world.note_read()
        world.ready = layout


class Keeper(Actor):
    """Stores the offsets of a task that does not run again, as ``herder.offset_keeper`` does.

    It writes under the task's id: what starts the task, or changes the layout, fences it.
    """

    kind = "keeper"
    is_quick = False

    def __init__(self, world: World, layout: Layout, number: int) -> None:
        super().__init__(world)
        self.layout = layout
        self.number = number

    def _run(self) -> Generator[bool, None, None]:
        world, log, tid = self.world, self.world.log, f"g-c-{self.number}"
        found: dict[int, int] = {}
        if "kept offsets are read before the fence" in world.bugs:
            found = self._committed()
            yield False
        epoch = log.init(tid)
        yield False
        if "offset keeper ignores the layout" not in world.bugs and (
            world.config_log[-1] is not self.layout or world.ready is not self.layout
        ):
            return
        found = found or self._committed()
        yield False
        transaction = log.begin(tid, epoch)
        yield False
        stored = dict(log.groups[GROUP])
        log.commit(tid, epoch, transaction, GROUP, found)
        world.counts["offsets kept"] += 1
        if any(stored.get(partition, at) > at for partition, at in found.items()):
            world.violation(f"source offsets went back {stored} -> {found}")

    def _committed(self) -> dict[int, int]:
        stored = self.world.log.groups[GROUP]
        own = [tp.partition for tp in self.layout.tasks[self.number]]
        return {partition: stored[partition] for partition in own if partition in stored}

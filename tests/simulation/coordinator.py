"""The coordinator: production kernel and start, simulated I/O around them.

Rules of this file:
- Everything that the shell does is here in small and in its order; what it decides with
  (``Kernel``, ``start_offsets``) is the production code.
- Table commits run side by side with the reading, as in the shell's pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from connect.errors import DataLost
from connect.layout import Layout
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    EventHeaders,
    StartCommit,
    TableReference,
)
from coordinator.effects import (
    Advanced,
    CommitTables,
    CompletionSent,
    Decided,
    LayoutChanged,
    LogEndSeen,
    LogFound,
    OutcomeKnown,
    RoundEnded,
    SendCompletion,
    SendStartCommit,
    Stop,
    TableDecision,
    TableFailed,
    Tick,
)
from coordinator.inbox import start_offsets
from coordinator.kernel import Phase
from coordinator.rounds import KernelSettings
from tests.simulation import checks, script
from tests.simulation.committer import Committer
from tests.simulation.kafka import CONTROL_GROUP, CONTROL_TOPIC, OutOfRangeError
from tests.simulation.task import Actor

if TYPE_CHECKING:
    from tests.simulation.world import World

NO_HEADERS = EventHeaders()


class Coordinator(Actor):
    """One incarnation of the coordinator, one session of its shell."""

    kind = "coordinator"
    transactional_id = "g-c-coordinator"

    def __init__(self, world: World, layout: Layout) -> None:
        super().__init__(world)
        world.sessions += 1
        self.layout = layout
        self.given: list[Any] = [LayoutChanged(layout)]
        self.commits: list[Iterator[Any]] = []
        self.epoch = 0
        self.slow = world.pick(4)
        self.closed: tuple[Any, frozenset[int]] = (None, frozenset())
        self.kernel = world.kernel_class(
            KernelSettings(
                "c-0",
                commit_interval_ms=20,
                commit_timeout_ms=world.timeout_ms,
                repeat_start_ms=5,
                repeat_quickly_ms=2,
                new_layout_ms=30,
            )
        )

    def _start(self) -> tuple[dict[int, int], bool]:
        """Where to read from, and whether the group has read before."""
        world, log = self.world, self.world.log
        if "start at latest" in world.bugs:
            return {p: log.stable_end(p) for p in range(len(log.entries))}, True
        if "lost control events are passed over" in world.bugs:
            for partition, offset in log.groups[CONTROL_GROUP].items():
                log.groups[CONTROL_GROUP][partition] = max(offset, log.starts[partition])
        if "control topic re-created unnoticed" in world.bugs:
            for partition, offset in log.groups[CONTROL_GROUP].items():
                end = len(log.entries[partition])
                log.groups[CONTROL_GROUP][partition] = offset if offset <= end else 0
        found, has_history = start_offsets(log, CONTROL_TOPIC, CONTROL_GROUP)  # type: ignore[arg-type] # the log answers as the admin client does
        return {tp.partition: offset for tp, offset in found.items()}, has_history

    def _run(self) -> Iterator[bool]:
        world, log = self.world, self.world.log
        self.epoch = log.init(self.transactional_id)
        yield False
        try:
            positions, has_history = self._start()
        except DataLost as e:
            world.stop(e.code)
            return
        committer = Committer(world, log.topic_id, has_history=has_history)
        kernel = self.kernel
        if "old announcements need not be read" not in world.bugs:
            is_mistaken = "stable offset taken for the log's end" in world.bugs
            self.given.append(LogFound(self._ends(is_stable=is_mistaken)))
        yield False
        while True:
            is_idle = True
            if not self.commits or world.pick(2):
                is_idle = not (yield from self._listen(positions, committer))
            self._look_at_ends()
            while self.given:
                is_idle = False
                yield from self._take(self.given.pop(0), committer)
            if self.commits:
                is_idle = False
                self._advance_a_commit()
            if kernel.phase is Phase.IDLE or kernel.phase is Phase.COLLECTING:
                world.ids += 1
                tick = Tick(world.ids, 0)  # type: ignore[arg-type] # any identity will do
                for effect in kernel.receive(tick, world.now_ms):
                    yield from self._act(effect, committer)
            yield is_idle

    def _look_at_ends(self) -> None:
        if self.kernel.kept and not self.world.pick(6):
            is_mistaken = "stable offset taken for an answer's end" in self.world.bugs
            self.given.append(LogEndSeen(self._ends(is_stable=is_mistaken)))

    def _ends(self, *, is_stable: bool) -> dict[int, int]:
        """How far each control partition goes, or how far it can be read."""
        log = self.world.log
        if is_stable:
            return {p: log.stable_end(p) for p in range(len(log.entries))}
        return dict(enumerate(map(len, log.entries)))

    def _listen(self, positions: dict[int, int], committer: Committer) -> Iterator[bool]:
        world, log = self.world, self.world.log
        if committer.topic_id != log.topic_id:
            raise OutOfRangeError  # the client notices the new topic id
        unread = [p for p, at in positions.items() if at != len(log.entries[p])]
        if not unread:
            return False
        partition = unread[world.pick(len(unread))] if len(unread) > 1 else unread[0]
        if partition == self.slow and world.pick(8) and not world.is_healing:
            return True  # its broker is slow
        before = positions[partition]
        limit = world.pick(2 if partition == self.slow else 8) + 1
        records, positions[partition] = log.read(partition, before, limit)
        for read in records:
            for effect in self.kernel.receive(read, world.now_ms):
                yield from self._act(effect, committer)
        has_read = positions[partition] > before
        if has_read:
            yield from self._take(Advanced(dict(positions)), committer)
            if world.flags & script.DELAY and not world.pick(20):
                world.count("slow poll")
                world.now_ms += world.pick(world.timeout_ms)
        return has_read

    def _take(self, given: Any, committer: Committer) -> Iterator[bool]:
        if isinstance(given, LayoutChanged):
            self.layout = max(self.layout, given.layout, key=lambda x: x.number)
        for effect in self.kernel.receive(given, self.world.now_ms):
            yield from self._act(effect, committer)

    def _act(self, effect: Any, committer: Committer) -> Iterator[bool]:
        world = self.world
        match effect:
            case SendStartCommit(commit_id):
                yield from self._send([StartCommit(commit_id)], None)
            case CommitTables(commits):
                if "group offset before the table" in world.bugs:
                    yield from self._send([], dict(commits[0].control_offsets))
                # partitions that the round's layout did not know yet are not promised
                covers = self._covers()
                self.closed = commits[0].commit_id, covers
                self.commits += [committer.commit(commit, covers) for commit in commits]
            case SendCompletion(commit_id, committed, vtts, offsets, waiting):
                checks.check_waiting(world, waiting)
                events = [CommitToTable(commit_id, t, s, vtts) for t, s in committed]
                closed_id, covers = self.closed
                if closed_id != commit_id:  # closed this moment, without a table
                    covers = self._covers()
                yield from self._send(
                    [*events, CommitComplete(commit_id, vtts)],
                    dict(offsets),
                    vtts,
                    covers,
                    EventHeaders(waiting=tuple(waiting.items())),
                )
                self.given.append(CompletionSent(commit_id))
            case RoundEnded(is_partial=is_partial):
                world.rounds += 1
                if is_partial:
                    world.count("round timed out")
            case Decided(decision, skipped=skipped):
                world.skip(decision.table.name, skipped)
            case Stop(commit_id):
                world.count("floor moved")
                yield from self._send([StartCommit(commit_id)], None)
                self.is_alive = False  # still the holder of the id: a new session starts over
                raise StopSessionError

    def _covers(self) -> frozenset[int]:
        return frozenset(tp.partition for tp in self.layout.partitions)

    def _advance_a_commit(self) -> None:
        commit = self.commits[self.world.pick(len(self.commits))]
        outcome = next(commit)
        if outcome is not None:
            self.commits.remove(commit)
            if isinstance(outcome, TableFailed):
                self.world.table_failed(outcome.table.name, outcome.code)
            self.given.append(OutcomeKnown(outcome))

    def _send(
        self,
        events: list[Any],
        offsets: dict[int, int] | None,
        vtts: int | None = None,
        covers: frozenset[int] = frozenset(),
        last_headers: EventHeaders = NO_HEADERS,
    ) -> Iterator[bool]:
        world, log, tid, epoch = self.world, self.world.log, self.transactional_id, self.epoch
        transaction = log.begin(tid, epoch)
        yield False
        for event in events:
            headers = last_headers if event is events[-1] else NO_HEADERS
            log.produce(tid, epoch, transaction, event, headers)
        yield False
        if offsets is not None and "control offsets outside the transaction" in world.bugs:
            log.store(CONTROL_GROUP, offsets)
            offsets = None

        def commit() -> None:
            before = dict(log.groups[CONTROL_GROUP]) if offsets else {}
            log.commit(tid, epoch, transaction, CONTROL_GROUP, offsets)
            for partition, offset in (offsets or {}).items():
                if offset < before.get(partition, 0):
                    world.violation(f"group offset went back {before} -> {offsets}")
            if vtts is not None:
                world.check_claim(vtts, covers)

        world.lossy(commit)

    def decide(self, table: TableReference, action: str) -> None:
        """An operator's word arrives."""
        self.given.append(TableDecision(table, action))


class StopSessionError(OutOfRangeError):
    """This session is over."""

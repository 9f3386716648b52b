"""The coordinator: production kernel and start, simulated I/O around them.

Rules of this file:
- This module repeats the shell's steps in the same order. All decisions are made by production
  code (``Kernel``, ``start_offsets``).
- Table commits and reads run concurrently, as in the shell's thread pool.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from connect.errors import DataLost
from connect.model.layout import Layout
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    EventHeaders,
    StartCommit,
    TableReference,
)
from coordinator.inbox import start_offsets
from coordinator.kernel.commit_round import KernelSettings
from coordinator.kernel.effects import (
    CommitTables,
    CompletionSent,
    CurrentLogEnds,
    Finish,
    InboxAdvanced,
    InitialLogEnds,
    LayoutChanged,
    RoundEnded,
    SendCompletion,
    SendStartCommit,
    Stop,
    TableCommit,
    TableDecided,
    TableDecision,
    TableFailed,
    Tick,
)
from coordinator.kernel.kernel import Phase
from tests.simulation import checks, script
from tests.simulation.committer import Committer
from tests.simulation.kafka import CONTROL_GROUP, CONTROL_TOPIC, OutOfRangeError
from tests.simulation.task import FUTURE_MAX_MS, NO_HEADERS, Actor

if TYPE_CHECKING:
    from tests.simulation.world import World

END_TURNS_MAX = 20


@cache
def _settings(timeout_ms: int, future_max_ms: int | None) -> KernelSettings:
    return KernelSettings(
        "c-0",
        commit_interval_ms=20,
        commit_timeout_ms=timeout_ms,
        repeat_start_ms=5,
        repeat_quickly_ms=2,
        new_layout_ms=30,
        future_max_ms=future_max_ms,
    )


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
        self.is_outdated = False  # the connector was stopped, and this process did not notice
        self.slow = world.pick(4)
        self.is_ending = self.is_finished = False
        self.end_seen: dict[int, int] | None = None
        self.turns_left = 0
        self.closed: tuple[Any, frozenset[int]] = (None, frozenset())
        accepts_future = (
            world.is_vtts_wrong or "timestamps ahead of the clock are accepted" in world.bugs
        )
        self.kernel = world.kernel_class(
            _settings(world.timeout_ms, None if accepts_future else FUTURE_MAX_MS)
        )

    def _start(self) -> tuple[dict[int, int], bool]:
        """Return the first offsets to read, and whether the group has read before."""
        world, log = self.world, self.world.log
        if "start at latest" in world.bugs:
            return {p: log.stable_end(p) for p in range(len(log.entries))}, True
        if "lost control events are skipped" in world.bugs:
            for partition, offset in log.groups[CONTROL_GROUP].items():
                log.groups[CONTROL_GROUP][partition] = max(offset, log.starts[partition])
        if "control topic re-created unnoticed" in world.bugs:
            for partition, offset in log.groups[CONTROL_GROUP].items():
                end = len(log.entries[partition])
                log.groups[CONTROL_GROUP][partition] = offset if offset <= end else 0
        found, has_history = start_offsets(log, CONTROL_TOPIC, CONTROL_GROUP)  # type: ignore[arg-type] # the log answers as the admin client does
        return {tp.partition: offset for tp, offset in found.items()}, has_history

    def _run(self) -> Generator[bool, None, None]:  # noqa: C901, PLR0912 - one loop, as the shell's
        world, log = self.world, self.world.log
        self.epoch = log.init(self.transactional_id)
        yield False
        try:
            positions, has_history = self._start()
        except DataLost as e:
            world.stop(e.code)
            return
        committer = Committer(world, log.topic_id, has_history=has_history)
        kernel, given, commits = self.kernel, self.given, self.commits
        receive, pick, announced = kernel.receive, world.pick, kernel.announcements
        if "old announcements need not be read" not in world.bugs:
            is_mistaken = "stable offset taken for the log's end" in world.bugs
            given.append(InitialLogEnds(self._ends(is_stable=is_mistaken)))
        yield False
        ticked_ms = 0
        collecting, idle = Phase.COLLECTING, Phase.IDLE  # an enum member costs a lookup
        while True:
            is_idle, has_received = True, False
            if not commits or pick(2):
                polled = self._poll(positions, committer.topic_id)
                if polled is not None:
                    is_idle = False
                    has_received = bool(polled)
                    for item in polled:
                        for effect in receive(item, world.now_ms):
                            yield from self._act(effect, committer)
                    if polled and world.flags & script.DELAY and not pick(20):
                        world.count("slow poll")
                        world.now_ms += pick(world.timeout_ms)
            if announced.by_table and not pick(6):
                is_mistaken = "stable offset taken for an answer's end" in world.bugs
                given.append(CurrentLogEnds(self._ends(is_stable=is_mistaken)))
            while given:
                is_idle, has_received = False, True
                item = given.pop(0)
                if isinstance(item, LayoutChanged):
                    self.layout = max(self.layout, item.layout, key=lambda x: x.number)
                for effect in receive(item, world.now_ms):
                    yield from self._act(effect, committer)
            if commits:
                is_idle = False
                self._advance_a_commit()
            if self.is_ending:
                if (yield from self._finish(positions, committer)):
                    return
                is_idle = False
                continue
            # without an input in between, a second tick at one instant changes nothing
            now_ms = world.now_ms
            if has_received or now_ms != ticked_ms:
                phase = kernel.phase
                if phase is collecting or phase is idle:
                    ticked_ms = now_ms
                    for effect in receive(Tick(world.new_id(), now_ms * 1000), now_ms):  # type: ignore[arg-type] # any identity will do
                        yield from self._act(effect, committer)
            yield is_idle

    def _finish(
        self, positions: dict[int, int], committer: Committer
    ) -> Generator[bool, None, bool]:
        """Run one turn of the shell's stop: read to the end, commit, read, store offsets.

        Returns:
            Whether the coordinator has ended.
        """
        kernel = self.kernel
        yield False
        if self.end_seen is None:
            self.end_seen, self.turns_left = self._ends(is_stable=False), END_TURNS_MAX
        self.turns_left -= 1  # an open transaction may hide the end
        is_read = all(positions[p] >= end for p, end in self.end_seen.items())
        if self.given or kernel.phase is Phase.COMMITTING or (self.turns_left > 0 and not is_read):
            return False
        if not self.is_finished:
            self.is_finished, self.end_seen = True, None
            self.world.count("last commit")
            for effect in kernel.receive(Finish(self.world.new_id()), self.world.now_ms):  # type: ignore[arg-type] # any identity will do
                yield from self._act(effect, committer)
            return False
        yield from self._send([], kernel.resumes_at)
        return True

    def _ends(self, *, is_stable: bool) -> dict[int, int]:
        """Return the end, or the last stable offset, of each control partition."""
        log = self.world.log
        if is_stable:
            return {p: log.stable_end(p) for p in range(len(log.entries))}
        return dict(enumerate(map(len, log.entries)))

    def _poll(self, positions: dict[int, int], topic_id: int) -> list[Any] | None:
        """Return the events of one poll and the positions; None if there was nothing to read."""
        world, log = self.world, self.world.log
        if topic_id != log.topic_id:
            raise OutOfRangeError  # the client notices the new topic id
        entries = log.entries
        partition, is_choice = -1, False
        for known, at in positions.items():
            if at != len(entries[known]):
                is_choice = partition >= 0
                partition = known
        if partition < 0:
            return None
        if is_choice:  # of two
            partition = list(positions)[world.pick(2)]
        is_slow = partition == self.slow
        if is_slow and world.pick(8) and not world.is_healing:
            return []  # its broker is slow
        before = positions[partition]
        polled: list[Any]
        polled, after = log.read(partition, before, world.pick(2 if is_slow else 8) + 1)
        if after == before:
            return None
        positions[partition] = after
        polled.append(InboxAdvanced(dict(positions)))
        return polled

    def _act(self, effect: Any, committer: Committer) -> Iterable[bool]:
        """Carry out an effect; the result yields once for each further step."""
        world = self.world
        match effect:
            case SendStartCommit(commit_id):
                return self._send([StartCommit(commit_id)], None, last_headers=self._own())
            case CommitTables(commits):
                return self._begin_commits(commits, committer)
            case SendCompletion():
                return self._complete(effect)
            case RoundEnded(is_partial=is_partial):
                world.rounds += 1
                if is_partial:
                    world.count("round timed out")
            case TableDecided(decision, skipped=skipped):
                world.skip(decision.table.name, skipped)
            case Stop(commit_id):
                return self._end_session(commit_id)
        return ()

    def _begin_commits(
        self, commits: tuple[TableCommit, ...], committer: Committer
    ) -> Iterator[bool]:
        if "group offset before the table" in self.world.bugs:
            yield from self._send([], dict(commits[0].control_offsets))
        # the VTTS does not cover partitions that the round's layout does not have
        covers = self._covers()
        self.closed = commits[0].commit_id, covers
        self.commits += [committer.commit(commit, covers) for commit in commits]

    def _complete(self, effect: SendCompletion) -> Iterator[bool]:
        commit_id, vtts = effect.commit_id, effect.valid_through_us
        checks.check_waiting(self.world, effect.waiting)
        events: list[Any] = [CommitToTable(commit_id, t, s, vtts) for t, s in effect.committed]
        events.append(CommitComplete(commit_id, vtts))
        closed_id, covers = self.closed
        if closed_id != commit_id:  # closed this moment, without a table
            covers = self._covers()
        waiting = tuple(effect.waiting.items())
        headers = EventHeaders(waiting=waiting) if waiting else NO_HEADERS
        yield from self._send(events, dict(effect.control_offsets), vtts, covers, headers)
        self.given.append(CompletionSent(commit_id))

    def _end_session(self, commit_id: Any) -> Iterator[bool]:
        self.world.count("floor moved")
        yield from self._send([StartCommit(commit_id)], None, last_headers=self._own())
        raise StopSessionError  # it still holds the id: a new session starts

    def _own(self) -> EventHeaders:
        return EventHeaders(coordinator_layout=self.layout.number)

    def _covers(self) -> frozenset[int]:
        return frozenset([tp.partition for tp in self.layout.partitions])

    def _advance_a_commit(self) -> None:
        commit = self.commits[self.world.pick(len(self.commits))]
        outcome = next(commit)
        if outcome is not None:
            self.commits.remove(commit)
            if isinstance(outcome, TableFailed):
                self.world.table_failed(outcome.table.name, outcome.code)
            self.given.append(outcome)

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

        is_answered = world.is_answered()
        before = dict(log.groups[CONTROL_GROUP]) if offsets else {}
        log.commit(tid, epoch, transaction, CONTROL_GROUP, offsets)
        if offsets:
            for partition, offset in offsets.items():
                if offset < before.get(partition, 0):
                    world.violation(f"group offset went back {before} -> {offsets}")
        if vtts is not None:
            world.check_claim(vtts, covers)
        if not is_answered:
            world.lose_answer()

    def decide(self, table: TableReference, action: str) -> None:
        """Receive an operator's decision."""
        self.given.append(TableDecision(table, action))


class StopSessionError(OutOfRangeError):
    """The session has ended."""

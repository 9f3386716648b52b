"""The actors of the simulation: tasks, coordinators, the leader. Each ``step`` is one effect.

Rules of this file:
- An actor does one thing with the outside per step, so that a crash, a pause or another actor can
  come between any two.
- An actor that is paused and goes on later is a zombie; only the broker's epochs and the
  catalog's preconditions may stop it.
- The coordinator runs the production kernel. Its table commit is the committer's protocol in
  small: floor, filter, one conditional attempt, look after anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from connect.layout import Layout, TopicPartition
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    EventHeaders,
    SourceRange,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from coordinator.effects import (
    Advanced,
    CommitTables,
    CompletionSent,
    CoordinatorFenced,
    Envelope,
    EnvelopeRead,
    LayoutChanged,
    OutcomeKnown,
    RoundEnded,
    SendCompletion,
    SendStartCommit,
    Stop,
    TableCommit,
    TableCommitted,
    TableFailed,
    Tick,
)
from coordinator.kernel import KernelSettings, Phase
from tests.simulation.catalog import ConflictError, MissingError, Snapshot, UnknownError
from tests.simulation.kafka import FencedError

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP, CONTROL_GROUP, TOPIC = "connect-c", "connect-c-coord", "s"
IDLE_LAG_US = 0


class LostAnswerError(Exception):
    """The broker's answer did not come: the producer must be thrown away."""


class FakeEvent:
    """What the kernel looks at of an event; the envelope around it is of no interest here."""

    __slots__ = ("payload",)

    def __init__(self, payload: Any) -> None:
        self.payload = payload


class Task:
    """One incarnation of one task."""

    def __init__(self, world: World, layout: Layout, number: int) -> None:
        self.world = world
        self.layout = layout
        self.number = number
        self.is_alive = True
        self.is_paused = False
        self.transactional_id = f"g-c-{number}"
        self.position: dict[int, int] = {}
        self.announced: dict[int, int] = {}
        self.pending: list[tuple[TableReference, str, frozenset[tuple[int, int]]]] = []
        self.answered: set[Any] = set()
        self.program = self._run()

    def step(self) -> None:
        """Do one thing."""
        try:
            next(self.program)
        except (FencedError, LostAnswerError) as e:
            self.world.count(type(e).__name__)
            self.is_alive = False
        except StopIteration:
            self.is_alive = False

    def _run(self) -> Iterator[None]:
        world, log = self.world, self.world.log
        epoch = log.init(self.transactional_id)
        yield
        newest, ready = world.config_log[-1].number, world.ready_layout
        if "task not fenced on layout change" not in world.bugs and (
            newest != self.layout.number or ready != self.layout.number
        ):
            return
        offsets = log.groups.get(GROUP, {})
        for tp in self.layout.tasks[self.number]:
            self.position[tp.partition] = offsets.get(tp.partition, 0)
        self.announced = dict(self.position)
        control = log.stable_end
        yield
        while True:
            if world.rng.random() < 0.6:
                self._read()
            records, control = log.read(control, 4)
            for _, (payload, _headers) in records:
                if isinstance(payload, StartCommit) and payload.commit_id not in self.answered:
                    self.answered.add(payload.commit_id)
                    self._read()
                    yield
                    yield from self._announce(epoch, payload.commit_id)
            yield

    def _read(self) -> None:
        world = self.world
        by_table: dict[TableReference, set[tuple[int, int]]] = {}
        for partition, position in self.position.items():
            end = min(world.source.end(partition), position + world.rng.randrange(1, 6))
            for offset in range(position, end):
                by_table.setdefault(world.route(partition, offset), set()).add((partition, offset))
            self.position[partition] = end
        for table, records in by_table.items():
            self.pending.append((table, world.new_path(), frozenset(records)))

    def _announce(self, epoch: int, commit_id: Any) -> Iterator[None]:
        world, log = self.world, self.world.log
        ranges, assignments = [], []
        for partition, end in self.position.items():
            start = self.announced[partition]
            n = end - start
            ranges.append(SourceRange(TOPIC, partition, start, end, n, 0, 0, n, None))
            assignments.append(
                TopicPartitionOffset(TOPIC, partition, end, self._timestamp(partition))
            )
        transaction = log.begin(self.transactional_id, epoch)
        yield
        headers = EventHeaders(layout=self.layout.number)
        for table, path, records in self.pending:
            written = DataWritten(commit_id, table, ((path, records),), ())  # type: ignore[arg-type] # files in small
            log.produce(self.transactional_id, epoch, transaction, (written, headers))
            yield
        complete = DataComplete(commit_id, tuple(assignments))
        headers = EventHeaders(layout=self.layout.number, ranges=tuple(ranges))
        log.produce(self.transactional_id, epoch, transaction, (complete, headers))
        yield
        world.lossy(
            lambda: log.commit(
                self.transactional_id, epoch, transaction, GROUP, dict(self.position)
            )
        )
        self.announced = dict(self.position)
        self.pending = []

    def _timestamp(self, partition: int) -> int | None:
        times = self.world.source.timestamps_us[partition]
        end = self.position[partition]
        last = times[end - 1] if end else None
        if end == len(times):  # read to its end: nothing older than now can be missing
            return max(self.world.now_us - 1, last or 0)
        return last


class Coordinator:
    """One incarnation of the coordinator: production kernel, simulated I/O."""

    transactional_id = "g-c-coordinator"

    def __init__(self, world: World, layout: Layout) -> None:
        self.world = world
        self.layout = layout
        self.is_alive = True
        self.is_paused = False
        self.given: list[Any] = []
        self.kernel = world.kernel_class(
            KernelSettings(
                "c-0",
                commit_interval_ms=20,
                commit_timeout_ms=200 if world.is_restless else 60,
                repeat_start_ms=5,
            )
        )
        self.own_floor: dict[str, int] = {}
        self.program = self._run()

    def step(self) -> None:
        """Do one thing."""
        try:
            next(self.program)
        except (FencedError, LostAnswerError) as e:
            self.world.count(type(e).__name__)
            self.is_alive = False
        except StopIteration:
            self.is_alive = False

    def _run(self) -> Iterator[None]:
        world, log = self.world, self.world.log
        epoch = log.init(self.transactional_id)
        yield
        position = log.groups.get(CONTROL_GROUP, {}).get(0, log.start)
        if "start at latest" in world.bugs:
            position = log.stable_end
        yield
        yield from self._take(LayoutChanged(self.layout), epoch)
        while True:
            if self.kernel.phase is not Phase.COMMITTING or world.rng.random() < 0.5:
                records, position = log.read(position, world.rng.randrange(1, 8))
                for offset, (payload, headers) in records:
                    envelope = Envelope(FakeEvent(payload), headers, 0, offset)  # type: ignore[arg-type] # see FakeEvent
                    yield from self._take(EnvelopeRead(envelope), epoch)
                yield from self._take(Advanced({0: position}), epoch)
            while self.given:
                yield from self._take(self.given.pop(0), epoch)
            tick = Tick(world.new_id(), world.now_us)
            yield from self._take(tick, epoch)
            yield

    def _take(self, given: Any, epoch: int) -> Iterator[None]:
        if isinstance(given, LayoutChanged):
            self.layout = max(self.layout, given.layout, key=lambda x: x.number)
        for effect in self.kernel.receive(given, self.world.now_ms):
            yield from self._act(effect, epoch)

    def _act(self, effect: Any, epoch: int) -> Iterator[None]:
        world = self.world
        match effect:
            case SendStartCommit(commit_id):
                yield from self._send(epoch, [StartCommit(commit_id)], None)
            case CommitTables(commits):
                # partitions that the round's layout did not know yet are not promised
                covers = self.layout.partitions
                if "group offset before the table" in world.bugs:
                    yield from self._send(epoch, [], dict(commits[0].control_offsets))
                for commit in commits:
                    yield from self._commit(commit, covers)
            case SendCompletion(commit_id, committed, vtts, offsets):
                events = [CommitToTable(commit_id, t, s, vtts) for t, s in committed]
                yield from self._send(
                    epoch, [*events, CommitComplete(commit_id, vtts)], dict(offsets)
                )
                self.given.append(CompletionSent(commit_id))
            case Stop():
                world.count("stopped as fenced")
                self.is_alive = False
                raise FencedError
            case RoundEnded():
                world.rounds += 1

    def _send(
        self, epoch: int, events: list[Any], offsets: dict[int, int] | None
    ) -> Iterator[None]:
        log = self.world.log
        transaction = log.begin(self.transactional_id, epoch)
        yield
        for event in events:
            log.produce(self.transactional_id, epoch, transaction, (event, EventHeaders()))
        yield
        self.world.lossy(lambda: self._commit_transaction(epoch, transaction, offsets))

    def _commit_transaction(
        self, epoch: int, transaction: Any, offsets: dict[int, int] | None
    ) -> None:
        log = self.world.log
        before = log.groups.get(CONTROL_GROUP, {}).get(0, 0)
        log.commit(self.transactional_id, epoch, transaction, CONTROL_GROUP, offsets)
        if offsets is not None and offsets[0] < before:
            self.world.violation(f"group offset went back {before} -> {offsets[0]}")

    # ------------------------------------------------------------------ the committer in small

    def _commit(self, commit: TableCommit, covers: frozenset[Any]) -> Iterator[None]:
        try:
            outcome: Any = yield from self._attempts(commit, covers)
        except MissingError:
            if "missing table treated as success" in self.world.bugs:
                outcome = TableCommitted(commit.table, commit.commit_id, None)
            else:
                outcome = TableFailed(commit.table, commit.commit_id, "missing", "", True)  # noqa: FBT003
        if isinstance(outcome, TableFailed) and "commit failure swallowed" in self.world.bugs:
            outcome = TableCommitted(commit.table, commit.commit_id, None)
        self.given.append(OutcomeKnown(outcome))

    def _attempts(self, commit: TableCommit, covers: frozenset[Any]) -> Iterator[Any]:  # noqa: C901, PLR0912 - planted bugs sit where they would
        world = self.world
        name = commit.table.name
        table = world.tables[name]
        snapshot_id = world.new_id()
        expected: int | None = None
        for attempt in range(4):
            if table.is_missing:
                raise MissingError
            base, floor = table.head, table.floor()
            if snapshot_id in table.snapshots:  # an attempt of ours landed after all
                return TableCommitted(commit.table, commit.commit_id, snapshot_id)
            if attempt and floor != expected and "automatic rebase" not in world.bugs:
                return CoordinatorFenced(commit.table, commit.commit_id, "floor moved")
            expected = floor
            low = max(floor or 0, self.own_floor.get(name, 0))
            if "automatic rebase" in world.bugs:
                low = self.own_floor.setdefault(name, low)
            files = tuple(
                f
                for e in commit.announcements
                if e.offset >= low or "no floor" in world.bugs
                for f in e.event.payload.data_files  # type: ignore[union-attr] # DataWritten
            )
            if not files:
                return TableCommitted(commit.table, commit.commit_id, None)
            stored = max(low, commit.control_offsets[0])
            if "offsets by put" in world.bugs:
                stored = commit.announcements[0].offset + 1
            vtts = commit.valid_through_us
            last = [s.valid_through_us for s in table.ancestry() if s.valid_through_us is not None]
            if vtts is not None and last and vtts < last[0]:
                vtts = None
            snapshot = Snapshot(snapshot_id, base, files, stored, vtts, covers)  # type: ignore[arg-type] # files in small
            yield
            try:
                world.attempt(table, base, snapshot, stored)
            except ConflictError:
                yield
                continue
            except UnknownError:
                if "files deleted on unknown" in world.bugs:
                    world.deleted.update(path for path, _ in files)
                if "blind retry on unknown" in world.bugs:
                    snapshot_id = world.new_id()
                    expected = None
                    low = self.own_floor.get(name, 0)
                    base = table.head
                    world.attempt_surely(
                        table,
                        Snapshot(snapshot_id, base, files, stored, vtts, covers),
                        stored,  # type: ignore[arg-type] # files in small
                    )
                    return TableCommitted(commit.table, commit.commit_id, snapshot_id)
                yield
                if snapshot_id in table.snapshots:
                    self.own_floor[name] = stored
                    return TableCommitted(commit.table, commit.commit_id, snapshot_id)
                continue
            self.own_floor[name] = stored
            return TableCommitted(commit.table, commit.commit_id, snapshot_id)
        return TableFailed(commit.table, commit.commit_id, "conflicts", "", True)  # noqa: FBT003


class Leader:
    """Changes layouts in three steps: write, fence, ready."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_alive = True
        self.is_paused = False
        self.program = self._run()

    def step(self) -> None:
        """Do one thing."""
        try:
            next(self.program)
        except StopIteration:
            self.is_alive = False

    def _run(self) -> Iterator[None]:
        world = self.world
        old = world.config_log[-1]
        partitions = [TopicPartition(TOPIC, p) for p in range(len(world.source.timestamps_us))]
        count = world.rng.randrange(1, len(partitions) + 1)
        tasks = tuple(tuple(sorted(partitions)[i::count]) for i in range(count))
        layout = Layout("c", old.number + 1, tasks)
        world.config_log.append(layout)
        yield
        if "task not fenced on layout change" not in world.bugs:
            # a leader that crashed in the middle leaves layouts that were written and never
            # fenced: every id of every layout since the last ready one must be taken over
            since = [x for x in world.config_log if x.number >= world.ready_layout]
            if "fences only the last layout" in world.bugs:
                since = [old, layout]
            for number in range(max(len(x.tasks) for x in since)):
                world.log.init(f"g-c-{number}")
                yield
        world.ready_layout = layout.number

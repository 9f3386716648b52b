"""One simulated run: a seed, a schedule of faults, then healing, then the checkers.

Rules of this file:
- All time, chance and identities come from the seed; one seed is one run.
- Faults stop at the end of the chaos; from there on everything must reach its table.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from connect.errors import InvariantViolation
from connect.layout import Layout, TopicPartition
from control_schemas.events import TableReference
from coordinator.kernel import Kernel
from tests.simulation.actors import TOPIC, Coordinator, Leader, LostAnswerError, Task
from tests.simulation.catalog import ConflictError, Snapshot, Table, UnknownError
from tests.simulation.kafka import Log, Source

CHAOS_STEPS = 320
HEAL_STEPS_MAX = 4_000
TABLES = ("a", "b")


class ViolationError(AssertionError):
    """A promise was broken; the message says which."""


class World:
    """Everything outside the actors, and the schedule.

    Args:
        seed: decides the whole run.
        bugs: planted bugs by name; none in a real run.
        kernel_class: the kernel, or one with a planted bug.
    """

    def __init__(
        self,
        seed: int,
        *,
        bugs: frozenset[str] = frozenset(),
        kernel_class: type[Kernel] = Kernel,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.bugs = bugs
        self.kernel_class = kernel_class
        self.log = Log()
        self.log.unfenced = ("g-c-coordinator",) if "two coordinators" in bugs else ()
        self.source = Source(self.rng.randrange(1, 4))
        self.tables = {name: Table(name) for name in TABLES}
        self.references = {n: TableReference("i", ("db",), n) for n in TABLES}
        self.now_ms = 1_000
        self.ids = 0
        self.rounds = 0
        self.is_healing = False
        self.is_restless = self.rng.random() < 0.3  # tasks restart several times a round
        self.counts: Counter[str] = Counter()
        self.deleted: set[str] = set()
        self.late: list[tuple[Table, int | None, Snapshot, int]] = []
        partitions = [TopicPartition(TOPIC, p) for p in range(len(self.source.timestamps_us))]
        self.config_log = [Layout("c", 1, (tuple(partitions),))]
        self.ready_layout = 1
        self.told_layout = 1
        self.tasks: list[Task] = []
        self.coordinators: list[Coordinator] = []
        self.leader: Leader | None = None
        self.trace: list[str] = []

    # ------------------------------------------------------------------ what actors use

    @property
    def now_us(self) -> int:
        """Wall clock; here the same as the monotonic one."""
        return self.now_ms * 1000

    def new_id(self) -> Any:
        """A fresh identity."""
        self.ids += 1
        return self.ids

    def new_path(self) -> str:
        """A fresh file."""
        return f"f{self.new_id()}"

    def route(self, partition: int, offset: int) -> TableReference:
        """Which table a record belongs to."""
        return self.references[TABLES[(partition * 7 + offset) % 3 % 2]]

    def count(self, fault: str) -> None:
        """Say that a fault really happened."""
        self.counts[fault] += 1
        self.trace.append(f"{self.now_ms} {fault}")

    def violation(self, message: str) -> None:
        """Stop the run."""
        raise ViolationError(message)

    def lossy(self, action: Callable[[], None]) -> None:
        """Do it, or not, and sometimes do not tell."""
        chance = 1.0 if self.is_healing else self.rng.random()
        if chance < 0.03:
            self.count("lost before the broker")
            raise LostAnswerError
        action()
        if chance < 0.08:
            self.count("applied, answer lost")
            raise LostAnswerError

    def attempt(self, table: Table, base: int | None, snapshot: Snapshot, stored: int) -> None:
        """One conditional commit, whose answer may be lost and which may land late."""
        chance = 1.0 if self.is_healing else self.rng.random()
        if chance < 0.08:
            self.count("commit unknown, not applied")
            raise UnknownError
        if chance < 0.16:
            self.count("commit unknown, lands late")
            self.late.append((table, base, snapshot, stored))
            raise UnknownError
        self._land(table, base, snapshot, stored)
        if chance < 0.28:
            self.count("commit unknown, applied")
            raise UnknownError

    def attempt_surely(self, table: Table, snapshot: Snapshot, stored: int) -> None:
        """What a client that retries by itself does: commit on whatever the head is."""
        self._land(table, table.head, snapshot, stored)

    def _land(self, table: Table, base: int | None, snapshot: Snapshot, stored: int) -> None:
        if snapshot.id in table.snapshots:
            raise ConflictError
        before = table.floor()
        table.commit(base, snapshot, mirror=stored)
        if before is not None and stored < before:
            self.violation(f"control offsets of {table.name} went back {before} -> {stored}")
        self._check_valid_through(table, snapshot)

    def _check_valid_through(self, table: Table, snapshot: Snapshot) -> None:
        vtts = snapshot.valid_through_us
        claims = [
            s.valid_through_us for s in table.ancestry()[1:] if s.valid_through_us is not None
        ]
        if vtts is None:
            return
        if claims and vtts < claims[0]:
            self.violation(f"VTTS of {table.name} went back {claims[0]} -> {vtts}")
        there = {r for s in table.history for _, records in s.files for r in records}
        for partition, times in enumerate(self.source.timestamps_us):
            if TopicPartition(TOPIC, partition) not in snapshot.covers:
                continue
            for offset, at in enumerate(times):
                mine = self.route(partition, offset).name == table.name
                if mine and at <= vtts and (partition, offset) not in there:
                    self.violation(f"VTTS {vtts} of {table.name} but {(partition, offset)} missing")

    # ------------------------------------------------------------------ schedule

    def run(self) -> None:
        """Chaos, healing, checks.

        Raises:
            ViolationError: a promise was broken.
        """
        try:
            for _ in range(CHAOS_STEPS):
                self._chaos()
            self._heal()
        except InvariantViolation as e:
            raise ViolationError(f"kernel: {e}") from e
        self._check()

    def _chaos(self) -> None:
        r = self.rng.random()
        self.now_ms += 1
        if self.is_restless and r < 0.06:
            self._restart_a_task()
        elif r < 0.70:
            self._step_someone()
        elif r < 0.82:
            partition = self.rng.randrange(len(self.source.timestamps_us))
            for extra_us in range(self.rng.randrange(1, 4)):  # no ties: see docs/guarantees.md
                self.source.produce(partition, self.now_us + extra_us)
        elif r < 0.86:
            self._supervise()
        elif r < 0.90:
            self._crash_or_pause()
        elif r < 0.92:
            self._resume()
        elif r < 0.94:
            self._change_layout()
        else:
            self._disturb(r)

    def _step_someone(self) -> None:
        actors: list[Any] = [
            x
            for x in (*self.tasks, *self.coordinators, *self.coordinators, self.leader)
            if x is not None and x.is_alive and not x.is_paused
        ]
        if not actors:
            self._supervise()
            return
        self.rng.choice(actors).step()

    def _supervise(self) -> None:
        """Start what should run and does not; what is paused counts as gone."""
        self.tasks = [t for t in self.tasks if t.is_alive]
        self.coordinators = [c for c in self.coordinators if c.is_alive]
        ready = next(x for x in self.config_log if x.number == self.ready_layout)
        running = {
            t.number for t in self.tasks if not t.is_paused and t.layout.number == ready.number
        }
        for number in range(len(ready.tasks)):
            if number not in running:
                self.tasks.append(Task(self, ready, number))
        if not any(not c.is_paused for c in self.coordinators):
            self.coordinators.append(Coordinator(self, ready))
        if self.told_layout != ready.number:
            from coordinator.effects import LayoutChanged

            self.told_layout = ready.number
            for coordinator in self.coordinators:
                coordinator.given.append(LayoutChanged(ready))

    def _restart_a_task(self) -> None:
        answered = [t for t in self.tasks if t.is_alive and t.answered]
        if answered:
            self.count("restart after an answer")
            self.rng.choice(answered).is_alive = False
            self._supervise()

    def _crash_or_pause(self) -> None:
        actors: list[Any] = [x for x in (*self.tasks, *self.coordinators, self.leader) if x]
        if not actors:
            return
        victim = self.rng.choice(actors)
        if self.rng.random() < 0.6 or victim is self.leader:
            self.count(f"crash {type(victim).__name__}")
            victim.is_alive = False
        else:
            self.count(f"pause {type(victim).__name__}")
            victim.is_paused = True
            self._supervise()

    def _resume(self) -> None:
        paused = [x for x in (*self.tasks, *self.coordinators) if x.is_paused and x.is_alive]
        if paused:
            zombie: Any = self.rng.choice(paused)
            self.count(f"zombie {type(zombie).__name__}")
            zombie.is_paused = False

    def _change_layout(self) -> None:
        if self.leader is None or not self.leader.is_alive:
            if self.rng.random() < 0.3 and len(self.source.timestamps_us) < 4:
                self.count("partition added")
                self.source.add_partition()
            self.count("layout change")
            self.leader = Leader(self)

    def _disturb(self, r: float) -> None:
        table = self.rng.choice(list(self.tables.values()))
        if r < 0.955:
            self.count("foreign commit")
            snapshot = Snapshot(self.new_id(), table.head, (), None, None)
            table.commit(table.head, snapshot) if not table.is_missing else None
        elif r < 0.965:
            self.count("expiry")
            table.expire(with_tagged=self.rng.random() < 0.5)
        elif r < 0.975:
            table.is_missing = not table.is_missing
            self.count("table missing" if table.is_missing else "table back")
        elif r < 0.985 and self.log.open:
            self.count("transaction timed out")
            self.log.abort(self.rng.choice(sorted(self.log.open)))
        elif self.late:
            self._land_late()

    def _land_late(self) -> None:
        table, base, snapshot, stored = self.late.pop(0)
        if table.head == base and not table.is_missing:
            self.count("late commit landed")
            self._land(table, base, snapshot, stored)

    # ------------------------------------------------------------------ healing and checks

    def _heal(self) -> None:
        self.is_healing = True
        for table in self.tables.values():
            table.is_missing = False
        while self.late:
            self._land_late()
        for zombie in (*self.tasks, *self.coordinators):
            zombie.is_paused = False
        for _ in range(HEAL_STEPS_MAX):
            self.now_ms += 1
            self._step_someone()
            if self.rng.random() < 0.1:
                self._finish_layout()
                self._supervise()
                for left in list(self.log.open):  # the broker's transaction timeout
                    if self.rng.random() < 0.1:
                        self.log.abort(left)
                if self._is_done():
                    return
        self.violation(f"no progress after healing: {self._missing()[:5]}")

    def _finish_layout(self) -> None:
        ready = self.config_log[-1].number == self.ready_layout
        covered = len(self.config_log[-1].partitions) == len(self.source.timestamps_us)
        if (not ready or not covered) and (self.leader is None or not self.leader.is_alive):
            self.leader = Leader(self)

    def _visible(self) -> Counter[tuple[int, int]]:
        seen: Counter[tuple[int, int]] = Counter()
        for table in self.tables.values():
            for snapshot in table.history:
                for path, records in snapshot.files:
                    if path not in self.deleted:
                        seen.update(records)
        return seen

    def _missing(self) -> list[tuple[int, int]]:
        seen = self._visible()
        return [
            (p, o)
            for p in range(len(self.source.timestamps_us))
            for o in range(self.source.end(p))
            if not seen[p, o]
        ]

    def _is_done(self) -> bool:
        return not self._missing()

    def _check(self) -> None:
        seen = self._visible()
        twice = [r for r, n in seen.items() if n > 1]
        if twice:
            self.violation(f"twice: {twice[:5]}")
        if self._missing():
            self.violation(f"lost: {self._missing()[:5]}")
        for table in self.tables.values():
            paths = [path for s in table.history for path, _ in s.files]
            if len(paths) != len(set(paths)):
                self.violation(f"a path is in two snapshots of {table.name}")

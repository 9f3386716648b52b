"""One simulated run: a script of moves, then perhaps healing, then the checkers.

Rules of this file:
- All time, chance and identities come from the script; one script is one run.
- Faults stop with the script; from there on everything must reach its table.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from connect.errors import Fenced, InvariantViolation
from connect.model.layout import Layout, TopicPartition
from control_schemas.events import TableReference
from coordinator.kernel.effects import Envelope, LayoutChanged
from coordinator.kernel.kernel import Kernel
from tests.simulation import checks, faults, script, table_faults
from tests.simulation.catalog import Base, ConflictError, Snapshot, Table, UnknownError
from tests.simulation.coordinator import Coordinator
from tests.simulation.kafka import GROUP, Log, LostAnswerError
from tests.simulation.reset import Reset
from tests.simulation.task import TOPIC, Actor, Keeper, Leader, Task

HEAL_TURNS_MAX = 400
FUTURE_US = 10**12
TABLES = ("a", "b", "c")


class ViolationError(AssertionError):
    """A guarantee is violated; the message has the details."""


class World:
    """Everything outside the actors, and the schedule.

    Args:
        moves: the script.
        bugs: planted bugs and protections switched off, by name; none in a real run.
        kernel_class: the kernel, or one with a planted bug.
        has_trace: whether to keep the event log.
    """

    # faster: instances with so many attributes do not share their dictionary keys
    __slots__ = (
        "bugs",
        "catalog_back_at_ms",
        "clocks",
        "config_log",
        "continues_after_loss",
        "coordinators",
        "counts",
        "deleted_paths",
        "disorder_us",
        "flags",
        "given_up",
        "gone",
        "happened",
        "has_claimed",
        "incarnations",
        "is_healing",
        "is_supervised",
        "is_vtts_wrong",
        "keeper",
        "kernel_class",
        "key_bits",
        "late",
        "leader",
        "left_missing",
        "log",
        "moves",
        "new_id",
        "now_ms",
        "place_of_bit",
        "ready",
        "references",
        "reset",
        "reset_tables",
        "rolled_from",
        "rounds",
        "routed",
        "runnable",
        "sent_layout",
        "sessions",
        "slow_partition",
        "source",
        "source_floor",
        "source_starts",
        "state",
        "steps",
        "stopped",
        "tables",
        "tasks",
        "timeout_ms",
        "trace",
    )

    def __init__(  # noqa: PLR0915 - every attribute once, none by a call
        self,
        moves: script.Script,
        *,
        bugs: frozenset[str] = frozenset(),
        kernel_class: type[Kernel] = Kernel,
        has_trace: bool = False,
    ) -> None:
        self.moves = moves
        self.flags = flags = moves[0]
        self.state = flags >> script.CHANCE_SHIFT
        self.bugs = bugs
        self.kernel_class = kernel_class
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.trace: list[str] | None = [] if has_trace else None
        self.now_ms = 1_000
        self.rounds = 0
        self.new_id = itertools.count(1).__next__  # a fresh identity
        self.is_healing = False
        self.catalog_back_at_ms = 0
        self.timeout_ms = 200 if flags & script.RESTLESS else 60
        self.disorder_us = (self.pick(2) + 1) * 10_000
        self.stopped: str | None = None
        # icefloe.fail-on-data-loss=false
        self.continues_after_loss = bool(flags >> script.CONTINUE_SHIFT & 1)
        # one of so many nodes has a clock that is ahead, if any
        self.clocks = 4 if flags >> script.CLOCKS_SHIFT & 3 else 1

        self.source: list[list[tuple[int, int, int]]] = []
        self.source += [[] for _ in range((1, 2, 3, 3)[self.pick(4)])]
        self.source_starts = [0] * 4
        # a partition that is read slowly, perhaps one that will be added
        self.slow_partition = self.pick(5) if self.pick(2) else len(self.source)
        self.incarnations: defaultdict[int, int] = defaultdict(int)  # of tasks by number
        self.sessions = 0  # of coordinators
        self.place_of_bit: list[tuple[int, int]] = []
        self.routed = [0, 0, 0]
        self.key_bits: dict[int, int] = {}
        self.steps: dict[int, frozenset[int]] = {}  # of a path all paths of its step
        self.given_up = dict.fromkeys(TABLES, 0)
        self.gone = dict.fromkeys(TABLES, 0)  # announced, and the announcement destroyed
        self.happened: set[str] = set()  # what justifies a stop
        self.rolled_from: dict[str, tuple[Snapshot, Snapshot]] = {}
        self.left_missing = ""
        self.reset_tables: set[str] = set()  # that remember the control topic's first id
        self.deleted_paths: set[int] = set()

        self._create_log_and_tables()
        self.late: list[tuple[int, Table, int, int | None, int, Any]] = []
        self.config_log = [self.new_layout(1)]
        self.ready = self.config_log[0]
        self.sent_layout = 1
        self.source_floor: set[int] = set()  # partitions that were read, by the config topic
        self.tasks: list[Task] = []
        self.runnable: list[Actor] | None = None  # None when actors changed, see actors()
        self.is_supervised = False
        self.coordinators: list[Coordinator] = []
        self.leader: Leader | None = None
        self.keeper: Keeper | None = None
        self.reset: Reset | None = None
        # the configuration accepts timestamps of the future, until the operator resets the VTTS
        self.is_vtts_wrong = bool(flags & script.RESET)
        self.has_claimed = False  # since the reset
        faults.set_up(self)
        if flags & script.FOREIGN and flags & script.EXPIRY and flags >> script.OTHERS_SHIFT & 1:
            table_faults.set_up_tables_of_others(self)
        self.note_read()

    def _create_log_and_tables(self) -> None:
        flags, bugs = self.flags, self.bugs
        is_wide = bool(flags & script.TWO_PARTITIONS)
        self.log = Log(2 if is_wide else 1, self.pick(2) if is_wide else 0)
        self.log.unfenced = "g-c-coordinator" if "two coordinators" in bugs else "/"
        upsert = "c" if flags & script.UPSERT else ""
        branch = "audit" if flags & script.BRANCH else "main"
        self.tables = {
            n: Table(n, self.new_id(), branch if n == "b" else "main", is_upsert=n == upsert)
            for n in TABLES
        }
        self.references = {
            n: TableReference("i", ("db",), n, t.uuid)  # type: ignore[arg-type] # any identity will do
            for n, t in self.tables.items()
        }

    def new_layout(self, number: int) -> Layout:
        """Distribute the current partitions over a number of tasks."""
        partitions = tuple(TopicPartition(TOPIC, p) for p in range(len(self.source)))
        count = len(partitions) - self.pick(len(partitions)) * self.pick(2)
        return Layout("c", number, tuple(partitions[i::count] for i in range(count)))

    # ------------------------------------------------------------------ what actors use

    @property
    def now_us(self) -> int:
        """Wall clock; equal to the monotonic clock."""
        return self.now_ms * 1000

    def pick(self, count: int) -> int:
        """Return a pseudo-random number below ``count``; the current move is the seed."""
        self.state = state = (
            self.state * 6364136223846793005 + 1442695040888963407 & 0xFFFFFFFFFFFFFFFF
        )
        return (state >> 33) % count

    def produce(self, partition: int) -> None:
        """Add a source record; its timestamp may be slightly lower than those before it."""
        pick = self.pick
        at_us = self.now_ms * 1000 - pick(self.disorder_us)
        if self.flags & script.FUTURE and not pick(8):
            self.counts["record of the future"] += 1
            at_us += FUTURE_US
        table = pick(3)
        bit = 1 << len(self.place_of_bit)
        records = self.source[partition]
        self.place_of_bit.append((partition, len(records)))
        records.append((at_us, bit, table))
        self.routed[table] |= bit
        if self.tables[TABLES[table]].is_upsert:
            key = partition * 2 + pick(2)
            self.key_bits[key] = self.key_bits.get(key, 0) | bit

    def write_step(self, table: int, bits: list[int]) -> list[tuple[Any, Any, Any]]:
        """Return the events that announce one step's records of one table.

        Each event has a reference, data files and delete files. Files are in the order of their
        random paths.
        """
        name = TABLES[table]
        reference = self.references[name]
        added = 0
        for bit in bits:
            added |= bit
        visible, keys = added, ()
        if self.tables[name].is_upsert:
            keys = tuple([key for key, known in self.key_bits.items() if known & added])
            visible = 0
            for key in keys:  # the last change of each key
                visible |= 1 << ((self.key_bits[key] & added).bit_length() - 1)
        chance = self.pick(16)
        if chance < 6:
            return [(reference, ((self.new_id(), added, visible),), keys)]
        size = chance % 3 + 1
        out: list[tuple[Any, Any, Any]] = []
        for at in range(0, len(bits), size):
            part = 0
            for bit in bits[at : at + size]:
                part |= bit
            out.append((reference, ((self.new_id(), part, part & visible),), ()))
        if keys:
            out.insert(chance % (len(out) + 1), (reference, ((self.new_id(), 0, 0),), keys))
        paths = frozenset(data_files[0][0] for _, data_files, _ in out)
        if len(paths) > 1:
            self.steps.update(dict.fromkeys(paths, paths))
        return out

    def count(self, fault: str, actor: Actor | None = None) -> None:
        """Count a fault that has happened."""
        name = f"{fault} {actor.kind}" if actor is not None else fault
        self.counts[name] += 1
        if self.trace is not None:
            self.add_to_trace(name)

    def add_to_trace(self, message: str) -> None:
        """Add a line to the event log."""
        if self.trace is not None:
            self.trace.append(f"{self.now_ms:>6} {message}")

    def violation(self, message: str) -> None:
        """End the run with an error."""
        raise ViolationError(message)

    def stop(self, code: str) -> None:
        """Stop the connector with an error code."""
        if code not in self.happened:
            self.violation(f"stopped with {code} without a fault that justifies it")
        self.count(f"stopped: {code}")
        self.stopped = code

    def table_failed(self, name: str, code: str) -> None:
        """Record a failed table; only a fault justifies the failure."""
        self.count(f"table failed: {code}")
        is_known = code in {"commit_conflict", "floor_moved"} or code in self.happened
        if not is_known and f"{code} {name}" not in self.happened:
            self.violation(f"table {name} failed with {code} without a fault that justifies it")

    def named(self, bits: int) -> str:
        """Return the first records of a set, as text."""
        found = [str(p) for i, p in enumerate(self.place_of_bit) if bits >> i & 1]
        return ", ".join(found[:5])

    def is_answered(self) -> bool:
        """Decide what becomes of a request to the broker, before it is applied.

        Returns:
            Whether its answer arrives; if not, ``lose_answer`` must follow the request.

        Raises:
            LostAnswerError: the request itself is lost.
        """
        if self.is_healing or not self.flags & script.TRANSACTIONS:
            return True
        chance = self.pick(100)
        if chance < 4:
            self.count("lost before the broker")
            raise LostAnswerError
        return chance >= 10

    def lose_answer(self) -> None:
        """The answer to a request that was applied is lost."""
        self.count("applied, answer lost")
        raise LostAnswerError

    def hang_transaction(self, partition: int) -> None:
        """Leave another connector's transaction open: it blocks readers of the partition."""
        log = self.log
        if "foreign" not in log.open:
            self.count("foreign transaction hangs")
            transaction = log.begin("foreign", 0)
            transaction.first[partition] = len(log.entries[partition])
            log.entries[partition].append((transaction, None))

    def attempt(self, table: Table, uuid: int, base: Base, snapshot_id: int, content: Any) -> None:
        """Try a conditional commit. Its answer may be lost, and it may be applied late.

        Raises:
            ConflictError: refused, or repeated by the client after it was applied.
            UnknownError: no answer.
        """
        chance = 99 if self.is_healing or not self.flags & script.UNKNOWN else self.pick(60)
        if chance < 5:
            self.count("commit unknown, not applied")
            raise UnknownError
        if chance < 10:
            self.count("commit unknown, applied late")
            self.late.append((self.now_ms, table, uuid, base, snapshot_id, content))
            raise UnknownError
        self.land(table, uuid, base, snapshot_id, content)
        if chance < 18:
            self.count("commit unknown, applied")
            raise UnknownError
        if chance < 22:
            self.count("conflict after it was applied")
            raise ConflictError

    def land(self, table: Table, uuid: int, base: Base, snapshot_id: int, content: Any) -> None:
        """Apply a commit if its conditions hold."""
        table.require(uuid, base, snapshot_id)
        if self.deleted_paths and self.deleted_paths & content.paths:
            self.violation(f"a commit of {table.name} adds files that were deleted")
        if not content.uuids <= {table.uuid}:
            self.violation(f"files of another table came into {table.name}")
        parent = table.head
        snapshot = content.snapshot(snapshot_id, parent)
        checks.check_commit(self, table, parent, snapshot, content)
        content.put(table, snapshot)
        self.counts["commits"] += 1
        if self.trace is not None:
            self.add_to_trace(f"commit of {table.name}: {self.named(snapshot.added)}")

    def check_claim(self, vtts: int, partitions: frozenset[int]) -> None:
        """Check the VTTS that a CommitComplete claims for all tables."""
        checks.check_future(self, vtts)
        self.has_claimed |= not self.is_vtts_wrong
        for index, table in enumerate(self.tables.values()):
            missing = checks.unreadable(self, index, table.added, vtts, partitions)
            if missing:
                self.violation(f"round claims {vtts}, {table.name} lacks {self.named(missing)}")

    def delete_files(self, table: Table, content: Any) -> None:
        """A planted bug deletes files that a commit may own."""
        if content.added & table.added:
            self.violation(f"files deleted that {table.name} holds: {self.named(content.added)}")
        self.deleted_paths |= content.paths

    def skip(self, name: str, announcements: tuple[Envelope, ...]) -> None:
        """Record announcements that an operator has skipped."""
        if announcements:
            self.count("announcements skipped")
        for envelope in announcements:
            for _, added, _ in envelope.event.payload.data_files:  # type: ignore[union-attr] # DataWritten
                self.given_up[name] |= added

    def note_read(self) -> None:
        """Record the partitions with source offsets, as the leader does in the config topic."""
        self.source_floor |= self.log.groups[GROUP].keys()

    def was_read(self, partition: int) -> bool:
        """Return whether a partition was read before: it must not start by the reset policy."""
        if "lost source offsets start from the policy" in self.bugs:
            return False
        if partition in self.source_floor:
            return True
        if self.source_floor and "announcements are ignored once there is a floor" in self.bugs:
            return False
        return partition in self.log.announced_partitions()

    # ------------------------------------------------------------------ schedule

    def run(self) -> None:  # noqa: C901, PLR0912 - a step of an actor is inlined, the hot path
        """Run the script, then healing if the script has it, then the checks.

        Raises:
            ViolationError: a guarantee is violated.
        """
        try:
            moves, flags, by_byte = faults.MOVES, self.flags, script.BY_BYTE
            for number in self.moves[1:]:
                self.state = number
                self.now_ms += number >> 56 & 7
                name, kind = by_byte[number & 255]
                if kind and not flags & kind:
                    name = "step"
                if self.trace is not None:
                    self.add_to_trace(f"-- {name}")
                if name == "step":
                    actors = self.runnable
                    if actors is None:
                        actors = self.actors()
                    if actors:
                        actor = actors[(number >> 24 & 0xFFFF) % len(actors)]
                        if actor.is_quick:
                            actor.step((number >> 16 & (31 if number >> 21 & 3 else 3)) + 1)
                        else:
                            actor.step(1)
                    else:
                        self.supervise()
                else:
                    moves[name](self)
                if self.stopped is not None:
                    break
            if self.flags & script.HEAL and self.stopped is None:
                self._heal()
        except Fenced as e:  # the simulated connector has no other sink after its start
            raise ViolationError(f"kernel: {e}") from e
        except InvariantViolation as e:
            if not self.happened & {"control_log_lost", "control_log_reset"}:
                raise ViolationError(f"kernel: {e}") from e
            self.stopped = e.code
            self.count("stopped: invariant, for control events are gone")
        checks.check_end(self)
        self._break_cycles()

    def _break_cycles(self) -> None:
        """Break reference cycles: garbage collection would take a fifth of the time."""
        for actor in (*self.tasks, *self.coordinators):
            actor.end()
        for one in (self.leader, self.keeper, self.reset):
            if one is not None:
                one.end()
        self.leader = self.keeper = self.reset = None
        self.tasks, self.coordinators, self.late = [], [], []

    def actors(self) -> list[Actor]:
        """Return the actors that can do something."""
        if self.runnable is None:
            others = [a for a in (self.leader, self.keeper, self.reset) if a is not None]
            self.runnable = [
                a
                for a in (*self.tasks, *self.coordinators, *others)
                if a.is_alive and not a.is_paused
            ]
        return self.runnable

    def actors_changed(self) -> None:
        """An actor was started, ended, paused or resumed."""
        self.runnable = None
        self.is_supervised = False

    def supervise(self) -> None:
        """Start missing actors; a paused actor counts as missing."""
        if self.log.topic_id != 1 and "control topic re-created unnoticed" not in self.bugs:
            self.stop("control_log_reset")  # the node remembers the identity it first met
            return
        is_stopped = self.reset is not None and self.reset.is_alive
        if is_stopped or self.is_supervised:  # nothing changed since the last time
            return
        self.tasks = [t for t in self.tasks if t.is_alive]
        self.coordinators = [c for c in self.coordinators if c.is_alive]
        ready = self.ready
        running = [
            t.number for t in self.tasks if not t.is_paused and t.layout.number == ready.number
        ]
        for number in range(len(ready.tasks)):
            if number not in running:
                self.tasks.append(Task(self, ready, number))
        if not [c for c in self.coordinators if not (c.is_paused or c.is_outdated)]:
            self.coordinators.append(Coordinator(self, ready))
        if self.sent_layout != ready.number:
            self.sent_layout = ready.number
            for coordinator in self.coordinators:
                if not coordinator.is_outdated:  # its node has given it up
                    coordinator.given.append(LayoutChanged(ready))
        self.is_supervised = True

    def _heal(self) -> None:
        self._end_faults()
        for turn in range(HEAL_TURNS_MAX):
            self.now_ms += 4
            self.state = turn
            for actor in self.actors():
                actor.step(40 if actor.is_quick else 1)
            faults.finish_layout(self)
            if not turn % 4:
                self.log.time_out()
                table_faults.decide_all(self)
            self.supervise()
            if self._is_healed(turn):
                return
            if self.is_vtts_wrong and turn % 50 == 40:
                table_faults.reset_valid_through(self)
        if "control_log_reset" not in self.happened:
            lost = checks.missing_named(self)
            self.violation(f"no progress after healing: {lost or 'no VTTS after the reset'}")

    def _end_faults(self) -> None:
        self.is_healing = True
        while self.late:
            table_faults.land_late(self)
        table_faults.repair_all(self)
        for zombie in (*self.tasks, *self.coordinators):
            zombie.resume()
        if self.keeper is not None:
            self.keeper.resume()
        if self.flags & script.RESET:  # the clocks are set: those tasks start again
            for task in self.tasks:
                if task.clock_ahead_us:
                    task.end()

    def _is_healed(self, turn: int) -> bool:
        if self.stopped is not None or self._is_reset_known(turn):
            return True
        return not checks.missing(self) and turn > 2 and self._is_vtts_right()

    def _is_vtts_right(self) -> bool:
        """Whether rounds claim a VTTS again after the reset, if all tables are committed."""
        is_asked = self.flags & script.RESET and not self.left_missing
        return not is_asked or (self.has_claimed and not self.is_vtts_wrong)

    def _is_reset_known(self, turn: int) -> bool:
        """A control topic that was re-created while running is noticed table by table."""
        return turn > 40 and "table failed: control_log_reset" in self.counts

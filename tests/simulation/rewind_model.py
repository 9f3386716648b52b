"""A connector that is rewound again and again, with crashes, late commits and failing tables.

Rules of this file:
- The production code plans: ``RewindPlanner``, and with it ``rollback`` and ``ControlHistory``. It
  keeps, checks, releases and cancels: ``RecordedRewind``, ``kept_history``. Floors are read with
  ``table_state``. Tasks, coordinator, catalog, the commit of a rewind and the operator are models.
- A process that rewinds may be frozen at each of its steps, and continue when its rewind was
  finished, cancelled or replaced. Only then is its place in the record another one's.
- A commit without an answer may land at any later time, if the branch is still where it was.
- All chance comes from the seed.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate

from connect.errors import CommitConflict, CommitRefused, CommitStateUnknown
from connect.protocol.control_offsets import offsets_text, parse_offsets
from connect.protocol.snapshot_ancestry import REWIND_PROPERTY, ancestry, summary
from control_schemas.events import (
    CommitComplete,
    EventHeaders,
)
from coordinator.rewind import kept_history
from coordinator.rewind.recorded_rewind import RecordedRewind
from coordinator.rewind.rewind_plan import RewindPlan
from coordinator.rewind.rewind_planner import RewindPlanner
from coordinator.rewind.rewind_request import RewindRequest
from coordinator.rewind.table_history import own_commits
from tests.simulation.rewind_connector import (
    COMMIT,
    SOURCES,
    ModelConnector,
    ModelTable,
    ref_to,
)

MOVES = 120
HEAL_TURNS_MAX = 30
BUGS = (
    "floor goes back with the rows",
    "connector starts before the rewind is done",
    "tables without later snapshots are left out",
    "announcements before the cut are ignored",
    "offsets are announced after the tables",
    "tables change without a condition",
    "commits of others are ignored",
    "commits of the rewind do not require its branch",
    "history is not kept",
    "a cancelled rewind keeps its branches",
    "cancelled although a table was taken back",
    "tables are not read again after the branches are removed",
    "replaced before the branches are removed",
    "attempts share their fence",
    "replaced by a rewind to its own snapshot",
    "only the last rewind is unfinished",
)

UNFENCED = ("commits of the rewind do not require its branch", "history is not kept")


class Expired(Exception):  # noqa: N818 - ends a run without a verdict
    """The snapshot to go back to expired during the rewind: the operator has no way out."""


class Model(ModelConnector):
    """One connector with two source partitions and three tables.

    Args:
        seed: of all chance.
        bug: planted; empty for none.
        frozen_max: processes that may be frozen at the same time.
    """

    def __init__(self, seed: int, bug: str = "", *, frozen_max: int = 3) -> None:
        super().__init__(seed)
        self.bug = bug
        self.frozen_max = frozen_max
        self.work: Iterator[None] | None = None
        self.frozen: list[Iterator[None]] = []
        self.is_healing = False
        self.happened: Counter[str] = Counter()
        self.catalog: Any = SimpleNamespace(find=self.tables.get, commit=self.commit_refs)
        self.done = 0

    def run(self) -> int:
        """Make random moves, heal, check; return the number of finished rewinds."""
        moves = (
            (self.produce, 6),
            (self.answer, 8),
            (self.round, 6),
            (self.land_late, 3),
            (self.fail, 1),
            (self.expire, 1),
            (self.retain, 1),
            (self.write_foreign, 1),
            (self.restart, 1),
            (self.rewind, 3),
            (self.step_rewind, 9),
            (self.crash, 2),
            (self.freeze, 2),
            (self.thaw, 3),
            (self.cancel, 1),
            (self.replace, 1),
        )
        names, weights = zip(*moves, strict=True)
        for move in self.chance.choices(names, weights, k=MOVES):
            self.now_ms += 1
            move()
        self.heal()
        self.check()
        return self.done

    # ------------------------------------------------------------ the operator

    def rewind(self) -> None:
        """Begin a rewind to a random commit, or continue the recorded one."""
        if self.work is not None:
            return
        if self.recorded is not None:
            self.work = self.steps(self.recorded)
            return
        self.is_running = False
        if not self.begin():
            self.is_running = True

    def begin(self) -> bool:
        """Record a rewind to a random commit; return False if no plan allows it."""
        commits = [
            commit.snapshot_id
            for name, table in self.tables.items()
            for commit in own_commits(name, table, self.keys[name])  # type: ignore[arg-type] # as above
        ]
        plan = None
        if commits:
            plan = self.plan(RewindRequest(snapshot_id=self.chance.choice(commits)))
        if plan is None:
            return False
        assert plan.commit is not None
        self.recorded = {
            "id": str(self.new_id()),
            "cut": plan.commit.offsets,
            "tables": {name: one.target_id for name, one in sorted(plan.rollbacks.items())},
            "offsets": plan.positions,
            "replaced": self.unfinished_ids(),
        }
        if self.bug == "tables without later snapshots are left out":
            kept = [name for name, one in plan.rollbacks.items() if one.removed]
            self.recorded["tables"] = {n: self.recorded["tables"][n] for n in kept}
        self.work = self.steps(self.recorded)
        return True

    def unfinished_ids(self) -> list[str]:
        """Return the ids of the recorded rewind, and of those that it replaced."""
        if self.recorded is None:
            return []
        replaced = self.recorded["replaced"]
        if self.bug == "only the last rewind is unfinished":
            replaced = []
        return [*replaced, self.recorded["id"]]

    def identity(self, recorded: dict[str, Any]) -> RecordedRewind:
        """What a process knows of a rewind."""
        return RecordedRewind(self.config, recorded["id"], recorded["cut"])

    def freeze(self) -> None:
        """The process that rewinds is frozen; the operator does not wait for it."""
        if self.work is not None and len(self.frozen) < self.frozen_max:
            self.happened["frozen"] += 1
            self.frozen.append(self.work)
            self.work = None

    def thaw(self) -> None:
        """A frozen process makes a step."""
        if self.frozen:
            program = self.frozen.pop(self.chance.randrange(len(self.frozen)))
            if next(program, self) is not self:
                self.frozen.append(program)

    def cancel(self) -> bool:
        """The operator cancels the rewind, as ``icefloe rewind --cancel``."""
        recorded = self.recorded
        if recorded is None or self.work is not None:
            return False
        rewind, tables = self.identity(recorded), recorded["tables"]
        if self.bug == "a cancelled rewind keeps its branches":
            failed = any(self.is_taken_back(rewind, name) for name in tables)
        elif self.bug == "cancelled although a table was taken back":
            kept_history.release_history(self.catalog, rewind, tables)
            failed = False
        elif self.bug == "tables are not read again after the branches are removed":
            failed = any(self.is_taken_back(rewind, name) for name in tables)
            if not failed:
                kept_history.release_history(self.catalog, rewind, tables)
        else:
            results = kept_history.cancel(self.catalog, rewind, tables)
            failed = any(one["code"] for one in results)
        if failed:
            return False
        self.happened["cancelled"] += 1
        self.recorded = None
        self.is_running = True
        return True

    def is_taken_back(self, rewind: RecordedRewind, name: str) -> bool:
        """Whether a table holds the snapshot of a rewind."""
        return rewind.snapshot_in(self.tables[name], self.keys[name]) is not None  # type: ignore[arg-type] # as above

    def replace(self) -> bool:
        """The operator begins another rewind in place of the recorded one."""
        recorded = self.recorded
        if recorded is None or self.work is not None:
            return False
        if self.bug != "replaced before the branches are removed":
            kept_history.release_history(self.catalog, self.identity(recorded), recorded["tables"])
        if self.begin():
            self.happened["replaced"] += 1
            return True
        return False

    # ------------------------------------------------------------ references in the catalog

    def commit_refs(self, table: ModelTable, requirements: Any, updates: Any) -> None:
        """Change references, if the branch is still where it was; another client may be first."""
        self.interfere()
        for requirement in requirements:
            if isinstance(requirement, AssertRefSnapshotId):
                ref = table.refs.get(requirement.ref)
                if ref is None or ref.snapshot_id != requirement.snapshot_id:
                    raise CommitConflict("the branch has moved")
        for update in updates:
            if isinstance(update, RemoveSnapshotRefUpdate):
                table.refs.pop(update.ref_name, None)
            else:
                table.refs[update.ref_name] = SnapshotRef(
                    snapshot_id=update.snapshot_id, snapshot_ref_type=update.type
                )
        if not self.is_healing and not self.chance.randrange(8):
            raise CommitStateUnknown("applied, and the answer is lost")

    def interfere(self) -> None:
        """Something else happens between two requests of a process."""
        if not self.is_healing and not self.chance.randrange(4):
            moves = (self.land_late, self.write_foreign, self.expire, self.thaw)
            self.chance.choice(moves)()

    def plan(self, request: RewindRequest) -> RewindPlan | None:
        """Return the plan of the production code; None when it refuses."""
        log = SimpleNamespace(
            starts=lambda: {0: self.log_start},
            read=lambda take: [take(record) for record in self.log[self.log_start :]],
        )
        marks = {tp: (0, end) for tp, end in self.ends.items()}
        admin = SimpleNamespace(
            topics=lambda: {"t": len(SOURCES)},
            topic_id=lambda _: None,
            committed_all=lambda _: dict(self.committed),
            watermarks=lambda partitions: {tp: marks[tp] for tp in partitions},
        )
        catalog = SimpleNamespace(find=self.tables.get)
        is_known = self.bug != "replaced by a rewind to its own snapshot"
        unfinished = self.unfinished_ids() if is_known else []
        planner = RewindPlanner(self.config, log, admin, catalog, {}, unfinished)  # type: ignore[arg-type] # has what is called
        try:
            plan = planner.plan(request)
        except CommitRefused:
            return None
        ignored = {
            "announcements before the cut are ignored": "announced_before",
        }.get(self.bug)
        return plan if all(code == ignored for code, _, _ in plan.problems) else None

    def steps(self, recorded: dict[str, Any]) -> Iterator[None]:
        """The steps of a recorded rewind; a crash may end it at each ``yield``."""
        rewind = self.identity(recorded)
        if self.bug != "attempts share their fence":
            rewind = replace(rewind, attempt=str(self.new_id()))
        moved = EventHeaders(moved=tuple((tp.topic, tp.partition) for tp in recorded["offsets"]))
        yield
        if not (yield from self.keep(recorded, rewind)):
            return
        if self.recorded is not recorded:  # a former leader is refused
            return
        if self.bug != "offsets are announced after the tables":
            self.append(CommitComplete(COMMIT, None), moved)
        yield
        end = len(self.log)
        for name, target_id in recorded["tables"].items():
            if not (yield from self.take_back(name, target_id, rewind, end)):
                self.refused(name, target_id)
                return
            yield
        if self.bug == "offsets are announced after the tables":
            self.append(CommitComplete(COMMIT, None), moved)
        if self.recorded is not recorded:
            return
        self.committed |= recorded["offsets"]
        yield
        kept_history.release_history(self.catalog, rewind, recorded["tables"])
        yield
        if self.recorded is recorded:
            self.recorded = None
            self.is_running = True
            self.done += 1

    def keep(self, recorded: dict[str, Any], rewind: RecordedRewind) -> Generator[None, None, bool]:
        """Keep the history of each table; return False when one refuses."""
        for name, target_id in recorded["tables"].items():
            if self.bug != "history is not kept":
                results = kept_history.keep_history(self.catalog, rewind, {name: target_id})
                if results[0]["code"]:
                    self.refused(name, target_id)
                    return False
            yield
        return True

    def take_back(
        self, name: str, target_id: int | None, rewind: RecordedRewind, end: int
    ) -> Generator[None, None, bool]:
        """Commit the rewind to a table, if the branch is still as it was read.

        Returns:
            False when the table refuses.
        """
        table, keys = self.tables[name], self.keys[name]
        while True:
            if self.is_taken_back(rewind, name):
                return True
            head, kept = table.head, table.refs.get(rewind.fence)
            is_fenced = self.bug not in UNFENCED and head is not None
            if is_fenced and kept is None:
                return False
            try:
                rewind.checked(table, keys, target_id)  # type: ignore[arg-type] # as above
            except CommitRefused:
                if self.bug != "commits of others are ignored":
                    return False
            target = table.by_id.get(target_id or 0)
            floor = end
            if self.bug == "floor goes back with the rows":
                own = None if target is None else summary(target).get(keys.summary)
                floor = parse_offsets(own).get(0, 0)
                table.properties[keys.mirror] = offsets_text({0: floor})
            files = target.files if target else frozenset()
            marks = {REWIND_PROPERTY: rewind.rewind_id}
            made = self.snapshot(name, target, files, frozenset(), offset=floor, **marks)
            yield
            is_kept = not is_fenced or table.refs.get(rewind.fence) == kept
            is_same = table.head is head and is_kept
            if is_same or self.bug == "tables change without a condition":
                self.put(name, made, offset=floor)
                return True

    def refused(self, name: str, target_id: int | None) -> None:
        """The operator takes back the commits of others, or does nothing."""
        if self.chance.randrange(2) or self.is_healing:
            with contextlib.suppress(Expired):
                self.undo_foreign(name, target_id)

    def undo_foreign(self, name: str, target_id: int | None) -> None:
        """The operator takes back the commits of others, as the refusal demands."""
        table = self.tables[name]
        if target_id is not None and target_id not in table.by_id:
            raise Expired
        chain = list(ancestry(table, "main"))  # type: ignore[arg-type] # as above
        own = next((s for s in chain if summary(s).get(self.keys[name].summary)), None)
        lost = (chain[0].files if chain else frozenset()) - (own.files if own else frozenset())
        self.foreign[name] -= lost
        if own is None:
            table.refs.pop("main", None)
        else:
            table.refs["main"] = ref_to(own, SnapshotRefType.BRANCH)
        if table.head is (chain[0] if chain else None):
            raise Expired

    def step_rewind(self) -> None:
        """The rewind makes a step."""
        if self.work is not None and next(self.work, self) is self:
            self.work = None

    def crash(self) -> None:
        """The process that rewinds ends; or, with a planted bug, the connector starts."""
        self.work = None
        if self.recorded is not None and self.bug == "connector starts before the rewind is done":
            self.is_running = True

    # ------------------------------------------------------------ the end

    def heal(self) -> None:
        """Finish, cancel or replace the rewind; let frozen processes continue; commit everything.

        Raises:
            Expired: no way is left.
        """
        self.failing.clear()
        self.is_healing = True
        self.end_rewind()
        if self.chance.randrange(2):
            self.finish_frozen()
        self.is_running = True
        while self.late:
            self.land_late()
        for _ in range(200):
            if self.committed == self.ends:
                break
            self.answer()
        for tp in SOURCES:
            while self.committed[tp] < self.ends[tp]:
                self.answer()
        for _ in range(12):
            self.round()
            while self.late:
                self.land_late()
        self.finish_frozen()
        for _ in range(4):
            self.round()

    def end_rewind(self) -> None:
        """Finish the recorded rewind; where a table refuses, cancel or replace it."""
        for _ in range(HEAL_TURNS_MAX):
            if self.recorded is None:
                return
            self.work = self.work or self.steps(self.recorded)
            while self.work is not None:
                self.step_rewind()
            if self.recorded is not None and not self.cancel():
                self.replace()
        raise Expired

    def finish_frozen(self) -> None:
        """Every frozen process continues until its end."""
        while self.frozen:
            self.thaw()

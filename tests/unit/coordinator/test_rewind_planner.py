"""Which tables a rewind may plan for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from coordinator.rewind.rewind_planner import RewindPlanner
from coordinator.rewind.rewind_request import RewindRequest
from tests.support.tables import connector


def test_tables_that_are_not_granted_are_neither_read_nor_planned() -> None:
    """A request names any table, and so do events of the control topic."""
    config = replace(connector("alice", ["alice.t", "shared.t"]), granted_tables="alice[.].*")
    asked: list[str] = []

    def find(name: str) -> None:
        asked.append(name)

    log = SimpleNamespace(starts=lambda: {0: 0}, read=lambda _: None)
    admin = SimpleNamespace(
        topics=dict, committed_all=lambda _: {}, watermarks=lambda _: {}, topic_id=lambda _: None
    )
    catalog = SimpleNamespace(find=find)
    planner = RewindPlanner(config, log, admin, catalog, {}, ())  # type: ignore[arg-type] # has what is called
    plan = planner.plan(RewindRequest(is_to_beginning=True, tables=("bob.t",)))
    assert asked == ["alice.t"]
    assert [(code, table) for code, _, table in plan.problems] == [
        ("not_granted", "bob.t"),
        ("not_granted", "shared.t"),
    ]
    assert not plan.rollbacks

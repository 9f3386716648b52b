"""The herder's observed state agrees with its child again after any disorder between them."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from connect.node.herder.child_processes.reconciliation import Reconciliation
from connect.node.herder.units.units import ConnectorRun, Unit
from connect.processes.unit_reports import UnitReport
from tests.support.herder_model import HerderModel

SEEDS = range(int(os.environ.get("HERDER_SEEDS", "10")))
PLANTED_SEEDS = range(20)


def test_every_connector_works_again_after_any_fault() -> None:
    """Kills, freezes, hung threads; reports late, lost, repeated and out of order."""
    for seed in SEEDS:
        world = HerderModel(seed)
        wrong = world.run()
        assert not wrong, f"seed {seed}: {wrong}\n" + "\n".join(world.trace[-60:])


def test_every_connector_works_again_with_two_coordinator_processes() -> None:
    """The same faults, each process killed alone."""
    for seed in SEEDS:
        world = HerderModel(seed, processes=2)
        assert [run.coordinator.child for run in world.runs.values()] == [
            "coordinator",
            "coordinator-2",
            "coordinator",
        ]
        wrong = world.run()
        assert not wrong, f"seed {seed}: {wrong}\n" + "\n".join(world.trace[-60:])


def test_the_kill_of_one_process_leaves_the_units_of_the_other_alone() -> None:
    """Their starts are not repeated, and their rounds continue."""
    world = HerderModel(0, processes=2)
    world.run_calm(20_000)
    before = {name: run.coordinator.start.generation for name, run in world.runs.items()}
    world.kill("coordinator-2")
    assert [run.coordinator.phase for run in world.runs.values()] == [
        "RUNNING",
        "RESTARTING",
        "RUNNING",
    ]
    ended_ms = world.rounds["a"]
    world.run_calm(20_400)
    assert world.runs["b"].coordinator.phase == "RESTARTING"
    world.run_calm(60_000)
    after = {name: run.coordinator.start.generation for name, run in world.runs.items()}
    assert (before["a"], before["c"]) == (after["a"], after["c"])
    assert after["b"] > before["b"]
    assert all(at > ended_ms for at in world.rounds.values())
    assert all(run.coordinator.phase == "RUNNING" for run in world.runs.values())


class LastMessageWins(Reconciliation):
    """The former herder: any report counts, and a unit that retries is started again."""

    def on_state(self, child: str, report: UnitReport, now_ms: int) -> None:
        """Apply a report of any generation."""
        unit = self._runs[report.connector].coordinator
        if report.state == "STOPPED" and unit.phase != "STOPPING":
            return
        unit.start.sequence, unit.start.has_ended = -1, False
        is_last = report.state in {"FAILED", "STOPPED"}
        now = replace(report, generation=unit.start.generation, has_ended=is_last)
        super().on_state(child, now, now_ms)


class NeverMisses(Reconciliation):
    """Assumes that a unit runs although the inventory does not list it."""

    def _miss(self, run: ConnectorRun, unit: Unit, now_ms: int) -> None:
        """Nothing."""


class NeverStops(Reconciliation):
    """Does not stop a listed unit that the node does not want."""

    def _stop(self, child: str, item: UnitReport) -> None:
        """Nothing."""


class NeverSuspects(Reconciliation):
    """Does not restart a coordinator without progress."""

    def _restart_if_stalled(
        self, run: ConnectorRun, unit: Unit, item: UnitReport, now_ms: int
    ) -> None:
        """Nothing."""


def test_the_model_finds_the_defect_of_the_former_herder() -> None:
    """A frozen broker and a killed child: RUNNING without work; no message is lost."""

    def wrong(of: type[Reconciliation]) -> list[str]:
        worlds = (
            HerderModel(seed, of, has_inventory=False, predecessor_wait_ms=10_000)
            for seed in PLANTED_SEEDS
        )
        return [text for world in worlds for text in world.run_frozen(50_000)]

    assert any("is RUNNING and ended its last round" in text for text in wrong(LastMessageWins))
    # generations alone prevent it; the inventory is for messages and threads that are lost
    assert wrong(Reconciliation) == []


@pytest.mark.parametrize(
    ("planted", "has_inventory"),
    [(Reconciliation, False), (NeverMisses, True), (NeverStops, True), (NeverSuspects, True)],
)
def test_the_model_finds_the_removal_of_each_rule(
    planted: type[Reconciliation], *, has_inventory: bool
) -> None:
    """A connector is RUNNING and does nothing, or runs twice."""
    worlds = (HerderModel(seed, planted, has_inventory=has_inventory) for seed in range(200))
    assert any(world.run() for world in worlds)

"""The commit protocol under every fault the simulation can make, and proof that it would notice."""

from __future__ import annotations

import os

import pytest

from tests.simulation import runs, script
from tests.simulation.planted import LAYERS, PLANTED, caught_at
from tests.simulation.world import ViolationError

SEEDS = int(os.environ.get("SEEDS", "3000"))
FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))
SCRIPT = os.environ.get("SCRIPT", "")
PLANTED_SEEDS_MAX = 1_000

FAULTS = {
    "a table stays missing",
    "VTTS reset",
    "VTTS reset asked for",
    "VTTS reset failed",
    "announcements skipped",
    "answer lost coordinator",
    "answer lost task",
    "applied, answer lost",
    "branch deleted",
    "branch recreated",
    "catalog unavailable",
    "commit unknown, applied",
    "commit unknown, applied late",
    "commit unknown, not applied",
    "config topic lost",
    "conflict after it was applied",
    "committed control events deleted",
    "control events lost",
    "control group expired",
    "control topic re-created",
    "crash coordinator",
    "crash leader",
    "crash reset",
    "crash task",
    "expiry",
    "expiry with the tag",
    "fenced coordinator",
    "fenced keeper",
    "fenced task",
    "floor moved",
    "foreign commit",
    "foreign control events",
    "foreign transaction hangs",
    "freeze coordinator",
    "freeze task",
    "last commit",
    "last commit asked for",
    "late commit applied",
    "late commit refused",
    "layout change",
    "lost before the broker",
    "offsets kept",
    "operator: retry",
    "operator: skip",
    "partition added",
    "producer opened again",
    "record of the future",
    "restart after an answer",
    "roll back",
    "roll back accepted",
    "rolled forward again",
    "round timed out",
    "source offset expired",
    "source offsets moved while its producer was closed",
    "source records lost",
    "lost source records skipped",
    "slow poll",
    "superseded while its producer was closed",
    "stopped: control_log_lost",
    "stopped: control_log_reset",
    "stopped: offsets_lost",
    "stopped: source_data_lost",
    "table restored",
    "table failed: branch_missing",
    "table failed: floor_lost",
    "table failed: table_missing",
    "table failed: table_replaced",
    "table failed: table_rolled_back",
    "table missing",
    "table of others with expired snapshots",
    "table replaced",
    "taken over from Java",
    "task failed",
    "transaction timed out",
    "zombie coordinator",
    "zombie keeper",
    "zombie task",
}


@pytest.mark.timeout(360_000)
def test_nothing_is_lost_or_duplicated() -> None:
    """Each record once in its table, offsets and VTTS never decrease, progress after healing."""
    if SCRIPT:
        moves = script.parsed(SCRIPT)
        output = runs.violation_of(moves)
        assert output is None, "\n".join([output, *runs.log_of(moves)])
        return
    summary = runs.Summary()
    try:
        runs.run(FIRST_SEED, SEEDS, summary)
    except ViolationError as e:
        pytest.fail(str(e), pytrace=False)
    print(f"\nsimulation: {summary}")
    if SEEDS >= 3_000:
        assert not FAULTS - set(summary.happened), "a kind of fault never happened"


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("bug", PLANTED)
def test_each_planted_bug_is_found(bug: str) -> None:
    """Each known defect violates a guarantee within a thousand seeds."""
    assert caught_at(PLANTED[bug], PLANTED_SEEDS_MAX) is not None


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("layers", LAYERS, ids=" + ".join)
def test_without_these_protections_a_guarantee_is_violated(layers: tuple[str, ...]) -> None:
    """Several layers protect a guarantee: the removal of all of them is detected."""
    assert caught_at(layers, PLANTED_SEEDS_MAX) is not None


def test_a_seed_determines_the_run() -> None:
    """The same seed gives the same event log, independent of earlier runs."""
    first = runs.log_of(script.script_of(17))
    runs.log_of(script.script_of(18))
    assert runs.log_of(script.script_of(17)) == first
    assert len(first) > script.MOVES


def test_the_report_of_a_failing_seed_reproduces_it() -> None:
    """Seed, event log, and a much smaller script that violates the same guarantee."""
    off = PLANTED["blind retry on unknown"]
    seed = caught_at(off, PLANTED_SEEDS_MAX)
    assert seed is not None
    output = runs.report(seed, off)
    assert f"seed {seed}: twice" in output
    text = output.split("SCRIPT=")[1].split()[0]
    small = script.parsed(text)
    assert len(small) < len(script.script_of(seed)) / 2
    assert (runs.violation_of(small, off) or "").startswith("twice")
    assert "VIOLATION twice" in output
    for at in range(1, len(small)):  # nothing can be left out of it
        without = [*small[:at], *small[at + 1 :]]
        assert not (runs.violation_of(without, off) or "").startswith("twice")

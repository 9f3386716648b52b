"""The commit protocol under every fault the simulation can make, and proof that it would notice."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from coordinator.kernel import Kernel
from tests.simulation.planted import KERNELS, SWITCHES
from tests.simulation.world import ViolationError, World

SEEDS = int(os.environ.get("SEEDS", "10000"))
FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))
PLANTED_SEEDS_MAX = 1_000

FAULTS = {
    "FencedError",
    "LostAnswerError",
    "applied, answer lost",
    "commit unknown, applied",
    "commit unknown, lands late",
    "commit unknown, not applied",
    "crash Coordinator",
    "crash Leader",
    "crash Task",
    "expiry",
    "foreign commit",
    "late commit landed",
    "layout change",
    "lost before the broker",
    "partition added",
    "pause Coordinator",
    "pause Task",
    "restart after an answer",
    "stopped as fenced",
    "table back",
    "table missing",
    "transaction timed out",
    "zombie Coordinator",
    "zombie Task",
}


def _run(seed: int, bug: str | None = None) -> World:
    is_switch = bug in SWITCHES
    world = World(
        seed,
        bugs=frozenset([bug] if bug and is_switch else []),
        kernel_class=KERNELS.get(bug or "", Kernel),
    )
    world.run()
    return world


@pytest.mark.timeout(36_000)
def test_nothing_is_lost_or_doubled() -> None:
    """Every seed heals with each record in its table once, offsets and VTTS never going back."""
    happened: Counter[str] = Counter()
    rounds = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        try:
            world = _run(seed)
        except ViolationError as e:
            pytest.fail(f"seed {seed}: {e} (FIRST_SEED={seed} SEEDS=1 reproduces it)")
        happened.update(world.counts)
        rounds += world.rounds
    print(f"\nsimulation: {SEEDS} seeds, {rounds} rounds, {dict(sorted(happened.items()))}")
    if SEEDS >= 1_000:
        assert set(happened) >= FAULTS, "a kind of fault never happened"


@pytest.mark.parametrize("bug", [*KERNELS, *SWITCHES])
def test_planted_bug_is_caught(bug: str) -> None:
    """Each known defect, put back, breaks a promise within a thousand seeds."""
    for seed in range(PLANTED_SEEDS_MAX):
        try:
            _run(seed, bug)
        except ViolationError:
            return
    pytest.fail(f"{bug!r} was not noticed in {PLANTED_SEEDS_MAX} seeds")

"""Rewinds among crashes, late commits and failing tables, over many seeds."""

from __future__ import annotations

import contextlib

import pytest

from tests.simulation.rewind_model import BUGS, Expired, Model, Violation

SEEDS = 150
SEEDS_PER_BUG = 1_000


def test_no_seed_loses_or_duplicates_a_record() -> None:
    """Every record is in its table once, after any number of rewinds."""
    finished = 0
    for seed in range(SEEDS):
        with contextlib.suppress(Expired):
            finished += Model(seed).run()
    assert finished > SEEDS / 2


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    """Without any of the protections, a seed loses or duplicates a record."""
    for seed in range(SEEDS_PER_BUG):
        try:
            Model(seed, bug).run()
        except Violation:
            return
        except Expired:
            continue
    pytest.fail(f"{SEEDS_PER_BUG} seeds did not find it")

"""Rewinds among crashes, late commits and failing tables, over many seeds."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest

from tests.simulation.rewind_connector import Violation
from tests.simulation.rewind_model import BUGS, Expired, Model

SEEDS = 150
SEEDS_PER_BUG = 1_000
# where the search for a bug begins that few seeds find: from the first seed it takes seconds
FIRST_SEEDS = {
    "tables change without a condition": 150,
    "attempts share their fence": 100,
    "replaced by a rewind to its own snapshot": 130,
    "offsets are announced after the tables": 850,
    "only the last rewind is unfinished": 1_450,
    "commits of others are ignored": 300,
}


def test_no_seed_loses_or_duplicates_a_record() -> None:
    """Every record is in its table once: rewinds finish, are cancelled, or are replaced."""
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        model = Model(seed)
        with contextlib.suppress(Expired):
            happened["finished"] += model.run()
        happened.update(model.happened)
    for name in ("finished", "cancelled", "replaced", "frozen"):
        assert happened[name] > SEEDS / 10, name


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    """Without any of the protections, a seed loses or duplicates a record."""
    first_seed = FIRST_SEEDS.get(bug, 0)
    for seed in range(first_seed, first_seed + SEEDS_PER_BUG):
        try:
            Model(seed, bug).run()
        except Violation:
            return
        except Expired:
            continue
    pytest.fail(f"{SEEDS_PER_BUG} seeds did not find it")

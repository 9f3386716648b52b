"""How many cases the comparisons take: ``make test`` a part, ``make differential`` all of them.

Rules of this file:
- A part is the same in each run: a difference appears again.
- Tests of a matrix take different parts, so that together they have each case.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import HealthCheck, settings

# 0: a part of the cases; else all cases, and this many times the generated examples
TIMES = int(os.environ.get("DIFFERENTIAL_EXAMPLES", "0"))
Case = TypeVar("Case")


def part(cases: Sequence[Case], number: int, *, of: int) -> Sequence[Case]:
    """Return one of ``of`` parts of the cases, with neighbouring cases in different parts.

    Args:
        cases: in an order that does not change.
        number: of the part; any number.
        of: how many parts there are.
    """
    return cases if TIMES else cases[number % of :: of]


def generated(examples: int) -> settings:
    """Return settings of a test with generated examples.

    Args:
        examples: of a part.
    """
    return settings(
        max_examples=examples * max(TIMES, 1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )

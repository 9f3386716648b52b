"""``Filter`` by columns."""

from __future__ import annotations

import numpy as np

from worker.transforms.predicates import Test, tested
from worker.transforms.rows import ChainPlan, Rows


class Filter:
    """Drops the rows that a predicate selects; all rows without a predicate."""

    def __init__(self, test: Test | None) -> None:
        self._test = test

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        del chain_plan

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        rows.drop(np.ones(rows.count, np.bool_) if self._test is None else tested(self._test, rows))

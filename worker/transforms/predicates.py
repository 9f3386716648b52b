"""Predicates that read only the topic, or the names of the headers that a record came with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from connect.model.records import Header, SinkRecord
from worker.transforms.regex_router import distinct
from worker.transforms.rows import ChainPlan, ColumnStep, Mask, Rows, merged_types


@dataclass(frozen=True, slots=True)
class HeaderTest:
    """A predicate that asks for a header.

    Attributes:
        name: of the header.
        test: the predicate, perhaps negated.
    """

    name: str
    test: Callable[[SinkRecord], bool]

    def of(self, rows: Rows) -> Mask:
        """Return the predicate's answer for each row."""
        without = SinkRecord("", 0, 0, None, value={})
        header = SinkRecord("", 0, 0, None, value={}, headers=(Header(self.name, None),))
        return np.where(rows.origins.with_header(self.name), self.test(header), self.test(without))


Test = Callable[[SinkRecord], bool] | HeaderTest


class Conditional:
    """A step for the rows that a predicate selects; mixed blocks go record by record."""

    def __init__(self, inner: ColumnStep, test: Test) -> None:
        self._inner = inner
        self._test = test

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        before, key = dict(chain_plan.fields), chain_plan.key
        self._inner.plan(chain_plan)
        chain_plan.fields = {**before, **chain_plan.fields}
        if key is not None:  # some rows keep theirs
            chain_plan.key = key if chain_plan.key is None else merged_types(chain_plan.key, key)

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        hit = tested(self._test, rows) & ~rows.dropped
        if not hit.any():
            return
        rows.suspect(~hit)
        self._inner.apply(rows)


def tested(test: Test, rows: Rows) -> Mask:
    """Return a predicate's answer for each row, of records that are no tombstones."""
    if isinstance(test, HeaderTest):
        return test.of(rows)
    codes, names = distinct(rows.current_topics)
    answers = [test(SinkRecord(name, 0, 0, None, value={})) for name in names]
    return np.array(answers, np.bool_)[codes]

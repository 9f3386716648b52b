"""The reference path against recordings of the Java libraries."""

from __future__ import annotations

import pytest

from tests.golden import records_suite as suite

FILES = list(suite.files())


@pytest.mark.parametrize("path", FILES, ids=map(suite.title, FILES))
def test_recordings(path: suite.Path) -> None:
    """Every recording is met, or differs by a rule of docs/records-differences.md."""
    compare = suite.comparison(path)
    results = [suite.judged(compare, case) for case in suite.cases_of(path)]
    failing = [result for result in results if result.verdict == "failing"]
    assert results
    assert not failing, "\n".join(f"{r.name}: {r.detail}" for r in failing)


def test_rules_are_exceptions() -> None:
    """Most recordings agree outright; a rule that swallowed a suite would be noticed."""
    totals = suite.run().values()
    agreed, by_rule = sum(t[0] for t in totals), sum(t[1] for t in totals)
    assert agreed > 5 * by_rule

"""The parts of the comparisons."""

from __future__ import annotations

from tests.differential.examples import TIMES, part


def test_parts_together_are_all_cases() -> None:
    """Neighbouring cases are in different parts, for any numbers in a row."""
    cases = list(range(10))
    parts = [part(cases, number, of=3) for number in range(5, 8)]
    assert {case for each in parts for case in each} == set(cases)
    assert all(TIMES or len(each) in {3, 4} for each in parts)
    assert all(TIMES or {n, n + 1} - set(each) for each in parts for n in cases[:-1])

"""Rows of the tables of docs/reference/records-differences.md, tried: what a record becomes.

Those about formats and transformations are in two modules of their own, where a row that is
tried nowhere fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.records_page import TRIALS, try_row

# ------------------------------------------------------------------ what a record becomes


# ------------------------------------------------------------------ what Java stores otherwise


@pytest.mark.parametrize("start", TRIALS)
def test_each_row_of_the_page_is_true(start: str, tmp_path: Path) -> None:
    """What a row says is so."""
    try_row(start, TRIALS, tmp_path)

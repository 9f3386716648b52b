"""Rows of docs/reference/records-differences.md about formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import records_page as page
from tests.support.records_page_formats import TRIALS

# ------------------------------------------------------------------ transformations


@pytest.mark.parametrize("start", TRIALS)
def test_each_row_of_the_page_is_true(start: str, tmp_path: Path) -> None:
    """What a row says is so."""
    page.try_row(start, TRIALS, tmp_path)

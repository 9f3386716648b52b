"""The tests that pages of the documentation name as evidence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_TEST_FILE = re.compile(r"`((?:tests/[\w/]+/)?test_[\w*]+\.py)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_test_file_that_a_page_names_exists(page: Path) -> None:
    """A named test file exists; a name without a folder exists in some folder of tests."""
    missing = [
        name
        for name in _TEST_FILE.findall(page.read_text("utf-8"))
        if not any(ROOT.glob(name if "/" in name else f"tests/**/{name}"))
    ]
    assert not missing

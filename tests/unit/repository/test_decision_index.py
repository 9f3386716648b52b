"""The index of the decision records."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[3] / "docs" / "decisions"


def test_the_index_lists_every_record_in_order() -> None:
    """Each record is linked once, in the order of the numbers, and no number is used twice."""
    records = sorted(file.name for file in DECISIONS.glob("0*.md"))
    linked = re.findall(r"\]\((0.*?\.md)\)", (DECISIONS / "README.md").read_text("utf-8"))
    assert linked == records
    numbers = [name[:4] for name in records]
    assert len(set(numbers)) == len(numbers)

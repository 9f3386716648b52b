"""Schemas that tables of a process share are bounded by their size."""

from __future__ import annotations

import marshal
from typing import Any

from connect.gateways.catalog.table_metadata import SharedParts


def test_parts_are_kept_by_their_size() -> None:
    """Equal texts are one object until newer ones need its room; a large one is never kept."""
    made: list[Any] = []

    def make(content: Any) -> list[Any]:
        made.append(content)
        return [content]

    def text(number: int, size: int = 1_000) -> bytes:
        return marshal.dumps([number, "x" * size], 2)

    shared = SharedParts(make, bytes_max=10_000)
    parts = [shared.get(text(number)) for number in range(9)]
    assert shared.get(text(0)) is parts[0]
    assert len(made) == 9
    shared.get(text(9))
    shared.get(text(10))
    assert shared.get(text(0)) is parts[0]
    assert shared.get(text(1)) is not parts[1]
    count = len(made)
    assert shared.get(text(99, 5_000)) is not shared.get(text(99, 5_000))
    assert len(made) == count + 2
    assert shared.get(text(0)) is parts[0]

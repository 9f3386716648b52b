"""Texts of ``icefloe.end``."""

from __future__ import annotations

import pytest

from connect.config.end_position import EndPosition, end_error, end_position


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (" latest ", EndPosition()),
        ("1767323045678", EndPosition(1_767_323_045_678)),
        ("2026-01-02T04:04:05.678+01:00", EndPosition(1_767_323_045_678)),
    ],
)
def test_valid_ends(text: str, end: EndPosition) -> None:
    """The present end, or an instant as in ``icefloe.start.timestamp``."""
    assert end_position(text) == end
    assert end_error(text) is None


@pytest.mark.parametrize("text", ["", "earliest", "-1", "2026-01-02T03:04:05"])
def test_invalid_ends_are_refused(text: str) -> None:
    """The error names the valid forms."""
    assert (end_error(text) or "").startswith("neither latest nor a timestamp: ")

"""The message of lost records in a task's status."""

from __future__ import annotations

from control_schemas.events import LostRange
from worker.task.reported_losses import KEPT_MAX, SHOWN_MAX, ReportedLosses


def test_ranges_are_named_and_bounded() -> None:
    """A range that is found again counts once, with its largest end."""
    losses = ReportedLosses()
    assert losses.error() is None
    losses.add([LostRange("orders", 0, 10, 25)])
    losses.add([LostRange("orders", 0, 10, 27), LostRange("orders", 1, 0, 3)])
    error = losses.error()
    assert error is not None
    assert error.code == "source_data_lost"
    assert "orders-0 [10, 27), orders-1 [0, 3). A restart" in error.message
    losses.add(LostRange("many", 0, n, n + 1) for n in range(KEPT_MAX + 5))
    text = str(losses.error())
    assert text.count("many-0") == SHOWN_MAX
    assert f"and {KEPT_MAX - SHOWN_MAX} more ranges" in text

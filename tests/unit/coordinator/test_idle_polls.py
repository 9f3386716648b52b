"""How often an idle coordinator wakes up."""

from __future__ import annotations

from coordinator.coordinator import POLL_IDLE_MS, POLL_IDLE_MS_MAX, poll_idle_ms


def test_a_coordinator_with_a_long_interval_wakes_up_less_often() -> None:
    """At five minutes twice a second, at ten seconds and less ten times a second."""
    assert poll_idle_ms(300_000) == POLL_IDLE_MS_MAX
    assert poll_idle_ms(60_000) == 300
    assert poll_idle_ms(10_000) == poll_idle_ms(1_000) == POLL_IDLE_MS


def test_rounds_start_on_time() -> None:
    """A round starts late by half a hundredth of the interval at most."""
    for interval_ms in range(20_000, 600_000, 1_000):
        assert poll_idle_ms(interval_ms) <= interval_ms / 200

"""An open transaction that blocks a source partition is reported once, and its end too."""

from __future__ import annotations

import pytest

from connect.model.layout import TopicPartition
from connect.protocol.lso_monitor import LsoMonitor

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_an_lso_that_does_not_advance_is_a_stall(capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported once after the time limit, with its partition."""
    stalls = LsoMonitor(1_000, "c")
    counts = [stalls.inspect({A: 5, B: 9}, {A: 8, B: 9}, now) for now in (0, 999, 1_000, 1_500)]
    assert counts == [0, 0, 1, 1]
    reported = capsys.readouterr().out
    assert reported.count("lso_stalled") == 1
    assert stalls.inspect({A: 8, B: 9}, {A: 8, B: 9}, 1_600) == 0
    assert "can be read again" in capsys.readouterr().out


def test_an_lso_that_advances_is_no_stall() -> None:
    """Consecutive transactions with records after each."""
    stalls = LsoMonitor(1_000, "c")
    assert [stalls.inspect({A: n}, {A: n + 3}, 600 * n) for n in range(10)] == [0] * 10


def test_a_new_transaction_restarts_the_time_limit() -> None:
    """The partition was read to its end in between."""
    stalls = LsoMonitor(1_000, "c")
    stalls.inspect({A: 5}, {A: 6}, 0)
    stalls.inspect({A: 6}, {A: 6}, 500)
    assert stalls.inspect({A: 6}, {A: 7}, 1_200) == 0
    assert stalls.inspect({A: 6}, {A: 7}, 2_200) == 1

"""Where a connector reads again that is loaded from its beginning."""

from __future__ import annotations

from connect.config.start_position import StartPosition
from connect.model.layout import TopicPartition
from coordinator.rewind.rewind_planner import first_positions

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_without_settings_it_is_the_beginning_of_the_log() -> None:
    """Records that retention deleted are named."""
    positions = first_positions(StartPosition(), {A: (0, 9), B: (4, 9)}, {})
    assert positions.offsets == {A: 0, B: 4}
    assert positions.gone == ("t-1 0..3",)
    assert positions.notes == ()


def test_configured_offsets_and_timestamp_count() -> None:
    """Records before them were never wanted; only later ones can be missing."""
    start = StartPosition(1, {A: 5, B: 2})
    positions = first_positions(start, {A: (3, 9), B: (4, 9), C: (1, 9)}, {A: 7, B: 7, C: 6})
    assert positions.offsets == {A: 5, B: 4, C: 6}
    assert positions.gone == ("t-1 2..3",)
    assert len(positions.notes) == 1


def test_records_since_the_timestamp_may_be_gone() -> None:
    """The first record of the log is later than the timestamp: one before it may have been, too."""
    assert first_positions(StartPosition(1), {A: (3, 9)}, {A: 3}).gone == ("t-0 0..2",)


def test_a_policy_names_no_record() -> None:
    """``latest`` would load nothing again."""
    start = StartPosition(offsets={A: -1}, reset="latest")
    positions = first_positions(start, {A: (0, 9), B: (0, 9)}, {})
    assert positions.offsets == {A: 0, B: 0}
    assert "latest" in positions.notes[0]

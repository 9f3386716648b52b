"""When a bounded run is complete, by what its coordinator knows."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from connect.model.layout import TopicPartition
from coordinator.kernel.bounded_run import is_run_complete
from coordinator.kernel.effects import RoundEnded
from tests.support.kernel_driver import P0, P1, T1, T2, Driver

READ_TO = 7  # next source offset of every answer of the driver


def answered(driver: Driver, commit: UUID) -> None:
    """Both tasks answer; the first one with a file for each table."""
    driver.written(commit, T1, task=0)
    driver.written(commit, T2, task=0)
    driver.complete(commit, (P0, 1), task=0)
    driver.complete(commit, (P1, 1), task=1)


def is_complete_after(
    driver: Driver, ends: Mapping[TopicPartition, int] | None, ended: RoundEnded
) -> bool:
    return is_run_complete(ends, ended, has_kept=not driver.kernel.announcements.is_empty)


@pytest.mark.parametrize(
    ("ends", "is_complete"),
    [
        ({P0: READ_TO, P1: READ_TO}, True),
        ({P0: READ_TO, P1: 3}, True),
        ({P0: READ_TO}, True),
        ({P0: READ_TO, P1: READ_TO + 1}, False),
        (None, False),
    ],
)
def test_a_run_is_complete_when_every_partition_reached_its_end(
    driver: Driver, ends: Mapping[TopicPartition, int] | None, is_complete: bool
) -> None:
    """A position may be past the end. A run without an end is never complete."""
    commit = driver.start()
    answered(driver, commit)
    driver.committed(commit, T1)
    driver.committed(commit, T2)
    round_ended = driver.sent(commit)
    assert is_complete_after(driver, ends, round_ended) == is_complete


def test_uncommitted_files_keep_the_run_open(driver: Driver) -> None:
    """One of two tables fails; the run is complete when the next round has committed it."""
    ends = {P0: READ_TO, P1: READ_TO}
    commit = driver.start()
    answered(driver, commit)
    driver.committed(commit, T1)
    driver.failed(commit, T2)
    assert not is_complete_after(driver, ends, driver.sent(commit))
    driver.now_ms += 10_000
    again = driver.start()
    driver.complete(again, (P0, 1), task=0)
    driver.complete(again, (P1, 1), task=1)
    driver.committed(again, T2)
    assert is_complete_after(driver, ends, driver.sent(again))


def test_a_timed_out_round_does_not_complete_the_run(driver: Driver) -> None:
    """A task that did not answer may have unread records."""
    commit = driver.start()
    driver.complete(commit, (P0, 1), task=0)
    driver.tick(3_000)
    assert not is_complete_after(driver, {P0: READ_TO}, driver.sent(commit))


def test_a_partly_read_answer_keeps_the_run_open(driver: Driver) -> None:
    """It was announced after the answers of the round."""
    commit = driver.start()
    answered(driver, commit)
    driver.committed(commit, T1)
    driver.committed(commit, T2)
    driver.written(UUID(int=77), T1, task=1)
    assert not is_complete_after(driver, {P0: READ_TO}, driver.sent(commit))

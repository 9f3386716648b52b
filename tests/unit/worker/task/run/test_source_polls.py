"""How often an idle task polls its source."""

from __future__ import annotations

from worker.task.run.task_run import SOURCE_POLL_MS, SOURCE_POLL_MS_MAX, SOURCE_POLLS, poll_after_ms


def polls_of_an_idle_interval(commit_interval_ms: int) -> int:
    """Return the number of polls of an idle source in one interval, from a busy one on."""
    after_ms, at_ms, polls = SOURCE_POLL_MS, 0, 0
    while at_ms < commit_interval_ms:
        after_ms = poll_after_ms(after_ms, commit_interval_ms, is_idle=True)
        at_ms += after_ms
        polls += 1
    return polls


def test_an_idle_task_asks_the_broker_less_often() -> None:
    """With five minutes between commits it asks 32 times, and wakes up as often."""
    assert polls_of_an_idle_interval(300_000) == 32
    assert polls_of_an_idle_interval(60_000) <= SOURCE_POLLS + 1


def test_short_intervals_are_polled_as_often_as_before() -> None:
    """A backlog must be read between two rounds."""
    for interval_ms in (1_000, 10_000, 30_000):
        assert poll_after_ms(SOURCE_POLL_MS, interval_ms, is_idle=True) == SOURCE_POLL_MS


def test_records_make_it_poll_often_again() -> None:
    """The first poll that sees unread records ends the pause."""
    assert poll_after_ms(SOURCE_POLL_MS_MAX, 300_000, is_idle=False) == SOURCE_POLL_MS

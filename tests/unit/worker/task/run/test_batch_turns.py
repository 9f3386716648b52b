"""Turns of a task's thread and of a query's callback."""

from __future__ import annotations

import contextlib

import pytest

from connect.errors import RetriableError
from worker.task.run.batch_turns import BatchTurns, RunningBatch
from worker.task.task_context import TaskStop

BATCH = RunningBatch(1_000, 0)


def test_the_thread_has_turns_only_while_files_are_written() -> None:
    """It does not wait for the callback."""
    turns = BatchTurns()
    taken = []

    def take() -> None:
        with turns.of_thread() as has_turn:
            taken.append((has_turn, turns.running))

    take()
    with turns.of_callback():
        take()
        with turns.writing(BATCH):
            take()
        take()
    take()
    assert taken == [(True, None), (False, None), (True, BATCH), (False, None), (True, None)]


def test_after_an_error_of_the_thread_no_batch_continues() -> None:
    """Neither the one that is written, nor another one: the producer may not be used again."""
    turns = BatchTurns()
    steps = []
    with contextlib.suppress(RetriableError), turns.of_callback():
        with turns.writing(BATCH), contextlib.suppress(ZeroDivisionError), turns.of_thread():
            raise ZeroDivisionError
        steps.append("after the error")
    with pytest.raises(RetriableError, match="ends after an error"), turns.of_callback():
        steps.append("next batch")
    assert turns.has_failed
    assert not steps


def test_an_error_of_a_batch_ends_its_turn() -> None:
    """The thread is not to blame: it has its turn after that."""
    turns = BatchTurns()
    with contextlib.suppress(ZeroDivisionError), turns.of_callback(), turns.writing(BATCH):
        raise ZeroDivisionError
    with turns.of_thread() as has_turn:
        assert has_turn
    assert not turns.has_failed
    assert turns.running is None


def test_a_stop_cancels_a_batch_after_its_time() -> None:
    """The time counts from the first call that sees the request."""
    stop = TaskStop(batch_ms=400)
    assert not stop.must_cancel(5_000)
    stop.request()
    assert [stop.must_cancel(now_ms) for now_ms in (6_000, 6_399, 6_400)] == [False, False, True]

"""Answers of tasks in the kernel: each is committed whole or not at all."""

from __future__ import annotations

from uuid import UUID

import pytest

from control_schemas.events import DataWritten, Event, EventHeaders
from coordinator.kernel.commit_round import KernelSettings
from coordinator.kernel.effects import (
    CommitTables,
    CurrentLogEnds,
    Effect,
    Envelope,
    InboxAdvanced,
    SendCompletion,
    SendStartCommit,
    TableDecided,
    TableDecision,
)
from coordinator.kernel.kernel import Kernel
from tests.support.kernel_driver import P0, P1, T1, T2, Driver


@pytest.fixture
def driver() -> Driver:
    """A kernel whose layout has two partitions."""
    d = Driver()
    d.layout(P0, P1)
    return d


def taken(effects: list[Effect]) -> dict[str, list[int]]:
    """Per table the control offsets of what a round commits."""
    (effect,) = effects
    assert isinstance(effect, CommitTables)
    return {c.table.name: [e.offset for e in c.announcements] for c in effect.commits}


def closed_at(effects: list[Effect]) -> dict[int, int]:
    """Control offsets that a round stores in its tables."""
    (effect,) = effects
    assert isinstance(effect, CommitTables)
    return dict(effect.commits[0].control_offsets)


def test_a_step_that_is_read_in_part_is_not_committed(driver: Driver) -> None:
    """A timeout in the middle of an answer leaves all of it, and the offsets, to the next round."""
    commit = driver.start()
    driver.written(commit, task=0)
    (completion,) = driver.tick(3_000)
    assert completion == SendCompletion(commit, (), None, {0: 0}, {commit: (0,)})
    driver.sent(commit)
    driver.written(commit, task=0)
    driver.complete(commit, (P0, 1), task=0)
    driver.now_ms += 10_000
    driver.start()
    assert taken(driver.tick(3_000)) == {"t1": [0, 1]}


def test_an_answer_is_whole_over_tables_and_polls(driver: Driver) -> None:
    """Events of several tables, with what the log is read up to in between, are one answer."""
    commit = driver.start()
    for table in (T1, T2, T1):
        driver.written(commit, table, task=0)
        driver.kernel.receive(InboxAdvanced({0: driver.offset}), driver.now_ms)
    (completion,) = driver.tick(3_000)
    assert completion == SendCompletion(commit, (), None, {0: 0}, {commit: (0,)})
    driver.sent(commit)
    driver.complete(commit, (P0, 1), task=0)
    driver.now_ms += 10_000
    driver.start()
    assert taken(driver.tick(3_000)) == {"t1": [0, 2], "t2": [1]}


def test_a_round_ends_before_every_answer_that_it_would_split(driver: Driver) -> None:
    """An answer that is whole but lies across the first event of an open one waits with it."""
    commit = driver.start()
    driver.written(commit, task=2)  # 0
    driver.complete(commit, task=2)
    driver.written(commit, task=1)  # 2: before and behind what is open
    driver.written(commit, task=0)  # 3: open
    driver.written(commit, task=1)  # 4
    driver.complete(commit, task=1)
    driver.written(commit, T2)  # 6: Java's, behind what is open
    effects = driver.tick(3_000)
    assert taken(effects) == {"t1": [0]}
    assert closed_at(effects) == {0: 2}
    (completion,) = driver.committed(commit)
    assert isinstance(completion, SendCompletion)
    assert completion.control_offsets == {0: 2}
    driver.sent(commit)
    driver.complete(commit, task=0)
    driver.now_ms += 10_000
    driver.start()
    effects = driver.tick(3_000)
    assert taken(effects) == {"t1": [2, 3, 4], "t2": [6]}
    assert closed_at(effects) == {0: 8}


def test_other_control_partitions_are_closed_where_they_are_read_to(driver: Driver) -> None:
    """An open answer holds back its own control partition only."""
    commit = driver.start()
    driver.kernel.receive(InboxAdvanced({1: 9}), driver.now_ms)
    driver.written(commit, T2)
    driver.written(commit, task=0)
    assert closed_at(driver.tick(3_000)) == {0: 1, 1: 9}


def test_a_covered_round_waits_for_an_open_answer(driver: Driver) -> None:
    """A task that started over answers again: round and VTTS wait for the end of its answer."""
    commit = driver.start()
    driver.written(commit, task=0)
    driver.complete(commit, (P0, 5_000), task=0)
    driver.written(commit, task=0)
    assert driver.complete(commit, (P1, 5_000), task=1) == []
    assert driver.tick(10) == []
    effects = driver.complete(commit, (P0, 5_000), task=0)
    assert taken(effects) == {"t1": [0, 2]}
    (effect,) = effects
    assert isinstance(effect, CommitTables)
    assert effect.commits[0].valid_through_us == 5_000


@pytest.mark.parametrize("follower", ["another round", "newer layout"])
def test_a_later_answer_proves_that_an_answer_ended(driver: Driver, follower: str) -> None:
    """Where a DataComplete cannot be read, the next answer of the task or layout stands in."""
    commit = driver.start()
    driver.written(commit, task=0)
    if follower == "another round":
        driver.written(UUID(int=77), task=0)
    else:
        driver.written(commit, task=5, layout=2)
    effects = driver.tick(3_000)
    assert taken(effects) == {"t1": [0]}
    assert closed_at(effects) == {0: 1}


def test_the_end_of_the_log_proves_that_an_answer_ended(driver: Driver) -> None:
    """A transaction that could be read lies below the log's end; a later event opens it again."""
    commit = driver.start()
    driver.written(commit, task=0)
    driver.kernel.receive(CurrentLogEnds({0: 3}), driver.now_ms)
    driver.written(commit, task=0)
    driver.kernel.receive(InboxAdvanced({0: 3}), driver.now_ms)
    (completion,) = driver.tick(3_000)
    assert completion == SendCompletion(commit, (), None, {0: 0}, {commit: (0,)})
    driver.sent(commit)
    driver.kernel.receive(CurrentLogEnds({0: 5}), driver.now_ms)
    driver.kernel.receive(CurrentLogEnds({0: 500}), driver.now_ms)  # the first one is enough
    driver.kernel.receive(InboxAdvanced({0: 5}), driver.now_ms)
    driver.now_ms += 10_000
    driver.start()
    assert taken(driver.tick(3_000)) == {"t1": [0, 1]}


def test_what_is_skipped_is_skipped_whole(driver: Driver) -> None:
    """An operator's skip leaves an answer that is read in part for the next decision."""
    commit = driver.start()
    driver.written(commit, task=0)
    driver.complete(commit, (P0, 1), task=0)
    driver.complete(commit, (P1, 1), task=1)
    driver.failed(commit, retriable=False)
    driver.sent(commit)
    driver.written(commit, task=1)
    (decided,) = driver.kernel.receive(TableDecision(T1, "skip"), driver.now_ms)
    assert isinstance(decided, TableDecided)
    assert [e.offset for e in decided.skipped] == [0]
    assert [e.offset for e in decided.kept] == [3]


def completion(effects: list[Effect]) -> SendCompletion:
    """The only effect, a completion."""
    (effect,) = effects
    assert isinstance(effect, SendCompletion)
    return effect


def test_a_round_says_whose_answers_are_in_no_table(driver: Driver) -> None:
    """Tasks of which nothing was committed are named with their rounds, until it is."""
    first = driver.start()
    driver.written(first, T1, task=0)
    driver.complete(first, (P0, 1), task=0)
    driver.written(first, T1, task=1)
    driver.written(first, T2, task=1)
    driver.complete(first, (P1, 1), task=1)
    driver.written(first, T1)  # of no task
    driver.failed(first, T1, code="catalog_unavailable")
    assert completion(driver.committed(first, T2)).waiting == {first: (0,)}
    driver.sent(first)
    driver.now_ms += 10_000
    second = driver.start()
    driver.written(second, T1, task=0)
    driver.complete(second, (P0, 1), task=0)
    driver.complete(second, (P1, 1), task=1)
    assert completion(driver.failed(second, T1, code="commit_unknown")).waiting == {
        first: (0,),
        second: (0,),
    }
    driver.sent(second)
    driver.now_ms += 10_000
    third = driver.start()
    driver.complete(third, (P0, 1), task=0)
    driver.complete(third, (P1, 1), task=1)
    assert completion(driver.committed(third, T1)).waiting == {}


@pytest.mark.parametrize("retriable", [True, False])
def test_a_table_that_fails_by_itself_holds_no_task_back(
    driver: Driver, *, retriable: bool
) -> None:
    """A task whose answers went to a broken table alone reads on, for its other tables."""
    commit = driver.start()
    driver.written(commit, T1, task=0)
    driver.complete(commit, (P0, 1), task=0)
    driver.written(commit, T2, task=1)
    driver.complete(commit, (P1, 1), task=1)
    driver.failed(commit, T2, code="storage_unavailable")
    failed = driver.failed(commit, T1, retriable=retriable, code="table_missing")
    assert completion(failed).waiting == {commit: (1,)}


def test_what_was_skipped_does_not_wait(driver: Driver) -> None:
    """An answer that the operator gave up holds no task back."""
    commit = driver.start()
    driver.written(commit, task=0)
    driver.complete(commit, (P0, 1), task=0)
    driver.complete(commit, (P1, 1), task=1)
    failed = driver.failed(commit, code="catalog_unavailable")
    assert completion(failed).waiting == {commit: (0,)}
    driver.sent(commit)
    driver.kernel.receive(TableDecision(T1, "skip"), driver.now_ms)
    driver.now_ms += 10_000
    again = driver.start()
    driver.complete(again, (P0, 1), task=0)
    assert completion(driver.complete(again, (P1, 1), task=1)).waiting == {}


def test_above_the_bound_tasks_are_asked_for_no_more() -> None:
    """What is kept is tried again each interval; once it is committed, tasks are asked again."""
    driver = Driver()
    driver.kernel = Kernel(KernelSettings("c-0", 10_000, 3_000, kept_bytes_max=99))
    driver.layout(P0)
    commit = driver.start()
    payload = DataWritten(commit, T1, (), ())
    event = Event(UUID(int=9), 0, "connect-c", payload)
    big = Envelope(event, EventHeaders(), 0, 0, records=5, size_bytes=100)
    driver.kernel.receive(big, driver.now_ms)
    driver.offset = 1
    driver.complete(commit, (P0, 1), task=0)
    driver.failed(commit)
    driver.sent(commit)
    assert driver.kernel.is_full
    assert (driver.kernel.announcements.records, driver.kernel.announcements.size_bytes) == (5, 100)
    effects = driver.tick(10_000)
    assert taken(effects) == {"t1": [0]}
    (again,) = effects
    assert isinstance(again, CommitTables)
    driver.committed(again.commits[0].commit_id)
    assert driver.sent(again.commits[0].commit_id).is_partial
    assert (driver.kernel.announcements.records, driver.kernel.announcements.size_bytes) == (0, 0)
    (asked,) = driver.tick(10_000)
    assert isinstance(asked, SendStartCommit)

"""Answers of tasks in the kernel: each is committed whole or not at all."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from control_schemas.events import DataComplete, DataWritten, Event, EventHeaders
from coordinator.kernel.announcements import Announcements
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


def test_a_partly_read_step_is_not_committed(driver: Driver) -> None:
    """After a timeout, the whole answer and its offsets wait for the next round."""
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


def test_an_answer_may_span_tables_and_polls(driver: Driver) -> None:
    """Events of several tables, read in several polls, are one answer."""
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


def test_a_round_is_closed_before_an_answer_that_it_would_split(driver: Driver) -> None:
    """A complete answer that starts after an incomplete one waits with it."""
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


def test_an_open_answer_delays_only_its_own_control_partition(driver: Driver) -> None:
    """Other partitions are closed at the position that is read."""
    commit = driver.start()
    driver.kernel.receive(InboxAdvanced({1: 9}), driver.now_ms)
    driver.written(commit, T2)
    driver.written(commit, task=0)
    assert closed_at(driver.tick(3_000)) == {0: 1, 1: 9}


def test_a_covered_round_waits_for_an_open_answer(driver: Driver) -> None:
    """A restarted task answers again: round and VTTS wait for the end of its answer."""
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


@pytest.mark.parametrize(
    "follower", ["another round", "newer layout", "completion of a newer layout"]
)
def test_a_later_answer_proves_that_an_answer_ended(driver: Driver, follower: str) -> None:
    """It replaces a DataComplete that cannot be read, for the task or the layout."""
    commit = driver.start()
    driver.written(commit, task=0)
    if follower == "another round":
        driver.written(UUID(int=77), task=0)
    elif follower == "completion of a newer layout":
        driver.complete(commit, task=5, layout=2)
    else:
        driver.written(commit, task=5, layout=2)
    effects = driver.tick(3_000)
    assert taken(effects) == {"t1": [0]}
    # the written event of another task waits, a completion is over
    assert closed_at(effects) == {0: 2 if follower == "completion of a newer layout" else 1}


def test_the_end_of_the_log_proves_that_an_answer_ended(driver: Driver) -> None:
    """A readable transaction is below the end of the log; a later event reopens the answer."""
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


def test_an_end_of_the_log_that_is_read_already_is_enough(driver: Driver) -> None:
    """Nothing else has to be read until the answer is whole."""
    commit = driver.start()
    driver.written(commit, task=0)
    driver.kernel.receive(InboxAdvanced({0: 1}), driver.now_ms)
    driver.kernel.receive(CurrentLogEnds({0: 1}), driver.now_ms)
    assert taken(driver.tick(3_000)) == {"t1": [0]}


def test_an_event_may_show_that_an_answer_ended(driver: Driver) -> None:
    """A completion closes its round although it is what reaches the end of an open answer."""
    commit = driver.start()
    driver.written(commit, task=0)
    driver.kernel.receive(CurrentLogEnds({0: 2}), driver.now_ms)
    assert taken(driver.complete(commit, (P0, 1), (P1, 1), task=1)) == {"t1": [0]}


@pytest.mark.parametrize("headers", [EventHeaders(layout=1, batch=7), EventHeaders(task=0)])
def test_half_a_name_of_a_task_is_none(driver: Driver, headers: EventHeaders) -> None:
    """Such an event is an answer of its own, and such a completion ends none."""
    commit = driver.start()
    driver.read(DataWritten(commit, T1, (), ()), headers)
    driver.written(commit, T2, task=0)
    driver.read(DataComplete(commit, ()), headers)
    effects = driver.tick(3_000)
    assert taken(effects) == {"t1": [0]}
    assert closed_at(effects) == {0: 1}


def test_a_skipped_table_holds_nothing_of_an_answer() -> None:
    """Only a table that holds a part of it says that the task may read on."""
    announcements, commit = Announcements(), UUID(int=7)
    for offset, table in enumerate((T1, T2)):
        event = Event(UUID(int=9), 0, "connect-c", DataWritten(commit, table, (), ()))
        headers = EventHeaders(layout=1, batch=7, task=3)
        announcements.add(Envelope(event, headers, 0, offset), table.identifier)
    announcements.see_ends({0: 2}, {0: 2})
    assert len(announcements.skip(T1.identifier, None)) == 1
    assert announcements.waiting() == {commit: (3,)}


def test_a_skip_leaves_a_partly_read_answer(driver: Driver) -> None:
    """The operator decides about it with the next skip."""
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


def test_a_round_names_tasks_whose_answers_are_not_committed(driver: Driver) -> None:
    """They are named with their rounds until something of them is committed."""
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
def test_a_failed_table_does_not_stop_its_tasks(driver: Driver, *, retriable: bool) -> None:
    """They continue to read for their other tables."""
    commit = driver.start()
    driver.written(commit, T1, task=0)
    driver.complete(commit, (P0, 1), task=0)
    driver.written(commit, T2, task=1)
    driver.complete(commit, (P1, 1), task=1)
    driver.failed(commit, T2, code="storage_unavailable")
    failed = driver.failed(commit, T1, retriable=retriable, code="table_missing")
    assert completion(failed).waiting == {commit: (1,)}


def test_a_skipped_answer_does_not_stop_its_task(driver: Driver) -> None:
    """The operator gave it up."""
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


def test_tasks_get_no_start_commit_while_too_much_is_kept() -> None:
    """Kept announcements are retried each interval; after their commit, tasks are asked again."""
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
    (effect,) = driver.tick(10_000)
    assert isinstance(effect, SendStartCommit)


SAME = dataclasses.replace(T1, namespace=("DB",))


def test_a_table_with_two_names_is_one_commit(driver: Driver) -> None:
    """Two commits would each raise the table's floor above what the other has not committed."""
    first = driver.start()
    driver.written(first, T1)
    driver.written(first, SAME)
    for tp in (P0, P1):
        effects = driver.complete(first, (tp, 1))
    (effect,) = effects
    assert isinstance(effect, CommitTables)
    (commit,) = effect.commits
    assert commit.table.identifier == T1.identifier
    assert [e.offset for e in commit.announcements] == [0, 1]
    driver.committed(first, T1)
    driver.sent(first)
    driver.now_ms += 10_000
    second = driver.start()
    driver.written(second, SAME)
    for tp in (P0, P1):
        effects = driver.complete(second, (tp, 1))
    assert [c.table.identifier for c in effects[0].commits] == [T1.identifier]  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", ["table_missing", "table_replaced"])
def test_a_renamed_table_gets_what_waited_under_its_former_name(driver: Driver, code: str) -> None:
    """Under one name again; the failure of the former name is over."""
    first = driver.start()
    driver.written(first, T1)
    for tp in (P0, P1):
        driver.complete(first, (tp, 1))
    driver.failed(first, T1, retriable=False, code=code)
    driver.sent(first)
    assert driver.kernel.failures.is_missing(T1.identifier)
    driver.written(first, SAME)
    assert not driver.kernel.failures.by_table
    driver.now_ms += 10_000
    second = driver.start()
    for tp in (P0, P1):
        effects = driver.complete(second, (tp, 1))
    (commit,) = effects[0].commits  # type: ignore[attr-defined]
    assert commit.table.identifier == SAME.identifier
    assert len(commit.announcements) == 2

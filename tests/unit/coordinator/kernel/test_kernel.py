"""The commit kernel: every transition of the protocol, without I/O."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from connect.errors import InvariantViolation
from control_schemas.events import (
    ContentFile,
    DataWritten,
    FileContent,
    SourceRange,
)
from coordinator.kernel.effects import (
    CommitTables,
    CompletionSent,
    CoordinatorFenced,
    Finish,
    InboxAdvanced,
    SendCompletion,
    SendStartCommit,
    Stop,
    TableDecided,
    TableDecision,
    TableFailed,
)
from coordinator.kernel.kernel import Phase
from coordinator.uncommitted_report import records_in
from tests.support.kernel_driver import P0, P1, SECOND_US, T1, T2, Driver


@pytest.fixture
def driver() -> Driver:
    """A kernel whose layout has two partitions."""
    d = Driver()
    d.layout(P0, P1)
    return d


def test_no_round_without_a_layout() -> None:
    """A kernel that does not know what a round must cover starts none."""
    d = Driver()
    assert d.tick() == []
    assert d.kernel.phase is Phase.IDLE


def test_whole_round(driver: Driver) -> None:
    """Start, announce, cover, commit, complete: each effect once and in order."""
    commit = driver.start()
    assert driver.written(commit) == []
    assert driver.complete(commit, (P0, 20 * SECOND_US)) == []
    (effect,) = driver.complete(commit, (P1, 30 * SECOND_US))
    assert isinstance(effect, CommitTables)
    (table,) = effect.commits
    assert table.table == T1
    assert table.control_offsets == {0: 3}
    assert table.valid_through_us == 20 * SECOND_US
    (completion,) = driver.committed(commit)
    assert completion == SendCompletion(commit, ((T1, 55),), 20 * SECOND_US, {0: 3})
    ended = driver.sent(commit)
    assert not ended.is_partial
    assert len(list(driver.kernel.announcements.kept())) == 0
    assert driver.tick() == []  # start to start: not before the interval has passed
    assert driver.tick(10_000) == [SendStartCommit(UUID(int=driver.ids))]


def test_records_that_wait_for_their_table_are_counted(driver: Driver) -> None:
    """What is in files and in no table yet, for the metric of that name."""
    file = ContentFile(FileContent.DATA, "p", "PARQUET", 0, (), 7, 100)
    driver.read(DataWritten(UUID(int=1), T1, (file, file), ()))
    driver.read(DataWritten(UUID(int=1), T2, None, None))
    assert records_in(driver.kernel.announcements.kept()) == 14


def test_round_without_data_commits_no_table(driver: Driver) -> None:
    """An idle connector's round ends with a completion and no table commit."""
    commit = driver.start()
    driver.complete(commit, (P0, SECOND_US))
    (effect,) = driver.complete(commit, (P1, 2 * SECOND_US))
    assert effect == SendCompletion(commit, (), SECOND_US, {0: 2})


def test_count_of_answers_is_not_coverage(driver: Driver) -> None:
    """Two answers for one partition do not stand in for the other one."""
    commit = driver.start()
    assert driver.complete(commit, (P0, 1)) == []
    assert driver.complete(commit, (P0, 1)) == []
    assert driver.kernel.phase is Phase.COLLECTING


def test_answers_of_other_rounds_do_not_count(driver: Driver) -> None:
    """A completion of an older commit id neither readies this round nor gives it a timestamp."""
    old = UUID(int=77)
    commit = driver.start()
    driver.complete(commit, (P0, 9 * SECOND_US))
    assert driver.complete(old, (P1, 9 * SECOND_US)) == []


def test_late_announcements_of_older_rounds_are_committed(driver: Driver) -> None:
    """What a slow task announces for a round that is over goes into the next commit."""
    old = UUID(int=77)
    driver.written(old)
    commit = driver.start()
    driver.complete(commit, (P0, 1))
    (effect,) = driver.complete(commit, (P1, 1))
    assert isinstance(effect, CommitTables)
    assert effect.commits[0].announcements[0].event.payload.commit_id == old


def test_timeout_commits_what_is_there_without_vtts(driver: Driver) -> None:
    """A silent task does not hold the others' data back, but no VTTS is claimed."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, SECOND_US))
    (effect,) = driver.tick(3_000)
    assert isinstance(effect, CommitTables)
    assert effect.commits[0].valid_through_us is None
    driver.committed(commit)
    assert driver.sent(commit).is_partial


def test_start_commit_is_repeated_for_tasks_that_were_not_listening(driver: Driver) -> None:
    """Until it is covered or timed out, a round asks again with the same id."""
    driver.now_ms += 10_000  # the layout is not new any more
    commit = driver.start()
    assert driver.tick(999) == []
    assert driver.tick(1) == [SendStartCommit(commit)]
    assert driver.tick(500) == []
    assert driver.tick(500) == [SendStartCommit(commit)]


def test_a_new_layouts_tasks_are_asked_more_often() -> None:
    """They all begin at the same time and none shall wait long; after five seconds it is over."""
    driver = Driver(timeout_ms=20_000)
    driver.layout(P0)
    commit = driver.start()
    assert driver.tick(199) == []
    for _ in range(24):
        assert driver.tick(200) == [SendStartCommit(commit)]
    assert driver.tick(999) == []
    assert driver.tick(1) == [SendStartCommit(commit)]
    driver.layout(P0, P1, number=2)
    (again,) = driver.tick()
    assert isinstance(again, SendStartCommit)
    assert again.commit_id != commit
    assert driver.tick(200) == [again]


def test_what_arrives_during_a_commit_is_the_next_rounds(driver: Driver) -> None:
    """An announcement read while the commit runs is neither lost nor counted as committed."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, 1))
    driver.complete(commit, (P1, 1))
    driver.written(commit)
    (completion,) = driver.committed(commit)
    assert isinstance(completion, SendCompletion)
    assert completion.control_offsets == {0: 3}  # the one read later is at 3: not passed
    driver.sent(commit)
    assert len(list(driver.kernel.announcements.kept())) == 1


def test_failed_table_keeps_its_announcements_and_holds_the_offsets(driver: Driver) -> None:
    """One broken table blocks no other; the group's offsets stay before what it waits for."""
    commit = driver.start()
    driver.written(commit, T1)
    driver.written(commit, T2)
    driver.complete(commit, (P0, 1_000))
    driver.complete(commit, (P1, 1_000))
    assert driver.committed(commit, T2) == []
    (completion,) = driver.failed(commit, T1)
    assert completion == SendCompletion(commit, ((T2, 55),), None, {0: 0})
    driver.sent(commit)
    assert set(driver.kernel.failures.by_table) == {T1.identifier}
    driver.now_ms += 10_000
    again = driver.start()
    driver.complete(again, (P0, 1_000))
    (effect,) = driver.complete(again, (P1, 1_000))
    assert isinstance(effect, CommitTables)
    assert [c.table for c in effect.commits] == [T1]
    (completion,) = driver.committed(again, T1)
    assert isinstance(completion, SendCompletion)
    assert completion.control_offsets == {0: 6}
    assert driver.kernel.failures.by_table == {}


def test_table_that_needs_the_operator_is_not_tried_again(driver: Driver) -> None:
    """A failure that is not retriable waits for a decision; retry brings it back."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, 1))
    driver.complete(commit, (P1, 1))
    driver.failed(commit, retriable=False)
    driver.sent(commit)
    driver.now_ms += 10_000
    again = driver.start()
    driver.complete(again, (P0, 1))
    (effect,) = driver.complete(again, (P1, 1))
    assert isinstance(effect, SendCompletion)
    assert effect.control_offsets == {0: 0}
    driver.sent(again)
    (decided,) = driver.kernel.receive(TableDecision(T1, "retry"), driver.now_ms)
    assert isinstance(decided, TableDecided)
    assert (decided.state, len(decided.kept)) == ("done", 1)
    third = driver.start()
    driver.complete(third, (P0, 1))
    (effect,) = driver.complete(third, (P1, 1))
    assert isinstance(effect, CommitTables)
    skip = TableDecision(T1, "skip")
    assert driver.kernel.receive(skip, driver.now_ms) == [TableDecided(skip, "busy")]


def test_skipped_announcements_are_named(driver: Driver) -> None:
    """Skipping gives up the announcements in the open and frees the offsets."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, 1))
    driver.complete(commit, (P1, 1))
    driver.failed(commit, retriable=False)
    driver.sent(commit)
    (effect,) = driver.kernel.receive(TableDecision(T1, "skip"), driver.now_ms)
    assert isinstance(effect, TableDecided)
    assert (effect.state, len(effect.skipped)) == ("done", 1)
    assert len(list(driver.kernel.announcements.kept())) == 0
    skip = TableDecision(T2, "skip")
    assert driver.kernel.receive(skip, driver.now_ms) == [TableDecided(skip, "not_failed")]
    assert isinstance(driver.tick()[0], SendStartCommit)  # offsets pass without waiting


def test_files_for_the_table_that_is_there_now_are_not_skipped(driver: Driver) -> None:
    """After a replacement only what was written for other identities is given up."""
    present = dataclasses.replace(T1, table_uuid=UUID(int=7))
    commit = driver.start()
    driver.written(commit)
    driver.written(commit, present)
    driver.complete(commit, (P0, 1))
    driver.complete(commit, (P1, 1))
    replaced = TableFailed(
        T1, commit, "table_replaced", "", is_retriable=False, present_uuid=present.table_uuid
    )
    driver.kernel.receive(replaced, driver.now_ms)
    driver.sent(commit)
    (effect,) = driver.kernel.receive(TableDecision(T1, "skip"), driver.now_ms)
    assert isinstance(effect, TableDecided)
    assert [e.event.payload.table for e in effect.skipped] == [T1]
    assert [e.event.payload.table for e in effect.kept] == [present]
    again = driver.start()
    driver.complete(again, (P0, 1))
    (commits,) = driver.complete(again, (P1, 1))
    assert isinstance(commits, CommitTables)
    assert commits.commits[0].table == present


def test_fenced_by_another_coordinator(driver: Driver) -> None:
    """When a table shows that another coordinator commits, this one stops and does nothing more."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, 1))
    driver.complete(commit, (P1, 1))
    (effect,) = driver.kernel.receive(CoordinatorFenced(T1, commit, "floor moved"), driver.now_ms)
    assert effect == Stop(commit, "floor moved", {"table": "db.t1"})
    assert driver.tick(60_000) == []


def test_new_layout_restarts_the_round(driver: Driver) -> None:
    """A changed layout gives up the round's answers and asks again at once with a new id."""
    first = driver.start()
    driver.complete(first, (P0, 1))
    assert driver.layout(P0, number=2) == []
    (effect,) = driver.tick()
    assert isinstance(effect, SendStartCommit)
    assert effect.commit_id != first
    assert driver.complete(effect.commit_id, (P0, 1), layout=1) == []  # the old layout's task
    (done,) = driver.complete(effect.commit_id, (P0, 1), layout=2)
    assert isinstance(done, SendCompletion)


def test_layout_seen_at_tasks_first(driver: Driver) -> None:
    """Answers of a layout newer than known keep the round from claiming coverage."""
    commit = driver.start()
    driver.complete(commit, (P0, 1), layout=2)
    driver.complete(commit, (P1, 1), layout=1)
    assert driver.complete(commit, (P0, 1), layout=1) == []
    assert driver.kernel.phase is Phase.COLLECTING
    driver.layout(P0, P1, number=2)
    driver.layout(P0, number=1)  # an old one is ignored
    assert isinstance(driver.tick()[0], SendStartCommit)


def test_java_completions_count(driver: Driver) -> None:
    """Events without our headers, from the Java sink, cover partitions as well."""
    commit = driver.start()
    driver.complete(commit, (P0, 5_000), layout=None, ranges=None)
    (effect,) = driver.complete(commit, (P1, 5_000), layout=None, ranges=None)
    assert effect == SendCompletion(commit, (), 5_000, {0: 2})


def test_empty_layout_needs_no_answer() -> None:
    """A connector without partitions commits what an older layout left behind."""
    d = Driver()
    d.layout()
    assert d.tick() == []
    d.written(UUID(int=5))
    commit = d.start()
    (effect,) = d.tick()
    assert isinstance(effect, CommitTables)
    (completion,) = d.committed(commit)
    assert isinstance(completion, SendCompletion)
    assert completion.valid_through_us is None


def test_reading_twice_is_a_bug(driver: Driver) -> None:
    """A control offset that comes again stops the coordinator."""
    driver.written(UUID(int=1))
    driver.offset = 0
    with pytest.raises(InvariantViolation, match="read twice"):
        driver.written(UUID(int=1))


def test_position_counts_foreign_events(driver: Driver) -> None:
    """Events of other groups and markers move the position the round is closed at."""
    driver.kernel.receive(InboxAdvanced({0: 40, 1: 3}), driver.now_ms)
    driver.kernel.receive(InboxAdvanced({0: 30}), driver.now_ms)
    driver.offset = 40
    commit = driver.start()
    driver.complete(commit, (P0, 1))
    (effect,) = driver.complete(commit, (P1, 1))
    assert isinstance(effect, SendCompletion)
    assert effect.control_offsets == {0: 42, 1: 3}


def _range(start: int, end: int) -> tuple[SourceRange, ...]:
    return (SourceRange("orders", 0, start, end, end - start, 0, 0, end - start, None),)


@pytest.mark.parametrize(("second", "code"), [((5, 9), "source_overlap"), ((12, 14), "source_gap")])
def test_source_ranges_follow_each_other(
    driver: Driver, second: tuple[int, int], code: str
) -> None:
    """An announced range that overlaps or leaves a gap is a bug and stops the coordinator."""
    commit = driver.start()
    driver.complete(commit, (P0, 1), ranges=_range(0, 10))
    with pytest.raises(InvariantViolation) as e:
        driver.complete(commit, (P0, 1), ranges=_range(*second))
    assert e.value.code == code


def test_ranges_reach_the_round(driver: Driver) -> None:
    """A round reports the source ranges announced in it."""
    commit = driver.start()
    driver.complete(commit, (P0, 1), (P1, 1), ranges=_range(0, 10))
    assert driver.sent(commit).ranges == _range(0, 10)


def test_unexpected_answers_are_bugs(driver: Driver) -> None:
    """An outcome or a completion of another round stops the coordinator."""
    with pytest.raises(InvariantViolation, match="the outcome does not belong to the round"):
        driver.committed(UUID(int=1))
    with pytest.raises(InvariantViolation, match="the completion does not belong to the round"):
        driver.kernel.receive(CompletionSent(UUID(int=1)), 0)


def test_an_end_commits_what_is_announced(driver: Driver) -> None:
    """Outside a round in a last one, inside of one by closing it; without a VTTS."""
    commit = driver.start()
    driver.complete(commit, (P0, 1), (P1, 1))
    driver.sent(commit)
    driver.written(UUID(int=77))
    last = UUID(int=78)
    started, commits = driver.kernel.receive(Finish(last), driver.now_ms)
    assert started == SendStartCommit(last)
    assert isinstance(commits, CommitTables)
    assert commits.commits[0].valid_through_us is None
    driver.committed(last)
    assert driver.sent(last).is_partial
    assert driver.kernel.resumes_at == {0: driver.offset}


def test_an_end_closes_the_round_that_is_open(driver: Driver) -> None:
    """What others did not answer waits for the next coordinator."""
    commit = driver.start()
    driver.written(commit)
    (commits,) = driver.kernel.receive(Finish(UUID(int=78)), driver.now_ms)
    assert isinstance(commits, CommitTables)
    assert commits.commits[0].commit_id == commit
    assert driver.kernel.receive(Finish(UUID(int=79)), driver.now_ms) == []  # it is under way


def test_an_end_tries_no_table_that_waits_for_the_operator(driver: Driver) -> None:
    """Its announcement is kept: a successor reads from there."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, 1), (P1, 1))
    driver.failed(commit, retriable=False)
    driver.sent(commit)
    assert driver.kernel.receive(Finish(UUID(int=78)), driver.now_ms) == []
    assert driver.kernel.resumes_at == {0: 0}


def test_a_coordinator_without_partitions_misses_no_round() -> None:
    """No round is due without partitions; an announcement that waits makes one due."""
    d = Driver()
    assert not d.kernel.has_work()
    d.layout()
    assert d.tick(60_000) == []
    assert not d.kernel.has_work()
    d.written(UUID(int=9))
    assert d.kernel.has_work()
    d.layout(P0, number=2)
    assert d.kernel.has_work()

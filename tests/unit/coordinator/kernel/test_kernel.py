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
    TableReference,
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
from coordinator.kernel.kernel import Phase, quiet_ms
from coordinator.uncommitted_report import records_in
from tests.support.kernel_driver import P0, P1, SECOND_US, T1, T2, Driver


def test_no_round_starts_without_a_layout() -> None:
    """The kernel does not know which partitions a round must cover."""
    d = Driver()
    assert d.tick() == []
    assert d.kernel.phase is Phase.IDLE


def test_a_round_has_each_effect_once_and_in_order(driver: Driver) -> None:
    """Start, announcements, coverage, commit, completion."""
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


def test_the_kernel_knows_when_its_next_tick_counts(driver: Driver) -> None:
    """So a coordinator without work waits, and its rounds still start on time."""
    assert quiet_ms(Driver().kernel, 0) is None  # without a layout only an input brings work
    kernel = driver.kernel
    assert quiet_ms(kernel, driver.now_ms) == 0
    commit = driver.start()
    assert quiet_ms(kernel, driver.now_ms + 1) == 0  # it repeats StartCommit and has a timeout
    driver.written(commit)
    driver.complete(commit, (P0, 1))
    driver.complete(commit, (P1, 1))
    driver.committed(commit)
    driver.sent(commit)
    left_ms = quiet_ms(kernel, driver.now_ms)
    assert left_ms is not None
    assert driver.tick(left_ms - 1) == []
    assert driver.tick(1) == [SendStartCommit(UUID(int=driver.ids))]


def test_uncommitted_records_are_counted(driver: Driver) -> None:
    """They are in announced files and in no table; a metric shows them."""
    file = ContentFile(FileContent.DATA, "p", "PARQUET", 0, (), 7, 100)
    driver.read(DataWritten(UUID(int=1), T1, (file, file), ()))
    driver.read(DataWritten(UUID(int=1), T2, None, None))
    assert records_in(driver.kernel.announcements.kept()) == 14


def test_a_round_without_data_commits_no_table(driver: Driver) -> None:
    """It ends with a completion."""
    commit = driver.start()
    driver.complete(commit, (P0, SECOND_US))
    (effect,) = driver.complete(commit, (P1, 2 * SECOND_US))
    assert effect == SendCompletion(commit, (), SECOND_US, {0: 2})


def test_two_answers_for_one_partition_do_not_cover_another_one(driver: Driver) -> None:
    """Coverage is checked by partition, not by the number of answers."""
    commit = driver.start()
    assert driver.complete(commit, (P0, 1)) == []
    assert driver.complete(commit, (P0, 1)) == []
    assert driver.kernel.phase is Phase.COLLECTING


def test_answers_of_other_rounds_do_not_count(driver: Driver) -> None:
    """A completion of another commit id neither covers this round nor gives it a timestamp."""
    old = UUID(int=77)
    commit = driver.start()
    driver.complete(commit, (P0, 9 * SECOND_US))
    assert driver.complete(old, (P1, 9 * SECOND_US)) == []


def test_late_announcements_of_older_rounds_are_committed(driver: Driver) -> None:
    """Announcements of a slow task for an ended round are part of the next commit."""
    old = UUID(int=77)
    driver.written(old)
    commit = driver.start()
    driver.complete(commit, (P0, 1))
    (effect,) = driver.complete(commit, (P1, 1))
    assert isinstance(effect, CommitTables)
    assert effect.commits[0].announcements[0].event.payload.commit_id == old


def test_a_timed_out_round_commits_the_announced_files_without_a_vtts(driver: Driver) -> None:
    """A silent task does not delay the files of other tasks."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, SECOND_US))
    (effect,) = driver.tick(3_000)
    assert isinstance(effect, CommitTables)
    assert effect.commits[0].valid_through_us is None
    driver.committed(commit)
    assert driver.sent(commit).is_partial


def test_start_commit_is_repeated_until_the_round_is_covered(driver: Driver) -> None:
    """The repetitions have the same commit id and end with the timeout."""
    driver.now_ms += 10_000  # the layout is not new any more
    commit = driver.start()
    assert driver.tick(999) == []
    assert driver.tick(1) == [SendStartCommit(commit)]
    assert driver.tick(500) == []
    assert driver.tick(500) == [SendStartCommit(commit)]


def test_start_commit_is_repeated_faster_for_a_new_layout() -> None:
    """Its tasks start at the same time; the fast repetition ends after five seconds."""
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


def test_announcements_during_a_commit_belong_to_the_next_round(driver: Driver) -> None:
    """They are neither lost nor counted as committed."""
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


def test_a_failed_table_keeps_its_announcements(driver: Driver) -> None:
    """Other tables are committed; the control offsets stay before the kept announcements."""
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


def test_a_final_failure_is_retried_only_by_the_operator(driver: Driver) -> None:
    """A failure that is not retriable waits for a decision."""
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


def test_skipped_announcements_are_listed(driver: Driver) -> None:
    """A skip gives up the announcements and releases the control offsets."""
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


def test_a_skip_keeps_files_for_the_present_table(driver: Driver) -> None:
    """After a replacement, only files for other table identities are given up."""
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


def test_a_fenced_coordinator_stops(driver: Driver) -> None:
    """A table shows the commit of another coordinator; this one does nothing more."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, 1))
    driver.complete(commit, (P1, 1))
    (effect,) = driver.kernel.receive(CoordinatorFenced(T1, commit, "floor moved"), driver.now_ms)
    assert effect == Stop(commit, "floor moved", {"table": "db.t1"})
    assert driver.tick(60_000) == []


def test_a_new_layout_restarts_the_round(driver: Driver) -> None:
    """The answers are dropped, and a StartCommit with a new id is sent at once."""
    first = driver.start()
    driver.complete(first, (P0, 1))
    assert driver.layout(P0, number=2) == []
    (effect,) = driver.tick()
    assert isinstance(effect, SendStartCommit)
    assert effect.commit_id != first
    assert driver.complete(effect.commit_id, (P0, 1), layout=1) == []  # the old layout's task
    (done,) = driver.complete(effect.commit_id, (P0, 1), layout=2)
    assert isinstance(done, SendCompletion)


def test_answers_of_a_newer_layout_give_no_coverage(driver: Driver) -> None:
    """The tasks knew the layout before the coordinator."""
    commit = driver.start()
    driver.complete(commit, (P0, 1), layout=2)
    driver.complete(commit, (P1, 1), layout=1)
    assert driver.complete(commit, (P0, 1), layout=1) == []
    assert driver.kernel.phase is Phase.COLLECTING
    driver.layout(P0, P1, number=2)
    driver.layout(P0, number=1)  # an old one is ignored
    assert isinstance(driver.tick()[0], SendStartCommit)


def test_completions_of_the_java_sink_count(driver: Driver) -> None:
    """Events without headers of Icefloe cover partitions."""
    commit = driver.start()
    driver.complete(commit, (P0, 5_000), layout=None, ranges=None)
    (effect,) = driver.complete(commit, (P1, 5_000), layout=None, ranges=None)
    assert effect == SendCompletion(commit, (), 5_000, {0: 2})


def test_an_empty_layout_needs_no_answer() -> None:
    """Announcements of an older layout are committed."""
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


def test_a_control_offset_that_is_read_twice_is_a_bug(driver: Driver) -> None:
    """The coordinator stops."""
    driver.written(UUID(int=1))
    driver.offset = 0
    with pytest.raises(InvariantViolation, match="read twice"):
        driver.written(UUID(int=1))


def test_events_of_other_groups_move_the_position(driver: Driver) -> None:
    """Transaction markers move it as well."""
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
def test_a_gap_or_overlap_of_source_ranges_is_a_bug(
    driver: Driver, second: tuple[int, int], code: str
) -> None:
    """The coordinator stops."""
    commit = driver.start()
    driver.complete(commit, (P0, 1), ranges=_range(0, 10))
    with pytest.raises(InvariantViolation) as e:
        driver.complete(commit, (P0, 1), ranges=_range(*second))
    assert e.value.code == code


def test_a_round_reports_its_source_ranges(driver: Driver) -> None:
    """The ranges are those announced in it."""
    commit = driver.start()
    driver.complete(commit, (P0, 1), (P1, 1), ranges=_range(0, 10))
    assert driver.sent(commit).ranges == _range(0, 10)


def test_an_outcome_of_another_round_is_a_bug(driver: Driver) -> None:
    """Also a completion of another round stops the coordinator."""
    with pytest.raises(InvariantViolation, match="the outcome does not belong to the round"):
        driver.committed(UUID(int=1))
    with pytest.raises(InvariantViolation, match="the completion does not belong to the round"):
        driver.kernel.receive(CompletionSent(UUID(int=1)), 0)


def test_the_last_commit_contains_everything_announced(driver: Driver) -> None:
    """An open round is closed, or a last round is started; it has no VTTS."""
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


def test_a_stop_closes_the_open_round(driver: Driver) -> None:
    """Missing answers are left for the next coordinator."""
    commit = driver.start()
    driver.written(commit)
    (commits,) = driver.kernel.receive(Finish(UUID(int=78)), driver.now_ms)
    assert isinstance(commits, CommitTables)
    assert commits.commits[0].commit_id == commit
    assert driver.kernel.receive(Finish(UUID(int=79)), driver.now_ms) == []  # it is under way


def test_a_stop_does_not_retry_tables_that_wait_for_the_operator(driver: Driver) -> None:
    """Their announcements are kept; a successor starts reading at them."""
    commit = driver.start()
    driver.written(commit)
    driver.complete(commit, (P0, 1), (P1, 1))
    driver.failed(commit, retriable=False)
    driver.sent(commit)
    assert driver.kernel.receive(Finish(UUID(int=78)), driver.now_ms) == []
    assert driver.kernel.resumes_at == {0: 0}


def test_without_partitions_only_kept_announcements_make_a_round_due() -> None:
    """No round is overdue without partitions."""
    d = Driver()
    assert not d.kernel.has_work()
    d.layout()
    assert d.tick(60_000) == []
    assert not d.kernel.has_work()
    d.written(UUID(int=9))
    assert d.kernel.has_work()
    d.layout(P0, number=2)
    assert d.kernel.has_work()


def test_a_round_follows_the_tables_with_announcements() -> None:
    """Of a thousand tables that were committed before, it commits three and keeps none."""
    driver = Driver()
    driver.layout(P0)
    tables = [TableReference("iceberg", ("db",), f"m{n}", UUID(int=n)) for n in range(1_000)]
    for touched in (tables, tables[5:8]):
        driver.now_ms += 10_000
        commit = driver.start()
        for table in touched:
            driver.written(commit, table, task=0)
        [effect] = driver.complete(commit, (P0, 1), task=0)
        assert isinstance(effect, CommitTables)
        assert [each.table for each in effect.commits] == list(touched)
        for table in touched:
            driver.committed(commit, table)
        driver.sent(commit)
        assert driver.kernel.announcements.is_empty


def test_outcomes_of_other_commits_are_a_bug(driver: Driver) -> None:
    """That of another round, or of another table, says nothing about this commit."""
    commit = driver.start()
    driver.written(commit)
    assert isinstance(driver.tick(3_000)[0], CommitTables)
    for outcome in ((UUID(int=999), T1), (commit, T2)):
        with pytest.raises(InvariantViolation):
            driver.committed(*outcome)
    assert isinstance(driver.committed(commit)[0], SendCompletion)


def test_a_last_commit_after_a_new_layout_has_a_round_of_its_own(driver: Driver) -> None:
    """The round that the old tasks were asked for has ended."""
    first = driver.start()
    driver.written(first)
    driver.layout(P0, number=2)
    last = UUID(int=999)
    start, commit = driver.kernel.receive(Finish(last), driver.now_ms)
    assert start == SendStartCommit(last)
    assert isinstance(commit, CommitTables)
    assert [table.commit_id for table in commit.commits] == [last]

"""The kernel at the limits of its comparisons: equal offsets, equal layouts, other partitions."""

from __future__ import annotations

from uuid import UUID

import pytest

from connect.errors import Fenced, InvariantViolation
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    SourceRange,
    StartCommit,
)
from coordinator.commit.iceberg.floor import TableState, may_claim
from coordinator.kernel.commit_round import KernelSettings
from coordinator.kernel.effects import (
    CommitTables,
    Envelope,
    Finish,
    InitialLogEnds,
    SendCompletion,
)
from coordinator.kernel.kernel import Kernel, Phase
from coordinator.kernel.offsets import ControlPositions, group_offsets
from coordinator.kernel.valid_through import ValidThroughClaims
from tests.support.kernel_driver import P0, P1, SECOND_US, T1, T2, Driver


def kept_at(offset: int) -> Envelope:
    """An announcement in control partition 0 that is in no table."""
    event = Event(UUID(int=9), 0, "connect-c", DataWritten(UUID(int=1), T1, (), ()))
    return Envelope(event, EventHeaders(), 0, offset)


@pytest.mark.parametrize(
    "payload",
    [
        StartCommit(UUID(int=3)),
        DataWritten(UUID(int=3), T1, (), ()),
        DataComplete(UUID(int=3), ()),
    ],
)
def test_events_of_another_sink_are_those_of_a_predecessor_or_stop(
    driver: Driver, payload: object
) -> None:
    """They have no headers. What was written before the start is of a sink that has ended."""
    driver.kernel.receive(InitialLogEnds({0: driver.offset + 1}), driver.now_ms)
    driver.read(payload)
    driver.read(payload, EventHeaders(layout=1))
    driver.read(payload, EventHeaders(coordinator_layout=1))
    driver.read(CommitComplete(UUID(int=3), None))
    with pytest.raises(Fenced, match="another sink") as stopped:
        driver.read(payload)
    assert stopped.value.code == "group_in_use"


@pytest.mark.parametrize(("kept", "stored"), [(6, 6), (7, 7), (8, 8), (9, 8)])
def test_group_offsets_stop_at_a_kept_announcement(kept: int, stored: int) -> None:
    """Also at the last one below the end of the round."""
    assert group_offsets({0: 8}, [kept_at(kept)]) == {0: stored}


def test_positions_of_the_control_topic_do_not_go_back() -> None:
    """A report of lower positions changes nothing."""
    positions = ControlPositions()
    positions.advance({0: 5, 1: 2})
    positions.advance({0: 4, 1: 3})
    assert positions.next_offsets == {0: 5, 1: 3}


def test_source_ranges_are_checked_from_the_given_control_offset_on() -> None:
    """An event at that offset is checked; one below is not."""
    driver = Driver()
    driver.kernel = Kernel(KernelSettings("c-0", 10_000, 3_000, ranges_from={0: 2}))
    for start in (0, 50, 100):  # at control offsets 0 to 2
        following = SourceRange("orders", 0, start, start + 10, 10, 0, 0, 10, None)
        driver.complete(UUID(int=1), (P0, 1), ranges=(following,))
    with pytest.raises(InvariantViolation, match="gap"):
        driver.complete(
            UUID(int=1), (P0, 1), ranges=(SourceRange("orders", 0, 111, 112, 1, 0, 0, 1, None),)
        )


def test_a_newer_layout_ends_no_answer_of_another_control_partition(driver: Driver) -> None:
    """Partitions are read one after the other, so the rest of the answer may be unread."""
    commit = driver.start()
    driver.written(commit, T2)  # 0
    driver.written(commit, task=0)  # 1: open
    payload = DataWritten(commit, T1, (), ())
    event = Event(UUID(int=9), 0, "connect-c", payload)
    headers = EventHeaders(layout=2, batch=7, task=0)
    driver.kernel.receive(Envelope(event, headers, 1, 0), driver.now_ms)
    (effect,) = driver.tick(3_000)
    assert isinstance(effect, CommitTables)
    assert effect.commits[0].control_offsets[0] == 1


def test_a_claim_covers_the_partitions_of_its_round(driver: Driver) -> None:
    """Not those of a layout that came while its tables were committed."""
    commit = driver.start()
    driver.written(commit)
    for tp in (P0, P1):
        driver.complete(commit, (tp, 9 * SECOND_US))
    third = P0._replace(partition=2)
    driver.layout(P0, P1, third, number=2)
    driver.committed(commit)
    assert driver.sent(commit).valid_through_us == 9 * SECOND_US
    driver.now_ms += 10_000
    commit = driver.start()
    for tp in (P0, P1):
        driver.complete(commit, (tp, 9 * SECOND_US), layout=2)
    (completion,) = driver.complete(commit, (third, SECOND_US), layout=2)
    assert isinstance(completion, SendCompletion)
    assert completion.valid_through_us is None


def test_a_stop_during_the_completion_commits_nothing_again(driver: Driver) -> None:
    """The round is closed already."""
    commit = driver.start()
    driver.written(commit)
    driver.tick(3_000)
    driver.written(commit)  # of the next round
    driver.committed(commit)
    assert driver.kernel.phase is Phase.COMPLETING
    assert driver.kernel.receive(Finish(UUID(int=99)), driver.now_ms) == []
    driver.sent(commit)


def test_a_landed_part_of_an_answer_counts_although_another_part_is_skipped(
    driver: Driver,
) -> None:
    """The task of that answer need not wait, in either order."""
    for first_skipped in (False, True):
        driver = Driver()
        driver.layout(P0)
        commit = driver.start()
        for table in (T1, T2, T2):
            driver.written(commit, table, task=0)
        driver.complete(commit, (P0, 1), task=0)
        kept = driver.kernel.announcements
        parts = [(T1, True), (T2, False)]
        for table, has_landed in reversed(parts) if first_skipped else parts:
            of_table = kept.by_table[table.identifier][:1]
            kept.forget(table.identifier, of_table, has_landed=has_landed)
        assert kept.by_table
        assert kept.waiting() == {}


def test_the_highest_earlier_claim_counts(driver: Driver) -> None:
    """Completions may be read in any order."""
    for earlier in (5, 9, 7):
        driver.read(CommitComplete(UUID(int=earlier), earlier * SECOND_US))
    commit = driver.start()
    driver.complete(commit, (P0, 8 * SECOND_US))
    (completion,) = driver.complete(commit, (P1, 8 * SECOND_US))
    assert isinstance(completion, SendCompletion)
    assert completion.valid_through_us is None


def test_a_reset_forgets_for_which_partitions_a_claim_was_made() -> None:
    """A claim that is read later is of an unknown set of partitions."""
    claims = ValidThroughClaims(None)
    claims.claimed(9 * SECOND_US, frozenset([P0]))
    claims.reset()
    claims.read(9 * SECOND_US)
    assert claims.last_partitions == frozenset()


@pytest.mark.parametrize(("read_to", "may"), [(6, False), (7, False), (8, True)])
def test_a_round_may_claim_only_what_lies_behind_a_reset(read_to: int, *, may: bool) -> None:
    """It must have read beyond the control offset of the reset."""
    state = TableState(None, is_branch_missing=False, floor={}, reset_offsets={0: 7})
    assert may_claim(state, {0: read_to}) is may


def test_a_round_ends_before_the_first_of_several_open_answers(driver: Driver) -> None:
    """In any order of their tasks."""
    commit = driver.start()
    driver.written(commit, T2)  # 0
    driver.written(commit, task=1)  # 1: open
    driver.written(commit, task=0)  # 2: open
    (effect,) = driver.tick(3_000)
    assert isinstance(effect, CommitTables)
    assert effect.commits[0].control_offsets == {0: 1}


def test_answers_that_overlap_in_a_chain_wait_together(driver: Driver) -> None:
    """A round crosses no answer, also not one that only overlaps with one that waits."""
    commit = driver.start()
    driver.written(commit, T2)  # 0
    driver.written(commit, task=1)  # 1
    driver.written(commit, task=2)  # 2
    driver.written(commit, task=1)  # 3: behind the start of task 2
    driver.complete(commit, task=1)  # 4
    driver.written(commit, task=0)  # 5: open
    driver.written(commit, task=2)  # 6: behind the start of task 0
    driver.complete(commit, task=2)  # 7
    (effect,) = driver.tick(3_000)
    assert isinstance(effect, CommitTables)
    assert effect.commits[0].control_offsets == {0: 1}


def test_an_operator_may_move_source_offsets(driver: Driver) -> None:
    """An event names the moved partitions, or none for all; only their next range is free."""
    commit = driver.start()
    at = 0
    for moved in ((), (("orders", 0),)):
        driver.read(CommitComplete(commit, None), EventHeaders(moved=moved))
        at += 50
        driver.complete(commit, ranges=(SourceRange("orders", 0, at, at + 10, 10, 0, 0, 10, None),))
    with pytest.raises(InvariantViolation, match="gap"):
        driver.complete(commit, ranges=(SourceRange("orders", 0, 150, 160, 10, 0, 0, 10, None),))

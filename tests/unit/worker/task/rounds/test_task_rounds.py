"""Rounds of one task, and when they stop its reading."""

from __future__ import annotations

from uuid import UUID

from worker.task.rounds.task_rounds import TaskRounds

IDS = [UUID(int=n) for n in range(10)]


def rounds(*announced: UUID) -> TaskRounds:
    """Rounds with announced data; reading stops at more than three."""
    found = TaskRounds(rounds_max=3, silence_ms_max=1_000)
    for commit_id in announced:
        found.announced(commit_id, has_batches=True)
    return found


def test_a_round_is_requested_until_it_is_answered() -> None:
    """A repeated StartCommit of an answered round is ignored, a new one is not."""
    task = rounds()
    task.started(IDS[0], 5)
    assert task.requested == IDS[0]
    task.announced(IDS[0], has_batches=False)
    assert task.requested is None
    task.started(IDS[0], 6)
    assert task.requested is None
    task.started(IDS[1], 7)
    assert task.requested == IDS[1]


def test_an_announcement_without_a_request_answers_no_round() -> None:
    """The round that was answered before stays answered; the next one is answered once."""
    task = rounds()
    task.started(IDS[0], 5)
    task.announced(IDS[0], has_batches=True)
    task.announced(IDS[8], has_batches=True)
    task.started(IDS[0], 6)
    assert task.requested is None
    task.started(IDS[8], 7)
    assert task.requested == IDS[8]


def test_a_task_is_between_two_rounds_after_the_end_of_one() -> None:
    """Not before the first round ends, and not if another one has started meanwhile."""
    task = rounds()
    assert not task.is_between
    task.started(IDS[0], 5)
    task.announced(IDS[0], has_batches=True)
    assert not task.is_between, "its commit may still run"
    task.completed(IDS[0])
    assert task.is_between
    task.started(IDS[1], 6)
    assert not task.is_between
    task.completed(IDS[0])
    assert not task.is_between, "a round waits for an answer"


def test_a_complete_round_needs_no_answer() -> None:
    """A CommitComplete withdraws the request of its round, not the one of another round."""
    task = rounds()
    task.started(IDS[1], 5)
    task.completed(IDS[0])
    assert task.requested == IDS[1]
    task.completed(IDS[1])
    assert task.requested is None


def test_the_last_valid_through_timestamp_is_kept() -> None:
    """A round without a timestamp does not delete the one of an earlier round."""
    task = rounds()
    assert task.valid_through_ms is None
    task.completed(IDS[0], valid_through_us=7_000_999)
    task.completed(IDS[1])
    assert task.valid_through_ms == 7_000


def test_too_many_uncommitted_rounds_pause_the_reading() -> None:
    """One more announced round than allowed pauses it, a committed round resumes it."""
    task = rounds(*IDS[:3])
    assert not task.must_pause(0, has_pending=False)
    task.announced(IDS[3], has_batches=True)
    assert task.must_pause(0, has_pending=False)
    task.completed(IDS[0])
    assert not task.must_pause(0, has_pending=False)
    assert task.uncommitted_count == 3


def test_an_answer_without_data_waits_for_no_commit() -> None:
    """Only rounds with data count as uncommitted."""
    task = rounds()
    for commit_id in IDS:
        task.announced(commit_id, has_batches=False)
    assert task.uncommitted_count == 0


def test_a_committed_round_includes_all_earlier_ones() -> None:
    """Data announced under an older id is committed with the newer round."""
    task = rounds(*IDS[:4])
    task.completed(IDS[2])
    assert task.uncommitted_count == 1
    task.completed(IDS[9])  # a round that the task did not answer in time
    assert task.uncommitted_count == 0


def test_rounds_without_a_commit_stay_uncommitted() -> None:
    """Rounds in the list of waiting rounds of a CommitComplete stay uncommitted."""
    task = rounds(*IDS[:4])
    assert task.must_pause(0, has_pending=False)
    task.completed(IDS[2], waiting=IDS[:3])
    assert task.uncommitted_count == 4
    task.completed(IDS[3], waiting=[IDS[1]])
    assert task.uncommitted_count == 1
    task.completed(IDS[9], waiting=[IDS[7], IDS[1]])  # also the answer of a predecessor
    assert task.uncommitted_count == 2
    task.completed(IDS[9])
    assert task.uncommitted_count == 0


def test_a_silent_coordinator_pauses_the_reading() -> None:
    """With files pending and no StartCommit for long, nothing more is read."""
    task = rounds()
    task.wait_since(5_000)
    assert not task.must_pause(6_000, has_pending=True)
    assert task.must_pause(6_001, has_pending=True)
    assert not task.must_pause(9_000, has_pending=False)
    task.started(IDS[0], 9_000)
    assert not task.must_pause(9_500, has_pending=True)

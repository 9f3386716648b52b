"""A share of dead letters, or a number in a row, that stops a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.errors import RecordError
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from worker.batch.descriptors import DeadLetter, PartitionProgress
from worker.task.dead_letters.dead_letter_limits import (
    RECORDS_MIN,
    DeadLetterLimits,
    DeadLetterRatio,
    DeadLetterRuns,
)
from worker.task.read_ledger import OffsetRanges, WrittenBatch

TP = TopicPartition("payments", 3)
CONTENT = "content-91c4"


def batch(read: int, *refused: tuple[str, int], first: int = 0) -> WrittenBatch:
    """A batch of ``read`` records with so many dead letters of each code."""
    dead_letters, offset = [], first
    for code, count in refused:
        for _ in range(count):
            record = KafkaRecord(
                TP.topic, TP.partition, offset, 5, 0, CONTENT.encode(), CONTENT.encode()
            )
            error = RecordError("no", stage="VALUE_CONVERTER", code=code)
            dead_letters.append(DeadLetter(record, error))
            offset += 1
    dead = len(dead_letters)
    progress = {TP: PartitionProgress(read, 0, dead, read - dead)}
    return WrittenBatch(
        OffsetRanges({TP: first}, {TP: first + read}), progress, (), tuple(dead_letters)
    )


def test_fewer_records_than_the_window_are_not_checked() -> None:
    """A topic may start with bad records; the check starts with the thousandth record."""
    ratio = DeadLetterRatio(0.5)
    ratio.add(batch(999, ("bad", 999)))
    with pytest.raises(RecordError):
        ratio.add(batch(1))


def test_the_configured_share_is_allowed() -> None:
    """Half of the records may be refused at 0.5, one more may not."""
    DeadLetterRatio(0.5).add(batch(1_000, ("bad", 500)))
    with pytest.raises(RecordError):
        DeadLetterRatio(0.5).add(batch(1_000, ("bad", 501)))


def test_one_is_no_limit_and_zero_allows_none() -> None:
    """The highest and the lowest value of the setting."""
    DeadLetterRatio(1).add(batch(5_000, ("bad", 5_000)))
    with pytest.raises(RecordError):
        DeadLetterRatio(0).add(batch(5_000, ("bad", 1)))


def test_old_good_batches_leave_the_window() -> None:
    """A million good records do not hide a deployment after which all records fail."""
    ratio = DeadLetterRatio(0.5)
    ratio.add(batch(1_000_000))
    ratio.add(batch(600, ("bad", 600)))
    with pytest.raises(RecordError):
        ratio.add(batch(400, ("bad", 400)))


def test_the_error_has_cause_coordinates_and_setting() -> None:
    """Counts, ratio, the most frequent code with its first record, the setting; no content."""
    ratio = DeadLetterRatio(0.25)
    ratio.add(batch(500, ("rare", 2), first=40))
    with pytest.raises(RecordError) as caught:
        ratio.add(batch(700, ("bad_json", 400), ("rare", 5), first=540))
    error = caught.value
    assert (error.code, error.stage) == ("too_many_dead_letters", "VALUE_CONVERTER")
    assert "407 of the last 1,200 records" in str(error)
    assert "errors.deadletterqueue.max-ratio=0.25" in str(error)
    assert "bad_json (400), first at topic payments, partition 3, offset 540" in str(error)
    assert "set errors.deadletterqueue.max-ratio higher" in str(error)
    assert CONTENT not in str(error)


@given(
    st.lists(st.integers(1, 700).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))),
    st.floats(0, 1),
)
def test_the_window_is_the_shortest_sufficient_one(
    sizes: list[tuple[int, int]], ratio_max: float
) -> None:
    """The result equals a count over all batches each time."""
    ratio = DeadLetterRatio(ratio_max)
    for number, (read, refused) in enumerate(sizes, 1):
        window: list[tuple[int, int]] = []
        for each in reversed(sizes[:number]):
            window.append(each)
            if sum(n for n, _ in window) >= RECORDS_MIN:
                break
        total = sum(n for n, _ in window)
        is_too_many = total >= RECORDS_MIN and sum(d for _, d in window) > ratio_max * total
        added = batch(read, ("bad", refused)) if refused else batch(read)
        if is_too_many:
            with pytest.raises(RecordError):
                ratio.add(added)
            return
        ratio.add(added)


# ------------------------------------------------------------------ in a row


def read(
    start: int, end: int, dead: set[int], *, holes: frozenset[int] = frozenset()
) -> WrittenBatch:
    """A batch of one partition's offsets, with some dead letters and some gaps."""
    dead_letters = []
    for offset in sorted(dead):
        record = KafkaRecord(TP.topic, TP.partition, offset, 5, 0, b"", CONTENT.encode())
        error = RecordError("no", stage="VALUE_CONVERTER", code="bad")
        dead_letters.append(DeadLetter(record, error))
    count = end - start - len(holes)
    progress = {TP: PartitionProgress(count, 0, len(dead), count - len(dead))}
    return WrittenBatch(OffsetRanges({TP: start}, {TP: end}), progress, (), tuple(dead_letters))


def test_a_run_of_the_configured_length_is_allowed() -> None:
    """Three in a row are allowed, four are not, at any position."""
    DeadLetterRuns(3).add(read(0, 10, {1, 2, 3, 5, 6, 7}))
    with pytest.raises(RecordError):
        DeadLetterRuns(3).add(read(0, 10, {1, 3, 4, 5, 6}))


def test_runs_continue_from_batch_to_batch() -> None:
    """The end of one batch and the start of the next are one run; a good record ends it."""
    runs = DeadLetterRuns(3)
    runs.add(read(0, 4, {2, 3}))
    runs.add(read(4, 6, {4}))
    runs.add(read(6, 9, {6, 7, 8}))
    with pytest.raises(RecordError) as caught:
        runs.add(read(9, 12, {9}))
    assert "4 dead letters in a row" in str(caught.value)
    assert "partition 3, offset 6, bad" in str(caught.value)
    assert caught.value.code == "too_many_dead_letters"
    assert CONTENT not in str(caught.value)


def test_each_partition_has_separate_runs() -> None:
    """Consecutive dead letters of two partitions are no run; empty reads end no run."""
    other = TopicPartition("payments", 4)
    runs = DeadLetterRuns(3)
    runs.add(read(0, 2, {0, 1}))
    nothing = WrittenBatch(
        OffsetRanges({TP: 2, other: 0}, {TP: 2, other: 2}), {other: PartitionProgress(2, 0, 0, 2)}
    )
    runs.add(nothing)
    with pytest.raises(RecordError):
        runs.add(read(2, 4, {2, 3}))


def test_gaps_do_not_end_a_run_if_all_records_are_refused() -> None:
    """One record per transaction: every second offset is a marker."""
    runs = DeadLetterRuns(5)
    runs.add(read(0, 8, {0, 2, 4, 6}, holes=frozenset({1, 3, 5, 7})))
    with pytest.raises(RecordError):
        runs.add(read(8, 12, {8, 10}, holes=frozenset({9, 11})))


def test_the_limits_are_independent() -> None:
    """0 is no limit for runs; with a run limit, the share is still checked."""
    DeadLetterLimits(1, 0).add(read(0, 5_000, set(range(5_000))))
    with pytest.raises(RecordError, match="in a row"):
        DeadLetterLimits(1, 4_999).add(read(0, 5_000, set(range(5_000))))
    with pytest.raises(RecordError, match="max-ratio"):
        DeadLetterLimits(0.5, 10_000).add(read(0, 5_000, set(range(5_000))))


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=8),
    st.integers(1, 6),
)
def test_runs_do_not_depend_on_the_split_into_batches(
    outcomes: list[list[bool]], run_max: int
) -> None:
    """The batch with one dead letter too many is refused."""
    runs = DeadLetterRuns(run_max)
    start = length = 0
    for batch_outcomes in outcomes:
        longest = 0
        for is_dead in batch_outcomes:
            length = length + 1 if is_dead else 0
            longest = max(longest, length)
        end = start + len(batch_outcomes)
        added = read(start, end, {start + i for i, dead in enumerate(batch_outcomes) if dead})
        if longest > run_max:
            with pytest.raises(RecordError):
                runs.add(added)
            return
        runs.add(added)
        start = end

"""What a task has read and not yet announced."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.errors import InvariantViolation
from connect.model.layout import TopicPartition
from control_schemas.events import ContentFile, FileContent, LostRange, TableReference
from worker.batch.descriptors import PartitionProgress
from worker.task.read_ledger import OffsetRanges, ReadLedger, WrittenBatch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = [UUID(int=n) for n in range(20)]


def ledger(**positions: int) -> ReadLedger:
    """A ledger over the partitions named a and b; 5 ms out of order, 100 ms idle lag."""
    names = {"a": A, "b": B}
    return ReadLedger(
        {names[k]: v for k, v in positions.items()}, out_of_order_ms=5, idle_lag_ms=100
    )


def batch(
    ranges: dict[TopicPartition, tuple[int, int]], *, written: int = 0, at_ms: int | None = None
) -> WrittenBatch:
    """A batch over these ranges; ``written`` records in each partition that moved."""
    part = OffsetRanges(
        {tp: a for tp, (a, _) in ranges.items()}, {tp: b for tp, (_, b) in ranges.items()}
    )
    counts = {
        tp: PartitionProgress(written, 0, 0, written, at_ms)
        for tp, (a, b) in ranges.items()
        if b > a
    }
    return WrittenBatch(part, counts)


def test_an_answer_covers_exactly_the_pending_batches() -> None:
    """Offsets of idle partitions are stored as well, because a broker deletes old offsets."""
    book = ledger(a=10, b=7)
    book.add(batch({A: (10, 15), B: (7, 7)}, written=3, at_ms=1000))
    book.add(batch({A: (15, 18), B: (7, 7)}, written=2, at_ms=900))
    answer = book.answer()
    (source_range,) = answer.ranges
    assert (source_range.start_offset, source_range.end_offset, source_range.records_read) == (
        10,
        18,
        5,
    )
    assert source_range.timestamp_max_ms == 1000
    assert answer.offsets == {A: 18, B: 7}
    assert [(a.partition, a.offset, a.timestamp_us) for a in answer.assignments] == [
        (0, 18, 995_000),
        (1, 7, None),
    ]


def test_answers_are_contiguous() -> None:
    """The next announcement starts where the last one ended."""
    book = ledger(a=0)
    book.add(batch({A: (0, 4)}, written=4))
    book.announced(book.answer())
    book.add(batch({A: (4, 9)}, written=1))
    (source_range,) = book.answer().ranges
    assert (source_range.start_offset, source_range.end_offset) == (4, 9)


def test_an_answer_that_was_not_sent_is_part_of_the_next() -> None:
    """An answer that was not sent is part of the next answer."""
    book = ledger(a=0)
    book.add(batch({A: (0, 4)}, written=4))
    first = book.answer()
    assert book.answer() == first
    book.add(batch({A: (4, 5)}, written=1))
    assert book.answer().offsets == {A: 5}


def test_a_gap_between_batches_is_a_bug() -> None:
    """A batch must start where the previous one ended."""
    book = ledger(a=0)
    with pytest.raises(InvariantViolation, match="the next offset is 0") as e:
        book.add(batch({A: (1, 4)}))
    assert e.value.code == "ranges_not_contiguous"


def test_counts_must_add_up() -> None:
    """Read records are written, dropped or dead letters, and not more than the offsets."""
    for counted in (PartitionProgress(3, 1, 0, 1, None), PartitionProgress(9, 0, 0, 9, None)):
        book = ledger(a=0)
        with pytest.raises(InvariantViolation) as e:
            book.add(WrittenBatch(OffsetRanges({A: 0}, {A: 5}), {A: counted}))
        assert e.value.code == "counts_do_not_add_up"


def test_a_partition_read_to_its_end_has_the_time_of_the_poll() -> None:
    """Idle partitions do not stop the VTTS: the poll's time minus the idle lag counts if later."""
    book = ledger(a=0, b=0)
    book.add(batch({A: (0, 4), B: (0, 0)}, written=4, at_ms=10_000))
    book.see_ends({A: 4, B: 9}, polled_at_ms=50_000)
    a, b = book.answer().assignments
    assert a.timestamp_us == (50_000 - 100) * 1000
    assert b.timestamp_us is None


def test_a_record_timestamp_after_the_poll_is_used() -> None:
    """The record timestamp counts if it is later than the poll."""
    book = ledger(a=0)
    book.add(batch({A: (0, 4)}, written=4, at_ms=90_000))
    book.see_ends({A: 4}, polled_at_ms=50_000)
    assert book.answer().assignments[0].timestamp_us == (90_000 - 5) * 1000


def test_timestamps_never_decrease() -> None:
    """Neither late records nor a clock that was set back lower an announced timestamp."""
    book = ledger(a=0)
    book.see_ends({A: 0}, polled_at_ms=50_000)
    book.announced(book.answer())
    book.see_ends({A: 0}, polled_at_ms=20_000)
    book.add(batch({A: (0, 4)}, written=4, at_ms=1_000))
    assert book.answer().assignments[0].timestamp_us == (50_000 - 100) * 1000


def test_ranges_are_never_negative() -> None:
    """An end below the position (a poll before the read) gives an empty range."""
    book = ledger(a=10, b=0)
    part = book.ranges_to({A: 8, B: 3})
    assert part == OffsetRanges({A: 10, B: 0}, {A: 10, B: 3})
    assert part.not_empty() == OffsetRanges({B: 0}, {B: 3})
    assert part.record_count_max == book.unread({A: 8, B: 3}) == 3


def test_head_is_spread_over_all_partitions() -> None:
    """The head has offsets of every partition that is not empty."""
    part = OffsetRanges({A: 0, B: 5}, {A: 100, B: 5})
    assert part.head(10) == OffsetRanges({A: 0, B: 5}, {A: 10, B: 5})
    assert OffsetRanges({A: 0, B: 0}, {A: 3, B: 90}).head(10).ends == {A: 3, B: 5}
    assert OffsetRanges({A: 7}, {A: 7}).head(10).ends == {A: 7}


def test_head_of_fewer_records_than_partitions() -> None:
    """One offset of each of the longest ranges first, then those of the others."""
    part = OffsetRanges({A: 0, B: 5}, {A: 1, B: 7})
    seen = []
    while part.record_count_max:
        head = part.head(1)
        assert head.record_count_max == 1
        seen += list(head.not_empty().ends.items())
        part = part.starting_at(head.ends)
    assert seen == [(B, 6), (A, 1), (B, 7)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=30))
def test_announced_ranges_cover_the_log_without_overlap(steps: list[tuple[int, int, bool]]) -> None:
    """For any sequence of reads and announcements."""
    book = ledger(a=0, b=0)
    covered = {A: 0, B: 0}
    at = {A: 0, B: 0}
    for a, b, is_announced in steps:
        ends = {A: at[A] + a, B: at[B] + b}
        book.add(batch({tp: (at[tp], ends[tp]) for tp in ends}))
        at = ends
        if is_announced:
            answer = book.answer()
            for source_range in answer.ranges:
                tp = TopicPartition(source_range.topic, source_range.partition)
                assert source_range.start_offset == covered[tp]
                covered[tp] = source_range.end_offset
            book.announced(answer)
            assert covered == at == book.next_offsets


def test_lost_records_are_part_of_the_next_announcement() -> None:
    """The range includes them without a count; the position is where the log starts."""
    book = ledger(a=10, b=0)
    book.add(batch({A: (10, 15)}, written=5))
    lost = (LostRange("t", 0, 15, 40),)
    assert book.skip({A: 40, B: 0}) == lost
    assert book.skip({A: 40}) == ()
    book.add(batch({A: (40, 42)}, written=2))
    answer = book.answer()
    (announced,) = answer.ranges
    assert (announced.start_offset, announced.end_offset, announced.records_read) == (10, 42, 7)
    assert (answer.lost, answer.lost_to_report) == (lost, lost)
    assert answer.offsets == {A: 42, B: 0}
    book.announced(answer)
    assert (book.lost, book.answer().lost) == ([], ())
    assert book.answer().ranges == ()


def test_lost_records_are_reported_with_the_next_files() -> None:
    """An announcement without a file leaves them for a later one; with files they are reported."""
    book = ledger(a=0)
    (first,) = book.skip({A: 5})
    answer = book.answer()
    assert not answer.has_files
    book.announced(answer)
    (second,) = book.skip({A: 9})
    file = ContentFile(FileContent.DATA, "f", "PARQUET", 0, (), 1, 10)
    complete = batch({A: (9, 10)}, written=1)
    step = ((TableReference("c", ("db",), "t"), (file,)),)
    book.add(WrittenBatch(complete.ranges, complete.progress, (step,)))
    answer = book.answer()
    assert (answer.lost, answer.lost_to_report) == ((second,), (first, second))
    book.announced(answer)
    assert book.answer().lost_to_report == ()

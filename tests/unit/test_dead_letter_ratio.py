"""A share of dead letters that stops a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.errors import RecordError
from connect.layout import TopicPartition
from connect.records import KafkaRecord
from worker.descriptors import DeadLetter, Progress
from worker.ratio import RECORDS_MIN, DeadLetterRatio
from worker.rounds import Slice, WrittenBatch

TP = TopicPartition("payments", 3)
CONTENT = "content-91c4"


def batch(read: int, *refused: tuple[str, int], first: int = 0) -> WrittenBatch:
    """A batch of ``read`` records with so many dead letters of each code."""
    letters, offset = [], first
    for code, count in refused:
        for _ in range(count):
            record = KafkaRecord(
                TP.topic, TP.partition, offset, 5, 0, CONTENT.encode(), CONTENT.encode()
            )
            error = RecordError("no", stage="VALUE_CONVERTER", code=code)
            letters.append(DeadLetter(record, error))
            offset += 1
    dead = len(letters)
    progress = {TP: Progress(read, 0, dead, read - dead)}
    return WrittenBatch(Slice({TP: first}, {TP: first + read}), progress, (), tuple(letters))


def test_fewer_records_than_the_window_are_not_judged() -> None:
    """A topic that begins with bad records goes on; the thousandth record is judged."""
    ratio = DeadLetterRatio(0.5)
    ratio.add(batch(999, ("bad", 999)))
    with pytest.raises(RecordError):
        ratio.add(batch(1))


def test_the_share_itself_is_allowed() -> None:
    """Half of the records may be refused at 0.5, one more may not."""
    DeadLetterRatio(0.5).add(batch(1_000, ("bad", 500)))
    with pytest.raises(RecordError):
        DeadLetterRatio(0.5).add(batch(1_000, ("bad", 501)))


def test_one_is_no_limit_and_zero_allows_none() -> None:
    """The two ends of the setting."""
    DeadLetterRatio(1).add(batch(5_000, ("bad", 5_000)))
    with pytest.raises(RecordError):
        DeadLetterRatio(0).add(batch(5_000, ("bad", 1)))


def test_old_good_batches_leave_the_window() -> None:
    """A million good records do not hide a deploy that spoils all that follow."""
    ratio = DeadLetterRatio(0.5)
    ratio.add(batch(1_000_000))
    ratio.add(batch(600, ("bad", 600)))
    with pytest.raises(RecordError):
        ratio.add(batch(400, ("bad", 400)))


def test_the_error_says_what_happened_where_and_what_to_do() -> None:
    """Counts, the ratio, the most frequent code with its first place, the key; no content."""
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
def test_the_window_is_the_shortest_that_is_long_enough(
    sizes: list[tuple[int, int]], ratio_max: float
) -> None:
    """Judged against the definition, recounted from all batches each time."""
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

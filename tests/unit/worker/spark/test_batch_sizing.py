"""How much a task reads at once."""

from __future__ import annotations

from connect.model.layout import TopicPartition
from worker.batch.descriptors import PartitionProgress
from worker.batch.error_rows import LARGE_RECORD
from worker.spark.batch_sizing import BATCH_RECORDS, FIRST_RECORDS, ReadSizes

TP = TopicPartition("t", 0)


def after(*batches: tuple[int, int], may_enlarge: bool = False) -> ReadSizes:
    """Sizes after batches of so many records of so many bytes each."""
    sizes = ReadSizes()
    sizes.may_enlarge = may_enlarge
    for count, each in batches:
        sizes.add({TP: PartitionProgress(count, 0, 0, count, bytes_read=count * each)})
    return sizes


def test_what_is_not_known_is_taken_for_a_thousand_bytes() -> None:
    """Until a record was read, reads of some ten thousand are small ones."""
    sizes = ReadSizes()
    assert sizes.is_small(40_000)
    assert not sizes.is_small(60_000)
    assert sizes.records_max == BATCH_RECORDS


def test_narrow_records_are_bounded_by_their_number() -> None:
    """200,000 payments are one Spark task's work, a million one batch."""
    sizes = after((10_000, 190))
    assert sizes.is_small(200_000)
    assert not sizes.is_small(200_001)
    assert sizes.records_max == BATCH_RECORDS


def test_wide_records_are_spread_over_all_cores_sooner() -> None:
    """A read of many bytes is no small one, however few its records are."""
    sizes = after((10_000, 1_090))
    assert sizes.is_small(40_000)
    assert not sizes.is_small(50_000)


def test_batches_of_huge_records_are_bounded_in_bytes() -> None:
    """A gigabyte of them, about, and one record at least."""
    sizes = after((10_000, 900_000))
    assert 1_000 < sizes.records_max < 1_300
    assert sizes.first_records == sizes.records_max
    assert after((100_000, 10**10)).records_max == 1


def test_records_are_small_by_their_mean_until_one_is_not() -> None:
    """Nothing is known of them before a batch; one large record is never forgotten."""
    assert not ReadSizes().are_small
    assert not after((10_000, 4_000)).are_small
    assert not after((10_000, 190), may_enlarge=True).are_small
    sizes = after((10_000, 190))
    assert sizes.are_small
    assert sizes.can_adapt(LARGE_RECORD, 10_000)
    assert not sizes.can_adapt(LARGE_RECORD, 10_000)
    sizes.add({TP: PartitionProgress(10_000, 0, 0, 10_000, bytes_read=1_900_000)})
    assert not sizes.are_small


def test_polls_are_bounded_in_bytes() -> None:
    """A fetch is bounded where it is compressed; a poll holds what it comes to."""
    assert ReadSizes().poll_records(1) == 50
    assert after((10_000, 190)).poll_records(100) == 5_000
    assert after((10_000, 8_000)).poll_records(4) == 500
    assert after((10_000, 900_000)).poll_records(1) == 50
    assert after((10_000, 900_000)).poll_records(4) == 5
    assert after((10, 10**8)).poll_records(4) == 5
    assert after((0, 0)).poll_records(1) == 5_000


def test_the_mean_is_of_the_records_read_last() -> None:
    """What a topic held once is forgotten; a few odd records change little."""
    assert after((1_000, 900_000), (100_000, 190), (100_000, 190)).is_small(200_000)
    assert after((100_000, 190), (2, 1_000_000)).is_small(150_000)


def test_a_batch_that_held_too_much_is_read_in_smaller_ones() -> None:
    """Down to one record, never by a single Spark task, and up again step by step."""
    sizes = ReadSizes()
    assert sizes.shrink(80_000)
    assert sizes.records_max == 10_000
    assert not sizes.is_small(1)
    assert sizes.shrink(80_000)
    assert (sizes.records_max, sizes.first_records) == (1_250, 1_250)
    for _ in range(3):
        sizes.add({TP: PartitionProgress(10, 0, 10, 0, bytes_read=10_000)})
    assert (sizes.records_max, sizes.first_records) == (10_000, FIRST_RECORDS)
    for _ in range(10):
        sizes.add({TP: PartitionProgress(10, 0, 10, 0, bytes_read=10_000)})
    assert sizes.is_small(1)
    while sizes.shrink(80_000):
        pass
    assert sizes.records_max == 1

"""How much a task reads at once."""

from __future__ import annotations

import pytest

from connect.model.layout import TopicPartition
from worker.batch.descriptors import PartitionProgress
from worker.batch.error_rows import LARGE_RECORD
from worker.spark.batch_sizing import (
    BATCH_GROWTH,
    BATCH_RECORDS,
    FIRST_RECORDS,
    ReadSizes,
    ReadSpeed,
    task_count,
)

TP = TopicPartition("t", 0)


def after(*batches: tuple[int, int], may_enlarge: bool = False) -> ReadSizes:
    """Sizes after batches, each a number of records and their bytes."""
    sizes = ReadSizes()
    sizes.may_enlarge = may_enlarge
    for count, each in batches:
        sizes.add({TP: PartitionProgress(count, 0, 0, count, bytes_read=count * each)})
    return sizes


def test_the_default_size_of_a_record_is_a_thousand_bytes() -> None:
    """Before the first record, a read of some ten thousand is small."""
    sizes = ReadSizes()
    assert sizes.is_small(40_000)
    assert not sizes.is_small(60_000)
    assert sizes.records_max == BATCH_RECORDS


def test_narrow_records_are_bounded_by_their_number() -> None:
    """One Spark task reads 200,000 payments; a batch has a million."""
    sizes = after((10_000, 190))
    assert sizes.is_small(200_000)
    assert not sizes.is_small(200_001)
    assert sizes.records_max == BATCH_RECORDS


def test_wide_records_use_all_cores_sooner() -> None:
    """A read of many bytes is not small, even with few records."""
    sizes = after((10_000, 1_090))
    assert sizes.is_small(40_000)
    assert not sizes.is_small(50_000)


def test_batches_of_huge_records_are_bounded_in_bytes() -> None:
    """About a gigabyte, and at least one record."""
    sizes = after((10_000, 900_000))
    assert 1_000 < sizes.records_max < 1_300
    assert sizes.first_records == sizes.records_max
    assert after((100_000, 10**10)).records_max == 1


def test_one_large_record_ends_small_reads() -> None:
    """Before the first batch the size is unknown; then the mean decides."""
    assert not ReadSizes().are_small
    assert not after((10_000, 4_000)).are_small
    assert not after((10_000, 190), may_enlarge=True).are_small
    sizes = after((10_000, 190))
    assert sizes.are_small
    assert sizes.adapt_to(LARGE_RECORD, 10_000)
    assert not sizes.adapt_to(LARGE_RECORD, 10_000)
    sizes.add({TP: PartitionProgress(10_000, 0, 0, 10_000, bytes_read=1_900_000)})
    assert not sizes.are_small


def test_polls_are_bounded_in_bytes() -> None:
    """A fetch is bounded in compressed bytes; a poll contains uncompressed records."""
    assert ReadSizes().poll_records(1) == 50
    assert after((10_000, 190)).poll_records(100) == 5_000
    assert after((10_000, 8_000)).poll_records(4) == 500
    assert after((10_000, 900_000)).poll_records(1) == 50
    assert after((10_000, 900_000)).poll_records(4) == 5
    assert after((10, 10**8)).poll_records(4) == 5
    assert after((0, 0)).poll_records(1) == 5_000


def test_recent_records_determine_the_mean_size() -> None:
    """Old records have no influence, and a few unusual records have little."""
    assert after((1_000, 900_000), (100_000, 190), (100_000, 190)).is_small(200_000)
    assert after((100_000, 190), (2, 1_000_000)).is_small(150_000)


def test_a_batch_that_does_not_fit_is_read_in_smaller_ones() -> None:
    """Down to one record, without small reads; then the size increases step by step."""
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


def measured(sizes: ReadSizes, *batches: tuple[int, int], each: int = 190) -> ReadSizes:
    """Add batches, each a number of records and their duration in milliseconds."""
    for count, took_ms in batches:
        progress = PartitionProgress(count, 0, 0, count, bytes_read=count * each)
        sizes.add({TP: progress}, took_ms)
    return sizes


def test_a_batch_of_a_backlog_takes_its_time() -> None:
    """Its size follows the speed of the last batch, and never falls below the first size."""
    sizes = measured(ReadSizes(speed=ReadSpeed(5_000)), (10_000, 700))
    assert sizes.records_max == BATCH_RECORDS, "a small batch shows no speed"
    assert measured(sizes, (1_000_000, 2_000)).records_max == 2_500_000
    assert measured(sizes, (2_500_000, 4_000)).records_max == 3_125_000
    assert measured(sizes, (3_125_000, 30_000)).records_max == BATCH_RECORDS
    assert measured(sizes, (1_000_000, 10)).records_max == BATCH_GROWTH * BATCH_RECORDS
    assert measured(ReadSizes(), (1_000_000, 2_000)).records_max == BATCH_RECORDS
    large = measured(ReadSizes(speed=ReadSpeed(60_000)), (1_000_000, 2_000), each=4_000)
    bytes_max = BATCH_GROWTH * 2**30
    assert bytes_max * 0.99 < large.records_max * 4_000 < bytes_max * 1.01


def test_a_query_ends_when_its_batches_are_of_another_size() -> None:
    """At half or twice the bound that it began with; small changes keep it."""
    sizes = measured(ReadSizes(speed=ReadSpeed(5_000)), (1_000_000, 1_000))
    assert sizes.records_max == 5_000_000
    assert not sizes.has_outgrown(3_000_000)
    assert not sizes.has_outgrown(9_000_000)
    assert sizes.has_outgrown(2_400_000)
    assert sizes.has_outgrown(11_000_000)
    assert sizes.shrink(5_000_000)
    assert not sizes.has_outgrown(100_000), "what fits is kept"


def test_the_duration_of_a_batch_follows_from_the_speed() -> None:
    """So does what is read in a time. Both are 0 until a batch was measured."""
    speed = ReadSizes(speed=ReadSpeed(5_000)).speed
    assert (speed.duration_ms(1_000_000), speed.records_in(1_000)) == (0, 0)
    speed.add(1_000_000, 2_000)
    assert (speed.duration_ms(3_000_000), speed.records_in(1_000)) == (6_000, 500_000)


def test_the_speed_is_known_when_it_stops_growing() -> None:
    """The first batches are slower, because Java compiles code while it runs."""
    sizes = ReadSizes(speed=ReadSpeed(5_000))
    known = [
        measured(sizes, (1_000_000, took_ms)).speed.is_known for took_ms in (3_000, 2_000, 1_800)
    ]
    assert known == [False, False, True]


def test_a_batch_that_does_not_fit_is_smaller_than_a_timely_one() -> None:
    """The bound of what fits into memory is not raised by the speed."""
    sizes = measured(ReadSizes(speed=ReadSpeed(5_000)), (1_000_000, 1_000))
    assert sizes.records_max == 5_000_000
    assert sizes.must_measure_speed
    assert sizes.shrink(5_000_000)
    assert sizes.records_max == 625_000
    assert not sizes.must_measure_speed


@pytest.mark.parametrize(
    ("records", "cores", "expected"),
    [
        ([10, 10, 10, 10], 2, 2),
        ([10] * 500, 2, 2),
        ([10, 10, 10], 2, None),  # 20 and 10: a core would be idle
        ([12, 10, 10, 10], 2, 2),
        ([40, 10, 10, 10], 2, None),
        ([10, 10], 2, None),
        ([10], 4, None),
        ([], 2, None),
    ],
)
def test_equal_partitions_are_read_by_one_spark_task_per_core(
    records: list[int], cores: int, expected: int | None
) -> None:
    """Each Spark task writes a file per table."""
    assert task_count(records, cores) == expected

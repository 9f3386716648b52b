"""Ranges of a read are spread over Spark tasks without a gap, and about equally."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connect.model.layout import TopicPartition
from worker.task.read_ledger import OffsetRanges
from worker.task.source.source_blocks import Spread, spread

COUNTS = st.lists(st.integers(min_value=0, max_value=5_000), min_size=1, max_size=40)
CORES = st.integers(min_value=1, max_value=16)


def ranges_of(counts: list[int]) -> OffsetRanges:
    """Return ranges with these numbers of offsets; each partition begins at its own offset."""
    places = [TopicPartition(f"t{n % 3}", n) for n in range(len(counts))]
    starts = {place: 100 * number for number, place in enumerate(places)}
    ends = {place: starts[place] + count for place, count in zip(places, counts, strict=True)}
    return OffsetRanges(starts, ends)


def totals(tasks: Spread) -> list[int]:
    """Return the number of offsets of each Spark task."""
    return [sum(part.record_count_max for part in task) for task in tasks]


@given(COUNTS, CORES, st.booleans())
def test_every_offset_is_in_one_spark_task(counts: list[int], cores: int, is_ordered: bool) -> None:
    """The parts of a partition join without a gap, and no task is empty."""
    ranges = ranges_of(counts)
    tasks = spread(ranges, cores, is_ordered=is_ordered)
    parts = sorted(
        ((part.place, part.start, part.end) for task in tasks for part in task),
    )
    for place, end in ranges.ends.items():
        at = ranges.starts[place]
        for _, start, part_end in (each for each in parts if each[0] == place):
            assert start == at < part_end
            at = part_end
        assert at == end
    if sum(counts):
        assert all(totals(tasks))


@given(COUNTS, CORES)
def test_cut_ranges_are_equal(counts: list[int], cores: int) -> None:
    """Without an order there are as many Spark tasks as cores, with the same number of offsets."""
    shares = totals(spread(ranges_of(counts), cores, is_ordered=False))
    if sum(counts) >= cores:
        assert len(shares) == cores
        assert max(shares) - min(shares) <= 1
    else:
        assert max(shares, default=0) <= max(1, sum(counts) if cores == 1 else 1)


@given(COUNTS, CORES)
def test_ordered_partitions_stay_whole(counts: list[int], cores: int) -> None:
    """Each partition is in one Spark task."""
    tasks = spread(ranges_of(counts), cores, is_ordered=True)
    places = [part.place for task in tasks for part in task]
    assert len(places) == len(set(places))


def test_unequal_ordered_partitions_are_single() -> None:
    """No core waits for a task with several partitions, the largest one begins first."""
    tasks = spread(ranges_of([10, 10, 500, 10]), 2, is_ordered=True)
    assert totals(tasks) == [500, 10, 10, 10]


def test_ordered_partitions_share_tasks_by_their_records() -> None:
    """Two and two of the same sum, although the numbers of the partitions say otherwise."""
    tasks = spread(ranges_of([300, 290, 20, 10]), 2, is_ordered=True)
    assert totals(tasks) == [310, 310]

"""Spreads the ranges of a read over Spark tasks.

Rules of this file:
- Each Spark task makes a file per table and partition value, so there is one task for each core.
- Where the order of records counts, one Spark task reads all of a partition.
"""

from __future__ import annotations

from worker.spark.batch_sizing import IMBALANCE_MAX
from worker.spark.block_reader import RangeOfPartition
from worker.task.read_ledger import OffsetRanges

Spread = list[list[RangeOfPartition]]


def spread(ranges: OffsetRanges, cores: int, *, is_ordered: bool) -> Spread:
    """Return the ranges of each Spark task.

    Args:
        ranges: what to read.
        cores: number of Spark tasks that run in parallel.
        is_ordered: whether one Spark task must process each partition, in its order.
    """
    parts = [
        RangeOfPartition(place, ranges.starts[place], end)
        for place, end in sorted(ranges.not_empty().ends.items())
    ]
    if cores == 1:
        return [parts]
    return _whole(parts, cores) if is_ordered else _equal(parts, cores)


def _equal(parts: list[RangeOfPartition], cores: int) -> Spread:
    """Cut the ranges where a Spark task has its share."""
    left = sum(part.record_count_max for part in parts)
    tasks: Spread = []
    for number in range(cores, 0, -1):
        room = -(-left // number)
        taken: list[RangeOfPartition] = []
        while room and parts:
            first, *parts = parts
            cut = min(first.end, first.start + room)
            taken.append(RangeOfPartition(first.place, first.start, cut))
            if cut < first.end:
                parts = [RangeOfPartition(first.place, cut, first.end), *parts]
            room -= cut - first.start
            left -= cut - first.start
        if taken:
            tasks.append(taken)
    return tasks


def _whole(parts: list[RangeOfPartition], cores: int) -> Spread:
    """Give each partition to the task with the fewest records; the largest partitions first.

    If that leaves a core idle for long, each partition is a Spark task, for the next free core.
    """
    ordered = sorted(parts, key=lambda part: -part.record_count_max)
    tasks: Spread = [[] for _ in range(min(cores, len(parts)))]
    counts = [0] * len(tasks)
    for part in ordered:
        least = counts.index(min(counts))
        tasks[least].append(part)
        counts[least] += part.record_count_max
    if len(parts) > cores and max(counts) * cores > IMBALANCE_MAX * sum(counts):
        return [[part] for part in ordered]
    return tasks

"""The partitions that a limited rewrite takes."""

from __future__ import annotations

from collections import Counter

from worker.maintenance.rewrite_plans import PARTITIONS_MAX, paths_in_turn


def test_every_partition_gets_its_turn_while_all_get_files() -> None:
    """Each run takes two of twenty partitions, and all of them have files again before the next."""
    counts = {f"id={number}": 5 for number in range(20)}
    taken = Counter(path for run in range(400) for path in paths_in_turn(counts, 10, run))
    assert set(taken) == set(counts)
    assert sum(taken.values()) == 800
    assert min(taken.values()) > 10  # 40 on average


def test_a_turn_ends_at_the_limit_of_files() -> None:
    """The last partition may pass it: Iceberg takes a part of its files."""
    counts = {"a": 3, "b": 4, "c": 5}
    for snapshot_id in range(20):
        turn = paths_in_turn(counts, 6, snapshot_id)
        assert sum(counts[path] for path in turn) >= 6
        assert sum(counts[path] for path in turn[:-1]) < 6
        assert turn == paths_in_turn(dict(reversed(counts.items())), 6, snapshot_id)


def test_a_filter_has_a_limited_size() -> None:
    """Also for a table of many partitions with few files each."""
    counts = {f"id={number}": 1 for number in range(3 * PARTITIONS_MAX)}
    assert len(paths_in_turn(counts, 10**6, 1)) == PARTITIONS_MAX

"""Which offsets of a dead letter topic one operation covers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connect.model.layout import TopicPartition
from connect.operations.dead_letter_topic import shares

SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=6)


@given(SIZES, st.integers(0, 100))
def test_a_limit_is_used_up_and_never_exceeded(sizes: list[int], limit: int) -> None:
    """Each partition gets at most its records; together they get the limit or all."""
    starts = {TopicPartition("t", n): 7 for n in range(len(sizes))}
    ends = {TopicPartition("t", n): 7 + size for n, size in enumerate(sizes)}
    found = shares(starts, ends, limit)
    assert all(found[tp] <= ends[tp] - 7 for tp in ends)
    assert sum(found.values()) == min(limit, sum(sizes))
    assert list(shares(starts, ends, None).values()) == sizes


def test_a_limit_is_shared_fairly_between_partitions() -> None:
    """Partitions with few records are read completely."""
    starts = {TopicPartition("t", n): 0 for n in range(3)}
    ends = {TopicPartition("t", n): size for n, size in enumerate((1_000, 5, 1_000))}
    assert list(shares(starts, ends, 25).values()) == [5, 10, 10]
